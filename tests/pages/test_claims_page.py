"""The ledger of claims as it was built and as it is recorded: rows have their runs, verdicts follow from numbers."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import claims_page
import nbformat
import numpy as np
import pandas as pd
import pytest

from fcamlib import store
from fcamlib.claims import CLAIMS
from fcamlib.config import Grid, SweepGrid

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "book" / "notebooks" / "claims.json"
RECORDED = ROOT / "results" / "recorded"
STORES = (RECORDED, Path(os.environ.get("FCAM_TEST_RESULTS", ROOT / "results")))
CLAIM_IDS = set(CLAIMS)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """The ledger of the book that was built."""
    if not BUILT.is_file():
        pytest.fail("book/notebooks/claims.json is missing: run `make book` first")
    return json.loads(BUILT.read_text("utf-8"))


@pytest.fixture(scope="module")
def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that have a verdict."""
    return [row for row in rows if row["kept"] != "not run"]


def folder_of(name: str) -> Path:
    """Where a result lies: kept with the source, or in the store that the book was built from."""
    return next((root / name for root in STORES if (root / name).is_dir()), Path("missing"))


def test_every_claim_has_rows_and_a_verdict_on_some_task(judged: list[dict[str, Any]]) -> None:
    assert {row["claim"] for row in judged} == CLAIM_IDS
    assert {row["verdict"] for row in judged} <= {"supported", "contradicted", "inconclusive", "not tested"}


def test_every_row_has_results_that_are_whole(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert bool(row["results"]) == (row["kept"] in ("live", "recorded")), row["task"]
    for name in {name for row in rows for name in row["results"]}:
        assert store.damage(folder_of(name)) == "", name


def test_every_verdict_follows_from_the_numbers_beside_it(judged: list[dict[str, Any]]) -> None:
    for row in judged:
        found = [criterion for criterion in row["criteria"] if criterion["state"] != "beside"]
        for criterion in found:
            low, high = criterion["interval"] or (-np.inf, np.inf)
            side = "supported" if low > criterion["bound"] else "contradicted" if high <= criterion["bound"] else ""
            assert criterion["state"] in ("not tested", "inconclusive", side), f"{row['claim']} on {row['task']}"
            assert criterion["state"] != "inconclusive" or side != "supported"
        sides = {criterion["state"] for criterion in found} or {"not tested"}
        expected = next(
            (state for state in ("contradicted", "not tested", "inconclusive") if state in sides), "supported"
        )
        assert row["verdict"] == expected, f"{row['claim']} on {row['task']}"


def test_the_main_claim_s_numbers_are_those_of_its_runs(judged: list[dict[str, Any]]) -> None:
    counted = 0
    for row in (row for row in judged if row["claim"] == "H1" and len(row["results"]) > 1):
        saif: dict[str, dict[int, float]] = {"soft": {}, "hard": {}, "lvml": {}, "hybrid": {}}
        for folder in map(folder_of, row["results"]):
            config = json.loads((folder / "config.json").read_text("utf-8"))
            names = list(dict.fromkeys(phase["paradigm"] for phase in config["phases"]))
            history = pd.read_csv(folder / "history.csv")["test_saif"].dropna()
            saif["hybrid" if len(names) > 1 else names[0]][config["seed"]] = history.tail(5).mean()
        better = {seed: max(saif["soft"][seed], saif["hard"][seed]) for seed in sorted(saif["hybrid"])}
        expected = [saif["hybrid"][seed] - best for seed, best in better.items()]
        assert row["criteria"][0]["values"] == pytest.approx(expected, abs=1e-8), row["task"]
        counted += 1
    assert counted >= 8


def test_recorded_verdicts_follow_from_what_is_recorded() -> None:
    kept = json.loads((RECORDED / "claims.json").read_text("utf-8"))
    found = claims_page.rows(claims_page.recorded_tasks())
    advice = "write it anew: `python book/_ext/claims_page.py --recorded results/recorded/claims.json`"
    assert [(row["claim"], row["task"]) for row in kept] == [(row["claim"], row["task"]) for row in found], advice
    for old, new in zip(kept, found, strict=True):
        assert old["verdict"] == new["verdict"] and old["results"] == new["results"], f"{old['task']}: {advice}"
        for was, now in zip(old["criteria"], new["criteria"], strict=True):
            assert was["values"] == pytest.approx(now["values"], abs=1e-8) and was["bound"] == now["bound"], advice


def test_every_disagreement_is_spoken_of(judged: list[dict[str, Any]]) -> None:
    page = (ROOT / "book" / "claims.md").read_text("utf-8")
    explained = set(re.findall(r"^\(disagrees-(\w+)\)=$", page, re.MULTILINE))
    assert explained == {row["claim"] for row in judged if row["verdict"] == "contradicted"}


def test_figures_and_notebooks_of_rows_exist(rows: list[dict[str, Any]]) -> None:
    figures: dict[str, set[str]] = {}
    for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        figures[path.stem] = {c.metadata.get("mystnb", {}).get("figure", {}).get("name") for c in cells}
    page = (ROOT / "book" / "_ext" / "findings.py").read_text("utf-8")  # the landing page's figure
    figures["intro"] = set(re.findall(r":name: (fig-[\w-]+)", page))
    for row in rows:
        assert row["notebook"] in figures
        assert row["figure"] is None or any(row["figure"] in names for names in figures.values()), row["figure"]


def test_commands_of_rows_can_be_given(rows: list[dict[str, Any]]) -> None:
    for command in {row["command"] for row in rows}:
        program, *given = shlex.split(command.replace("\\\n", " "))
        pairs = zip(given[1::2], given[2::2], strict=False)
        options = {name.removeprefix("--").replace("-", "_"): value for name, value in pairs}
        match program, given[0]:
            case "fcam", "rerun":
                assert all((RECORDED / name).is_dir() for name in given[1:])
            case "papermill", notebook:
                assert (ROOT / notebook).is_file() and given[1:] == ["out.ipynb"]
            case "fcam", "grid" if given[1].startswith("profiles/"):
                assert (ROOT / given[1]).is_file()
            case "fcam", "grid":
                assert Grid.of(options).configs()
            case "fcam", "sweep":
                assert SweepGrid.of(options).dataset
            case "fcam", "caption":
                assert options["dataset"] == "coco"
            case _:
                pytest.fail(f"{command} is not a command of this project")

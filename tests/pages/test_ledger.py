"""The ledger of claims, as made from numbers and as built: verdicts follow from runs, each run counts once."""

import html
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import ledger
import numpy as np
import pandas as pd
import pytest

from fcamlib import store
from fcamlib.claims import CLAIMS
from fcamlib.config import Grid, Run, Sweep, SweepGrid
from fcamlib.store import Result

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "book" / "notebooks" / "claims.json"
RECORDED = ROOT / "results" / "recorded"
STORES = (RECORDED, Path(os.environ.get("FCAM_TEST_RESULTS", ROOT / "results")))
PAPER = {"D1", "D2", "D3", "D4", "S1", "S2", "S3", "H1", "I1", "I2", "I3"}
ON_RUNS = ("D1", "D2", "D3", "S1", "S2", "S3", "H1")
FIVE = (0, 1, 2, 3, 4)
# Attention over ten epochs, cells of the confidence in percent, SAIF: numbers that support all claims.
CURVES = {
    "soft": np.linspace(0.50, 0.55, 10),
    "hard": np.array([0.1, 0.1, 0.1, 0.2, 0.2, 0.4, 0.6, 0.8, 0.9, 0.9]),
    "lvml": np.linspace(0.60, 0.95, 10),
    "hybrid": np.linspace(0.50, 0.95, 10),
}
CELLS = {
    "soft": {(4, 4): 20, (2, 4): 80},
    "hard": {(4, 4): 60, (4, 0): 40},
    "lvml": {(4, 4): 90, (0, 0): 10},
    "hybrid": {(4, 4): 95, (0, 0): 5},
}
SAIF = {"soft": 0.2, "hard": 0.6, "lvml": 0.9, "hybrid": 0.95}


def made(config: Run, title: str = "a task", accuracy: float = 0.9, kept: bool = False) -> Result[Run]:
    """A finished run of `config` with the numbers above; seeds differ by a thousandth."""
    paradigm, spread = config.paradigm, 0.001 * config.seed
    confidence = np.zeros((5, 5))
    for cell, percent in CELLS[paradigm].items():
        confidence[cell] = percent + 10 * spread * (-1 if cell == (4, 4) else 1)
    run = Result[Run]((RECORDED if kept else Path("nowhere")) / config.name)
    columns = {"epoch": range(1, 11), "train_loss": np.maximum(0.5 ** np.arange(10), 0.05)}
    columns |= {"test_a_z": CURVES[paradigm] + spread * np.arange(10), "test_saif": SAIF[paradigm] + spread}
    columns["test_accuracy"] = (accuracy if paradigm == "hybrid" else 0.9) + spread
    source = {"date": "2026-01-01", "commit": "abc", "device": "a machine", "train_seconds": 60.0}
    test = {"n": 40, "confidence": confidence.tolist()}
    run.__dict__["summary"] = {"title": title, "provenance": source, "splits": {"test": test}}
    run.__dict__.update(config=config, history=pd.DataFrame(columns))
    return run


def runs(seeds: tuple[int, ...] = FIVE, paradigms: str = "soft,hard,lvml,hybrid", **changes: Any) -> list[Result[Run]]:
    grid = {"dataset": "digits", "seeds": seeds, "paradigms": paradigms, "epochs": 10}
    return [made(config, **changes) for config in Grid.of(grid).configs()]


def task_of(found: list[Result[Run]]) -> ledger.Task:
    (task,) = ledger.run_tasks(found)
    return task


def verdicts(task: ledger.Task) -> dict[str, str]:
    return {claim: task.verdict(claim) for claim in task.criteria}


# --- made from numbers ------------------------------------------------------------------------------------------------


def shown(tasks: list[ledger.Task], part: str) -> str:
    """The words of a part of the page."""
    (found,) = re.findall(part, ledger.page(tasks, []), re.S)
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", found)).split())


def test_every_claim_has_its_words_its_tally_and_a_mark_that_leads_to_its_numbers() -> None:
    assert set(CLAIMS) == PAPER
    tasks = [task_of(found) for found in (runs(), runs(accuracy=0.8, title="another, harder task"))]
    tasks.append(ledger.Task("a third", ledger.PICTURES, "not run", "fcam grid", {"H1": []}))
    text = ledger.page(tasks, [])
    for claim in PAPER:
        assert f'id="claim-{claim.lower()}"' in text and html.escape(CLAIMS[claim].statement, quote=False) in (
            text.replace("&#39;", "'")
        )
    assert shown(tasks, 'id="claim-h1">.*?(<summary>.*?)</summary>').endswith("✔ 1 ✘ 1 · 1")
    links = re.findall(r'href="#([a-z0-9-]+)"', text)
    assert {"h1-a-task", "h1-another", "d1-a-task", "task-another"} <= set(links)
    assert all(text.count(f'id="{link}"') == 1 for link in links)
    assert "14 verdicts from 30 intervals" in text  # seven claims with 15 criteria, twice


def test_a_row_says_what_was_measured_and_what_would_decide_it() -> None:
    task = task_of(runs())
    assert verdicts(task) == dict.fromkeys(ON_RUNS, "supported")
    row = r'<tr id="h1-a-task">.*?</tbody>'
    words = "✔ SAIF, hybrid - better of SA and HA 0.350 [0.350, 0.350] > -0.01 5"
    assert shown([task], row).startswith(f"✔ a task: supported {words} ✔ accuracy")
    few = shown([task_of(runs(seeds=(0, 1, 2)))], row)
    assert few.startswith(
        "○ a task: inconclusive ○ SAIF, hybrid - better of SA and HA 0.350 (0.350 to 0.350) > -0.01 3 5"
    )


def test_only_shared_seeds_count_and_what_is_not_known_has_no_row() -> None:
    task = task_of([run for run in runs() if run.config.paradigm != "hard" or run.config.seed == 1])
    assert task.seeds == "1" and set(verdicts(task).values()) == {"inconclusive"}
    assert not task_of([r for r in runs() if (r.config.paradigm == "hard") == (r.config.seed == 1)]).criteria
    assert set(task_of(runs(paradigms="soft,hard")).criteria) == {"D1", "D2", "S2"}
    found = runs()
    for run in found:
        del run.history["test_saif"]
    assert not task_of(found).criteria


def test_late_claims_wait_for_the_loss_to_flatten() -> None:
    found = runs()
    for run in found:
        run.history["train_loss"] = np.linspace(1.0, 0.1, 10)
    task = task_of(found)
    assert {claim for claim, state in verdicts(task).items() if state == "not tested"} == {"D1", "D2", "D3"}
    assert "HA's loss still falls after 10 epochs" in shown([task], r'<tr id="d1-a-task">.*?</tbody>')


def test_of_a_task_that_is_recorded_and_live_the_recorded_runs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven recorded seeds and five of them computed for the book are one task of seven seeds."""
    live = runs()
    kept = [made(config, kept=True) for config in Grid.of({"seeds": range(7), "epochs": 10}).configs()]
    monkeypatch.setattr(store, "every", lambda kind, recorded: kept if kind is Run else [])
    monkeypatch.setattr(store, "get_all", lambda configs, recorded: live if not recorded else [])
    monkeypatch.setattr(store, "get", lambda config: made_sweep(INCENTIVES))
    for kind, (notebook, _) in ledger.NOTEBOOKS.items():  # the other notebooks' runs are these as well
        monkeypatch.setitem(ledger.NOTEBOOKS, kind, (notebook, [{}] if notebook == ledger.PICTURES else []))
    monkeypatch.setattr(ledger, "study_tasks", list)
    (task,) = (task for task in ledger.all_tasks(ROOT / "notebooks") if task.title.startswith("a task"))
    assert (task.kept, task.seeds, len(task.results)) == ("recorded", "7", 28)
    assert len(task.criteria["H1"][0].values) == 7
    assert len(task.command.split("\\\n")) == 5, "a command that reruns one seed"


INCENTIVES = {"soft": [3.0, 1.0, 0.1], "hard": [1.0, 2.0, 2.5], "lvml": [4.0, 2.0, 1.0]}


def made_sweep(incentives: dict[str, list[float]], dataset: str = "orthogonal") -> Result[Sweep]:
    """A finished sweep with these incentives at its alphas in the last epoch, and none before."""
    config = SweepGrid.of({"dataset": dataset, "alphas": (0.2, 0.6, 1.0), "seeds": FIVE, "epochs": 1}).config()
    rows = [
        {"paradigm": name, "alpha": alpha, "seed": seed, "epoch": epoch}
        | {"incentive": epoch * (value + 0.001 * seed * alpha)}
        for name, values in incentives.items()
        for alpha, value in zip(config.alphas, values, strict=True)
        for seed in config.seeds
        for epoch in (0, 1)
    ]
    stored = Result[Sweep](Path("nowhere") / config.name)
    stored.__dict__.update(config=config, summary={"title": "a sweep"}, history=pd.DataFrame(rows))
    return stored


def test_sweeps_and_flows_are_judged() -> None:
    for changes, wrong in (({}, set()), ({"soft": [3.0, 3.1, 3.2]}, {"I1", "I3"}), ({"hard": [1.0, 0.9, 0.8]}, {"I2"})):
        (task,) = ledger.sweep_tasks([made_sweep(INCENTIVES | changes)])
        assert {claim for claim, state in verdicts(task).items() if state == "contradicted"} == wrong
        assert {claim for claim, state in verdicts(task).items() if state == "supported"} == {"I1", "I2", "I3"} - wrong
    assert task.notebook == "04_fixed_focus_linear"
    assert next(ledger.sweep_tasks([made_sweep(INCENTIVES, "digits")])).notebook == "06_fixed_focus_images"
    many, two = ledger.flow_tasks([(20, 20, 1000.0), (20, 2, 1000.0)])
    assert (many.verdict("D4"), two.verdict("D4"), many.verdict("H1")) == ("supported", "contradicted", "supported")


# --- as built and as recorded -----------------------------------------------------------------------------------------


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
    """The folder of a result: kept with the source, or in the store that the book was built from."""
    return next((root / name for root in STORES if (root / name).is_dir()), Path("missing"))


def test_every_claim_is_judged_once_on_each_task_from_whole_results(rows: list[dict[str, Any]]) -> None:
    assert {row["claim"] for row in rows if row["kept"] != "not run"} == PAPER
    pairs = [(row["claim"], row["task"]) for row in rows]
    assert len(set(pairs)) == len(pairs)
    for row in rows:
        assert bool(row["results"]) == (row["kept"] in ("live", "recorded")), row["task"]
    for name in {name for row in rows for name in row["results"]}:
        assert Result[Any](folder_of(name)).damage == "", name


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
    found = ledger.rows(ledger.recorded_tasks())
    advice = "write it anew: `python book/_ext/ledger.py results/recorded/claims.json`"
    assert [(row["claim"], row["task"]) for row in kept] == [(row["claim"], row["task"]) for row in found], advice
    for old, new in zip(kept, found, strict=True):
        assert old["verdict"] == new["verdict"] and old["results"] == new["results"], f"{old['task']}: {advice}"
        for was, now in zip(old["criteria"], new["criteria"], strict=True):
            assert was["values"] == pytest.approx(now["values"], abs=1e-8) and was["bound"] == now["bound"], advice


def test_every_disagreement_is_spoken_of(judged: list[dict[str, Any]]) -> None:
    page = (ROOT / "book" / "claims.md").read_text("utf-8")
    explained = set(re.findall(r"^\(disagrees-(\w+)\)=$", page, re.MULTILINE))
    assert explained == {row["claim"] for row in judged if row["verdict"] == "contradicted"}


def test_commands_and_notebooks_of_rows_exist(rows: list[dict[str, Any]]) -> None:
    assert all((ROOT / "notebooks" / f"{row['notebook']}.ipynb").is_file() for row in rows)
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

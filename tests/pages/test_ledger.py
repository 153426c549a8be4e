"""The ledger of claims, as made from numbers and as built: verdicts follow from runs, each run counts once."""

import html
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import ledger
import pandas as pd
import pytest

from fcamlib import store, tables
from fcamlib.claims import CLAIMS
from fcamlib.config import Grid, Run, SweepGrid
from fcamlib.store import Result

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "book" / "notebooks" / "claims.json"
RECORDED = ROOT / "results" / "recorded"
STORES = (RECORDED, Path(os.environ.get("FCAM_TEST_RESULTS", ROOT / "results")))
PAPER = {"D1", "D2", "D3", "D4", "S1", "S2", "S3", "H1", "I1", "I2", "I3"}
DIGITS = "digits, m = 5, 2,000 mosaics, 20 epochs"


@pytest.fixture(scope="module")
def recorded() -> list[ledger.Task]:
    """The tasks whose results are kept with the source."""
    return ledger.recorded_tasks()


@pytest.fixture(scope="module")
def digits() -> list[Result[Run]]:
    """The recorded runs on digits, of at least five seeds."""
    return tables.tasks(store.every(Run, recorded=True))[DIGITS]


def task_of(found: list[Result[Run]]) -> ledger.Task:
    (task,) = ledger.run_tasks(found)
    return task


def shown(page: str, part: str) -> str:
    """The words of a part of the page."""
    (found,) = re.findall(part, page, re.S)
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", found)).split())


def test_every_claim_has_its_words_its_tally_and_a_mark_that_leads_to_its_numbers(recorded: list[ledger.Task]) -> None:
    tasks = [*recorded, ledger.Task("a third", ledger.PICTURES, "not run", "fcam grid", {"H1": []})]
    text = ledger.page(tasks, [])
    for claim in PAPER:
        summary = shown(text, f'id="claim-{claim.lower()}">.*?(<summary>.*?)</summary>')
        counts = [sum(task.verdict(claim) == state for task in tasks) for state in ledger.MARKS]
        tally = [f"{mark} {count}" for mark, count in zip(ledger.MARKS.values(), counts, strict=True) if count]
        assert summary == f"{claim} {CLAIMS[claim].statement} {' '.join(tally)}".strip()
    links = re.findall(r'href="#([a-z0-9-]+)"', text)
    marks = [(task, claim) for task in recorded for claim in task.criteria]
    assert len(links) == len(PAPER) + len(recorded) + len(marks)
    assert all(text.count(f'id="{link}"') == 1 for link in links)
    judged = [criteria for task in recorded for criteria in task.criteria.values() if criteria]
    assert f"{len(judged)} marks from " in text


def test_a_row_says_what_was_measured_and_what_would_decide_it(digits: list[Result[Run]]) -> None:
    task = task_of(digits)
    gain = task.criteria["H1"][0]
    mean, (low, high) = gain.values.mean(), gain.interval or (0, 0)
    row = r'<tr id="h1-digits">.*?</tbody>'
    words = f"SAIF, hybrid - better of SA and HA {mean:.3f} [{low:.3f}, {high:.3f}] > -0.01 {len(gain.values)}"
    assert shown(ledger.page([task], []), row).startswith(f"✔ digits: supported ✔ {words} ✔ accuracy")
    few = shown(ledger.page([task_of([run for run in digits if run.config.seed < 3])], []), row)
    assert few.startswith("○ digits: inconclusive ○ SAIF, hybrid - better of SA and HA") and " > -0.01 3 5 ○" in few


def test_only_shared_seeds_count_and_what_is_not_known_has_no_row(digits: list[Result[Run]]) -> None:
    assert not ledger.run_tasks([run for run in digits if run.config.paradigm != "hard" or run.config.seed == 1])
    task = task_of([run for run in digits if run.config.paradigm != "hard" or run.config.seed in (1, 2)])
    assert task.seeds == "2" and {task.verdict(claim) for claim in task.criteria} == {"inconclusive"}
    assert not ledger.run_tasks([r for r in digits if (r.config.paradigm == "hard") == (r.config.seed == 1)])
    assert set(task_of([r for r in digits if r.config.paradigm in ("soft", "hard")]).criteria) == {"D1", "D2", "S2"}
    unknown = [Result[Run](run.folder) for run in digits]
    for run in unknown:
        del run.history["test_saif"]
    assert not task_of(unknown).criteria


def test_of_a_task_that_is_recorded_and_live_the_recorded_runs_count(
    digits: list[Result[Run]], recorded: list[ledger.Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = [Result[Run](Path("nowhere") / run.folder.name) for run in digits if run.config.seed < 3]
    for here, run in zip(live, digits, strict=False):
        here.__dict__.update(config=run.config, summary=run.summary, history=run.history)
    assert task_of(live).kept == "live"
    sweep = ledger.Task("CIFAR-10, m = 20, 10,000 mosaics, fixed focus", ledger.FIXED, "recorded", "", {"I1": []})
    monkeypatch.setattr(ledger, "recorded_tasks", lambda: [*(t for t in recorded if t.title == DIGITS), sweep])
    monkeypatch.setattr(store, "get_all", lambda configs, recorded: live)
    monkeypatch.setattr(store, "get", lambda config: None)
    monkeypatch.setattr(ledger, "sweep_tasks", lambda sweeps: [])
    tasks = {task.title: task for task in ledger.all_tasks(ROOT / "notebooks")}
    assert tasks["CIFAR-10, m = 20"].kept == "not run", "fixed focus is another task"
    assert "CIFAR-10, fixed focus" not in tasks and "CIFAR-100, fixed focus" in tasks
    task = tasks[DIGITS]
    assert (task.kept, task.seeds, len(task.results)) == ("recorded", str(len(digits) // 4), len(digits))
    assert len(task.criteria["H1"][0].values) == len(digits) // 4


def test_claims_without_the_hybrid_are_judged_once_on_the_same_runs(recorded: list[ledger.Task]) -> None:
    same = [t for t in recorded if "embedding, 550 epochs" in t.title]
    firsts = {run.folder for task in same for run in task.results if run.config.seed == 0}
    assert len(same) >= 3 and len(firsts) == 3 + len(same), "SA, HA and LVML are shared"
    assert [set(task.criteria) for task in same] == [*[{"H1"}] * (len(same) - 1), PAPER - {"D4", "I1", "I2", "I3"}]
    assert same[-1].title.endswith("500 epochs at 0.1, then 50 epochs at 0.008")


def test_flows_are_judged() -> None:
    many, two = ledger.flow_tasks([(20, 20, 1000.0), (20, 2, 1000.0)])
    assert (many.verdict("D4"), two.verdict("D4"), many.verdict("H1")) == ("supported", "contradicted", "supported")


# --- as built and as recorded -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """The ledger of the book that was built."""
    if not BUILT.is_file():
        pytest.fail("book/notebooks/claims.json is missing: run `make book` first")
    return json.loads(BUILT.read_text("utf-8"))


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


def test_the_main_claim_s_numbers_are_those_of_its_runs(rows: list[dict[str, Any]]) -> None:
    counted = 0
    for row in (row for row in rows if row["claim"] == "H1" and len(row["results"]) > 1):
        saif: dict[str, dict[int, float]] = {"soft": {}, "hard": {}, "lvml": {}, "hybrid": {}}
        folders = list(map(folder_of, row["results"]))
        measured = [pd.read_csv(folder / "history.csv").dropna(subset="test_saif") for folder in folders]
        last = min(5, *(int((history["phase"] == history["phase"].max()).sum()) for history in measured))
        for folder, history in zip(folders, measured, strict=True):
            config = json.loads((folder / "config.json").read_text("utf-8"))
            names = list(dict.fromkeys(phase["paradigm"] for phase in config["phases"]))
            saif["hybrid" if len(names) > 1 else names[0]][config["seed"]] = history["test_saif"].tail(last).mean()
        better = {seed: max(saif["soft"][seed], saif["hard"][seed]) for seed in sorted(saif["hybrid"])}
        expected = [saif["hybrid"][seed] - best for seed, best in better.items()]
        assert row["criteria"][0]["values"] == pytest.approx(expected, abs=1e-8), row["task"]
        counted += 1
    assert counted >= 8


def test_recorded_verdicts_follow_from_what_is_recorded(recorded: list[ledger.Task]) -> None:
    kept, found = json.loads((RECORDED / "claims.json").read_text("utf-8")), ledger.rows(recorded)
    advice = "write it anew: `python book/_ext/ledger.py results/recorded/claims.json`"
    assert [(row["claim"], row["task"]) for row in kept] == [(row["claim"], row["task"]) for row in found], advice
    for old, new in zip(kept, found, strict=True):
        assert old["verdict"] == new["verdict"] and old["results"] == new["results"], f"{old['task']}: {advice}"
        for was, now in zip(old["criteria"], new["criteria"], strict=True):
            assert was["values"] == pytest.approx(now["values"], abs=1e-8) and was["bound"] == now["bound"], advice


def test_every_disagreement_is_spoken_of(rows: list[dict[str, Any]]) -> None:
    page = (ROOT / "book" / "claims.md").read_text("utf-8")
    explained = set(re.findall(r"^\(disagrees-(\w+)\)=$", page, re.MULTILINE))
    assert explained == {row["claim"] for row in rows if row["verdict"] == "contradicted"}


def test_commands_and_notebooks_of_rows_exist(rows: list[dict[str, Any]]) -> None:
    assert all((ROOT / "notebooks" / f"{row['notebook']}.ipynb").is_file() for row in rows)
    for command in {row["command"] for row in rows}:
        program, name, *given = shlex.split(command.replace("\\\n", " "))
        if name == "rerun":
            assert all((RECORDED / folder).is_dir() for folder in given)
        elif program == "papermill":
            assert (ROOT / name).is_file() and given == ["out.ipynb"]
        elif given[0].startswith("profiles/"):
            assert (name, len(given)) == ("grid", 1) and (ROOT / given[0]).is_file()
        elif name == "caption":
            assert given[:2] == ["--dataset", "coco"]  # whose files are not here
        else:
            names = (option[2:].replace("-", "_") for option in given[::2])
            kinds: dict[str, Any] = {"grid": Grid, "sweep": SweepGrid}
            assert kinds[name].of(dict(zip(names, given[1::2], strict=True))), command

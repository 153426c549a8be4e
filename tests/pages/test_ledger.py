"""The page that compares all tasks: its verdicts follow from runs, and what is not measured says so."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import claims_page
import ledger
import nbformat
import numpy as np
import pandas as pd
import pytest

from fcamlib import store, tables
from fcamlib.claims import CLAIMS
from fcamlib.config import CrossValidation, Grid, Run, Sweep, SweepGrid
from fcamlib.store import Result

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
PAPER = {"D1", "D2", "D3", "D4", "S1", "S2", "S3", "H1", "I1", "I2", "I3"}
ON_RUNS = ("D1", "D2", "D3", "S1", "S2", "S3", "H1")

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
FIVE = (0, 1, 2, 3, 4)


def made(config: Run, title: str = "a task", **changes: Any) -> Result:
    """A finished run of `config` with the numbers above, some replaced; seeds differ by a thousandth."""
    paradigm, spread = config.paradigm, 0.001 * config.seed
    base = paradigm if paradigm in CURVES else "lvml"
    confidence = np.zeros((5, 5))
    for cell, percent in changes.get(f"{base}_cells", CELLS[base]).items():
        confidence[cell] = percent + 10 * spread * (-1 if cell == (4, 4) else 1)
    run = Result[Any](Path("nowhere") / config.name)
    run.__dict__["config"] = config
    run.__dict__["summary"] = {
        "title": title,
        "provenance": {"date": "2026-01-01", "commit": "abc", "device": "a machine", "train_seconds": 60.0},
        "splits": {"test": {"n": 40, "confidence": confidence.tolist()}},
    }
    columns = {"epoch": range(1, 11), "train_loss": np.maximum(0.5 ** np.arange(10), 0.05)}
    columns["test_a_z"] = changes.get(f"{base}_curve", CURVES[base]) + spread * np.arange(10)
    columns["test_accuracy"] = changes.get(f"{base}_accuracy", 0.9) + spread
    run.__dict__["history"] = pd.DataFrame(columns).assign(test_saif=SAIF[base] + spread)
    return run


def runs(seeds: tuple[int, ...] = FIVE, paradigms: str = "soft,hard,lvml,hybrid", **changes: Any) -> list[Result]:
    grid = {"dataset": "digits", "seeds": seeds, "paradigms": paradigms, "epochs": 10}
    return [made(config, **changes) for config in Grid.of(grid).configs()]


def task_of(found: list[Result]) -> ledger.Task:
    (task,) = ledger.run_tasks(found)
    return task


def verdicts(found: list[Result]) -> dict[str, str]:
    """The verdicts on these runs, of the claims that were measured."""
    task = task_of(found)
    return {claim: verdict for claim in PAPER if (verdict := task.verdict(claim))}


def test_every_claim_of_the_paper_has_a_section_that_counts_its_verdicts() -> None:
    assert set(CLAIMS) == PAPER
    tasks = [task_of(found) for found in (runs(), runs(hybrid_accuracy=0.8))]
    tasks += ledger.missing_tasks(tasks)
    text = claims_page.page(tasks, [])
    for claim in PAPER:
        assert f"### {claim}: {CLAIMS[claim].statement}" in text
    missing = sum("H1" in claims for *_, claims in ledger.PAPER_TASKS)
    assert f"Of {missing + 2} tasks: supported on 1, contradicted on 1, not tested on {missing}." in text
    assert "These are 14 verdicts, from 30 intervals." in text  # seven claims with 15 criteria, twice


def test_a_row_says_what_was_measured_and_where() -> None:
    assert verdicts(runs()) == dict.fromkeys(ON_RUNS, "supported")
    task = task_of(runs())
    text = claims_page.claim_section("H1", [task])
    assert "✔ supported | ✔ SAIF, hybrid - better of SA and HA: 0.350 [0.350, 0.350], needs > -0.01<br>" in text
    assert "| 5 | {numref}`fig-saif-over-tau` |" in text
    assert "○ attention" not in text and task.figure("D1") == "fig-learning-curves"
    open_ = claims_page.claim_section("H1", [task_of(runs(seeds=(0, 1, 2)))])
    assert (
        "○ inconclusive | ○ SAIF, hybrid - better of SA and HA: 0.350 (0.350 to 0.350)" in open_
        and "(5 seeds)" in open_
    )


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("D1", {"hard_curve": np.linspace(0.7, 0.9, 10)}),
        ("D2", {"hard_curve": np.linspace(0.1, 0.3, 10)}),
        ("D3", {"lvml_curve": np.linspace(0.6, 0.4, 10)}),
        ("S1", {"lvml_cells": {(4, 4): 10, (2, 4): 90}}),
        ("S2", {"hard_cells": {(4, 4): 20, (2, 2): 80}}),
        ("S3", {"lvml_cells": {(4, 4): 20, (2, 2): 80}}),
        ("H1", {"hybrid_accuracy": 0.8}),
    ],
)
def test_a_claim_is_contradicted_by_numbers_against_it(claim: str, changes: dict[str, Any]) -> None:
    assert verdicts(runs(**changes))[claim] == "contradicted"


def test_few_seeds_decide_nothing_and_only_shared_seeds_count() -> None:
    assert verdicts(runs(seeds=(1, 2, 3, 4))) == dict.fromkeys(ON_RUNS, "inconclusive")
    task = task_of([run for run in runs() if run.config.paradigm != "hard" or run.config.seed == 1])
    assert task.seeds == "1" and {task.verdict(claim) for claim in ON_RUNS} == {"inconclusive"}
    task = task_of([run for run in runs() if (run.config.paradigm == "hard") == (run.config.seed == 1)])
    assert task.seeds == "0" and not task.criteria


def test_late_claims_wait_for_the_loss_to_flatten() -> None:
    found = runs()
    for run in found:
        run.history["train_loss"] = np.linspace(1.0, 0.1, 10)
    shown = verdicts(found)
    assert {claim for claim, verdict in shown.items() if verdict == "not tested"} == {"D1", "D2", "D3"}
    assert "HA's loss still falls after 10 epochs" in claims_page.measured(task_of(found), "D1")


def test_what_was_not_run_or_is_not_known_has_no_row() -> None:
    assert set(verdicts(runs(paradigms="soft,hard"))) == {"D1", "D2", "S2"}
    found = runs()
    for run in found:
        del run.history["test_saif"]
    assert not verdicts(found)


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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"I1": "supported", "I2": "supported", "I3": "supported"}),
        ({"soft": [3.0, 3.1, 3.2]}, {"I1": "contradicted", "I2": "supported", "I3": "contradicted"}),
        ({"hard": [1.0, 0.9, 0.8]}, {"I1": "supported", "I2": "contradicted", "I3": "supported"}),
    ],
)
def test_sweeps_are_judged_by_their_last_incentives(changes: dict[str, list[float]], expected: dict[str, str]) -> None:
    found = {"soft": [3.0, 1.0, 0.1], "hard": [1.0, 2.0, 2.5], "lvml": [4.0, 2.0, 1.0]} | changes
    task = ledger.sweep_tasks([made_sweep(found)])[0]
    assert task.notebook == "04_fixed_focus_linear"
    assert {claim: task.verdict(claim) for claim in task.criteria} == expected
    assert ledger.sweep_tasks([made_sweep(found, "digits")])[0].notebook == "06_fixed_focus_images"


def write_notebook(path: Path, own: str, injected: str = "") -> None:
    """A notebook with a cell of parameters, and one that papermill put below it."""
    made = nbformat.v4.new_notebook()
    made.cells.append(nbformat.v4.new_code_cell(own, metadata={"tags": ["parameters"]}))
    if injected:
        made.cells.append(nbformat.v4.new_code_cell(injected, metadata={"tags": ["injected-parameters"]}))
    made.cells.append(nbformat.v4.new_code_cell("seeds = [9]"))
    nbformat.write(made, path)


def test_parameters_are_the_notebook_s_own_and_papermill_s_over_them(tmp_path: Path) -> None:
    write_notebook(
        tmp_path / "a.ipynb", "seeds: list = [0, 1]  # two\nnoise: float = -0.5", "# Parameters\nseeds = [3]"
    )
    assert ledger.parameters_of(tmp_path / "a.ipynb") == {"seeds": [3], "noise": -0.5}


def test_lvml_s_speed_in_the_flow_depends_on_the_classes() -> None:
    many, two = ledger.flow_tasks([(20, 20, 1000.0), (20, 2, 1000.0)])
    assert (many.verdict("D4"), two.verdict("D4")) == ("supported", "contradicted")
    assert set(many.criteria) == {"D1", "D2", "D3", "D4", "H1"}
    assert many.seeds == "exact" and many.verdict("H1") == "supported"


def test_the_notebook_on_text_changes_what_the_page_does() -> None:
    source = (ROOT / "book" / "_ext" / "ledger.py").read_text()
    stated = next(
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "RUNS"
    )
    assert stated is not None
    for name, variants in ast.literal_eval(stated).items():
        cells = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
        changes = [
            ast.literal_eval(keyword.value)
            for call in calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "model_copy"
            for keyword in call.keywords
        ]
        compared = [change for change in changes if "paradigms" not in change]
        assert (compared or [{}]) == variants, f"{name} runs {compared}, the page looks for {variants}"


def test_recorded_tasks_leave_out_what_is_live_and_other_paradigms(monkeypatch: pytest.MonkeyPatch) -> None:
    posts = {"dataset": "keywords", "encoder": "embedding", "num_train": 90, "epochs": 10}
    kept = [made(config, "posts") for config in Grid.of({**posts, "seeds": FIVE}).configs()]
    other = [made(config, "posts") for config in Grid.of({**posts, "paradigms": "logit_mixture"}).configs()]
    monkeypatch.setattr(store, "recorded_runs", lambda: [*kept, *other, *runs()])
    monkeypatch.setattr(store, "every", lambda kind, recorded: [])
    monkeypatch.setattr(ledger, "study_tasks", list)
    (posts_task,) = ledger.recorded_tasks(live=runs())
    assert posts_task.title.startswith("posts, 90 posts, embedding,") and posts_task.notebook == "07_text"
    assert posts_task.seeds == "5" and posts_task.verdict("S1") == "supported" and len(posts_task.results) == 20


def test_benchmarks_show_the_hybrid_s_accuracy_alone() -> None:
    config = CrossValidation(
        source="bags:b.npz", fingerprint="0", methods=("soft", "hard", "hybrid"), repeats=2, folds=3, epochs=2,
        learning_rates=(0.1,), batch_size=1,
    )  # fmt: skip
    rows = [
        {"repeat": repeat, "fold": fold, "method": method, "n": 10, "accuracy": level + 0.001 * fold * repeat}
        for repeat in (0, 1)
        for fold in (0, 1, 2)
        for method, level in (("soft", 0.5), ("hard", 0.8), ("hybrid", 0.7))
    ]
    result = Result[CrossValidation](Path("nowhere") / config.name)
    result.__dict__.update(config=config, summary={"title": "b", "provenance": {}}, history=pd.DataFrame(rows))
    text = claims_page.page([task_of(runs())], [result])
    assert "| hybrid - HA | -0.100 |" in text, text
    assert f"fcam rerun {config.name}" in text


def test_runs_on_other_data_are_not_shown_as_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    on_text = [made(config, "words") for config in Grid.of({"dataset": "keywords", "seeds": range(9)}).configs()]
    pictures, own = runs(seeds=(4,)), runs(seeds=(5,))
    monkeypatch.setattr(store, "every", lambda kind, recorded: [*on_text, *pictures])
    title, shown = tables.recorded(own)
    assert title.startswith("a task, m = 5") and shown == pictures
    monkeypatch.setattr(store, "every", lambda kind, recorded: on_text)
    assert tables.recorded(own)[1] == own

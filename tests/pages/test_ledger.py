"""The page that compares all tasks: its verdicts follow from runs, and what is not measured says so."""

from __future__ import annotations

import ast
from dataclasses import replace
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
from fcamlib.config import CrossValidationConfig, FixedFocusConfig, FixedFocusExperiment, RunConfig, experiment
from fcamlib.store import Run, Stored
from fcamlib.theory.sweep import Sweep

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
PAPER = {"D1", "D2", "D3", "D4", "S1", "S2", "S3", "H1", "I1", "I2", "I3"}
ON_RUNS = ("D1", "D2", "D3", "S1", "S2", "S3", "H1")

# Focus accuracy over ten epochs, cells of the histogram in percent, SAIF: numbers on which all claims hold.
CURVES = {
    "soft": np.linspace(0.50, 0.55, 10),
    "hard": np.array([0.1, 0.1, 0.1, 0.2, 0.2, 0.4, 0.6, 0.8, 0.9, 0.9]),
    "lvml": np.linspace(0.60, 0.95, 10),
    "hybrid": np.linspace(0.50, 0.95, 10),
}
CELLS = {
    "soft": {(4, 4): 20, (2, 4): 80},
    "hard": {(4, 4): 60, (0, 0): 40},
    "lvml": {(4, 4): 90, (0, 0): 10},
    "hybrid": {(4, 4): 95, (0, 0): 5},
}
SAIF = {"soft": 0.2, "hard": 0.6, "lvml": 0.9, "hybrid": 0.95}


def made(config: RunConfig, title: str = "a task", **changes: Any) -> Run:
    """A finished run of `config` with the numbers above, some replaced; seeds differ by a thousandth."""
    paradigm, spread = config.paradigm, 0.001 * config.seed
    base = paradigm if paradigm in CURVES else "lvml"
    histogram = np.zeros((5, 5))
    for cell, percent in changes.get(f"{base}_cells", CELLS[base]).items():
        histogram[cell] = percent
    histogram[4, 4] -= 10 * spread
    histogram[2, 2] += 10 * spread
    test = {"accuracy": changes.get(f"{base}_accuracy", 0.9) + spread, "saif": SAIF[base] + spread}
    run = Run(Path("nowhere") / config.name)
    run.__dict__["config"] = config
    run.__dict__["summary"] = {
        "title": title,
        "provenance": {"date": "2026-01-01", "commit": "abc", "device": "a machine", "train_seconds": 60.0},
        "splits": {"test": test | {"n": 40, "histogram": histogram.tolist()}},
    }
    curve = changes.get(f"{base}_curve", CURVES[base]) + spread * np.arange(10)
    run.__dict__["history"] = pd.DataFrame({"epoch": range(1, 11), "test_focus_accuracy": curve})
    return run


def runs(seeds: tuple[int, ...] = (0, 1, 2), paradigms: str = "soft,hard,lvml,hybrid", **changes: Any) -> list[Run]:
    grid = {"dataset": "digits", "seeds": seeds, "paradigms": paradigms, "epochs": 10}
    return [made(config, **changes) for config in experiment(grid).configs()]


def verdicts(found: list[Run]) -> dict[str, str]:
    """The verdicts on these runs, of the claims that were measured."""
    task = ledger.run_task("a task, settings", found)
    return {claim: verdict for claim in PAPER if (verdict := task.verdict(claim))}


def test_every_claim_of_the_paper_has_a_section_that_counts_its_verdicts() -> None:
    assert set(ledger.STATEMENTS) == PAPER == set(CLAIMS)
    tasks = [ledger.run_task("a task, settings", found) for found in (runs(), runs(hybrid_accuracy=0.8))]
    tasks += ledger.missing_tasks(tasks)
    text = claims_page.page(tasks, [])
    for claim in PAPER:
        assert f"### {claim}: {ledger.STATEMENTS[claim]}" in text
    missing = sum("H1" in claims for *_, claims in ledger.PAPER_TASKS)
    assert f"it holds on 1, fails on 1; {missing} of the paper's own were not run." in text.split("### H1")[1]
    assert f"it holds on 2; {missing - 1} of the paper's own were not run." in text.split("### S2")[1]


def test_claims_hold_on_numbers_made_for_them_and_the_others_are_not_measured() -> None:
    assert verdicts(runs()) == dict.fromkeys(ON_RUNS, "holds")


def test_a_row_says_what_was_measured_and_where() -> None:
    task = ledger.run_task("a task, settings", runs())
    row = claims_page.claim_table("H1", [task]).iloc[0]
    assert row["verdict"] == "holds" and row["seeds"] == "3" and row["seen in"] == "{numref}`fig-saif-over-tau`"
    first, second, third = row["measured"].split("<br>")
    assert first == "SAIF, hybrid - SA: 0.750 [0.750, 0.750], needs > -0.01"
    assert second.startswith("SAIF, hybrid - HA: 0.350") and third.startswith(
        "accuracy, hybrid - better of SA and HA: 0"
    )
    kept = replace(task, kept="recorded")
    assert kept.figure("H1") == "fig-saif-over-tau-recorded" and task.figure("D1") == "fig-learning-curves"


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
def test_a_claim_fails_where_numbers_contradict_it(claim: str, changes: dict[str, Any]) -> None:
    assert verdicts(runs(**changes))[claim] == "fails"


def test_one_seed_leaves_all_undecided_and_only_shared_seeds_count() -> None:
    assert verdicts(runs(seeds=(1,))) == dict.fromkeys(ON_RUNS, "undecided")
    partly = [run for run in runs() if run.config.paradigm != "hard" or run.config.seed == 1]
    task = ledger.run_task("a task, settings", partly)
    assert task.seeds == "1" and {task.verdict(claim) for claim in ON_RUNS} == {"undecided"}
    apart = [run for run in runs() if (run.config.paradigm == "hard") == (run.config.seed == 1)]
    task = ledger.run_task("a task, settings", apart)
    assert task.seeds == "0" and not task.criteria


def test_a_claim_on_a_paradigm_that_was_not_run_has_no_row() -> None:
    assert set(verdicts(runs(paradigms="soft,hard"))) == {"D1", "D2", "S2"}


def test_without_a_known_foreground_nothing_is_judged() -> None:
    found = runs()
    for run in found:
        del run.summary["splits"]["test"]["saif"]
    assert not verdicts(found)


def made_sweep(incentives: dict[str, list[float]], dataset: str = "orthogonal") -> Sweep:
    """A finished sweep with these incentives at its alphas in the last epoch, and none before."""
    config = FixedFocusExperiment(dataset=dataset, alphas=(0.2, 0.6, 1.0), seeds=(0, 1, 2), epochs=1).config()
    rows = [
        {"paradigm": name, "alpha": alpha, "seed": seed, "epoch": epoch}
        | {"incentive": epoch * (value + 0.001 * seed * alpha)}
        for name, values in incentives.items()
        for alpha, value in zip(config.alphas, values, strict=True)
        for seed in config.seeds
        for epoch in (0, 1)
    ]
    stored = Stored[FixedFocusConfig](Path("nowhere") / config.name)
    stored.__dict__.update(config=config, summary={"title": "a sweep"}, history=pd.DataFrame(rows))
    return Sweep(stored)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"I1": "holds", "I2": "holds", "I3": "holds"}),
        ({"soft": [3.0, 1.0, 1.2]}, {"I1": "fails", "I2": "holds", "I3": "fails"}),
        ({"hard": [1.0, 2.0, 1.9]}, {"I1": "holds", "I2": "fails", "I3": "holds"}),
    ],
)
def test_sweeps_are_judged_by_their_last_incentives(changes: dict[str, list[float]], expected: dict[str, str]) -> None:
    found = {"soft": [3.0, 1.0, 0.1], "hard": [1.0, 2.0, 2.5], "lvml": [4.0, 2.0, 1.0]} | changes
    task = ledger.sweep_task(made_sweep(found))
    assert task.notebook == "04_fixed_focus_linear"
    assert {claim: task.verdict(claim) for claim in task.criteria} == expected
    assert ledger.sweep_task(made_sweep(found, "digits")).notebook == "06_fixed_focus_images"


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


def test_lvml_s_speed_in_the_flow_depends_on_the_classes(tmp_path: Path) -> None:
    own = "num_segments: list = [20, 20]\nnum_classes: list = [20, 2]\nend_times: list = [1000.0, 1000.0]"
    write_notebook(tmp_path / "05_gradient_flow.ipynb", own)
    many, two = ledger.flow_tasks(tmp_path)
    assert (many.verdict("D4"), two.verdict("D4")) == ("holds", "fails")
    assert set(many.criteria) == {"D1", "D2", "D3", "D4"}
    assert many.seeds == "exact"


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


def test_live_tasks_come_first_and_other_paradigms_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    posts = {"dataset": "keywords", "encoder": "embedding", "num_train": 90, "epochs": 10}
    kept = experiment({**posts, "seeds": (0, 1, 2)}).configs()
    kept += experiment({**posts, "paradigms": "logit_mixture"}).configs()
    monkeypatch.setattr(ledger, "run_all", lambda configs: [made(config) for config in configs])
    monkeypatch.setattr(store, "recorded_runs", lambda: [made(config, "posts") for config in kept])
    tasks = ledger.run_tasks(NOTEBOOKS)
    assert [task.name for task in tasks] == [
        "a task", "a task", "a task", "a task", "a task", "posts"
    ]  # fmt: skip
    assert tasks[1].settings.startswith("500 posts, embedding,") and ", transformer," in tasks[2].settings
    assert [task.notebook[:2] for task in tasks] == ["02", "07", "07", "08", "09", "07"]
    assert tasks[-1].seeds == "3" and tasks[-1].verdict("S1") == "holds"


def test_benchmarks_show_the_hybrid_s_accuracy_alone() -> None:
    config = CrossValidationConfig(
        source="bags:b.npz", fingerprint="0", methods=("soft", "hard", "hybrid"), repeats=2, folds=3, epochs=2,
        learning_rates=(0.1,), batch_size=1,
    )  # fmt: skip
    rows = [
        {"repeat": repeat, "fold": fold, "method": method, "n": 10, "accuracy": level + 0.001 * fold * repeat}
        for repeat in (0, 1)
        for fold in (0, 1, 2)
        for method, level in (("soft", 0.5), ("hard", 0.8), ("hybrid", 0.7))
    ]
    result = Stored[CrossValidationConfig](Path("nowhere") / config.name)
    result.__dict__.update(config=config, summary={"title": "b", "provenance": {}}, history=pd.DataFrame(rows))
    table = claims_page.benchmarks_table([result])
    assert table["difference"].tolist() == ["+0.200", "-0.100"]
    text = claims_page.page([ledger.run_task("a task, settings", runs())], [result])
    assert "| hybrid - HA | -0.100 |" in text, text
    assert f"fcam rerun {config.name}" in text


def test_runs_on_other_data_are_not_shown_as_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    on_text = [made(config, "words") for config in experiment({"dataset": "keywords", "seeds": range(9)}).configs()]
    pictures, own = runs(seeds=(4,)), runs(seeds=(5,))
    monkeypatch.setattr(store, "recorded", lambda kind: [*on_text, *pictures])
    title, shown = tables.recorded(own)
    assert title.startswith("a task, m = 5") and shown == pictures
    monkeypatch.setattr(store, "recorded", lambda kind: on_text)
    assert tables.recorded(own)[1] == own


def test_a_figure_is_named_only_where_it_shows_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def figures(dataset: str, title: str, is_recorded: bool, **given: Any) -> dict[str, str | None]:
        config = experiment({"dataset": dataset, "paradigms": "soft", **given}).configs()[0]
        return ledger.figures_of_runs(title, config, is_recorded)

    shown = runs(seeds=(0, 1))
    monkeypatch.setattr(store, "recorded_runs", lambda: shown)
    assert figures("digits", tables.title(shown[0]), True) == {} == figures("digits", "live", False)
    assert figures("digits", "a smaller task", True) == {**dict.fromkeys(ON_RUNS), "H1": "fig-key"}
    assert figures("keywords", "t", False, encoder="transformer")["S1"] == "fig-text-heatmaps-transformer"
    assert figures("keywords", "t", False, encoder="transformer")["D1"] is None
    for encoder in ("embedding", "transformer"):
        recorded = figures("keywords", "t", True, encoder=encoder)
        assert recorded["S1"] == "fig-text-heatmaps-recorded"
        assert recorded["D2"] == f"fig-text-learning-curves-recorded-{encoder}"
        assert recorded["H1"] == f"fig-text-saif-over-tau-recorded-{encoder}"

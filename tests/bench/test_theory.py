"""The benchmark of the theory compares like with like: both sides end at the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose

from fcamlib.bench import theory as bench_theory
from fcamlib.config import fixed_focus_experiment
from fcamlib.errors import UserError
from fcamlib.theory.fixed_focus import LAWS
from fcamlib.theory.flow import trajectory


@pytest.mark.parametrize("paradigm", LAWS)
def test_eulers_steps_end_where_the_solver_does(paradigm: str) -> None:
    exact = trajectory(paradigm, 4, 3, [40.0])
    assert exact.mu[0] > 1.5
    assert_allclose(bench_theory.euler(paradigm, 4, 3, 4_000), (exact.mu[0], exact.nu[0]), rtol=2e-3)


def test_both_sweeps_end_at_the_same_losses() -> None:
    small = {"num_train": 60, "num_segments": 4, "num_classes": 3, "epochs": 2, "alphas": "0.3,1", "batch_size": 25}
    config = fixed_focus_experiment({**small, "seeds": "0,1", "initial": "random"}).config()
    (row,) = bench_theory.sweep_rows(config, repeats=2)
    assert row["trainings"] == 12 and row["largest_difference_of_losses"] < 1e-12
    ratio, slow, fast = row["ratio"], row["plain_seconds"], row["library_seconds"]
    assert slow["low"] / fast["high"] <= ratio["low"] <= ratio["median"] <= ratio["high"] <= slow["high"] / fast["low"]


def test_command_writes_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_theory, "CASES", ((4, 3, 2.0, 50.0), (5, 4, 3.0, 5_000.0)))
    monkeypatch.setattr(bench_theory, "EXTRAPOLATED_STEPS", 100)
    monkeypatch.setattr(bench_theory, "sweep_rows", lambda config, repeats: [])
    path = tmp_path / "below" / "theory.json"
    shown = CliRunner().invoke(bench_theory.main, ["--repeats", "2", "--json", str(path)])
    assert shown.exit_code == 0 and len(shown.output.splitlines()) == 6
    rows = json.loads(path.read_text())["rows"]
    assert [(row["euler_steps"], row["euler_steps_taken"]) for row in rows] == [(200, 100)] * 3 + [(300, 100)] * 3
    assert f"{rows[0]['ratio']['median']:.1f} times" in shown.output.splitlines()[0]
    refused = CliRunner().invoke(bench_theory.main, ["--repeats", "1", "--json", "/dev/null/x/theory.json"])
    assert isinstance(refused.exception, UserError) and str(refused.exception).endswith("choose another file.")

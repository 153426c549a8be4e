"""`fcam rerun` computes what is recorded anew, from the record's own config, and says truly how far it is apart."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from fcamlib import paths, store
from fcamlib.__main__ import main
from fcamlib.config import StoredConfig, experiment, fixed_focus_experiment, stored_class
from fcamlib.rerun import _COMPUTE, difference
from fcamlib.runs import run
from fcamlib.theory.sweep import sweep

TINY = {"num_train": 40, "num_validation": 20, "num_test": 20, "epochs": 2, "paradigms": "soft"}
TINY_SWEEP = {"num_classes": 3, "num_segments": 3, "num_train": 20, "epochs": 2, "alphas": "0.2,1", "batch_size": 10}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of recorded results, and an empty results folder beside it."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(paths, "recorded_dir", lambda: folder)
    return folder


def rerun(*names: str) -> Result:
    return CliRunner().invoke(main, ["rerun", *names])


def keep(result: store.Stored[Any], root: Path, change: float = 0.0) -> None:
    """Record a result, its first training loss changed, and take it from the results folder."""
    if change:
        history = result.history
        history["train_loss"] = history["train_loss"] + [change, *[0.0] * (len(history) - 1)]
        files = {name: (result.folder / name).read_bytes() for name in ("scores.npz", "examples.npz")}
        result = store.write(result.config, history, result.summary, files)
    store.record(result, root)
    os.rename(result.folder, result.folder.with_name(f".{result.folder.name}"))


def test_a_rerun_gives_the_recorded_numbers_and_is_stored(recorded: Path) -> None:
    kept = run(experiment(TINY).configs()[0])
    keep(kept, recorded)
    swept = sweep(fixed_focus_experiment(TINY_SWEEP).config()).stored
    keep(swept, recorded)
    answer = rerun("digits-*", swept.folder.name)
    assert answer.exit_code == 0, answer.output
    lines = answer.output.splitlines()
    assert [line.split(":")[0] for line in lines] == [kept.folder.name, swept.folder.name]
    assert all("largest difference 0; in" in line for line in lines)
    assert (paths.results_dir() / kept.folder.name / store.SUMS).is_file()


def test_a_changed_number_is_found(recorded: Path) -> None:
    result = run(experiment(TINY).configs()[0])
    keep(result, recorded, change=0.125)
    answer = rerun(result.folder.name)
    assert "largest difference 0.125 (train_loss, row 1)" in answer.output


def test_differences_are_counted_over_measures_that_both_tables_have() -> None:
    one = pd.DataFrame({"loss": [1.0, 2.0], "seconds": [1.0, 9.0], "old": [1.0, 1.0], "paradigm": ["soft", "hard"]})
    other = pd.DataFrame({"loss": [1.0, 2.5], "seconds": [5.0, 5.0], "new": [0.0, 0.0], "paradigm": ["soft", "hard"]})
    found = difference(one, other)
    assert (found.number, found.largest, found.column, found.row) == (2, 0.5, "loss", 1)
    assert difference(one, one).largest == 0
    blank = other.assign(loss=[np.nan, 2.0])
    assert difference(one, blank).largest == np.inf and difference(blank, blank).largest == 0
    with pytest.raises(ValueError, match="1 rows in place of 2"):
        difference(one, other[:1])
    with pytest.raises(ValueError, match="no measure"):
        difference(one[["loss"]], other[["new"]])


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["nothing-*"], "no recorded result is called 'nothing-*': results/recorded/ holds 1, by name."),
        (["digits-*"], "is damaged (history.csv does not have its checksum): fetch it anew with git."),
    ],
)
def test_what_cannot_be_rerun_ends_with_one_sentence(recorded: Path, names: list[str], sentence: str) -> None:
    keep(run(experiment(TINY).configs()[0]), recorded)
    (folder,) = recorded.glob("digits-*")
    (folder / "history.csv").write_text("loss\n1\n")
    answer = rerun(*names)
    assert answer.exit_code == 2 and sentence in answer.output and "Traceback" not in answer.output


def test_without_records_it_says_so(recorded: Path) -> None:
    answer = rerun("digits-*")
    assert answer.exit_code == 2 and "no results are recorded here" in answer.output


def test_every_kind_of_record_can_be_rerun() -> None:
    root = Path(__file__).resolve().parent.parent / "results" / "recorded"
    kinds = {stored_class(path.read_bytes()) for path in root.glob("*/config.json")}
    assert kinds <= set(_COMPUTE)
    known = {kind for kind in StoredConfig.__subclasses__() if kind.__module__.startswith("fcamlib.")}
    assert set(_COMPUTE) == known, "a kind of result that cannot be computed anew"

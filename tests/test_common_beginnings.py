"""Runs that begin alike train their common epochs once, to the numbers that each has by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from forked import assert_same
from pandas.testing import assert_frame_equal

from fcamlib import ensemble_training, paths, store, training
from fcamlib.__main__ import main
from fcamlib.config import RunConfig, experiment
from fcamlib.runs import run, run_all

SMALL = {"num_train": 48, "num_validation": 24, "num_test": 24, "num_segments": 3, "batch_size": 24, "epochs": 6}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty results folder, and no recorded runs."""
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "results"))
    return tmp_path / "results"


def config_of(paradigm: str, **changes: Any) -> RunConfig:
    (config,) = experiment({**SMALL, "paradigms": paradigm, "seeds": 0, **changes}).configs()
    return config


@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({}, 3),  # soft attention for 6 epochs, and for 3 before the switch
        ({"switch_epoch": 5}, 5),
        ({"evaluate_every": 3}, 3),
        ({"evaluate_every": 4}, 2),  # the hybrid alone is measured at its switch
        ({"learning_rates": "0.05,0.1"}, 3),
        ({"learning_rates": "0.05,0.1", "search_epochs": 2, "keep": "best"}, 3),
        ({"learning_rates": "0.05,0.1", "search_epochs": 2, "evaluate_every": 4}, 2),  # both are measured to compare
        ({"learning_rates": "0.05,0.1", "search_epochs": 4, "evaluate_every": 4}, 2),  # the hybrid compares at 3
    ],
)
def test_a_hybrid_is_the_soft_run_up_to_its_switch_or_to_what_is_measured_otherwise(
    changes: dict[str, Any], alike: int
) -> None:
    soft, hybrid = config_of("soft", **changes), config_of("hybrid", **changes)
    assert soft.epochs_alike(hybrid) == hybrid.epochs_alike(soft) == alike


@pytest.mark.parametrize(
    "changes",
    [{"paradigms": "hard"}, {"seeds": 1}, {"learning_rates": "0.07"}, {"momentum": 0.5}, {"batch_size": 12},
     {"num_segments": 4}, {"optimizer": "adam"}, {"keep": "best"}],
    ids=str,
)  # fmt: skip
def test_other_runs_have_no_common_beginning(changes: dict[str, Any]) -> None:
    (other,) = experiment({**SMALL, "paradigms": "hybrid", "seeds": 0, **changes}).configs()
    assert config_of("soft").epochs_alike(other) == 0


@pytest.mark.parametrize("first", ["soft", "hybrid"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"learning_rates": "0.05,0.1", "search_epochs": 2, "keep": "best"},
        {"learning_rates": "0.05,0.1", "evaluate_every": 4, "optimizer": "adam"},
    ],
    ids=["one rate", "search", "search of all epochs"],
)
def test_what_is_common_is_trained_once_to_the_same_numbers(
    first: str, changes: dict[str, Any], results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = config_of(first, **changes)
    other = config_of("hybrid" if first == "soft" else "soft", **changes)
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "alone"))
    rows: list[dict[str, Any]] = []
    all_rows: list[dict[str, Any]] = []
    alone = {one.name: run(one).folder, other.name: run(other, all_rows.append).folder}
    monkeypatch.setenv("FCAM_RESULTS", str(results))
    assert_same(run(one, wanted=[one, other]).folder, alone[one.name])
    assert store.unfinished_runs() == [other.name]
    assert_same(run(other, rows.append).folder, alone[other.name])
    trained = [row["epoch"] for row in all_rows]
    assert [row["epoch"] for row in rows] == trained[trained.index(one.epochs_alike(other)) + 1 :]
    assert store.unfinished_runs() == []


def test_a_grid_and_a_notebook_hand_on_and_runs_asked_for_alone_do_not(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Path] = []
    monkeypatch.setattr("fcamlib.computing.save_checkpoint", lambda path, state: handed.append(path))
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    shown = CliRunner().invoke(main, ["grid", *options, "--paradigms", "soft,hard,hybrid", "--seeds", "0,1"])
    assert shown.exit_code == 0, shown.output
    expected = [config_of("hybrid", seeds=seed).name for seed in (0, 1)]
    assert [path.parent.name for path in handed] == expected
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "notebook"))
    run_all([config_of("soft"), config_of("hybrid")])
    assert [path.parent.name for path in handed] == [*expected, expected[0]]
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "alone"))
    run(config_of("soft"))
    assert len(handed) == 3


def test_runs_that_are_stored_begun_or_in_other_hands_are_left_alone(results: Path, tmp_path: Path) -> None:
    soft = config_of("soft")
    stored, begun, taken = (config_of("hybrid", switch_epoch=epoch) for epoch in (2, 3, 4))
    run(stored)
    checkpoint = store.writable(store.partial_dir(begun)) / store.CHECKPOINT
    checkpoint.write_bytes(b"of an earlier start")
    with store.locked(taken):
        run(soft, wanted=[soft, stored, begun, taken])
    assert checkpoint.read_bytes() == b"of an earlier start"
    assert not store.partial_dir(stored).exists() and not (store.partial_dir(taken) / store.CHECKPOINT).exists()


def test_seeds_that_train_together_hand_on_too(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU takes the part of the GPU."""
    configs = experiment({**SMALL, "paradigms": "soft,hybrid", "seeds": "0,1", "learning_rates": "0.05,0.1",
                          "search_epochs": 2}).configs()  # fmt: skip
    alone = {config.name: run(config) for config in configs}
    monkeypatch.setattr(ensemble_training, "DEVICES", ("cpu",))
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "together"))
    epochs: list[tuple[str, int]] = []
    original = training._Trainer._measured

    def counted(self: Any, state: Any, candidate: Any, phase: Any, result: Any) -> Any:
        row = original(self, state, candidate, phase, result)
        epochs.append((phase.paradigm, row["epoch"]))
        return row

    monkeypatch.setattr(training._Trainer, "_measured", counted)
    together = run_all(configs)
    soft = [epoch for paradigm, epoch in epochs if paradigm == "soft"]
    assert len(soft) == 2 * (2 + 6), "the soft runs' epochs, of two seeds, and nothing of the hybrids'"
    for one in together:
        assert one.summary["provenance"]["trained_together"] == 2
        assert one.summary["splits"]["test"]["accuracy"] == alone[one.config.name].summary["splits"]["test"]["accuracy"]
        rows, expected = one.history.drop(columns="seconds"), alone[one.config.name].history.drop(columns="seconds")
        assert_frame_equal(rows, expected, check_exact=False, rtol=1e-5)

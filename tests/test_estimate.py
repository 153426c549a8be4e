"""How long runs will take: the arithmetic from given seconds, never the clock's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from fcamlib import estimate, running, store
from fcamlib.cli import main
from fcamlib.config import CaptionGrid, Grid, Run, Study, StudyGrid
from fcamlib.errors import UserError
from fcamlib.estimate import duration
from fcamlib.store import Result

HERE = "Some CPU"
SMALL = {"num_segments": 3, "num_train": 200, "num_validation": 48, "num_test": 48, "batch_size": 32, "epochs": 6}


@pytest.fixture(autouse=True)
def machine(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty store, no data, and a machine with a known name."""
    monkeypatch.setattr(estimate, "device_name", lambda config: HERE)
    estimate._timings.cache_clear()


def config_of(paradigm: str, **changes: Any) -> Run:
    (config,) = Grid.of({**SMALL, "paradigms": paradigm, **changes}).configs()
    return config


def stored(config: Run, seconds: dict[int, list[float]], device: str = HERE) -> Result:
    """A run as far as estimates look at it: seconds of the epochs of each phase."""
    rows = [(phase, value) for phase, values in seconds.items() for value in values]
    history = pd.DataFrame(rows, columns=["phase", "seconds"])
    run = Result[Any](Path(config.name))
    vars(run).update(config=config, history=history, summary={"provenance": {"device": device}})
    return run


def test_durations_are_hours_and_minutes() -> None:
    said = {0.0: "under 1 min", 60.0: "1 min", 3_590.0: "1.0 h", 4_000.0: "1.1 h", 36_000_000.0: "10,000.0 h"}
    assert {seconds: duration(seconds) for seconds in said} == said


def like(config: Run | Study, *runs: Result) -> float | None:
    try:
        return estimate.training_seconds(config, estimate.stored_pace(runs), set())
    except UserError:
        return None


def test_a_stored_run_tells_of_each_phase_by_epochs_rates_and_training_instances() -> None:
    told = stored(config_of("hybrid", epochs=4, switch_epoch=2), {0: [2.0, 4.0], 1: [10.0, 12.0]})
    # a hybrid of 5 soft and 3 hard epochs on 2.5 times the instances, and a soft run of 6 epochs on half of them
    assert like(config_of("hybrid", epochs=8, switch_epoch=5, num_train=500), told) == 2.5 * (5 * 3.0 + 3 * 11.0)
    assert like(config_of("soft", num_train=100, seeds=3), told) == 0.5 * 6 * 3.0
    rates: dict[str, Any] = {"learning_rates": [0.1, 0.2, 0.3], "search_epochs": 2}
    searched = stored(config_of("soft", **rates), {0: [3.0]})
    assert like(config_of("soft", **rates, keep="best"), searched) == 3.0 * (2 + 2 + 6)
    others = [stored(told.config, {0: [value], 1: [value]}) for value in (1.0, 100.0)]
    assert like(config_of("soft"), told, *others) == 6 * 3.0, "not the median"


def test_of_a_study_that_was_interrupted_only_what_is_missing_counts(results: Path) -> None:
    study = StudyGrid.of({**SMALL, "paradigms": "soft", "seeds": "0,1,2", "evaluate_every": 1}).config()
    told = stored(next(study.runs()), {0: [2.0]})
    assert like(study, told) == 3 * 6 * 2.0
    store.keep_row(store.writable(store.partial_dir(study)), {"run": told.config.name})
    assert like(study, told) == 2 * 6 * 2.0


def test_a_first_phase_that_captioning_runs_share_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = CaptionGrid.of({"paradigms": "soft,hard,hybrid", "epochs": 6, "switch_epoch": 4}).configs()

    def seconds() -> list[float]:
        shared: set[str] = set()
        return [estimate.training_seconds(config, lambda run, phase: 10.0**phase, shared) for config in configs]

    assert seconds() == [24.0, 24.0, 20.0], "SA and the hybrid share four epochs"
    monkeypatch.setattr(estimate.store, "find", lambda config, recorded, report: config)
    assert seconds() == [20.0] * 3


@pytest.mark.parametrize(
    "changes",
    [{"num_segments": 4}, {"batch_size": 16}, {"precision": "float32"}, {"learning_rates": [0.1, 0.2]}],
    ids=str,
)
def test_a_run_of_another_kind_tells_nothing(changes: dict[str, Any]) -> None:
    told = stored(config_of("soft"), {0: [1.0]})
    assert like(config_of("soft"), told) == 6.0
    assert like(config_of("soft", **changes), told) is None
    assert like(config_of("lvml"), told) is None and like(config_of("hybrid"), told) is None
    assert like(config_of("soft"), stored(told.config, {0: [1.0]}, device="Another CPU")) is None


def listed(*options: str) -> list[str]:
    arguments = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    result = CliRunner().invoke(main, ["grid", *arguments, *options])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_the_list_shows_each_time_the_total_and_how_it_came_about(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, lvml = (config_of(paradigm) for paradigm in ("soft", "lvml"))
    options = ("--paradigms", "soft,lvml")
    advice = f"cannot be timed: no similar run is stored for this hardware ({HERE}); --estimate trains a few steps and"
    *runs, closing = listed(*options, "--list")
    assert runs == [f"{soft.name}  to do", f"{lvml.name}  to do"]
    assert closing == f"2 run(s) {advice} times them."
    *_, closing = estimate.listing(CaptionGrid.of({"paradigms": "soft"}).configs(), timed=False)
    assert closing == f"1 run(s) cannot be timed: no similar run is stored for this hardware ({HERE})."
    monkeypatch.setattr(
        estimate.store, "every", lambda recorded=False: [] if recorded else [stored(soft, {0: [600.0]})]
    )
    *runs, total, closing = listed(*options, "--list")
    assert runs == [f"{soft.name}  to do  1.0 h", f"{lvml.name}  to do"]
    assert total.startswith(
        f"In total 1.0 h of training for 1 of 2 run(s) not stored, one after the other, on {HERE}: est"
    )
    assert closing == f"1 run(s) {advice} times them."


def timed(monkeypatch: pytest.MonkeyPatch, *given: float) -> list[Any]:
    """Let timed calls take the given seconds, in turn; the configs of the data that were made."""
    made: list[Any] = []
    task, left = running.data, list(given)

    def recorded(data: Any, seed: int) -> Any:
        made.append(data)
        return task(data, seed)

    def called(call: Callable[[], object], repeats: int = 1) -> float:
        call()
        return left.pop(0)

    monkeypatch.setattr(running, "data", recorded)
    monkeypatch.setattr(estimate, "_seconds", called)
    return made


def test_estimating_times_each_kind_of_run_once_and_trains_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = timed(monkeypatch, 1.0, 8.0, 12.0, 2.0, 20.0, 10.0, 4.0, 5.0, 35.0)  # a step, validation, test: soft, hybrid
    soft, hybrid = (config_of(paradigm, evaluate_every=2) for paradigm in ("soft", "hybrid"))
    lines = listed("--paradigms", "soft,hybrid", "--seeds", "0,1", "--evaluate-every", "2", "--estimate")
    assert len(made) == 2
    # 7 steps an epoch: soft 6 * (7 + 20 / 2) s; hybrid 3 * (14 + 30 / 2) + 3 * (28 + 40 / 2) s
    assert [line.split("  ", 1)[1] for line in lines[:4]] == 2 * ["to do  2 min"] + 2 * ["to do  4 min"]
    assert [lines[0].split()[0], lines[2].split()[0]] == [soft.name, hybrid.name]
    assert lines[4:] == [
        f"In total 11 min of training for 4 run(s) not stored, one after the other, on {HERE}: {estimate.NUM_STEPS} "
        "training steps and one evaluation of each kind of run were timed just now."
    ]
    assert not (tmp_path / "results").exists()


def test_data_that_are_missing_are_named_and_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "data", lambda *_: pytest.fail("it would download the data"))
    *runs, closing = listed("--dataset", "cifar10", "--paradigms", "soft", "--seeds", "0,1", "--estimate")
    assert [run.split("  ")[1:] for run in runs] == 2 * [["to do"]]
    assert closing == (
        f"2 run(s) cannot be timed: dataset='cifar10' is not in '{tmp_path / 'data'}' yet: the first run downloads it."
    )

"""Runs in processes that are killed (SIGKILL) or that compete: whole results or none, and the uninterrupted numbers."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import FILES, Forked, assert_same, forked, needs_linux

from fcamlib import store
from fcamlib.config import RunConfig, experiment

SMALL = {"num_train": 96, "num_validation": 48, "num_test": 48, "num_segments": 3, "batch_size": 24, "epochs": 6}
NUM_KILLS = 12

# Runs a job's config and writes its epochs into a file. The process may kill itself before the n-th call that changes a
# folder.
WORK = """
import shutil
import fcamlib.training
from fcamlib.config import RunConfig
from fcamlib.runs import run

fcamlib.training.CHECKPOINT_SECONDS = -1.0

def fatal(module, name, left):
    call = getattr(module, name)
    def counted(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)
    setattr(module, name, counted)

def work(job):
    if job["calls"]:
        left = [job["calls"]]
        for module, name in ((os, "replace"), (os, "fsync"), (os, "mkdir"), (shutil, "rmtree")):
            fatal(module, name, left)

    def on_epoch(row):
        with open(job["log"], "a") as file:
            file.write(str(row["epoch"]) + chr(10))

    run(RunConfig.model_validate(job["config"]), on_epoch)
"""

pytestmark = needs_linux


class Runs:
    """Runs of configs in processes of their own."""

    def __init__(self, processes: Forked) -> None:
        self.said, self._processes = processes.said, processes

    def run(
        self, config: RunConfig, results: Path, seconds: float | None = None, calls: int = 0, number: int = 1
    ) -> list[tuple[int, float]]:
        """Exit status, 0 done or -9 killed, and processor time of each of some equal runs that start together."""
        job = {"config": config.model_dump(mode="json"), "calls": calls}
        ended = self._processes.run(job, seconds, number, FCAM_RESULTS=str(results))
        assert {status for status, _ in ended} <= {0, -signal.SIGKILL}, self.said("err")
        return ended

    def epochs_trained(self) -> int:
        """How many epochs were trained since the last call."""
        return len(self._processes.logged())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with forked(WORK, tmp_path_factory.mktemp("runs")) as processes:
        yield Runs(processes)


def config_of(paradigm: str = "hybrid", seed: int = 0, **changes: Any) -> RunConfig:
    return experiment({**SMALL, "paradigms": paradigm, "seeds": seed, **changes}).configs()[0]


CONFIG = config_of(learning_rates="0.05,0.1", search_epochs=2)  # a hybrid with a search: 2 + 3 + 3 epochs
CONFIG_EPOCHS = 8


@pytest.fixture(scope="module")
def reference(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """CONFIG's run without an interruption, and the processor time that it took."""
    results = tmp_path_factory.mktemp("reference")
    ((status, used),) = runs.run(CONFIG, results)
    assert status == 0 and runs.epochs_trained() == CONFIG_EPOCHS
    return results / CONFIG.name, used


def assert_nothing_half_written(results: Path, config: RunConfig) -> None:
    """Every run's folder is complete; whatever else lies there is out of sight."""
    visible = [folder for folder in results.glob("[!.]*")] if results.exists() else []
    assert {folder.name for folder in visible} <= {config.name}
    for folder in visible:
        assert {path.name for path in folder.iterdir()} == set(FILES) and store.damage(folder) == ""


def test_a_run_killed_at_random_moments_leaves_nothing_half_written_and_resumes_to_the_same_numbers(
    runs: Runs, reference: tuple[Path, float], tmp_path: Path
) -> None:
    whole, seconds = reference
    draws, kills, finished, resumed, warnings = random.Random(0), 0, 0, 0, ""
    results = tmp_path / f"results{finished}"
    while kills < NUM_KILLS:
        ((status, _),) = runs.run(CONFIG, results, seconds=draws.uniform(0.0, seconds))
        kills += status == -signal.SIGKILL
        warnings += runs.said("err")
        assert_nothing_half_written(results, CONFIG)
        if (results / CONFIG.name).exists():
            assert_same(results / CONFIG.name, whole)
            finished += 1
            results = tmp_path / f"results{finished}"
        elif (results / ".partial" / CONFIG.name / store.CHECKPOINT).exists():
            resumed += 1
    assert resumed > 0, "no kill hit a run between its epochs"
    assert runs.run(CONFIG, results)[0][0] == 0
    assert_same(results / CONFIG.name, whole)
    assert "damaged" not in warnings + runs.said("err")


def test_a_run_killed_before_each_change_of_a_folder_resumes(runs: Runs, tmp_path: Path) -> None:
    """Every step of writing checkpoints and the finished run, one after the other."""
    config = config_of("soft", epochs=2)
    assert runs.run(config, tmp_path / "whole")[0][0] == 0
    whole, results, extra_epochs = tmp_path / "whole" / config.name, tmp_path / "results", []
    runs.epochs_trained()
    for calls in range(1, 100):
        ((status, _),) = runs.run(config, results, calls=calls)
        assert_nothing_half_written(results, config)
        if status == 0:
            break
        assert runs.run(config, results)[0][0] == 0
        extra_epochs.append(runs.epochs_trained() - 2)
        assert_nothing_half_written(results, config)
        assert_same(results / config.name, whole)
        shutil.rmtree(results)
    assert status == 0 and len(extra_epochs) > 15
    assert max(extra_epochs) <= 1, "more than the epoch at hand was trained twice"


def test_two_processes_that_ask_for_one_run_compute_it_once(runs: Runs, tmp_path: Path) -> None:
    runs.epochs_trained()
    config = config_of("lvml", seed=5)
    assert [status for status, _ in runs.run(config, tmp_path / "results", number=3)] == [0, 0, 0]
    assert runs.epochs_trained() == SMALL["epochs"]
    assert store.damage(tmp_path / "results" / config.name) == ""

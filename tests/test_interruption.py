"""Runs in processes that are killed (SIGKILL) or that compete: whole results or none, and the uninterrupted numbers."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fcamlib import store
from fcamlib.config import RunConfig, experiment

ROOT = Path(__file__).resolve().parent.parent
FILES = ("SHA256SUMS", "config.json", "examples.npz", "history.csv", "model.safetensors", "scores.npz", "summary.json")
SMALL = {"num_train": 96, "num_validation": 48, "num_test": 48, "num_segments": 3, "batch_size": 24, "epochs": 6}
NUM_KILLS = 12

# Forks a process for each line of JSON that it reads, so that torch is imported once. The process runs a config and
# counts its epochs in a file. It is killed after some seconds, or before the n-th call that changes a folder.
FORKS = """
import gc, json, os, shutil, signal, sys, time
import torch
import fcamlib.checkpoint, fcamlib.training
from fcamlib.config import RunConfig
from fcamlib.data.pictures import load_pictures
from fcamlib.runs import run

def fatal(module, name, left):
    call = getattr(module, name)
    def counted(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)
    setattr(module, name, counted)

def compute(job):
    os.environ["FCAM_RESULTS"] = job["results"]
    if job["to_stderr"]:
        os.dup2(os.open(job["to_stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    if job["calls"]:
        left = [job["calls"]]
        for module, name in ((os, "replace"), (os, "fsync"), (os, "mkdir"), (shutil, "rmtree")):
            fatal(module, name, left)
    def on_epoch(row):
        with open(job["epochs"], "a") as file:
            file.write(f"{row['epoch']}\\n")
    run(RunConfig.model_validate(job["config"]), on_epoch)

fcamlib.training.CHECKPOINT_SECONDS = -1.0
load_pictures("digits", 8)
torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0).zero_grad()  # imports half of torch, once for all
gc.freeze()  # so that collecting garbage does not copy every page in every process
for line in sys.stdin:
    jobs, pids = json.loads(line), []
    for job in jobs:
        pids.append(os.fork())
        if pids[-1] == 0:
            status = 1
            try:
                compute(job)
                status = 0
            finally:
                os._exit(status)
    for job, pid in zip(jobs, pids):
        if job["seconds"] is not None:
            time.sleep(job["seconds"])
            os.kill(pid, signal.SIGKILL)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
"""


class Forks:
    """Runs configs in processes of their own that can be killed."""

    def __init__(self, folder: Path) -> None:
        self.epochs, self.stderr = folder / "epochs", folder / "stderr"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def job(self, config: RunConfig, results: Path, seconds: float | None = None, calls: int = 0) -> dict[str, Any]:
        described = {"config": config.model_dump(mode="json"), "results": str(results), "seconds": seconds}
        return {**described, "calls": calls, "epochs": str(self.epochs), "to_stderr": str(self.stderr)}

    def run(self, *jobs: dict[str, Any]) -> list[int]:
        """Exit status of each job: 0 done, -9 killed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(jobs) + "\n")
        self.process.stdin.flush()
        statuses = json.loads(self.process.stdout.readline())
        assert set(statuses) <= {0, -signal.SIGKILL}, self.stderr.read_text()
        return statuses

    def epochs_trained(self) -> int:
        """How many epochs were trained since the last call."""
        count = len(self.epochs.read_text().split()) if self.epochs.exists() else 0
        self.epochs.unlink(missing_ok=True)
        return count


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    forked = Forks(tmp_path_factory.mktemp("forks"))
    yield forked
    forked.process.kill()
    forked.process.communicate()


def config_of(paradigm: str = "hybrid", seed: int = 0, **changes: Any) -> RunConfig:
    return experiment({**SMALL, "paradigms": paradigm, "seeds": seed, **changes}).configs()[0]


CONFIG = config_of(learning_rates="0.05,0.1", search_epochs=2)  # a hybrid with a search: 2 + 3 + 3 epochs
CONFIG_EPOCHS = 8


@pytest.fixture(scope="module")
def reference(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> store.Run:
    """CONFIG's run without an interruption."""
    folder = tmp_path_factory.mktemp("reference")
    assert forks.run(forks.job(CONFIG, folder)) == [0]
    assert forks.epochs_trained() == CONFIG_EPOCHS
    return store.Run(folder / CONFIG.name)


def assert_same_numbers(one: store.Run, other: store.Run) -> None:
    """Equal to the last bit in all but what the clock says."""
    first, second = (run.history.drop(columns="seconds") for run in (one, other))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    for name in ("splits", "aggregations", "selection"):
        assert one.summary[name] == other.summary[name]
    for file in ("scores.npz", "examples.npz"):
        arrays, others = one.arrays(file), other.arrays(file)
        assert arrays.keys() == others.keys()
        for name in arrays:
            np.testing.assert_array_equal(arrays[name], others[name])
    assert (one.folder / "model.safetensors").read_bytes() == (other.folder / "model.safetensors").read_bytes()


def assert_nothing_half_written(results: Path, config: RunConfig) -> None:
    """Every run's folder is complete; whatever else lies there is out of sight."""
    visible = [folder for folder in results.glob("[!.]*")] if results.exists() else []
    assert {folder.name for folder in visible} <= {config.name}
    for folder in visible:
        assert {path.name for path in folder.iterdir()} == set(FILES) and store.damage(folder) == ""


def test_a_run_killed_at_random_moments_leaves_nothing_half_written_and_resumes_to_the_same_numbers(
    forks: Forks, reference: store.Run, tmp_path: Path
) -> None:
    began = time.monotonic()
    assert forks.run(forks.job(CONFIG, tmp_path / "timed")) == [0]
    whole = time.monotonic() - began
    forks.epochs_trained()
    draws, kills, finished, resumed = random.Random(0), 0, 0, 0
    results = tmp_path / f"results{finished}"
    while kills < NUM_KILLS:
        (status,) = forks.run(forks.job(CONFIG, results, seconds=draws.uniform(0.0, whole)))
        kills += status == -signal.SIGKILL
        assert_nothing_half_written(results, CONFIG)
        if (results / CONFIG.name).exists():
            assert_same_numbers(store.Run(results / CONFIG.name), reference)
            finished += 1
            results = tmp_path / f"results{finished}"
        elif (results / ".partial" / CONFIG.name / store.CHECKPOINT).exists():
            resumed += 1
    assert resumed > 0, "no kill hit a run between its epochs"
    assert forks.run(forks.job(CONFIG, results)) == [0]
    assert_same_numbers(store.Run(results / CONFIG.name), reference)
    assert not forks.stderr.exists() or "damaged" not in forks.stderr.read_text()


def test_a_run_killed_before_each_change_of_a_folder_resumes(forks: Forks, tmp_path: Path) -> None:
    """Every step of writing checkpoints and the finished run, one after the other."""
    config = config_of("soft", epochs=2)
    assert forks.run(forks.job(config, tmp_path / "whole")) == [0]
    whole, results, extra_epochs = store.Run(tmp_path / "whole" / config.name), tmp_path / "results", []
    forks.epochs_trained()
    for calls in range(1, 100):
        (status,) = forks.run(forks.job(config, results, calls=calls))
        assert_nothing_half_written(results, config)
        if status == 0:
            break
        assert forks.run(forks.job(config, results)) == [0]
        extra_epochs.append(forks.epochs_trained() - 2)
        assert_nothing_half_written(results, config)
        assert_same_numbers(store.Run(results / config.name), whole)
        shutil.rmtree(results)
    assert status == 0 and len(extra_epochs) > 15
    assert max(extra_epochs) <= 1, "more than the epoch at hand was trained twice"


def test_two_processes_that_ask_for_one_run_compute_it_once(forks: Forks, tmp_path: Path) -> None:
    forks.epochs_trained()
    config = config_of("lvml", seed=5)
    assert forks.run(*[forks.job(config, tmp_path / "results")] * 3) == [0, 0, 0]
    assert forks.epochs_trained() == SMALL["epochs"]
    assert store.damage(tmp_path / "results" / config.name) == ""

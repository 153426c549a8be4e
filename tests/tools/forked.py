"""Processes that can be killed: forked from one that has imported torch, so that a hundred of them cost little."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fcamlib import store
from fcamlib.store import Run

ROOT = Path(__file__).resolve().parents[2]
FILES = ("SHA256SUMS", "config.json", "examples.npz", "history.csv", "model.safetensors", "scores.npz", "summary.json")

# Reads jobs, a list in a line of JSON, and does `work` on each in a process of its own. A job with "seconds" is killed
# when it has used that much of the processor. Answers with the exit status and the processor time of each.
SERVER = """
import gc, json, os, signal, sys, time
import torch
import fcamlib.running, fcamlib.progress
from fcamlib.data.pictures import load_pictures

{work}

def child(job):
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(job["environment"])
    status = work(job)
    sys.stdout.flush()
    return status or 0

def used(pid):
    with open(f"/proc/{{pid}}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9

load_pictures("digits", 8)
torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0).zero_grad()  # imports half of torch, once for all
gc.freeze()  # so that collecting garbage does not copy every page in every process
for line in sys.stdin:
    jobs, pids, answers = json.loads(line), [], []
    for job in jobs:
        pids.append(os.fork())
        if pids[-1] == 0:
            status = 99
            try:
                status = child(job)
            finally:
                os._exit(status)
    for job, pid in zip(jobs, pids):
        while job["seconds"] is not None and used(pid) < job["seconds"] and not os.waitid(
            os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
        ):
            time.sleep(0.001)
        if job["seconds"] is not None:
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        answers.append((os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime))
    print(json.dumps(answers), flush=True)
"""

needs_linux = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="needs Linux's accounts of processes"
)


class Forked:
    """Jobs in processes of their own.

    Parameters
    ----------
    work : str
        Source of `work(job)`, which does a job and returns its exit status, None for 0.
    folder : Path
        Where what the jobs say is kept.
    """

    def __init__(self, work: str, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER.format(work=work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def run(
        self, job: dict[str, Any], seconds: float | None = None, number: int = 1, **environment: str
    ) -> list[tuple[int, float]]:
        """Exit status (0 done, -9 killed) and processor time of each of some equal jobs that start together."""
        assert self.process.stdin is not None and self.process.stdout is not None
        jobs = [
            {**job, "seconds": seconds, "environment": environment, "log": str(self.folder / "log")}
            | {name: str(self.folder / f"{name}{place}") for name in ("out", "err")}
            for place in range(number)
        ]
        self.process.stdin.write(json.dumps(jobs) + "\n")
        self.process.stdin.flush()
        return [(status, used) for status, used in json.loads(self.process.stdout.readline())]

    def said(self, stream: str, place: int = 0) -> str:
        """What a job of the last call wrote to "out" or "err"."""
        return (self.folder / f"{stream}{place}").read_text()

    def logged(self) -> list[str]:
        """Words that `work` wrote into the file job["log"] since the last call, sorted."""
        log = self.folder / "log"
        words = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return sorted(words)


@contextmanager
def forked(work: str, folder: Path) -> Iterator[Forked]:
    """`Forked`, ended when done."""
    started = Forked(work, folder)
    yield started
    started.process.kill()
    started.process.communicate()


def assert_same(own: Path, other: Path) -> None:
    """Two folders of a run: whole, and equal to the last bit in all but what the clock says."""
    assert store.damage(own) == "" == store.damage(other)
    for file in ("config.json", "scores.npz", "examples.npz", "model.safetensors"):
        assert (own / file).read_bytes() == (other / file).read_bytes(), file
    first, second = (Run(folder).history.drop(columns="seconds") for folder in (own, other))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    for name in ("splits", "aggregations", "selection"):
        assert Run(own).summary[name] == Run(other).summary[name]

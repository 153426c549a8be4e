"""Processes that can be killed: forked from one that has imported torch, so that a hundred of them cost little."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fcamlib.config import Config

ROOT = Path(__file__).resolve().parents[2]

# Reads jobs, a list in a line of JSON, and asks the store for each job's config in a process of its own, which writes a
# word into a log for each measured row. A job with "calls" kills itself before the n-th call that changes a folder.
# Answers with the exit statuses.
SERVER = """
import gc, json, os, shutil, signal, sys
import torch
import fcamlib.captioning.training, fcamlib.running, fcamlib.theory.sweep
from fcamlib import store
from fcamlib.config import read
from fcamlib.data.pictures import load_pictures

def fatal(module, name, left):
    call = getattr(module, name)
    def counted(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)
    setattr(module, name, counted)

def child(job):
    os.dup2(os.open(job["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.environ.update(job["environment"])
    if job["calls"]:
        left = [job["calls"]]
        for module, name in ((os, "replace"), (os, "fsync"), (os, "mkdir"), (shutil, "rmtree")):
            fatal(module, name, left)
    def progress(row):
        with open(job["log"], "a") as file:
            file.write("row" + chr(10))
    store.get(read(job["config"].encode()), progress)

load_pictures("digits", 8)
torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0).zero_grad()  # imports half of torch, once for all
gc.freeze()  # so that collecting garbage does not copy every page in every process
for line in sys.stdin:
    jobs, pids = json.loads(line), []
    for job in jobs:
        pids.append(os.fork())
        if pids[-1] == 0:
            status = 99
            try:
                child(job)
                status = 0
            finally:
                os._exit(status)
    answers = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    print(json.dumps(answers), flush=True)
"""


class Forked:
    """`store.get` in processes of their own; what they say and measure is kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process: Any = subprocess.Popen([sys.executable, "-c", SERVER], env=environment, **pipes)  # type: ignore[call-overload]

    def get(self, config: Config, results: Path, calls: int = 0, number: int = 1) -> list[int]:
        """Exit status (0 done, -9 killed) of each of some equal processes that start together."""
        environment = {"FCAM_RESULTS": str(results), "FCAM_CHECKPOINT_SECONDS": "0"}
        job = {"config": config.model_dump_json(), "calls": calls, "environment": environment}
        job |= {"log": str(self.folder / "log"), "err": str(self.folder / "err")}
        self.process.stdin.write(json.dumps([job] * number) + "\n")
        self.process.stdin.flush()
        ended: list[int] = json.loads(self.process.stdout.readline())
        assert set(ended) <= {0, -9}, self.said()
        return ended

    def said(self) -> str:
        """What the processes of the last call wrote to standard error."""
        return (self.folder / "err").read_text()

    def rows(self) -> int:
        """How many rows were measured since the last call."""
        log = self.folder / "log"
        number = len(log.read_text().split()) if log.exists() else 0
        log.unlink(missing_ok=True)
        return number


@contextmanager
def forked(folder: Path) -> Iterator[Forked]:
    """`Forked`, ended when done."""
    started = Forked(folder)
    yield started
    started.process.kill()
    started.process.communicate()

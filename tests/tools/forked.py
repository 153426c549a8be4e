"""`store.get` in processes that can be killed, forked from one that has imported torch, so that each costs little."""

import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from fcamlib import store
from fcamlib.config import Config, read

CONTEXT = multiprocessing.get_context("forkserver")
IMPORTED = ["fcamlib.captioning.training", "fcamlib.data.mosaics", "fcamlib.running", "fcamlib.theory.sweep",
            "sklearn.datasets", "sklearn.model_selection", "torch._dynamo"]  # fmt: skip
CONTEXT.set_forkserver_preload(IMPORTED)


def _fatal(module: Any, name: str, left: list[int]) -> None:
    """Let the process kill itself before the call with which the one number in `left` is used up."""
    call = getattr(module, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)

    setattr(module, name, counted)


def _compute(config: bytes, results: Path, calls: int, folder: Path) -> None:
    """Compute a result in a process of its own, with a word in a log for each measured row."""
    os.dup2(os.open(folder / "err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.environ.update(FCAM_RESULTS=str(results), FCAM_CHECKPOINT_SECONDS="0")
    left = [calls]
    for module, name in ((os, "replace"), (os, "fsync"), (os, "mkdir"), (shutil, "rmtree")) if calls else ():
        _fatal(module, name, left)

    def progress(row: store.Row) -> None:
        with (folder / "log").open("a") as file:
            file.write("row\n")

    store.get(read(config), progress)


class Forked:
    """Processes that each compute a result; what they say and measure is kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, config: Config, results: Path, calls: int = 0, number: int = 1) -> list[int | None]:
        """Exit status (0 done, -9 killed) of each of some equal processes that start together.

        With `calls`, a process kills itself before its n-th call that changes a folder.
        """
        given = (config.model_dump_json().encode(), results, calls, self.folder)
        jobs = [CONTEXT.Process(target=_compute, args=given) for _ in range(number)]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        ended = [job.exitcode for job in jobs]
        assert {*ended} <= {0, -9}, self.said()
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

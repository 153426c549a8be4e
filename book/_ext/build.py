"""Build the book with Snakemake: one line a step with its time, everything else in a log.

Usage: build.py [Snakemake's arguments]

A build holds a lock that ends with its last process, so a killed build never stands in the way of the next one.
"""

import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(".snakemake")
START = re.compile(r"^Job (\d+): (.+)")
END = re.compile(r"^Finished jobid: (\d+)|^(\d+) of (\d+) steps")


def main(arguments: list[str]) -> int:
    """Run Snakemake; its exit status, or 1 if another build is at work in this folder."""
    FOLDER.mkdir(exist_ok=True)
    path, lock = FOLDER / "build.log", os.open(FOLDER / "build.lock", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(lock, True)  # processes that a killed build leaves running hold the lock too
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("Another build is at work in this folder: wait until it ends, or stop its processes.", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "snakemake", "--nolock", "--rerun-incomplete", *arguments]
    coding: Any = {"encoding": "utf-8", "errors": "replace"}
    piped = coding | {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with path.open("w", **coding) as log, subprocess.Popen(command, close_fds=False, **piped) as process:
        for step in steps(line for line in process.stdout or () if log.write(line)):
            print(step, flush=True)
    if status := process.returncode:
        print(*path.read_text("utf-8").splitlines()[-40:], sep="\n", file=sys.stderr)
    words = "The build failed; the" if status else "The"
    print(f"{words} whole log is {path.absolute()}.", file=sys.stderr if status else sys.stdout)
    return status


def steps(lines: Iterable[str]) -> Iterable[str]:
    """A line for each finished step: number, what it made, seconds."""
    began: dict[str, tuple[str, float]] = {}
    finished = ""
    for line in lines:
        if start := START.match(line):
            began[start[1]] = (start[2], time.monotonic())
        elif (end := END.match(line)) and end[1]:
            finished = end[1]
        elif end and finished in began:
            name, since = began.pop(finished)
            yield f"[{end[2]:>2}/{end[3]}] {name} ({time.monotonic() - since:.0f} s)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

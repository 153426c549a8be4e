"""Build the book with Snakemake: one line a step with its time, everything else in a log.

Usage: build.py [Snakemake's arguments]

A build holds a lock that falls with its last process, so a killed build never bars the next one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock, Timeout

FOLDER = Path(".snakemake")
LOG, LOCK = FOLDER / "build.log", FOLDER / "build.lock"
SHOWN = 40  # lines of the log after a failure
NAME = re.compile(r"^(?:local)?rule (\w+):|^    wildcards: \w+=(\S+)|^    jobid: (\d+)")
DONE = re.compile(r"^Finished jobid: (\d+)")
STEPS = re.compile(r"^(\d+) of (\d+) steps")


def main(arguments: list[str]) -> int:
    """Run Snakemake; its exit status, or 1 where another build is at work in this folder."""
    FOLDER.mkdir(exist_ok=True)
    lock = FileLock(LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print("Another build is at work in this folder: wait until it ends, or stop its processes.", file=sys.stderr)
        return 1
    os.set_inheritable(lock._context.lock_file_fd, True)  # what a killed build leaves running holds the lock too
    command = [sys.executable, "-m", "snakemake", "--nolock", "--rerun-incomplete", *arguments]
    with LOG.open("w", encoding="utf-8") as log:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "close_fds": False}
        process = subprocess.Popen(command, text=True, errors="replace", **options)
        assert process.stdout is not None
        show(process.stdout, log)
    if status := process.wait():
        print(*LOG.read_text("utf-8").splitlines()[-SHOWN:], sep="\n", file=sys.stderr)
        print(f"The build failed with status {status}: the whole log is in {LOG.absolute()}.", file=sys.stderr)
    return status


def show(lines: object, log: object) -> None:
    """Write every line to the log, and a line for each finished step to the terminal."""
    rule, wildcard, finished = "", "", ""
    names: dict[str, tuple[str, float]] = {}
    for line in lines:  # type: ignore[attr-defined]
        log.write(line)  # type: ignore[attr-defined]
        if found := NAME.match(line):
            if found[1]:
                rule, wildcard = found[1], ""
            wildcard = found[2] or wildcard
            if found[3]:
                names[found[3]] = (rule, time.monotonic())
            if wildcard and names:
                last = next(reversed(names))
                names[last] = (wildcard, names[last][1])
        elif found := DONE.match(line):
            finished = found[1]
        elif (found := STEPS.match(line)) and finished in names:
            name, began = names[finished]
            print(f"[{found[1]:>3}/{found[2]}] {name}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

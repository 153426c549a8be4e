"""The build of the book: one line a finished step, and one build at a time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

SCRIPT = Path(__file__).resolve().parents[2] / "book" / "_ext" / "build.py"
PIPELINE = """
rule all:
    input: "made"
    message: "everything"
rule make:
    output: "made"
    message: "the one file"
    shell: "echo noise; {}"
"""


def build(folder: Path, shell: str) -> subprocess.CompletedProcess[str]:
    (folder / "Snakefile").write_text(PIPELINE.format(shell))
    command = [sys.executable, str(SCRIPT), "--cores", "1"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_build_names_its_steps_and_keeps_the_rest_in_a_log(tmp_path: Path) -> None:
    done = build(tmp_path, "touch made")
    assert done.returncode == 0 and done.stderr == ""
    *steps, last = done.stdout.splitlines()
    assert [re.sub(r" \(\d+ s\)$", "", step) for step in steps] == ["[ 1/2] the one file", "[ 2/2] everything"]
    log = tmp_path / ".snakemake" / "build.log"
    assert last == f"The whole log is {log}." and "noise" in log.read_text()


def test_a_failed_build_shows_the_end_of_its_log(tmp_path: Path) -> None:
    failed = build(tmp_path, "echo the reason >&2; exit 3")
    assert failed.returncode == 1 and "the reason" in failed.stderr
    assert failed.stderr.endswith(f"the whole log is {tmp_path / '.snakemake' / 'build.log'}.\n")


def test_a_second_build_waits_for_no_lock_of_a_dead_one(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".snakemake" / "build.lock"):
        refused = build(tmp_path, "touch made")
    assert refused.returncode == 1 and refused.stderr.startswith("Another build is at work in this folder")
    (tmp_path / ".snakemake" / "locks").mkdir()
    (tmp_path / ".snakemake" / "locks" / "0.output.lock").write_text("made")  # what a killed Snakemake leaves
    assert build(tmp_path, "touch made").returncode == 0

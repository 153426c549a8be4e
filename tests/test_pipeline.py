"""The pipeline by Snakemake: a killed job resumes and numbers agree, Slurm is asked for jobs, one build at a time."""

import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml
from filelock import FileLock

from fcamlib import checkpoint, paths, store
from fcamlib.config import Grid, Run, grids

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 600  # a call of Snakemake takes at most this long
MARK = 4321.0  # seconds of an epoch that no run takes
SMALL = {"num_segments": 3, "num_train": 96, "num_validation": 48, "num_test": 48, "batch_size": 24}
GRIDS = [
    {**SMALL, "epochs": 2, "paradigms": "soft"},
    {**SMALL, "epochs": 150, "paradigms": "soft", "momentum": 0.8},  # the one whose job is killed
    {**SMALL, "epochs": 2, "paradigms": ["hard", "hybrid"]},
]


def processes(folder: Path, words: str) -> list[int]:
    """Processes whose working folder is `folder` and whose command holds `words`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if words in command and (process / "cwd").resolve() == folder.resolve():
                found.append(int(process.name))
        except OSError:  # it has ended
            pass
    return found


def wait_for(done: Callable[[], bool], what: str, process: subprocess.Popen[str]) -> None:
    """Look until something has happened, as long as Snakemake runs."""
    end = time.monotonic() + SECONDS
    while not done():
        assert process.poll() is None, f"Snakemake ended before {what}:\n{process.communicate()[0]}"
        assert time.monotonic() < end, f"no sign of {what}"
        time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of work with the pipeline and the grids above."""
    made = tmp_path / "work"
    made.mkdir()
    for name in ("Snakefile", "CHANGELOG.md", "book", "notebooks", "profiles"):
        (made / name).symlink_to(ROOT / name)
    (made / "grids.yaml").write_text(yaml.safe_dump_all(GRIDS))
    return made


def command(place: str, *options: str) -> list[str]:
    config = ["--config", "profile=grids.yaml", "runs_per_job=2", "--", "runs"]
    return [sys.executable, "-m", "snakemake", "--profile", f"profiles/{place}", *options, *config]


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds the process to kill in /proc")
def test_a_killed_job_is_tried_again_and_all_numbers_are_those_of_this_process(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = folder / "results"
    configs: list[Run] = [run for grid in grids(folder / "grids.yaml") for run in Grid.of(grid).configs()]
    first, long = configs[:2]
    environment = {**os.environ, "FCAM_RESULTS": str(results), "FCAM_CHECKPOINT_SECONDS": "0", "PYTHONPATH": str(ROOT)}
    state = results / ".partial" / long.name / store.CHECKPOINT
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command("local"), cwd=folder, env=environment, **pipes) as process:  # type: ignore[call-overload]
        try:
            wait_for(state.exists, "a checkpoint", process)
            for pid in processes(folder, "fcamlib run"):
                os.kill(pid, signal.SIGKILL)
            checkpointed = checkpoint.load(state)  # its epochs are marked, to tell them from epochs trained again
            (candidate,) = checkpointed["candidates"]
            candidate["history"] = [{**row, "seconds": MARK} for row in candidate["history"]]
            checkpoint.save(state, checkpointed)
            finished = (results / first.name / "summary.json").stat().st_mtime_ns
            output, _ = process.communicate(timeout=SECONDS)
        finally:
            process.terminate()  # nothing where it has ended
            for pid in processes(folder, "snakemake"):  # of jobs that were killed
                os.kill(pid, signal.SIGKILL)
    assert process.returncode == 0, output
    assert (results / first.name / "summary.json").stat().st_mtime_ns == finished, "trained twice"
    assert sorted(path.name for path in results.glob("[!.]*")) == sorted(config.name for config in configs)
    marked = list(store.Result[Run](results / long.name).history["seconds"] == MARK)
    assert marked == [number < len(candidate["history"]) for number in range(150)], "it did not resume"

    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "here"))
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)
    for config in configs:
        there, here = store.Result[Run](results / config.name), store.get(config)
        assert there.damage == "" and there.summary["splits"] == here.summary["splits"]
        for file in ("config.json", "scores.npz", "examples.npz", "model.safetensors"):
            assert (there.folder / file).read_bytes() == (here.folder / file).read_bytes(), file
        one, other = (found.history.drop(columns="seconds") for found in (there, here))
        pd.testing.assert_frame_equal(one, other, check_exact=True)


def test_slurm_is_asked_for_each_job_with_its_resources(folder: Path) -> None:
    environment = {**os.environ, "FCAM_RESULTS": str(folder / "results"), "PYTHONPATH": str(ROOT)}
    listed = subprocess.run(command("slurm", "--dry-run"), cwd=folder, env=environment, capture_output=True, text=True)
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert re.search(r"resources: .*mem_mb=16000.*runtime=720, gpu=1", listed.stdout)


SCRIPT = ROOT / "book" / "_ext" / "build.py"
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


def test_the_pdf_needs_a_browser_and_the_zip_holds_the_site(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "book" / "_build" / "html").mkdir(parents=True)
    (tmp_path / "book" / "_build" / "html" / "index.html").write_text("x")
    make = ["make", "-f", str(ROOT / "Makefile"), "-o", "book", "CHROMIUM="]
    done = [subprocess.run([*make, name], cwd=tmp_path, capture_output=True, text=True) for name in ("pdf", "offline")]
    assert done[0].returncode == 2 and "No Chromium was found on PATH: install the package" in done[0].stdout
    assert done[1].returncode == 0, done[1].stderr
    with zipfile.ZipFile(tmp_path / "book" / "_build" / "attention-dynamics-offline.zip") as made:
        assert made.read("html/index.html") == b"x"

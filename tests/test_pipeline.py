"""The pipeline by Snakemake: a killed job resumes and numbers agree, Slurm is asked for jobs, one build at a time."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import yaml
from filelock import FileLock

from fcamlib import paths, store
from fcamlib.config import Grid, Run, grids

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"num_segments": 3, "num_train": 96, "num_validation": 48, "num_test": 48, "batch_size": 24}
GRIDS = [
    {**SMALL, "epochs": 2, "paradigms": "soft"},
    {**SMALL, "epochs": 6, "paradigms": "hybrid"},  # of the same job, which is killed
]
CHECKPOINTS = 6 + 2  # of the second run, one after each epoch and one after each phase
# A plug-in that writes a line for each of them, and kills the process after the first of the second phase.
FATAL = """
import os, signal
replace = os.replace

def counted(source, target):
    replace(source, target)
    if "/{name}/" in str(target):
        with open("checkpoints", "a+") as file:
            file.write("one" + chr(10))
            file.seek(0)
            number = len(file.readlines())
        if number == 5:
            os.kill(os.getpid(), signal.SIGKILL)

os.replace = counted
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of work with the pipeline and the grids above."""
    made = tmp_path / "work"
    made.mkdir()
    for name in ("Snakefile", "CHANGELOG.md", "book", "notebooks", "profiles"):
        (made / name).symlink_to(ROOT / name)
    (made / "grids.yaml").write_text(yaml.safe_dump_all(GRIDS))
    return made


def snakemake(folder: Path, place: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snakemake", "--profile", f"profiles/{place}", *options]
    command += ["--config", "profile=grids.yaml", "runs_per_job=2", "--", "runs"]
    environment = {**os.environ, "FCAM_RESULTS": str(folder / "results"), "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_a_killed_job_is_tried_again_and_all_numbers_are_those_of_this_process(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[Run] = [run for grid in grids(folder / "grids.yaml") for run in Grid.of(grid).configs()]
    first, killed = (folder / "results" / config.name / "summary.json" for config in configs)
    (folder / "fatal.py").write_text(FATAL.format(name=killed.parent.name))
    done = snakemake(folder, "local", FCAM_CHECKPOINT_SECONDS="0", FCAM_PLUGINS="fatal")
    assert done.returncode == 0 and "Trying to restart job" in done.stderr, done.stdout + done.stderr
    assert (folder / "checkpoints").read_text().count("one") == CHECKPOINTS, "it did not resume"
    assert first.stat().st_mtime_ns < (folder / "checkpoints").stat().st_mtime_ns, "trained twice"
    assert sorted(path.name for path in killed.parents[1].glob("[!.]*")) == sorted(config.name for config in configs)

    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "here"))
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)
    for config in configs:
        there, here = store.Result[Run](folder / "results" / config.name), store.get(config)
        assert there.damage == "" and there.summary["splits"] == here.summary["splits"]
        for file in ("config.json", "scores.npz", "examples.npz", "model.safetensors"):
            assert (there.folder / file).read_bytes() == (here.folder / file).read_bytes(), file
        one, other = (found.history.drop(columns="seconds") for found in (there, here))
        pd.testing.assert_frame_equal(one, other, check_exact=True)


def test_slurm_is_asked_for_each_job_with_its_resources_also_on_captions(folder: Path) -> None:
    (folder / "grids.yaml").write_text(yaml.safe_dump_all([*GRIDS, {"dataset": "scenes"}]))
    listed = snakemake(folder, "slurm", "--dry-run")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert re.search(r"resources: .*mem_mb=16000.*runtime=720, gpu=1", listed.stdout)
    assert listed.stdout.count("results/captions-scenes-n150-") >= 3


PIPELINE = """
rule all:
    input: "made"
    message: "everything"
rule make:
    output: "made"
    message: "the one file"
    shell: "echo the reason >&2; exit 3"
"""


def test_a_build_waits_for_no_lock_of_a_dead_one_and_shows_the_end_of_its_log_where_it_fails(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(PIPELINE)
    command = [sys.executable, str(ROOT / "book" / "_ext" / "build.py"), "--cores", "1"]

    def build() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    with FileLock(tmp_path / ".snakemake" / "build.lock"):
        refused = build()
    assert refused.returncode == 1 and refused.stderr.startswith("Another build is at work in this folder")
    (tmp_path / ".snakemake" / "locks").mkdir()
    (tmp_path / ".snakemake" / "locks" / "0.output.lock").write_text("made")  # what a killed Snakemake leaves
    failed = build()
    assert failed.returncode == 1 and "the reason" in failed.stderr
    assert failed.stderr.endswith(f"the whole log is {tmp_path / '.snakemake' / 'build.log'}.\n")


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

"""The build of the book: one line a finished step, and one build at a time."""

import subprocess
import sys
import zipfile
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
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

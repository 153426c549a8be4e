"""What goes wrong under a grid: kills, a full disk, damaged files, two processes. Nothing false is ever shown.

`tests/test_interruption.py` holds the same of a single run, and `tests/test_store.py` of the store's functions.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from forked import FILES, Forked, assert_same, forked, needs_linux

from fcamlib import paths, store
from fcamlib.__main__ import main
from fcamlib.config import experiment
from fcamlib.store import Run

GRID = {"paradigms": "soft,lvml,hybrid", "num_train": 72, "num_validation": 24, "num_test": 24, "num_segments": 3,
        "batch_size": 24, "epochs": 4, "classification_network": "linear"}  # fmt: skip
OPTIONS = [part for name, value in GRID.items() for part in (f"--{name.replace('_', '-')}", str(value))]
CONFIGS = {config.name: config for config in experiment(GRID).configs()}
NUM_KILLS = 40
SHARE = 0.6  # of the whole grid's processor time, that a kill comes within at the latest

# `fcam` with a job's arguments. Runs that are computed are named in a file.
WORK = """
from fcamlib.__main__ import main

compute = fcamlib.running.run

def work(job):
    def logged(config, *rest):
        with open(job["log"], "a") as file:
            file.write(config.name + chr(10))
        return compute(config, *rest)

    fcamlib.running.run = logged
    try:
        main(job["arguments"], prog_name="fcam")
    except SystemExit as done:
        return done.code
"""

pytestmark = needs_linux


class Commands:
    """`fcam` in processes of their own."""

    def __init__(self, processes: Forked) -> None:
        self.said, self.computed, self._processes = processes.said, processes.logged, processes

    def run(
        self, results: Path, *arguments: str, seconds: float | None = None, number: int = 1, interval: str = "0"
    ) -> list[tuple[int, float]]:
        """Exit status and processor time of each of some equal commands that start together."""
        environment = {"FCAM_RESULTS": str(results), "FCAM_CHECKPOINT_SECONDS": interval}
        return self._processes.run({"arguments": arguments}, seconds, number, **environment)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with forked(WORK, tmp_path_factory.mktemp("commands")) as processes:
        yield Commands(processes)


@pytest.fixture(scope="module")
def undisturbed(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The store of a grid that nothing disturbed, and the processor time that it took."""
    results = tmp_path_factory.mktemp("undisturbed")
    ((status, used),) = commands.run(results, "grid", *OPTIONS)
    assert status == 0, commands.said("err")
    assert commands.computed() == sorted(CONFIGS)
    return results, used


@pytest.fixture(autouse=True)
def no_recorded_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)


def listed(results: Path) -> Result:
    """What `fcam list --json` says of a store."""
    return CliRunner().invoke(main, ["list", "--json"], env={"FCAM_RESULTS": str(results)})


def assert_nothing_false(results: Path, undisturbed: Path) -> set[str]:
    """What is shown are whole runs with the right numbers, and nobody complains; their names."""
    shown = listed(results)
    assert shown.exit_code == 0 and shown.stderr == ""
    entries = {entry["name"]: entry for entry in json.loads(shown.stdout)}
    assert set(entries) == {folder.name for folder in results.glob("[!.]*")}
    for name, entry in entries.items():
        assert {path.name for path in (results / name).iterdir()} == set(FILES)
        assert entry["splits"] == Run(undisturbed / name).summary["splits"]
    return set(entries)


def assert_whole(results: Path, undisturbed: Path) -> None:
    """The grid is complete, and equals the one that nothing disturbed."""
    assert assert_nothing_false(results, undisturbed) == set(CONFIGS)
    for name in CONFIGS:
        assert_same(results / name, undisturbed / name)


def test_a_grid_killed_at_random_moments_never_shows_anything_false_and_ends_as_one_undisturbed(
    commands: Commands, undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    reference, whole = undisturbed
    draws, kills, partly, resumed, number = random.Random(1), 0, 0, 0, 0
    results = tmp_path / "results0"
    while kills < NUM_KILLS:
        ((status, _),) = commands.run(results, "grid", *OPTIONS, seconds=draws.uniform(0.0, SHARE * whole))
        assert status in (0, -signal.SIGKILL), commands.said("err")
        assert commands.said("err") == "", "a killed predecessor is in the way"
        kills += status != 0
        done = assert_nothing_false(results, reference)
        partly += 0 < len(done) < len(CONFIGS)
        resumed += any((results / ".partial" / name / store.CHECKPOINT).exists() for name in CONFIGS)
        if done == set(CONFIGS):
            assert_whole(results, reference)
            results = tmp_path / f"results{(number := number + 1)}"
    assert partly and resumed, "the kills were not spread over the grid"
    assert commands.run(results, "grid", *OPTIONS)[0][0] == 0 and commands.said("err") == ""
    assert_whole(results, reference)


def test_two_grids_at_once_compute_each_run_once_and_say_the_same(
    commands: Commands, undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    commands.computed()
    assert [status for status, _ in commands.run(tmp_path, "grid", *OPTIONS, number=2)] == [0, 0]
    assert commands.computed() == sorted(CONFIGS)
    assert commands.said("out", 0) == commands.said("out", 1)
    assert [line.split(":")[0] for line in commands.said("out").splitlines()] == list(CONFIGS)
    assert_whole(tmp_path, undisturbed[0])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root; tests/test_store.py simulates a full one")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here; tests/test_store.py simulates a full one")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(("interval", "what"), [("0", "fcam: the checkpoint "), ("1000", "fcam: the result ")])
def test_a_full_disk_is_one_sentence_and_the_grid_ends_well_when_there_is_room(
    interval: str, what: str, commands: Commands, undisturbed: tuple[Path, float], small_disk: Path
) -> None:
    results, ballast, free, sentences = small_disk / "results", small_disk / "ballast", 0, set[str]()
    while True:
        ballast.write_bytes(bytes(max(0, _room(small_disk, ballast) - free)))
        ((status, _),) = commands.run(results, "grid", *OPTIONS, interval=interval)
        assert_nothing_false(results, undisturbed[0])
        if status == 0:
            break
        said = commands.said("err")
        assert status == 2 and said.startswith("fcam: the ") and len(said.splitlines()) == 1, said
        assert "No space left on device" in said and "make room and start again" in said
        sentences.add(said.split("'")[0])
        assert not list(results.glob(".partial/*.new")) and not list(results.glob(".partial/*/*.part"))
        free += 20 * 2**10
    assert free > 0 and what in sentences
    ballast.unlink()
    assert commands.run(results, "grid", *OPTIONS)[0][0] == 0 and commands.said("err") == ""
    assert_whole(results, undisturbed[0])


def _room(disk: Path, ballast: Path) -> int:
    """Bytes that the ballast may have at most."""
    ballast.unlink(missing_ok=True)
    state = os.statvfs(disk)
    return state.f_bavail * state.f_frsize


@pytest.mark.parametrize("file", FILES)
def test_files_cut_short_or_with_a_bit_changed_are_never_shown_and_computed_anew(
    file: str, commands: Commands, undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    (name, *others), reference = CONFIGS, undisturbed[0]
    content = (reference / name / file).read_bytes()
    place = random.Random(file).randrange(8 * len(content))
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    faulty = {"a bit": bytes(changed), "empty": b"", "half": content[: len(content) // 2], "longer": content + b"\n"}
    if file == "SHA256SUMS":
        short = b"".join(content.splitlines(keepends=True)[:-1])
        faulty |= {"a line less": short, "longer": b"0" * 64 + b"  ../SHA256SUMS\n" + content}
    results = tmp_path / "results"
    shutil.copytree(reference, results, ignore=shutil.ignore_patterns(".*"))
    for what, bad in faulty.items():
        (results / name / file).write_bytes(bad)
        shown = listed(results)
        assert shown.exit_code == 0, what
        assert sorted(entry["name"] for entry in json.loads(shown.stdout)) == sorted(others), what
    commands.computed()
    assert commands.run(results, "grid", *OPTIONS)[0][0] == 0
    (warning,) = commands.said("err").splitlines()
    assert warning.startswith(f"fcam: the stored result '{results / name}' is damaged (") and file in warning
    assert warning.endswith("): it is computed again.")
    assert commands.computed() == [name]
    assert_whole(results, reference)


def test_a_file_that_cannot_be_read_is_damage_of_its_run_alone(
    undisturbed: tuple[Path, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    shutil.copytree(undisturbed[0], results, ignore=shutil.ignore_patterns(".*"))
    name, *others = CONFIGS
    digest = hashlib.file_digest

    def failing(file: Any, algorithm: str) -> Any:
        if Path(file.name) == results / name / "scores.npz":
            raise OSError(errno.EIO, os.strerror(errno.EIO), file.name)
        return digest(file, algorithm)

    monkeypatch.setattr(hashlib, "file_digest", failing)
    assert store.damage(results / name) == "scores.npz cannot be read (Input/output error)"
    shown: Any = listed(results)
    assert shown.exit_code == 0
    assert sorted(entry["name"] for entry in json.loads(shown.stdout)) == sorted(others)

"""The store's promises over every kind of result: whole or absent, checked, computed once, resumed bit for bit."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forked import ROOT, Forked, forked, needs_linux

from fcamlib import paths, store
from fcamlib.config import (
    CaptionGrid,
    Config,
    CrossValidation,
    Grid,
    StudyGrid,
    SweepGrid,
)
from fcamlib.errors import DataError, StoreError

KINDS = ("run", "captions", "sweep", "study", "cross-validation")
GRID = {"num_train": 48, "num_validation": 24, "num_test": 24, "num_segments": 3, "batch_size": 24, "epochs": 4}
CAPTIONS = {"num_train": 12, "num_validation": 4, "num_test": 4, "epochs": 3, "switch_epoch": 1, "image_size": 48}
SWEEP = {"num_classes": 3, "num_segments": 3, "num_train": 20, "epochs": 4, "alphas": "0.2,1", "batch_size": 10}
BAGS = {"methods": ("soft", "hybrid"), "repeats": 1, "folds": 2, "epochs": 2, "learning_rates": (0.01,)}
NUM_KILLS = 6  # of each kind

each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Config]:
    """A small config of every kind; the run is a hybrid that compares learning rates: 2 + 2 + 2 epochs."""
    bags = tmp_path_factory.mktemp("some where") / "mine.npz"
    bag, draws = np.repeat(np.arange(12), 3), np.random.default_rng(2)
    features, fold = draws.normal(size=(36, 5)) + 3 * (bag % 2)[:, None], np.arange(12)[None] // 2 % 2
    np.savez(bags, features=features, bag=bag, label=np.arange(12) % 2, fold=fold)
    source = f"bags:{bags}"
    return {
        "run": Grid.of({**GRID, "paradigms": "hybrid", "learning_rates": "0.05,0.1", "search_epochs": 1}).configs()[0],
        "captions": CaptionGrid.of({**CAPTIONS, "paradigms": "hybrid", "hidden_dim": 8}).configs()[0],
        "sweep": SweepGrid.of(SWEEP).config(),
        "study": StudyGrid.of({**GRID, "paradigms": "soft,hybrid", "focus_networks": "linear,mlp:1x4"}).config(),
        "cross-validation": CrossValidation(
            source=source, fingerprint=hashlib.sha256(bags.read_bytes()).hexdigest(), batch_size=8, **BAGS
        ),
    }


@pytest.fixture(scope="module")
def references(configs: dict[str, Config], tmp_path_factory: pytest.TempPathFactory) -> dict[str, store.Result[Any]]:
    """An undisturbed result of every kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCAM_RESULTS", str(tmp_path_factory.mktemp("references")))
        return {kind: store.get(config) for kind, config in configs.items()}


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty results folder, an empty one of recorded results, and checkpoints after every epoch."""
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("FCAM_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(paths, "recorded_dir", lambda: tmp_path / "recorded")
    return tmp_path / "results"


def assert_same(own: store.Result[Any], other: store.Result[Any]) -> None:
    """Whole, and equal to the last bit in all but the clock."""
    assert own.damage == "" == other.damage
    files = {path.name for path in other.folder.iterdir()}
    assert {path.name for path in own.folder.iterdir()} == files
    for file in files - {"history.csv", "summary.json", store.SUMS}:
        assert (own.folder / file).read_bytes() == (other.folder / file).read_bytes(), file
    first, second = (result.history.drop(columns="seconds", errors="ignore") for result in (own, other))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert [{**result.summary, "provenance": None} for result in (own, other)].count(
        {**own.summary, "provenance": None}
    ) == 2


def assert_nothing_half_written(results: Path) -> None:
    """Every visible folder is whole; whatever else lies there is out of sight."""
    assert [result.damage for result in store.survey(results)] == [""] * len(list(results.glob("[!.]*")))


def flip(path: Path, place: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


# --- found, recorded, damaged -----------------------------------------------------------------------------------------


@each_kind
def test_a_result_is_computed_once_and_recorded_light_without_a_path(
    kind: str, configs: dict[str, Config], references: dict[str, store.Result[Any]], results: Path
) -> None:
    config, rows = configs[kind], list[store.Row]()
    result = store.get(config, rows.append)
    assert rows and result.folder == results / config.name and result in store.every(type(config))
    measured = len(rows)
    assert store.get(config, rows.append).folder == result.folder and len(rows) == measured
    assert_same(result, references[kind])
    check = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", store.SUMS], cwd=result.folder)
    assert check.returncode == 0
    kept = store.record(result)
    assert kept.is_recorded and store.get(config).folder == kept.folder and store.every(recorded=True) == [kept]
    assert {path.name for path in kept.folder.iterdir()} <= {store.SUMS, *store.RECORDED_FILES}
    assert (kept.folder / "summary.json").read_bytes().count(b"\n") == 1, "small, since it is kept with the source"
    assert kept.config.name == config.name and kept.history.equals(result.history) and kept.summary == result.summary
    for path in kept.folder.iterdir():
        assert b"some where" not in path.read_bytes()
    assert store.get(config, recorded=False).folder == result.folder
    assert list((results / ".partial").glob(f"{config.name}*")) == []


@each_kind
def test_a_changed_file_is_never_shown_warned_of_once_and_computed_again(
    kind: str,
    configs: dict[str, Config],
    references: dict[str, store.Result[Any]],
    results: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config, reference, draws = configs[kind], references[kind], random.Random(kind)
    folder = results / config.name
    for file in sorted(path.name for path in reference.folder.iterdir()):
        content = (reference.folder / file).read_bytes()
        bad, place = bytearray(content), draws.randrange(8 * len(content))
        bad[place // 8] ^= 1 << place % 8
        faulty = {"a bit": bytes(bad), "empty": b"", "half": content[: len(content) // 2], "longer": content + b"\n"}
        if file == store.SUMS:
            faulty["longer"] = b"0" * 64 + b"  ../SHA256SUMS\n" + content
        for what, other in faulty.items():
            shutil.copytree(reference.folder, folder)
            (folder / file).write_bytes(other)
            assert store.every(type(config)) == [] and store.find(config) is None, f"{what} of {file}"
            shutil.rmtree(folder)
        shutil.copytree(reference.folder, folder)
        (folder / file).unlink()
        assert store.find(config) is None, f"{file} is missing"
        shutil.rmtree(folder)
    shutil.copytree(reference.folder, folder)
    flip(folder / "history.csv")
    caplog.clear()
    assert_same(store.get(config), reference)
    sentence = (
        f"the stored result '{folder}' is damaged (history.csv does not have its checksum): it is computed again."
    )
    assert caplog.messages == [sentence]
    shutil.move(folder, results / "another-name")
    assert "another-name" not in {path.folder.name for path in store.every(type(config))}
    assert "another-name' is damaged (config.json is another result's)" in caplog.messages[-1]


def test_a_folder_that_cannot_be_read_hides_no_other(
    references: dict[str, store.Result[Any]], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reference in references.values():
        shutil.copytree(reference.folder, results / reference.folder.name)
    digest, broken = hashlib.file_digest, references["study"].folder.name

    def failing(file: Any, algorithm: str) -> Any:
        if Path(file.name).parent.name == broken:
            raise OSError(5, "Input/output error")
        return digest(file, algorithm)

    monkeypatch.setattr(hashlib, "file_digest", failing)
    (results / "a-loop").symlink_to("a-loop")
    (results / "of-no-result").mkdir()
    assert len(store.every()) == len(KINDS) - 1
    faulty: store.Result[Any] = next(result for result in store.survey(results) if result.damage)
    assert faulty.damage == "config.json cannot be read (Input/output error)"


def test_a_clone_that_converts_line_endings_leaves_records_alone(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("git attributes need a checkout of git")
    names = ["results/recorded/x/history.csv", "results/recorded/x/SHA256SUMS", "results/recorded/claims.json"]
    found = subprocess.run(["git", "check-attr", "text", "--", *names], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.splitlines() == [f"{name}: text: unset" for name in names]


# --- what cannot be computed or written -------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["file", "file/below", "/dev/null/x", "/proc/fcam"])
def test_a_results_folder_that_cannot_be_written_is_one_sentence(
    place: str, configs: dict[str, Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    folder = tmp_path / place
    monkeypatch.setenv("FCAM_RESULTS", str(folder))
    with pytest.raises(
        StoreError, match=r"cannot be written \(.*\): set FCAM_RESULTS to a folder that can\.$"
    ) as caught:
        store.get(configs["run"])
    assert str(caught.value).startswith(f"the results folder '{folder}' cannot be written (")
    assert store.every() == [] and store.unfinished() == []


@each_kind
def test_a_full_disk_is_one_sentence_and_loses_nothing(
    kind: str, configs: dict[str, Config], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.get(configs[kind])
    sums = (before.folder / store.SUMS).read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    for place, what in (("fcamlib.checkpoint.save_file", "checkpoint"), ("os.fsync", "result")):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            with pytest.raises(
                StoreError, match=rf"^the {what} '.*' cannot be written \(No space left .*\): make room"
            ):
                store.get(configs[kind], fresh=True)
        assert (before.folder / store.SUMS).read_bytes() == sums
        assert_nothing_half_written(results)
        assert not list(results.glob(".*.new")) and not list(results.glob(".partial/*/*.part"))


def test_rows_that_cannot_be_kept_are_one_sentence(configs: dict[str, Config]) -> None:
    (store.partial_dir(configs["study"]) / store.ROWS).mkdir(parents=True)
    with pytest.raises(
        StoreError, match=r"rows.jsonl' cannot be written \(Is a directory\): make room and start again"
    ):
        store.get(configs["study"])


def test_data_that_changed_and_names_that_cannot_be_written_are_refused_before_training(
    configs: dict[str, Config], tmp_path: Path
) -> None:
    other = configs["cross-validation"].model_copy(update={"fingerprint": "0" * 64})
    with pytest.raises(DataError, match="is not the one that the config was made for: give the same data, or make"):
        store.get(other)
    moved = configs["cross-validation"].model_copy(update={"source": f"bags:{tmp_path}/f\udcffolder/mine.npz"})
    with pytest.raises(StoreError, match=r"names a file or folder that is not UTF-8 text: rename it\.$"):
        store.get(moved)
    assert store.every() == []


# --- interrupted, killed, raced ---------------------------------------------------------------------------------------


def stopped(config: Config, after: int) -> int:
    """Interrupt a computation at its row number `after`, counted from 1; how many rows were measured."""
    rows: list[store.Row] = []

    def stop(row: store.Row) -> None:
        rows.append(row)
        if len(rows) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.get(config, stop)
    return len(rows)


@each_kind
def test_an_interrupted_computation_resumes_and_what_is_damaged_of_it_is_computed_again(
    kind: str,
    configs: dict[str, Config],
    references: dict[str, store.Result[Any]],
    results: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config, rows = configs[kind], list[store.Row]()
    stopped(config, 3 if kind != "sweep" else 9)
    (name,) = store.unfinished()
    kept = next(path for path in (results / ".partial" / name).iterdir())
    content = kept.read_bytes()
    assert_same(store.get(config, rows.append), references[kind])
    resumed = len(rows)
    assert store.unfinished() == [] and caplog.messages == []
    places = [0, len(content) // 3, len(content) // 2, -2]
    for bad in [*(bytes([*content[:p], content[p] ^ 1, *content[p:][1:]]) for p in places), b"", content[:-9], b"5\n"]:
        for folder in results.glob("[!.]*"):
            shutil.rmtree(folder)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(bad)
        rows.clear()
        assert_same(store.get(config, rows.append), references[kind])
        assert len(rows) > resumed or not bad, "resumed from a damaged file"
    assert all("is damaged: " in message for message in caplog.messages) and caplog.messages


def test_a_changed_number_among_kept_rows_is_noticed(
    configs: dict[str, Config], references: dict[str, store.Result[Any]]
) -> None:
    stopped(configs["study"], 3)
    rows = store.partial_dir(configs["study"]) / store.ROWS
    text = rows.read_text()
    place = text.index('"accuracy": 0.') + len('"accuracy": 0.')
    rows.write_text(f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}")
    measured: list[store.Row] = []
    assert_same(store.get(configs["study"], measured.append), references["study"])
    assert len(measured) == 2, "one was kept, one damaged, one to come, and one stopped after it was kept"


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forked]:
    with forked(tmp_path_factory.mktemp("processes")) as started:
        yield started


@needs_linux
@each_kind
def test_killed_at_random_moments_nothing_is_half_written_and_the_end_is_the_same(
    kind: str,
    configs: dict[str, Config],
    references: dict[str, store.Result[Any]],
    processes: Forked,
    results: Path,
) -> None:
    config, draws, kills = configs[kind], random.Random(kind), 0
    ((_, whole),) = processes.get(config, results / "undisturbed")
    assert_same(store.Result(results / "undisturbed" / config.name), references[kind])
    own = results / "killed"
    while kills < NUM_KILLS:
        ((status, _),) = processes.get(config, own, seconds=draws.uniform(0.0, whole))
        kills += status != 0
        assert "damaged" not in processes.said()
        if own.exists():
            assert_nothing_half_written(own)
        if (own / config.name).exists():
            assert_same(store.Result(own / config.name), references[kind])
            shutil.rmtree(own)
    assert processes.get(config, own)[0][0] == 0
    assert_same(store.Result(own / config.name), references[kind])


@needs_linux
@pytest.mark.parametrize("kind", ["run", "study"])
def test_killed_before_each_change_of_a_folder_it_resumes(
    kind: str,
    configs: dict[str, Config],
    references: dict[str, store.Result[Any]],
    processes: Forked,
    results: Path,
) -> None:
    config = configs[kind]
    for calls in range(1, 200):
        ((status, _),) = processes.get(config, results, calls=calls)
        assert_nothing_half_written(results)
        if status == 0:
            break
        if calls % 7 == 0:  # else the next process goes on with what this one left
            assert processes.get(config, results)[0][0] == 0
            assert_same(store.Result(results / config.name), references[kind])
            shutil.rmtree(results)
    assert status == 0
    assert_same(store.Result(results / config.name), references[kind])


@needs_linux
@each_kind
def test_processes_that_ask_for_one_result_compute_it_once(
    kind: str, configs: dict[str, Config], processes: Forked, results: Path
) -> None:
    processes.rows()
    processes.get(configs[kind], results / "one")
    alone = processes.rows()
    assert [status for status, _ in processes.get(configs[kind], results / "three", number=3)] == [0, 0, 0]
    assert processes.rows() == alone > 0 and store.Result[Any](results / "three" / configs[kind].name).damage == ""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here; other tests simulate a full one")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_fills_at_any_moment_is_one_sentence_and_ends_well_when_there_is_room(
    configs: dict[str, Config],
    references: dict[str, store.Result[Any]],
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FCAM_RESULTS", str(small_disk / "results"))
    sentences = set()
    for free in range(8 * 2**10, 2**20, 24 * 2**10):
        (ballast := small_disk / "ballast").unlink(missing_ok=True)
        state = os.statvfs(small_disk)
        ballast.write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - free)))
        try:
            assert_same(store.get(configs["run"]), references["run"])
            break
        except StoreError as error:
            assert "No space left on device" in str(error) and len(str(error).splitlines()) == 1
            sentences.add(str(error).split("'")[0])
        assert_nothing_half_written(small_disk / "results")
    assert "the checkpoint " in sentences and store.find(configs["run"])

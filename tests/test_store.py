"""The store: checked at every reading, resumable to the same numbers, and clear about what it cannot do."""

from __future__ import annotations

import hashlib
import logging
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reuse_runs
from click.testing import CliRunner
from forked import FILES, assert_same

from fcamlib import paths, store
from fcamlib.__main__ import main
from fcamlib.config import RunConfig, experiment
from fcamlib.errors import DataError, StoreError
from fcamlib.runs import run

SMALL = {"num_train": 96, "num_validation": 48, "num_test": 48, "num_segments": 3, "batch_size": 24, "epochs": 6}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty results folder, and an empty one of recorded runs."""
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(paths, "recorded_dir", lambda: tmp_path / "recorded")
    return tmp_path / "results"


def config_of(paradigm: str = "hybrid", seed: int = 0, **changes: Any) -> RunConfig:
    return experiment({**SMALL, "paradigms": paradigm, "seeds": seed, **changes}).configs()[0]


CONFIG = config_of(learning_rates="0.05,0.1", search_epochs=2)  # a hybrid with a search: 2 + 3 + 3 epochs
CONFIG_EPOCHS = 8


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> store.Run:
    """CONFIG's run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCAM_RESULTS", str(tmp_path_factory.mktemp("reference")))
        return run(CONFIG)


def flip(path: Path, place: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


def test_what_an_interrupted_writer_left_is_not_in_the_way(results: Path) -> None:
    config = config_of("soft")
    partial = store.partial_dir(config)
    partial.mkdir(parents=True)
    (partial / "checkpoint.part").write_bytes(b"half")
    beside = results / f".{config.name}.new"
    beside.mkdir()
    (beside / "config.json").write_bytes(b"{")
    (beside / "stray.txt").write_bytes(b"?")
    assert sorted(path.name for path in run(config).folder.iterdir()) == sorted(FILES)
    assert list((results / ".partial").iterdir()) == [] and not beside.exists()


def test_a_second_request_is_answered_from_the_store_without_training(results: Path) -> None:
    config, rows = config_of("soft"), list[dict[str, Any]]()
    first = run(config, rows.append)
    assert [row["epoch"] for row in rows] == list(range(1, SMALL["epochs"] + 1))
    assert run(config, rows.append).folder == first.folder == results / config.name
    assert len(rows) == SMALL["epochs"]
    run(config, rows.append, fresh=True)
    assert len(rows) == 2 * SMALL["epochs"] and store.damage(first.folder) == ""
    sums = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=first.folder)
    assert sums.returncode == 0


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_byte_is_noticed_warned_of_and_computed_anew(
    file: str, reference: store.Run, results: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = results / CONFIG.name
    shutil.copytree(reference.folder, copy)
    flip(copy / file)
    assert store.stored_runs() == [] and [result.damage for result in store.survey(results)] != [""]
    caplog.clear()
    rows: list[dict[str, Any]] = []
    mended = run(CONFIG, rows.append)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and f"'{copy}' is damaged (" in record.message
    assert file in record.message or file == "SHA256SUMS"
    assert len(rows) == CONFIG_EPOCHS and store.damage(copy) == ""
    assert_same(mended.folder, reference.folder)


def test_missing_files_and_foreign_configs_are_damage(
    reference: store.Run, results: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = results / CONFIG.name
    for file in FILES:
        shutil.copytree(reference.folder, copy)
        (copy / file).unlink()
        assert store.damage(copy) == (
            f"{file} is missing" if file != "SHA256SUMS" else f"{file} is missing or unreadable"
        )
        assert store.find(CONFIG) is None
        shutil.rmtree(copy)
    other = config_of("soft")
    shutil.copytree(reference.folder, results / other.name)
    assert store.find(other) is None and "config.json is another result's" in caplog.messages[-1]
    assert store.find(CONFIG) is None


def checkpoint_with_three_epochs(config: RunConfig) -> Path:
    """Stop a run in its fourth epoch; its checkpoint."""

    def stop(row: dict[str, Any]) -> None:
        if row["epoch"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, stop)
    path = store.partial_dir(config) / store.CHECKPOINT
    assert path.is_file() and store.unfinished_runs() == [config.name]
    return path


def test_an_interrupted_run_goes_on_from_its_checkpoint_and_a_flipped_byte_in_it_starts_anew(
    results: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fcamlib.training.CHECKPOINT_SECONDS", -1.0)
    config = config_of("soft", optimizer="adam", keep="best")
    whole = run(config)
    kept = shutil.copytree(whole.folder, results.parent / "whole" / config.name)
    shutil.rmtree(whole.folder)
    content = checkpoint_with_three_epochs(config).read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    places = {"size": 2, "state": content.index(b"train_loss"), "tensors": (header + len(content)) // 2, "end": -1}
    for part, place in {"none": None, **places}.items():
        checkpoint = store.partial_dir(config) / store.CHECKPOINT
        checkpoint.parent.mkdir(exist_ok=True)
        checkpoint.write_bytes(content)
        if place is not None:
            flip(checkpoint, place)
        caplog.clear()
        rows: list[dict[str, Any]] = []
        resumed = run(config, rows.append)
        assert [row["epoch"] for row in rows] == ([4, 5, 6] if place is None else [1, 2, 3, 4, 5, 6]), part
        assert [r.message for r in caplog.records] == (
            [] if place is None else [f"the checkpoint '{checkpoint}' is damaged: training starts from its beginning."]
        )
        assert_same(resumed.folder, kept)
        assert store.unfinished_runs() == []
        shutil.rmtree(resumed.folder)
    for length in (0, 5, header, len(content) - 1):  # cut short
        checkpoint.parent.mkdir(exist_ok=True)
        checkpoint.write_bytes(content[:length])
        assert_same(run(config).folder, kept)
        shutil.rmtree(results / config.name)


@pytest.mark.parametrize("place", ["file", "file/below", "/dev/null/x", "/proc/fcam"])
def test_a_results_folder_that_cannot_be_written_is_one_sentence(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    folder = tmp_path / place
    monkeypatch.setenv("FCAM_RESULTS", str(folder))
    with pytest.raises(StoreError) as caught:
        run(config_of("soft"))
    sentence = str(caught.value)
    assert sentence.startswith(f"the results folder '{folder}' cannot be written (")
    assert sentence.endswith("): set FCAM_RESULTS to a folder that can.")
    assert store.stored_runs() == [] and store.unfinished_runs() == []


def test_a_full_disk_is_one_sentence_and_loses_nothing(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcamlib.training.CHECKPOINT_SECONDS", -1.0)
    config = config_of("soft")
    before = run(config)
    sums = (before.folder / "SHA256SUMS").read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "fsync", full)
        with pytest.raises(StoreError, match=r"^the result '.*' cannot be written \(No space left on device\): make"):
            run(config, fresh=True)
    assert (before.folder / "SHA256SUMS").read_bytes() == sums and store.damage(before.folder) == ""
    with monkeypatch.context() as patch:
        patch.setattr("fcamlib.checkpoint.save_file", full)
        with pytest.raises(
            StoreError, match=r"^the checkpoint '.*' cannot be written \(No space left on device\): make"
        ):
            run(config_of("hard"))


def test_recorded_runs_come_first_are_light_and_hold_no_path(
    results: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = results.parent / "recorded"
    source = pictures(results.parent / "some where" / "pics")
    linear = {"focus_network": "linear", "classification_network": "linear", "image_size": 8, "epochs": 2}
    (config,) = experiment({**SMALL, **linear, "dataset": source, "foreground": "a,b", "paradigms": "soft"}).configs()
    stored = run(config)
    kept = store.record(stored, recorded)
    assert kept.folder == recorded / config.name and kept.is_recorded and not stored.is_recorded
    assert sorted(path.name for path in kept.folder.iterdir()) == sorted(("SHA256SUMS", *store.RECORDED_FILES))
    assert "model.safetensors" not in store.RECORDED_FILES and "scores.npz" not in store.RECORDED_FILES
    for path in kept.folder.iterdir():
        assert b"some where" not in path.read_bytes() and str(results.parent).encode() not in path.read_bytes()
    assert kept.config.data.source == "folder:pics" and kept.config.name == kept.folder.name
    assert kept.summary == stored.summary and kept.history.equals(stored.history)
    assert [entry.name for entry in recorded.iterdir()] == [config.name]

    assert run(config).folder == kept.folder
    assert [r.folder for r in store.recorded_runs()] == [kept.folder]
    store.record(stored, recorded)  # again: replaces it
    flip(kept.folder / "history.csv")
    assert run(config).folder == stored.folder
    assert [r.message for r in caplog.records] == [
        f"the stored result '{kept.folder}' is damaged (history.csv does not have its checksum): it is computed again."
    ]
    assert store.recorded_runs() == [] and "is damaged" in caplog.records[-1].message

    monkeypatch.setattr(paths, "recorded_dir", lambda: Path("/dev/null/recorded"))
    with pytest.raises(
        StoreError, match=r"^the folder of recorded results '/dev/null/recorded' cannot be written \(Not a"
    ):
        store.record(stored, Path("/dev/null/recorded"))


def pictures(root: Path) -> str:
    from PIL import Image

    draws = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("a", "b", "c"):
            (root / split / name).mkdir(parents=True)
            for number in range(4):
                picture = Image.fromarray(draws.integers(0, 256, (8, 8, 3), dtype=np.uint8))
                picture.save(root / split / name / f"{number}.png")
    return f"folder:{root}"


def test_a_folder_that_has_changed_since_its_config_was_made_is_refused(results: Path) -> None:
    root = results.parent / "pics"
    config = experiment({"dataset": pictures(root), "foreground": "a,b", "paradigms": "soft"}).configs()[0]
    (root / "train" / "a" / "0.png").unlink()
    with pytest.raises(
        DataError, match=r"^dataset='.*pics': the files in '.*pics' are not those that the config was made"
    ):
        run(config)
    assert store.stored_runs() == []


def test_checksums_are_of_the_files_as_they_lie_there(reference: store.Run) -> None:
    lines = (reference.folder / "SHA256SUMS").read_text().splitlines()
    written = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sorted([*written, "SHA256SUMS"]) == sorted(FILES)
    for name, digest in written.items():
        assert hashlib.sha256((reference.folder / name).read_bytes()).hexdigest() == digest


def test_record_needs_a_checkout_and_suggests_names(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = run(config_of("soft"))

    def refusal(name: str) -> str:
        refused = CliRunner().invoke(main, ["record", name])
        assert refused.exit_code == 2 and refused.stdout == ""
        return refused.stderr

    sentence = refusal(stored.folder.name[:-1])
    assert f"is not a stored run: did you mean '{stored.folder.name}'? `fcam list` shows their names." in sentence
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)
    assert refusal(stored.folder.name).startswith("fcam: `fcam record` needs a source checkout: ")
    for command in ("list", "check"):
        assert CliRunner().invoke(main, [command]).exit_code == 0


def test_tests_reuse_only_runs_of_the_commit_that_is_checked_out(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, target = run(config_of("soft")), tmp_path / "target"
    index = tmp_path / "index.html"
    monkeypatch.setattr(reuse_runs, "BOOK", index)
    made_at = stored.summary["provenance"]["commit"].rstrip("+") or "0123456789ab"
    monkeypatch.setattr(reuse_runs, "commit", lambda: made_at)
    summaries = [{"provenance": {"commit": made_at}}, {"provenance": {"commit": f"{made_at}+"}}]
    monkeypatch.setattr(store, "stored_results", lambda: [SimpleNamespace(folder=stored.folder, summary=summaries[0])])
    assert not reuse_runs.main(target), "the book is not built"
    index.touch()
    for now in ("", f"{made_at}+", "another commit"):
        monkeypatch.setattr(reuse_runs, "commit", lambda now=now: now)
        assert not reuse_runs.main(target)
    monkeypatch.setattr(reuse_runs, "commit", lambda: made_at)
    assert not target.exists() and reuse_runs.main(target)
    assert [folder.name for folder in target.iterdir()] == [stored.folder.name]
    assert store.damage(target / stored.folder.name) == ""
    summaries.reverse()
    assert not reuse_runs.main(tmp_path / "other"), "computed with uncommitted changes"

"""The store's promises over every kind of result: whole or absent, checked, computed once, resumed bit for bit."""

import hashlib
import os
import random
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forked import Forked

from fcamlib import checks, store
from fcamlib.config import CaptionGrid, Config, CrossValidation, Grid, StudyGrid, Sweep, SweepGrid
from fcamlib.errors import DataError, StoreError
from fcamlib.store import Result

KINDS = ("run", "captions", "sweep", "study", "cross-validation")
GRID = {"num_train": 48, "num_validation": 24, "num_test": 24, "num_segments": 3, "batch_size": 24, "epochs": 4}
CAPTIONS = {"num_train": 12, "num_validation": 4, "num_test": 4, "epochs": 3, "switch_epoch": 1, "image_size": 48}
SWEEP = {"num_classes": 3, "num_segments": 3, "num_train": 20, "epochs": 4, "alphas": "0.2,1", "batch_size": 10}
BAGS = {"methods": ("soft", "hybrid"), "repeats": 1, "folds": 2, "epochs": 2, "learning_rates": (0.01,)}
BOTH = ("run", "study")  # which keep checkpoints alone, and rows beside them

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Case:
    """A small config, its undisturbed result and number of measured rows, and the folder of a test's own result."""

    config: Config
    reference: Result[Any]
    num_rows: int
    folder: Path

    def placed(self) -> Result[Any]:
        """The undisturbed result in the test's own results folder."""
        return Result(shutil.copytree(self.reference.folder, self.folder))


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Config]:
    """A small config of every kind; the run is a hybrid that compares learning rates."""
    bags = tmp_path_factory.mktemp("some where") / "mine.npz"
    bag, draws = np.repeat(np.arange(12), 3), np.random.default_rng(2)
    features, fold = draws.normal(size=(36, 5)) + 3 * (bag % 2)[:, None], np.arange(12)[None] // 2 % 2
    np.savez(bags, features=features, bag=bag, label=np.arange(12) % 2, fold=fold)
    identity = {"source": f"bags:{bags}", "fingerprint": hashlib.sha256(bags.read_bytes()).hexdigest()}
    return {
        "run": Grid.of({**GRID, "paradigms": "hybrid", "learning_rates": "0.05,0.1", "search_epochs": 1}).configs()[0],
        "captions": CaptionGrid.of({**CAPTIONS, "paradigms": "hybrid", "hidden_dim": 8}).configs()[0],
        "sweep": SweepGrid.of(SWEEP).config(),
        "study": StudyGrid.of({**GRID, "paradigms": "soft,hybrid", "focus_networks": "linear,mlp:1x4"}).config(),
        "cross-validation": CrossValidation.model_validate({**identity, "batch_size": 8, **BAGS}),
    }


@pytest.fixture(scope="module")
def references(configs: dict[str, Config], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """An undisturbed result of every kind."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCAM_RESULTS", str(tmp_path_factory.mktemp("references")))
        for kind, config in configs.items():
            rows = list[store.Row]()
            found[kind] = Case(config, store.get(config, rows.append), len(rows), Path())
    return found


@pytest.fixture(autouse=True)
def checkpoints_after_every_epoch(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FCAM_CHECKPOINT_SECONDS", "0")


@pytest.fixture
def case(request: pytest.FixtureRequest, references: dict[str, Case], results: Path) -> Case:
    found = references[request.param]
    return replace(found, folder=results / found.config.name)


def of_kinds(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", kinds, indirect=True)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Forked:
    return Forked(tmp_path_factory.mktemp("processes"))


def assert_same(own: Result[Any], other: Result[Any]) -> None:
    """Whole, and equal to the last bit in all but the clock."""
    assert own.damage == "" == other.damage
    files = {path.name for path in other.folder.iterdir()}
    assert {path.name for path in own.folder.iterdir()} == files
    for file in files - {"history.csv", "summary.json", store.SUMS}:
        assert (own.folder / file).read_bytes() == (other.folder / file).read_bytes(), file
    first, second = (result.history.drop(columns="seconds", errors="ignore") for result in (own, other))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert {**own.summary, "provenance": None} == {**other.summary, "provenance": None}


def assert_nothing_half_written(results: Path) -> None:
    """Every visible folder is whole; whatever else lies there is out of sight."""
    assert [result.damage for result in store.survey(results)] == [""] * len(list(results.glob("[!.]*")))


# --- found, recorded, damaged -----------------------------------------------------------------------------------------


@of_kinds(*KINDS)
def test_a_result_is_not_computed_again_and_recorded_light_without_a_path(case: Case) -> None:
    config, rows, result = case.config, list[store.Row](), case.placed()
    assert store.get(config, rows.append).folder == result.folder and not rows
    assert case.num_rows == config.steps or isinstance(config, Sweep), "the bar counts rows, also of a search"
    assert store.every(type(config)) == [result]
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", store.SUMS], cwd=result.folder, check=True)
    kept = store.record(result)
    assert kept.is_recorded and store.get(config).folder == kept.folder and store.every(recorded=True) == [kept]
    assert {path.name for path in kept.folder.iterdir()} <= {store.SUMS, *store.RECORDED_FILES}
    assert (kept.folder / "summary.json").read_bytes().count(b"\n") == 1, "short"
    assert kept.config.name == config.name and checks.difference(result, kept)[1] == 0
    nine = result.history.map(lambda value: float(f"{value:.9g}") if isinstance(value, float) else value)
    pd.testing.assert_frame_equal(kept.history, nine, check_dtype=False, rtol=1e-15)
    assert kept.summary["provenance"] == result.summary["provenance"]
    assert not any(b"some where" in path.read_bytes() for path in kept.folder.iterdir())
    assert store.get(config, recorded=False).folder == result.folder


@of_kinds("run")
def test_a_changed_file_is_never_shown_warned_of_once_and_computed_again(
    case: Case, results: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draws, whole = random.Random(1), {path.name: path.read_bytes() for path in case.placed().folder.iterdir()}
    assert set(whole) == {store.SUMS, *store.KNOWN_FILES}
    for file, content in sorted(whole.items()):
        bad, place = bytearray(content), draws.randrange(8 * len(content))
        bad[place // 8] ^= 1 << place % 8
        faulty = {"bit": bytes(bad), "empty": b"", "half": content[: len(content) // 2], "longer": content + b"\n"}
        if file == store.SUMS:
            faulty["longer"] = b"0" * 64 + b"  ../SHA256SUMS\n" + content
        for what, other in {**faulty, "missing": None}.items():
            (case.folder / file).unlink() if other is None else (case.folder / file).write_bytes(other)
            assert store.every(type(case.config)) == [] and store.find(case.config) is None, f"{what} of {file}"
        (case.folder / file).write_bytes(content)
    (case.folder / "history.csv").write_text("epoch\n1\n")
    caplog.clear()
    assert_same(store.get(case.config), case.reference)
    fault = "is damaged (history.csv does not match its checksum)"
    assert caplog.messages == [f"the stored result '{case.folder}' {fault} and is not used."]
    shutil.move(case.folder, results / "another-name")
    assert store.every(type(case.config)) == []
    assert "another-name' is damaged (config.json belongs to another result)" in caplog.messages[-1]


def test_a_folder_that_cannot_be_read_hides_no_other(
    references: dict[str, Case], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in BOTH:
        shutil.copytree(references[kind].reference.folder, results / references[kind].config.name)
    digest, broken = hashlib.file_digest, references["study"].config.name

    def failing(file: Any, algorithm: str) -> Any:
        if Path(file.name).parent.name == broken:
            raise OSError(5, "Input/output error")
        return digest(file, algorithm)

    monkeypatch.setattr(hashlib, "file_digest", failing)
    (results / "a-loop").symlink_to("a-loop")
    (results / "of-no-result").mkdir()
    whole: list[Result[Any]] = store.every()
    assert [result.config for result in whole] == [references["run"].config]
    faulty = [result.damage for result in store.survey(results) if result.damage]
    assert faulty == ["config.json cannot be read (Input/output error)"]


# --- what cannot be computed or written -------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["file", "/dev/null/x"])
def test_a_results_folder_that_cannot_be_written_is_one_sentence(
    place: str, configs: dict[str, Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    folder = tmp_path / place
    monkeypatch.setenv("FCAM_RESULTS", str(folder))
    with pytest.raises(StoreError, match=r"cannot be written \(.*\): set FCAM_RESULTS to a folder that can\.$") as one:
        store.get(configs["run"])
    assert str(one.value).startswith(f"the results folder '{folder}' cannot be written (")
    assert store.every() == [] and store.unfinished() == []


@of_kinds("run")
def test_a_full_disk_is_one_sentence_and_loses_nothing(
    case: Case, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = case.placed()
    sums = (before.folder / store.SUMS).read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    for place, what in (("fcamlib.checkpoint.save_file", "checkpoint"), ("os.fsync", "result")):
        sentence = rf"^the {what} '.*' cannot be written \(No space left .*\): free some space"
        with monkeypatch.context() as patch, pytest.raises(StoreError, match=sentence):
            patch.setattr(place, full)
            store.get(case.config, fresh=True)
        assert (before.folder / store.SUMS).read_bytes() == sums
        assert_nothing_half_written(results)
        assert not list(results.glob(".*.new")) and not list(results.glob(".partial/*/*.part"))
    rename = os.replace
    with monkeypatch.context() as patch, pytest.raises(StoreError, match=r"^the result '.*' cannot be written"):
        patch.setattr(os, "replace", lambda old, new: full() if str(old).endswith(".new") else rename(old, new))
        store.get(case.config, fresh=True)
    assert (before.folder / store.SUMS).read_bytes() == sums


def test_what_cannot_be_kept_or_has_changed_is_one_sentence(configs: dict[str, Config]) -> None:
    (store.partial_dir(configs["study"]) / store.ROWS).mkdir(parents=True)
    bags = configs["cross-validation"]
    for config, error, sentence in (
        (configs["study"], StoreError, r"rows.jsonl' cannot be written \(Is a directory\): free some space and start"),
        (bags.model_copy(update={"fingerprint": "0" * 64}), DataError, "is not that for which the config was made"),
    ):
        with pytest.raises(error, match=sentence):
            store.get(config)
    assert store.every() == []


# --- interrupted, killed, raced ---------------------------------------------------------------------------------------


@of_kinds(*KINDS)
def test_an_interrupted_computation_resumes_and_what_is_damaged_of_it_is_computed_again(
    case: Case, results: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows, number = list[store.Row](), 3 if case.num_rows < 9 else 9

    def stop(row: store.Row) -> None:
        rows.append(row)
        if len(rows) == number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.get(case.config, stop)
    (name,) = store.unfinished()
    kept = next(path for path in (results / ".partial" / name).iterdir())
    content = kept.read_bytes()
    rows.clear()
    assert_same(store.get(case.config, rows.append), case.reference)
    resumed = len(rows)
    assert resumed < case.num_rows and store.unfinished() == [] and caplog.messages == []
    flipped = [bytes([*content[:p], content[p] ^ 1, *content[p:][1:]]) for p in (len(content) // 3, -2)]
    cut = [b"", content[:-9], b"5\n"] if case.reference.folder.name.startswith("digits") else []
    for bad in [*flipped, *cut]:
        for folder in results.glob("[!.]*"):
            shutil.rmtree(folder)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(bad)
        rows.clear()
        assert_same(store.get(case.config, rows.append), case.reference)
        assert len(rows) > resumed or not bad, "resumed from a damaged file"
    assert all("is damaged" in message for message in caplog.messages) and caplog.messages


@of_kinds(*BOTH)
def test_killed_before_each_change_of_a_folder_nothing_is_half_written_and_the_end_is_the_same(
    case: Case, processes: Forked, results: Path
) -> None:
    for calls in range(1, 200):
        (status,) = processes.get(case.config, results, calls=calls)
        assert "damaged" not in processes.said()
        assert_nothing_half_written(results)
        if status == 0:
            break
        if calls % 7 == 0:  # else the next process goes on with what this one left
            assert processes.get(case.config, results) == [0]
            assert_same(Result(case.folder), case.reference)
            shutil.rmtree(results)
    assert status == 0
    assert_same(Result(case.folder), case.reference)


@of_kinds("run", "captions")  # the second asks for the result of its first phase in turn
def test_processes_that_ask_for_one_result_compute_it_once(case: Case, processes: Forked, results: Path) -> None:
    processes.rows()
    assert processes.get(case.config, results, number=3) == [0, 0, 0]
    assert processes.rows() == case.num_rows and Result[Any](case.folder).damage == ""


def test_a_clone_that_converts_line_endings_leaves_records_alone() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("git attributes need a checkout of git")
    names = ["results/recorded/x/history.csv", "results/recorded/x/SHA256SUMS", "results/recorded/claims.json"]
    found = subprocess.run(["git", "check-attr", "text", "--", *names], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.splitlines() == [f"{name}: text: unset" for name in names]

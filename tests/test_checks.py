"""What `fcam check` says of a machine, its data sets and its runs."""

import os
import re
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from fcamlib import __version__, checks, paths, store
from fcamlib.cli import main
from fcamlib.config import SOURCES, Grid
from fcamlib.data import coco, posts

SMALL = {"num_train": 64, "num_validation": 32, "num_test": 32, "num_segments": 3, "epochs": 2, "batch_size": 32}


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty folders for each test, none of them the project's."""
    for variable, name in (("FCAM_DATA", "data"), ("FCAM_RESULTS", "results"), ("FCAM_FIGURES", "figures")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setattr(paths, "recorded_dir", lambda: tmp_path / "recorded")


def told() -> dict[str, str]:
    """The report's lines: what -> state. The states stand in one column."""
    result = CliRunner().invoke(main, ["check"])
    assert result.exit_code == 0 and result.stderr == "", result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("  ")]
    column = re.match(r"  fcamlib +", lines[0])
    assert column is not None
    assert all(line[column.end() - 2 : column.end()] == "  " and line[column.end()] != " " for line in lines)
    return {line[: column.end()].strip(): line[column.end() :] for line in lines}


def test_versions_devices_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("FCAM_FIGURES", "/dev/null/figures")
    lines = told()
    known = f" (commit {paths.commit()})" if paths.commit() else ""
    assert lines["fcamlib"] == __version__ + known and lines["python"] == sys.version.split()[0]
    assert re.match(r"\d+\.\d+", lines["torch"]) and f", {os.cpu_count()} threads, " in lines["CPU"]
    assert lines["data (FCAM_DATA)"] == f"writable: {tmp_path / 'data'}"
    assert lines["recorded runs"] == f"will be created when needed: {tmp_path / 'recorded'}"
    assert lines["figures (FCAM_FIGURES)"] == "NOT WRITABLE (Not a directory): /dev/null/figures"
    monkeypatch.setattr(checks, "PACKAGES", ("no-such-package",))
    monkeypatch.setenv("FCAM_RESULTS", "/dev/null/x")
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)
    lines = told()
    assert lines["no-such-package"] == "not installed" and "recorded runs" not in lines
    assert lines["results (FCAM_RESULTS)"] == "NOT WRITABLE (Not a directory): /dev/null/x"


def test_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    (data / "my pictures" / "train").mkdir(parents=True)
    for name in ("notes", "coco", "cifar-10-batches-bin"):
        (data / name).mkdir()
    lines = told()
    assert lines["digits"].startswith("8 x 8 digits") and lines["cifar100"] == "absent; downloaded when first used"
    assert lines["cifar10"] == "damaged: cifar-10-batches-bin/data_batch_1.bin"
    assert lines["folder:my pictures"] == "present"
    assert "folder:notes" not in lines and lines["bags:PATH"] == "none in the data folder"
    assert all(lines[kind].startswith("generated") for kind in ("keywords", "motifs", "clouds", "scenes"))
    assert {kind for kind in SOURCES if not any(line.split(":")[0] == kind for line in lines)} == set()
    assert lines["hatexplain"] == "absent; downloaded when first used"
    for path in (
        data / "bags" / "mine.npz",
        data / "hatexplain" / posts.POSTS,
        data / "hatexplain" / posts.DIVISIONS,
    ):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    lines = told()
    assert lines["bags:mine.npz"] == "present" and lines["hatexplain"] == f"not the official file: {posts.POSTS}"
    assert lines["coco"] == "NOT USABLE: there is no annotations/captions_train2014.json"
    monkeypatch.setattr(coco, "survey", Mock(side_effect=PermissionError(13, "Permission denied", str(data))))
    assert told()["coco"] == f"NOT USABLE: '{data}' cannot be read (Permission denied)"


def test_runs(tmp_path: Path) -> None:
    lines = told()
    assert (lines["recorded"], lines["stored"], lines["unfinished"]) == ("0 verified", "0 verified", "0")
    soft, hard = (store.get(config) for config in Grid.of({**SMALL, "paradigms": "soft,hard"}).configs())
    store.record(hard)
    (soft.folder / "history.csv").write_bytes(b"")
    checkpoint = tmp_path / "results" / ".partial" / "some-run" / store.CHECKPOINT
    checkpoint.parent.mkdir()
    checkpoint.touch()
    lines = told()
    assert (lines["recorded"], lines["stored"], lines["unfinished"]) == ("1 verified", "1 verified", "1: some-run")
    assert lines["DAMAGED"] == f"{soft.folder}: history.csv does not match its checksum"

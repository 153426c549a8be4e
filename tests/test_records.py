"""The runs kept with the source: whole, portable, without what is not to be published, and as the README says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcamlib import paths, store, tables
from fcamlib.config import (
    STUDIES,
    CaptionRun,
    CrossValidation,
    Mosaics,
    Run,
    Study,
    StudyGrid,
    kind_of,
)

ROOT = Path(__file__).resolve().parent.parent
RECORDED = paths.recorded_dir() or ROOT
FOLDERS = sorted(path for path in RECORDED.iterdir() if path.is_dir() and path.name != "bench")
KIND = {folder: kind_of((folder / "config.json").read_bytes()) for folder in FOLDERS}
RUNS = [folder for folder in FOLDERS if KIND[folder] is Run]
CROSS_VALIDATIONS = [folder for folder in FOLDERS if KIND[folder] is CrossValidation]
CAPTIONS = [folder for folder in FOLDERS if KIND[folder] is CaptionRun]
each_record = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
each_run = pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
each_cross_validation = pytest.mark.parametrize("folder", CROSS_VALIDATIONS, ids=lambda folder: folder.name)


@each_record
def test_a_record_is_whole_and_carries_the_name_of_its_config(folder: Path) -> None:
    result = store.Result[Any](folder)
    assert result.damage == "" and result.config.name == folder.name
    assert (folder / "config.json").read_bytes() == result.config.model_dump_json(indent=2).encode() + b"\n"
    files = {path.name for path in folder.iterdir()}
    assert files <= {*store.RECORDED_FILES, store.SUMS}
    assert folder not in RUNS or "examples.npz" in files or result.config.seed > 0, "galleries show seed 0"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2**20, "too much to keep with the source"


@each_record
def test_the_name_is_the_hash_of_the_config_as_plain_json(folder: Path) -> None:
    """Code may be rewritten as long as this holds; reading the config must then give the same name, see above."""
    content = json.loads((folder / "config.json").read_text("utf-8"))
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert folder.name.endswith("-" + hashlib.sha256(canonical.encode()).hexdigest()[:8])


def test_no_record_is_lost() -> None:
    assert len(FOLDERS) >= 78


@each_record
def test_a_record_says_where_it_comes_from_and_names_no_path(folder: Path) -> None:
    source = json.loads((folder / "summary.json").read_text("utf-8"))["provenance"]
    assert source["commit"] and not source["commit"].endswith("+"), "made from files that were not committed"
    seconds = source.get("train_seconds") or source["last_session_seconds"]  # sweeps know the latter
    assert source["device"] and seconds > 0 and source["packages"]["torch"]
    for name in ("config.json", "summary.json", "history.csv"):
        assert "/" not in (folder / name).read_text("utf-8").replace("and/or", ""), f"a path in {name}"


@each_cross_validation
def test_a_recorded_cross_validation_has_every_method_on_every_fold(folder: Path) -> None:
    result = store.Result[Any](folder)
    config, rows = result.config, result.history
    expected = {(r, f, m) for r in range(config.repeats) for f in range(config.folds) for m in config.methods}
    assert len(rows) == len(expected)
    assert set(rows[["repeat", "fold", "method"]].itertuples(index=False, name=None)) == expected
    assert (rows.groupby(["repeat", "fold"])["n"].nunique() == 1).all(), "methods saw different test bags"
    assert rows.groupby(["repeat", "method"])["n"].sum().nunique() == 1, "a repeat does not test each bag once"
    hits = rows["accuracy"] * rows["n"]
    assert np.allclose(hits, hits.round(), atol=1e-6) and rows["learning_rate"].isin(config.learning_rates).all()
    for measure in ("accuracy", "auc", "calibration_error", "attention_entropy", "validation_accuracy"):
        assert rows[measure].dropna().between(0, 1).all()


@pytest.mark.parametrize("name", list(STUDIES))
def test_a_recorded_study_has_every_training_and_measures_that_agree(name: str) -> None:
    found = store.find(StudyGrid.of(STUDIES[name]).config())
    assert found is not None and found.is_recorded, f"`fcam study {name}` is not recorded"
    rows, config = found.history, found.config
    assert [run.name for run in config.runs()] == rows["run"].tolist()
    finished = rows[rows["failure"].isna()]
    for measure in ("accuracy", "focus_accuracy", "saif", "validation_accuracy"):
        hits = finished[measure] * (finished["num_test"] if measure != "validation_accuracy" else 500)
        assert finished[measure].between(0, 1).all() and np.allclose(hits, hits.round(), atol=1e-6)
    assert (finished["saif"] <= np.minimum(finished["accuracy"], finished["focus_accuracy"]) + 1e-12).all()
    compared = [rate for phases in config.schedules for phase in phases for rate in phase.learning_rates]
    assert finished[["learning_rate", "last_learning_rate"]].isin(compared).all(axis=None)


def test_no_study_is_recorded_that_no_name_asks_for() -> None:
    named = {StudyGrid.of(given).config().name for given in STUDIES.values()}
    assert {folder.name for folder in FOLDERS if KIND[folder] is Study} == named


@pytest.mark.parametrize("folder", CAPTIONS, ids=lambda folder: folder.name)
def test_measures_of_recorded_captions_agree_with_each_other(folder: Path) -> None:
    run = store.Result[Any](folder)
    assert run.history["epoch"].tolist() == list(range(1, sum(phase.epochs for phase in run.config.phases) + 1))
    last = run.history.iloc[-1]
    for name, split in run.summary["splits"].items():
        assert split["saif"] == pytest.approx(split["histogram"][2][2] / 100, abs=2 / split["n_objects"])
        assert split["saif_curve"][30] == pytest.approx(split["saif"], abs=2 / split["n_objects"])
        assert sum(map(sum, split["histogram"])) == pytest.approx(100)
        assert split["mentioned"] == pytest.approx(split["ftpt"] + split["ffpt"], abs=1e-12)
        assert split["bleu1"] >= split["bleu2"] >= split["bleu3"] >= split["bleu4"]
        for measure in ("loss", "bleu4", "a_z", "saif"):
            assert split[measure] == pytest.approx(last[f"{name}_{measure}"], abs=1e-12)


@each_run
def test_measures_of_a_record_agree_with_each_other(folder: Path) -> None:
    run = store.Result[Any](folder)
    assert len(run.history) == sum(phase.epochs for phase in run.config.phases)
    for name, split in run.summary["splits"].items():
        known = split.get("n_foreground", split["n"])  # measures of the focus are over these
        if known == 0:
            assert not {"ftpt", "saif", "focus_accuracy", "histogram", "saif_curve"} & split.keys()
            continue
        assert split["ftpt"] + split["ffpt"] + split["ftpf"] + split["ffpf"] == pytest.approx(1, abs=1e-12)
        assert split["focus_accuracy"] == pytest.approx(split["ftpt"] + split["ftpf"], abs=1e-12)
        if known == split["n"]:
            assert split["accuracy"] == pytest.approx(split["ftpt"] + split["ffpt"], abs=1e-12)
        assert split["saif"] == pytest.approx(split["histogram"][4][4] / 100, abs=2 / known)
        assert sum(map(sum, split["histogram"])) == pytest.approx(100)
        if name == "test":
            assert split["saif_curve"][80] == pytest.approx(split["saif"], abs=2 / known)
    chosen = [row for row in run.summary["selection"] if row["chosen"]]
    for row in chosen:
        others = [r for r in run.summary["selection"] if r["phase"] == row["phase"] and not r["failure"]]
        assert row["validation_accuracy"] == max(r["validation_accuracy"] for r in others)


def on_mosaics() -> list[store.Result]:
    return [run for run in store.every(Run, recorded=True) if isinstance(run.config.data, Mosaics)]


def test_the_readme_shows_the_recorded_numbers() -> None:
    for title, runs in tables.tasks(on_mosaics()).items():
        readme = (ROOT / "README.md").read_text("utf-8")
        assert title in readme
        for line in tables.markdown(tables.means(tables.frame(runs))).splitlines()[2:]:
            assert line in readme, f"README.md lacks the row {line}"


def test_the_picture_in_the_readme_was_drawn_from_the_records() -> None:
    drawn_from = json.loads((ROOT / "figures" / "overview.json").read_text("utf-8"))["runs"]
    assert {run.folder.name for run in on_mosaics()} <= set(drawn_from)

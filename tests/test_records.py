"""The runs kept with the source: whole, portable, without what is not to be published, and as the README says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fcamlib import paths, store, tables

ROOT = Path(__file__).resolve().parent.parent
RECORDED = paths.recorded_dir() or ROOT
FOLDERS = sorted(path for path in RECORDED.iterdir() if path.is_dir() and path.name != "bench")
each_record = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@each_record
def test_a_record_is_whole_and_carries_the_name_of_its_config(folder: Path) -> None:
    assert store.damage(folder) == ""
    assert store.Run(folder).config.name == folder.name
    assert {path.name for path in folder.iterdir()} == {*store.RECORDED_FILES, store.SUMS}


@each_record
def test_a_record_says_where_it_comes_from_and_names_no_path(folder: Path) -> None:
    run = store.Run(folder)
    source = run.summary["provenance"]
    assert source["commit"] and not source["commit"].endswith("+"), "made from files that were not committed"
    assert source["device"] and source["train_seconds"] > 0 and source["packages"]["torch"]
    for name in ("config.json", "summary.json", "history.csv"):
        assert "/" not in (folder / name).read_text("utf-8").replace("and/or", ""), f"a path in {name}"


@each_record
def test_measures_of_a_record_agree_with_each_other(folder: Path) -> None:
    run = store.Run(folder)
    assert len(run.history) == sum(phase.epochs for phase in run.config.phases)
    for split in run.summary["splits"].values():
        assert split["accuracy"] == pytest.approx(split["ftpt"] + split["ffpt"], abs=1e-12)
        assert split["saif"] == pytest.approx(split["histogram"][4][4] / 100, abs=2 / split["n"])
        assert sum(map(sum, split["histogram"])) == pytest.approx(100)
        assert split["saif_curve"][80] == pytest.approx(split["saif"], abs=2 / split["n"])
    chosen = [row for row in run.summary["selection"] if row["chosen"]]
    for row in chosen:
        others = [r for r in run.summary["selection"] if r["phase"] == row["phase"] and not r["failure"]]
        assert row["validation_accuracy"] == max(r["validation_accuracy"] for r in others)


def test_the_readme_shows_the_recorded_numbers() -> None:
    for title, runs in tables.tasks(store.recorded_runs()).items():
        readme = (ROOT / "README.md").read_text("utf-8")
        assert title in readme
        for line in tables.markdown(tables.results_table(runs)).splitlines()[2:]:
            assert line in readme, f"README.md lacks the row {line}"


def test_the_picture_in_the_readme_was_drawn_from_the_records() -> None:
    drawn_from = json.loads((ROOT / "figures" / "overview.json").read_text("utf-8"))["runs"]
    assert {folder.name for folder in FOLDERS} <= set(drawn_from)


def test_the_readme_shows_the_digits_as_the_committed_notebook_does() -> None:
    notebook = (ROOT / "notebooks" / "02_accuracy_and_saif.ipynb").read_text("utf-8")
    section = (ROOT / "README.md").read_text("utf-8").split("On the digits")[1].split("## ")[0]
    shown = re.findall(r"\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\]", section)
    assert len(shown) == 16  # four paradigms, four measures
    assert [number for number in shown if number not in notebook] == []

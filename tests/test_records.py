"""Results kept with the source: whole, small, without paths or photographs; their measures agree with each other."""

import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcamlib import paths, store
from fcamlib.config import STUDIES, CaptionRun, Config, CrossValidation, Run, Study, StudyGrid, configs_of, grids
from fcamlib.store import Result

ROOT = Path(__file__).resolve().parent.parent
RECORDED = paths.recorded_dir() or ROOT
ROUNDED = 3e-9  # of a sum of shares that are recorded to nine digits


@cache
def records(kind: type[Config] = Config) -> list[Result[Any]]:
    return [result for result in store.survey(RECORDED) if isinstance(result.config, kind)]


def each(results: Iterable[Result[Any]], check: Callable[[Result[Any]], None]) -> None:
    """Check every result; the message names those that fail."""
    failed = []
    for result in results:
        try:
            check(result)
        except AssertionError as error:
            failed.append(f"{result.folder.name}: {error}")
    assert not failed, "\n".join(failed)


def test_no_record_is_lost() -> None:
    folders = {path for path in RECORDED.iterdir() if path.is_dir() and path.name != "bench"}
    assert {result.folder for result in records()} == folders and len(folders) >= 78


def test_every_record_is_whole_small_and_carries_the_name_of_its_config() -> None:
    def check(result: Result[Any]) -> None:
        assert result.damage == "" and result.config.name == result.folder.name
        content = (result.folder / "config.json").read_bytes()
        assert json.loads(content) == result.config.model_dump(mode="json")
        # Code may be rewritten as long as the name is also the hash of the config as plain JSON.
        canonical = json.dumps(json.loads(content), sort_keys=True, separators=(",", ":"))
        assert result.folder.name.endswith("-" + hashlib.sha256(canonical.encode()).hexdigest()[:8])
        files = {path.name: path.stat().st_size for path in result.folder.iterdir()}
        assert set(files) <= {*store.RECORDED_FILES, store.SUMS}
        assert sum(files.values()) < 2**18, "too much to keep with the source"
        sizes.append(sum(files.values()))

    sizes: list[int] = []
    each(records(), check)
    assert sum(sizes) < 12e6


def test_every_record_says_where_it_comes_from_and_names_no_path() -> None:
    def check(result: Result[Any]) -> None:
        source = result.summary["provenance"]
        assert source["commit"] and not source["commit"].endswith("+"), "made from files that were not committed"
        seconds = source.get("train_seconds") or source["last_session_seconds"]  # sweeps know the latter
        assert source["device"] and seconds > 0 and source["packages"]["torch"]
        for name in store.REQUIRED_FILES:
            assert "/" not in (result.folder / name).read_text("utf-8").replace("and/or", ""), f"a path in {name}"

    each(records(), check)


def test_measures_of_every_recorded_run_agree() -> None:
    def check(run: Result[Any]) -> None:
        assert len(run.history) == sum(phase.epochs for phase in run.config.phases)
        for name, split in run.summary["splits"].items():
            known = split.get("n_foreground", split["n"])  # measures of the focus are over these
            if known == 0:
                assert not {"ftpt", "saif", "focus_accuracy", "histogram", "saif_curve"} & split.keys()
                continue
            assert split["ftpt"] + split["ffpt"] + split["ftpf"] + split["ffpf"] == pytest.approx(1, abs=ROUNDED)
            assert split["focus_accuracy"] == pytest.approx(split["ftpt"] + split["ftpf"], abs=ROUNDED)
            if known == split["n"]:
                assert split["accuracy"] == pytest.approx(split["ftpt"] + split["ffpt"], abs=ROUNDED)
            assert split["saif"] == pytest.approx(split["histogram"][4][4] / 100, abs=2 / known)
            assert sum(map(sum, split["histogram"])) == pytest.approx(100)
            if name == "test":
                assert split["saif_curve"][80] == pytest.approx(split["saif"], abs=2 / known)
        for row in (row for row in run.summary["selection"] if row["chosen"]):
            others = [r for r in run.summary["selection"] if r["phase"] == row["phase"] and not r["failure"]]
            assert row["validation_accuracy"] == max(r["validation_accuracy"] for r in others)

    each(records(Run), check)


def test_every_named_study_is_recorded_with_every_training_and_no_other_is() -> None:
    names = {StudyGrid.of(given).config().name for given in STUDIES.values()}
    assert {result.folder.name for result in records(Study)} == names
    for found in records(Study):
        assert [run.name for run in found.config.runs()] == found.history["run"].tolist(), found.folder.name


def test_one_profile_computes_every_record_but_photographs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcamlib.config.tasks.Task.current_fingerprint", lambda task: "")  # needs no files
    monkeypatch.setattr("fcamlib.data.vectors.num_repeats_and_folds", lambda source: (5, 10))

    def content(config: Config) -> str:
        return re.sub('"fingerprint":"[^"]*"', "", config.model_dump_json())

    computed = {content(one) for part in grids(ROOT / "profiles" / "evidence.yaml") for one in configs_of(part)}
    left = [one.folder.name for one in records() if content(one.config) not in computed]
    assert left and all(name.startswith("captions-flickr8k-efficientnet") for name in left)


PHOTOGRAPH = (b"\xff\xd8\xff", b"RIFF", b"II*\x00", b"MM\x00*")  # JPEG, WebP, TIFF
FLICKR = re.compile(rb"\b\d{8,10}(_[0-9a-f]{10})?\.jpg\b")  # names of their files
LENGTH = 8  # words by which a caption is known


def test_measures_of_all_recorded_captions_agree() -> None:
    def check(run: Result[Any]) -> None:
        assert run.history["epoch"].tolist() == list(range(1, sum(phase.epochs for phase in run.config.phases) + 1))
        last = run.history.iloc[-1]
        for name, split in run.summary["splits"].items():
            assert split["saif"] == pytest.approx(split["histogram"][2][2] / 100, abs=2 / split["n_objects"])
            if name == "test":
                assert split["saif_curve"][30] == pytest.approx(split["saif"], abs=2 / split["n_objects"])
            assert sum(map(sum, split["histogram"])) == pytest.approx(100)
            assert split["mentioned"] == pytest.approx(split["ftpt"] + split["ffpt"], abs=ROUNDED)
            assert split["bleu1"] >= split["bleu2"] >= split["bleu3"] >= split["bleu4"]
            for measure in ("loss", "bleu4", "a_z", "saif"):
                assert split[measure] == pytest.approx(last[f"{name}_{measure}"], abs=ROUNDED)

    each(records(CaptionRun), check)


def test_every_recorded_cross_validation_has_every_method_on_every_fold() -> None:
    def check(result: Result[Any]) -> None:
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

    each(records(CrossValidation), check)


def contents() -> dict[Path, bytes]:
    """Every file that git knows, and every file of the built site, if there is one."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    tracked = [ROOT / name for name in listed.split("\0") if name]
    site = (ROOT / "book" / "_build" / "html").rglob("*")
    return {path: path.read_bytes() for path in (*tracked, *site) if path.is_file()}


def test_no_photograph_and_no_name_of_one() -> None:
    for path, content in contents().items():
        assert not content.startswith(PHOTOGRAPH), f"{path} is a photograph"
        assert not (found := FLICKR.search(content)), f"{path} names the photograph {found}"
        assert path.name not in {"captions_train2014.json", "captions_val2014.json", "words.yaml"}, path


def test_no_caption_of_flickr8k() -> None:
    folder = paths.data_dir() / "flickr8k" / "annotations"
    if not folder.is_dir():
        pytest.skip("Flickr8k is not in FCAM_DATA: there is nothing to look for")
    captions = {
        window
        for file in folder.glob("captions_*.json")
        for entry in json.loads(file.read_text("utf-8"))["annotations"]
        for window in windows(entry["caption"].encode())
    }
    assert len(captions) > 100_000
    for path, content in contents().items():
        assert not (found := captions & windows(content)), f"{path} holds {found}"


def windows(text: bytes) -> set[tuple[bytes, ...]]:
    """Every run of eight words."""
    words = re.findall(rb"[a-z0-9'-]+", text.lower())
    return set(zip(*(words[start:] for start in range(LENGTH)), strict=False))


def test_records_of_photographs_hold_numbers_and_the_models_own_words() -> None:
    photographs = [run for run in store.every(CaptionRun, recorded=True) if run.config.data.source != "scenes"]
    assert photographs
    for run in photographs:
        if (run.folder / "examples.npz").exists():
            kept = run.arrays("examples.npz")
            assert set(kept) == {"word", "alpha", "real", "names_category", "box", "image_id"} and not kept["box"].size

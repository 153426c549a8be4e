"""Courses: after each epoch the numbers of the run itself; and what the page takes from them."""

from __future__ import annotations

import base64
import importlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fcamlib import metrics, store
from fcamlib.config import Grid, Run
from fcamlib.running import Trajectory, trajectory

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"num_train": 96, "num_validation": 32, "num_test": 48, "epochs": 5, "batch_size": 16, "seeds": 3}
SPEC = {**SMALL, "switch_epoch": 2, "learning_rates": "0.02,0.3", "hard_learning_rates": "0.2,0.01", "search_epochs": 1}


def configs(**changes: Any) -> dict[str, Run]:
    return {one.paradigm: one for one in Grid.of({**SPEC, **changes}).configs()}


def courses() -> dict[str, Trajectory]:
    return {name: trajectory(one, 48) for name, one in configs().items()}


@pytest.fixture(scope="module")
def found() -> dict[str, Trajectory]:
    """The course of each paradigm, two learning rates compared in each phase."""
    return courses()


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The book's script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "book" / "_ext")
        yield importlib.import_module("course")
        patch.delitem(sys.modules, "course")


@pytest.mark.parametrize("paradigm", ["soft", "hard", "lvml", "hybrid"])
def test_every_epoch_has_the_numbers_of_the_run(found: dict[str, Trajectory], paradigm: str) -> None:
    one, finished = found[paradigm], store.get(configs()[paradigm])
    trained = one.history.iloc[1:].reset_index(drop=True)
    for name in ("epoch", "phase", "paradigm", "learning_rate"):
        assert trained[name].tolist() == finished.history[name].tolist()
    for name in ("loss", "accuracy", "focus_accuracy", "saif"):
        assert trained[name].tolist() == finished.history[f"test_{name}"].tolist(), name
    assert trained["accuracy"].nunique() > 2, "nothing moves, so nothing is compared"
    test = finished.summary["splits"]["test"]
    assert one.histograms[-1].tolist() == test["histogram"] and trained["ftpt"].iloc[-1] == test["ftpt"]
    kept = finished.arrays()
    np.testing.assert_allclose(one.examples["alpha"][-1, :8], kept["alpha"], atol=1e-6)
    assert one.config == finished.config and one.summary["n"] == 48


@pytest.mark.parametrize("paradigm", ["soft", "hybrid"])
def test_attention_and_probabilities_are_those_that_the_cells_count(
    found: dict[str, Trajectory], paradigm: str
) -> None:
    one = found[paradigm]
    kept = one.examples
    truth = np.arange(48), kept["label"]
    for row, alpha, prob, cells in zip(
        one.history.to_dict("records"), kept["alpha"], kept["prob"], one.histograms, strict=True
    ):
        a_z, s_y = (alpha * kept["foreground"]).sum(axis=1), prob[truth]
        np.testing.assert_allclose(metrics.focus_prediction_histogram(a_z, s_y), cells, atol=1e-9)
        assert (row["a_z"], row["s_y"]) == pytest.approx((a_z.mean(), s_y.mean()), abs=1e-6)
        hits = {
            "accuracy": prob.argmax(axis=1) == kept["label"],
            "focus_accuracy": kept["foreground"][np.arange(48), alpha.argmax(axis=1)],
        }
        for name, hit in hits.items():
            assert row[name] * 48 == pytest.approx(hit.sum(), abs=1e-9)
        elsewhere = hits["accuracy"] & ~hits["focus_accuracy"]
        assert row["ffpt"] * 48 == pytest.approx(elsewhere.sum(), abs=1e-9)


def test_epoch_zero_is_before_training(found: dict[str, Trajectory]) -> None:
    kept = {name: one.examples for name, one in found.items()}
    for one in kept.values():
        np.testing.assert_array_equal(one["alpha"][0], kept["soft"]["alpha"][0])
        assert np.abs(one["alpha"][0] - 0.2).max() < 0.2 < np.abs(one["alpha"][-1] - 0.2).max()
    np.testing.assert_array_equal(kept["hybrid"]["prob"][0], kept["soft"]["prob"][0])


def test_the_page_has_the_numbers_of_the_courses(script: ModuleType, found: dict[str, Trajectory]) -> None:
    data = script.plane_data(found)
    assert data["epochs"] == [0, 1, 2, 3, 4, 5] and data["switch"] == 2
    for name, one in found.items():
        shown = data["paradigms"][name]
        np.testing.assert_allclose(np.reshape(shown["cells"], (6, 5, 5)), one.histograms, atol=0.00501)
        for measure in ("accuracy", "focus_accuracy", "saif", "a_z", "s_y"):
            np.testing.assert_allclose(shown[measure], one.history[measure], atol=0.000501)
    assert script.sentence(found) == (
        "Shown are digits with m = 5, 96 mosaics, 5 epochs, seed 3 and 48 test mosaics; "
        "four models that start from the same weights."
    )


def test_the_gallery_follows_its_rules(script: ModuleType, found: dict[str, Trajectory]) -> None:
    data = script.gallery_data(found)
    kept = {name: one.examples for name, one in found.items()}
    numbers = [[data["mosaics"][place]["number"] for place in group["mosaics"]] for group in data["lists"]]
    a_z = {name: (e["alpha"][-1] * e["foreground"]).sum(axis=1) for name, e in kept.items()}
    spread = np.max(list(a_z.values()), axis=0) - np.min(list(a_z.values()), axis=0)
    assert numbers[0] == list(range(12)) and len(numbers[1]) == 12
    assert min(spread[numbers[1]]) >= max(np.delete(spread, numbers[1])) - 1e-6
    elsewhere = [n for n in range(48) if _is_right_elsewhere(kept["soft"], n)]
    assert numbers[2] == elsewhere[:12] and data["lists"][2]["title"].endswith(f"of {len(elsewhere)}")
    assert len({m["number"] for m in data["mosaics"]}) == len(data["mosaics"]) <= 36
    for mosaic in data["mosaics"]:
        for name, e in kept.items():
            *weights, focus, predicted, sure = np.transpose(mosaic["looks"][name])
            np.testing.assert_allclose(np.transpose(weights) / 100, e["alpha"][:, mosaic["number"]], atol=0.00501)
            assert focus.tolist() == e["alpha"][:, mosaic["number"]].argmax(axis=1).tolist()
            prob = e["prob"][np.arange(6), mosaic["number"], predicted]
            np.testing.assert_allclose(sure / 100, prob, atol=0.00501)
            assert (prob == e["prob"][:, mosaic["number"]].max(axis=1)).all()


def _is_right_elsewhere(e: dict[str, np.ndarray], number: int) -> bool:
    focus = e["alpha"][-1, number].argmax()
    return bool(not e["foreground"][number, focus] and e["prob"][-1, number].argmax() == e["label"][number])


def test_the_sheet_of_pictures_has_each_segment_in_its_place(script: ModuleType) -> None:
    segments = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 2), dtype=np.uint8)
    content = base64.b64decode(script.sprite(segments).removeprefix("data:image/png;base64,"))
    sheet = np.asarray(Image.open(io.BytesIO(content)))
    assert sheet.shape == (12, 10)
    for mosaic, segment in np.ndindex(3, 5):
        part = sheet[4 * mosaic : 4 * mosaic + 4, 2 * segment : 2 * segment + 2]
        np.testing.assert_array_equal(part, segments[mosaic, segment])


def test_pictures_for_readers_without_javascript_show_the_same(
    script: ModuleType, found: dict[str, Trajectory]
) -> None:
    gallery, data = script.static_gallery(found), script.gallery_data(found)
    first = [data["mosaics"][place] for place in data["lists"][-1]["mosaics"][:3]]
    for position, mosaic in enumerate(first):
        for name in found:
            weights = np.array(mosaic["looks"][name][-1][:5]) / 100
            np.testing.assert_allclose(gallery["alpha"][name][position], weights, atol=0.00501)
            assert gallery["predictions"][name][position] == mosaic["looks"][name][-1][6]
        assert gallery["labels"][position] == mosaic["label"]

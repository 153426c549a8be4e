"""Trajectories: after each epoch the numbers of the run itself; and which mosaics the page takes from them."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fcamlib import store
from fcamlib.config import Grid
from fcamlib.running import Trajectory, trajectory

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"num_train": 96, "num_validation": 32, "num_test": 48, "epochs": 5, "batch_size": 16, "seeds": 3}
SPEC = {**SMALL, "switch_epoch": 2, "learning_rates": "0.02,0.3", "hard_learning_rates": "0.2,0.01", "search_epochs": 1}


@pytest.fixture(scope="module")
def found() -> dict[str, Trajectory]:
    """The trajectory of each paradigm, two learning rates compared in each phase."""
    return {one.paradigm: trajectory(one, 48) for one in Grid.of(SPEC).configs()}


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The book's script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "book" / "_ext")
        yield importlib.import_module("interactive")
        patch.delitem(sys.modules, "interactive")


def test_every_epoch_has_the_numbers_of_the_run_and_epoch_zero_is_before_training(found: dict[str, Trajectory]) -> None:
    for one in found.values():
        np.testing.assert_array_equal(one.examples["alpha"][0], found["soft"].examples["alpha"][0])
        assert np.abs(one.examples["alpha"][0] - 0.2).max() < 0.2 < np.abs(one.examples["alpha"][-1] - 0.2).max()
        finished, trained = store.get(one.config), one.history.iloc[1:].reset_index(drop=True)
        for name in ("epoch", "phase", "paradigm", "learning_rate"):
            assert trained[name].tolist() == finished.history[name].tolist()
        for name in ("loss", "accuracy", "focus_accuracy", "saif"):
            assert trained[name].tolist() == finished.history[f"test_{name}"].tolist(), name
        assert trained["accuracy"].nunique() > 2, "nothing moves, so nothing is compared"
        test = finished.summary["splits"]["test"]
        assert one.histograms[-1].tolist() == test["histogram"] and trained["ftpt"].iloc[-1] == test["ftpt"]
        np.testing.assert_allclose(one.examples["alpha"][-1, :8], finished.arrays()["alpha"], atol=1e-6)
        assert one.summary["n"] == 48


def test_the_gallery_follows_its_rules(script: ModuleType, found: dict[str, Trajectory]) -> None:
    data, kept = script.gallery_data(found), {name: one.examples for name, one in found.items()}
    numbers = [[data["mosaics"][place]["number"] for place in group["mosaics"]] for group in data["lists"]]
    a_z = [(e["alpha"][-1] * e["foreground"]).sum(axis=1) for e in kept.values()]
    spread = np.max(a_z, axis=0) - np.min(a_z, axis=0)
    assert numbers[0] == list(range(12)) and len(numbers[1]) == 12
    assert min(spread[numbers[1]]) >= max(np.delete(spread, numbers[1])) - 1e-6
    soft = kept["soft"]
    focus = soft["foreground"][np.arange(48), soft["alpha"][-1].argmax(axis=1)]
    elsewhere = np.flatnonzero(~focus & (soft["prob"][-1].argmax(axis=1) == soft["label"])).tolist()
    assert numbers[2] == elsewhere[:12] and data["lists"][2]["title"].endswith(f"of {len(elsewhere)}")
    assert len({m["number"] for m in data["mosaics"]}) == len(data["mosaics"]) <= 36
    gallery = script.static_gallery(found)  # for readers without JavaScript
    for position, place in enumerate(data["lists"][-1]["mosaics"][:3]):
        for name, looks in data["mosaics"][place]["looks"].items():
            np.testing.assert_allclose(gallery["alpha"][name][position], np.array(looks[-1][:5]) / 100, atol=0.00501)
            assert gallery["predictions"][name][position] == looks[-1][6]

"""Bags: generated ones are as described, a user's file is read as documented, and no test bag is ever looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fcamlib.config import Bags
from fcamlib.data.bags import SEPARATION, bags_task, centres, num_repeats_and_folds
from fcamlib.data.sdc import SDCData, SDCTask
from fcamlib.errors import DataError

SIZES = {
    "num_segments": 9,
    "num_features": 12,
    "num_classes": 3,
    "num_train": 400,
    "num_validation": 20,
    "num_test": 30,
}


def clouds(seed: int = 0, **changes: Any) -> SDCTask:
    return bags_task(Bags(source="clouds", **{**SIZES, **changes}), seed)


def instances(data: SDCData) -> tuple[np.ndarray, np.ndarray]:
    """Features of the real instances (N, D) and the row of the bag that each lies in (N,)."""
    mask = np.ones(data.segments.shape, dtype=bool) if data.mask is None else data.mask.numpy()
    return data.bank.values.numpy()[data.segments.numpy()[mask]], np.nonzero(mask)[0]


def test_clouds_decide_the_label_by_their_foreground_and_nothing_else() -> None:
    data = clouds().splits["train"]
    features, bag = instances(data)
    assert data.mask is not None
    is_foreground = data.foreground.numpy()[data.mask.numpy()]
    nearest = ((features[:, None] - centres(6, 12)) ** 2).sum(axis=2).argmin(axis=1)
    label = data.label.numpy()[bag]
    assert (nearest == label)[is_foreground].mean() > 0.9
    others = nearest[~is_foreground]
    assert (others >= 3).mean() > 0.9 and np.bincount(others, minlength=6)[3:].min() > 200
    np.testing.assert_allclose(np.linalg.norm(centres(6, 12), axis=1), SEPARATION)
    residual = features[is_foreground] - centres(6, 12)[label[is_foreground]]
    assert abs(residual.std() - 1) < 0.05


def test_bags_of_clouds_have_every_size_and_one_to_a_quarter_foreground_anywhere() -> None:
    data = clouds(num_train=3_000).splits["train"]
    assert data.mask is not None
    sizes, foreground = data.mask.sum(dim=1).numpy(), data.foreground.sum(dim=1).numpy()
    assert np.abs(np.bincount(sizes, minlength=10)[1:] / 3_000 - 1 / 9).max() < 0.03
    assert (foreground >= 1).all() and (foreground <= np.maximum(1, sizes // 4)).all() and (foreground == 2).any()
    assert not (data.foreground & ~data.mask).any()
    place = data.foreground.numpy()[(sizes == 9) & (foreground == 1)].argmax(axis=1)
    assert np.bincount(place, minlength=9).min() > 5


# --- a user's file ----------------------------------------------------------------------------------------------------


def content() -> dict[str, Any]:
    """Twenty bags of 1 to 5 instances, mixed up; feature 0 is the instance's row, feature 1 its bag."""
    draws = np.random.default_rng(3)
    bag = draws.permutation(np.repeat(np.arange(20), np.arange(20) % 5 + 1))
    features = np.stack([np.arange(60.0), bag, draws.normal(5, 100, 60)], axis=1).astype(np.float32)
    fold = np.stack([draws.permutation(np.arange(20) % 10 // 2), np.arange(20) // 4])
    return {"features": features, "bag": bag, "label": np.arange(20) % 2, "fold": fold}


def saved(path: Path, arrays: dict[str, Any]) -> str:
    np.savez(path / "mine.npz", **arrays)
    return f"bags:{path / 'mine.npz'}"


def loaded(path: Path, arrays: dict[str, Any], **config: Any) -> SDCTask:
    return bags_task(Bags(source=saved(path, arrays), **config), seed=0)


def rows_by_bag(data: SDCData) -> list[list[int]]:
    masks = [[True] * data.num_segments] * len(data) if data.mask is None else data.mask.tolist()
    return [
        sorted(s for s, m in zip(row, mask, strict=True) if m)
        for row, mask in zip(data.segments.tolist(), masks, strict=True)
    ]


def test_unsorted_bag_numbers_keep_every_instance_in_its_bag(tmp_path: Path) -> None:
    arrays = content()
    made = loaded(tmp_path, arrays, repeat=1, fold=2)
    test = made.splits["test"]
    assert rows_by_bag(test) == [np.flatnonzero(arrays["bag"] == number).tolist() for number in (8, 9, 10, 11)]
    assert test.label.tolist() == [0, 1, 0, 1]
    found = sorted(row for data in made.splits.values() for bag in rows_by_bag(data) for row in bag)
    assert found == list(range(60))
    assert not test.foreground.any() and [len(made.splits[s]) for s in ("train", "validation")] == [12, 4]


def test_each_fold_is_the_files_own_and_splits_are_stratified_and_the_same_for_every_seed(tmp_path: Path) -> None:
    arrays = content()
    for repeat in range(2):
        for fold in range(5):
            config = Bags(source=saved(tmp_path, arrays), repeat=repeat, fold=fold)
            made, again = bags_task(config, 0), bags_task(config, 7)
            of_fold = np.flatnonzero(arrays["fold"][repeat] == fold)
            expected = [np.flatnonzero(arrays["bag"] == bag).tolist() for bag in of_fold]
            assert rows_by_bag(made.splits["test"]) == expected
            for split, data in made.splits.items():
                assert torch.equal(data.segments, again.splits[split].segments)
            assert set(made.splits["validation"].label.tolist()) == {0, 1}
    without = {key: value for key, value in arrays.items() if key != "fold"}
    tests = [rows_by_bag(loaded(tmp_path, without, fold=fold).splits["test"]) for fold in range(10)]
    assert sorted(row for bags in tests for rows in bags for row in rows) == list(range(60))
    other = rows_by_bag(loaded(tmp_path, without, repeat=1).splits["test"])
    assert other != tests[0] and num_repeats_and_folds(saved(tmp_path, arrays)) == (2, 5)
    assert num_repeats_and_folds(saved(tmp_path, without)) == (0, 10)


def test_standardisation_sees_training_bags_alone(tmp_path: Path) -> None:
    arrays = content()
    made = loaded(tmp_path, arrays, repeat=1, fold=2)
    seen, _ = instances(made.splits["train"])
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(seen.std(axis=0), 1, atol=1e-5)
    is_train = np.isin(np.arange(60), [row for bag in rows_by_bag(made.splits["train"]) for row in bag])
    of_train = arrays["features"][is_train]
    expected = (arrays["features"] - of_train.mean(axis=0)) / of_train.std(axis=0)
    np.testing.assert_allclose(made.bank.values.numpy(), expected, atol=1e-4)
    arrays["features"][~is_train] = 1e6
    changed = loaded(tmp_path, arrays, repeat=1, fold=2)
    np.testing.assert_array_equal(made.bank.values[is_train], changed.bank.values[is_train])


def test_any_number_of_classes_and_a_known_foreground(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    bag, label = np.repeat(np.arange(70), 3), np.array([f"class {k}" for k in range(7)] * 10)
    foreground = np.arange(210) % 3 == 1
    features = draws.normal(size=(210, 2))
    made = loaded(tmp_path, {"features": features, "bag": bag, "label": label, "foreground": foreground})
    assert made.class_names == tuple(f"class {k}" for k in range(7))
    for data in made.splits.values():
        assert (data.foreground == torch.tensor([False, True, False])).all() and data.mask is None


def test_folds_and_repeats_that_do_not_exist_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^repeat=2 is not in dataset='bags:.*mine.npz': choose 0 to 1\.$"):
        loaded(tmp_path, content(), repeat=2)
    with pytest.raises(DataError, match=r"^fold=5 has no bag in dataset='.*', repeat 1: choose one of 0, 1, 2, 3, 4\."):
        loaded(tmp_path, content(), repeat=1, fold=5)


def test_a_bag_of_5000_instances_beside_one_of_one(tmp_path: Path) -> None:
    bag = np.repeat(np.arange(20), [5_000, *[1] * 19])
    arrays = {"features": np.arange(2.0 * len(bag)).reshape(-1, 2), "bag": bag, "label": np.arange(20) % 2}
    sizes = [loaded(tmp_path, arrays, fold=fold).splits["test"].num_segments for fold in range(10)]
    assert sorted(sizes)[-2:] == [1, 5_000]

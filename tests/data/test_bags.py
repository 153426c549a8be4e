"""Bags: generated ones are as described, a user's file is read as documented, and no test bag is ever looked at."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from fcamlib.config import Bags
from fcamlib.data.bags import SEPARATION, bags_task, centres, num_repeats_and_folds
from fcamlib.data.sdc import SDCData, SDCTask


def test_clouds_decide_the_label_by_their_foreground_and_nothing_else() -> None:
    sizes = {"num_segments": 9, "num_features": 12, "num_classes": 3}
    config = Bags(source="clouds", num_train=3_000, num_validation=20, num_test=30, **sizes)
    data = bags_task(config, 0).splits["train"]
    assert data.mask is not None
    mask, foreground = data.mask.numpy(), data.foreground.numpy()
    features, label = data.bank.values.numpy()[data.segments.numpy()[mask]], data.label.numpy()[np.nonzero(mask)[0]]
    nearest = ((features[:, None] - centres(6, 12)) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == label)[foreground[mask]].mean() > 0.88
    others = nearest[~foreground[mask]]
    assert (others >= 3).mean() > 0.9 and np.bincount(others, minlength=6)[3:].min() > 1_500
    np.testing.assert_allclose(np.linalg.norm(centres(6, 12), axis=1), SEPARATION)
    size, marked = mask.sum(axis=1), foreground.sum(axis=1)  # one to a quarter is foreground
    assert (marked >= 1).all() and (marked <= np.maximum(1, size // 4)).all() and not (foreground & ~mask).any()


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
    for repeat, fold in np.ndindex(2, 5):
        config = Bags(source=saved(tmp_path, arrays), repeat=repeat, fold=fold)
        made, again = bags_task(config, 0), bags_task(config, 7)
        of_fold = np.flatnonzero(arrays["fold"][repeat] == fold)
        assert rows_by_bag(made.splits["test"]) == [np.flatnonzero(arrays["bag"] == bag).tolist() for bag in of_fold]
        assert all(torch.equal(made.splits[name].segments, again.splits[name].segments) for name in made.splits)
        assert set(made.splits["validation"].label.tolist()) == {0, 1}
    assert num_repeats_and_folds(saved(tmp_path, arrays)) == (2, 5)
    del arrays["fold"]
    tests = [rows_by_bag(loaded(tmp_path, arrays, fold=fold).splits["test"]) for fold in range(10)]
    assert sorted(row for bags in tests for rows in bags for row in rows) == list(range(60))
    assert rows_by_bag(loaded(tmp_path, arrays, repeat=1).splits["test"]) != tests[0]
    assert num_repeats_and_folds(saved(tmp_path, arrays)) == (0, 10)


def test_standardisation_sees_training_bags_alone(tmp_path: Path) -> None:
    arrays = content()
    made = loaded(tmp_path, arrays, repeat=1, fold=2)
    is_train = np.isin(np.arange(60), [row for bag in rows_by_bag(made.splits["train"]) for row in bag])
    of_train = arrays["features"][is_train].astype(np.float64)
    expected = (arrays["features"] - of_train.mean(axis=0)) / of_train.std(axis=0)
    np.testing.assert_allclose(made.bank.values.numpy(), expected, atol=1e-5)
    arrays["features"][~is_train] = 1e6
    changed = loaded(tmp_path, arrays, repeat=1, fold=2)
    np.testing.assert_array_equal(made.bank.values[is_train], changed.bank.values[is_train])


def test_any_number_of_classes_and_a_known_foreground(tmp_path: Path) -> None:
    label = np.array([f"class {k}" for k in range(7)] * 10)
    features, foreground = np.random.default_rng(0).normal(size=(210, 2)), np.arange(210) % 3 == 1
    arrays = {"features": features, "bag": np.repeat(np.arange(70), 3), "label": label, "foreground": foreground}
    made = loaded(tmp_path, arrays)
    assert made.class_names == tuple(f"class {k}" for k in range(7))
    for data in made.splits.values():
        assert (data.foreground == torch.tensor([False, True, False])).all() and data.mask is None

"""Bags of feature vectors: each bag has a label; the instances that decide it may be known or unknown.

`clouds` are generated: instances are points of Gaussian clouds, with one cloud per class and equally many that belong
to no class; the foreground instances of a bag come from the cloud of its label. Source: this project's design.

`bags:PATH` is an .npz file with the arrays of `SCHEMA`, which the book's page on vectors explains.
One fold gives the test bags; a stratified share of the other bags is held out for validation. Features are standardised
with the mean and standard deviation over the instances of the training bags.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from numpy.typing import NDArray

from fcamlib.config.sources import short_source
from fcamlib.config.tasks import Bags
from fcamlib.data.npz import Arrays, checked, class_labels, load, required, standardised, stratified
from fcamlib.data.sdc import Bank, SDCTask, by_split, generators
from fcamlib.errors import DataError

NUM_FOLDS = 10  # if a file has none
SEPARATION = 3.0  # distance of a cloud's centre from the origin, in standard deviations of the cloud
SCHEMA = {
    "features": "N D number",
    "bag": "N whole",
    "label": "bags label",
    "fold": "repeats bags whole?",
    "foreground": "N truth?",
}


def bags_task(config: Bags, seed: int) -> SDCTask:
    """Train, validation and test bags of `config`; `seed` draws `clouds` and has no effect on a file."""
    return _clouds(config, seed) if config.source == "clouds" else _file(config)


def num_repeats_and_folds(source: str, validation_share: float = 0.2) -> tuple[int, int]:
    """How many repeated cross-validations a file defines (0: none), and how many folds each has.

    The split of every fold is checked, so an invalid file is refused before any training.
    """
    arrays, names = _arrays(source)
    folds = arrays.get("fold", np.arange(NUM_FOLDS)[None])
    for repeat, fold in np.ndindex(len(folds), int(folds.max()) + 1):
        _splits(arrays, names, source, repeat, fold, validation_share)
    return len(arrays.get("fold", ())), int(folds.max()) + 1


def centres(num_clouds: int, num_features: int) -> NDArray[np.float64]:
    """Centres of the clouds (clouds, D), at distance `SEPARATION` from the origin, the same for every seed."""
    drawn = np.random.default_rng(0).standard_normal((num_clouds, num_features))
    return SEPARATION * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _clouds(config: Bags, seed: int) -> SDCTask:
    drawn = {split: _draw(config, count, generator) for split, count, generator in generators(config, seed)}
    features, sizes, label, foreground = (np.concatenate(column) for column in zip(*drawn.values(), strict=True))
    split = np.repeat(list(drawn), [len(part[2]) for part in drawn.values()])
    bank, bag = Bank(torch.from_numpy(features)), np.repeat(np.arange(len(label)), sizes)
    splits = by_split(bank, np.arange(len(bag)), bag, foreground, label, split)
    return SDCTask(splits, tuple(f"cloud {number}" for number in range(config.num_classes)), "clouds")


def _draw(
    config: Bags, num_bags: int, generator: np.random.Generator
) -> tuple[Float32[np.ndarray, "N D"], Int64[np.ndarray, " n"], Int64[np.ndarray, " n"], Bool[np.ndarray, " N"]]:
    """Features of the instances in the order of bags, sizes and labels of bags, and which instances are foreground.

    A bag has 1 to `num_segments` instances; at least 1 and up to a quarter of them are foreground.
    """
    label = generator.integers(config.num_classes, size=num_bags)
    sizes = generator.integers(1, config.num_segments + 1, size=num_bags)
    num_foreground = generator.integers(1, np.maximum(1, sizes // 4) + 1)
    order = generator.random(int(sizes.sum()))
    bag = np.repeat(np.arange(num_bags), sizes)
    rank = np.lexsort((order, bag)).argsort() - (np.cumsum(sizes) - sizes)[bag]  # a random order inside each bag
    foreground = rank < num_foreground[bag]
    cloud = np.where(foreground, label[bag], config.num_classes + generator.integers(config.num_classes, size=len(bag)))
    features = centres(2 * config.num_classes, config.num_features)[cloud]
    features = features + generator.standard_normal(features.shape)
    return features.astype(np.float32), sizes, label, foreground


def _file(config: Bags) -> SDCTask:
    arrays, names = _arrays(config.source)
    bag = arrays["bag"]
    split = _splits(arrays, names, config.source, config.repeat, config.fold, config.validation_share)
    features = standardised(arrays["features"], split[bag] == "train", (0,), config.source)
    foreground = arrays.get("foreground", np.zeros(len(bag), dtype=bool))
    splits = by_split(Bank(torch.from_numpy(features)), np.arange(len(bag)), bag, foreground, arrays["label"], split)
    return SDCTask(splits, names, short_source(config.source))


def _arrays(source: str) -> tuple[Arrays, tuple[str, ...]]:
    """The checked arrays of a file, labels as numbers, and the names of the classes.

    Every bag must have an instance, and the folds of a repeat must be numbered without gaps.
    """
    arrays = load(source, SCHEMA)
    if "fold" in arrays:
        arrays["fold"] = np.atleast_2d(arrays["fold"])
    arrays = checked(arrays, source, SCHEMA)
    arrays["label"], names = class_labels(arrays["label"], source)
    bag, num_bags, fault = arrays["bag"], len(arrays["label"]), ""
    if (unknown := bag[(bag < 0) | (bag >= num_bags)]).size:
        fault = f"bag {unknown[0]} has no label: 'label' has {num_bags} entries, for the bags 0 to {num_bags - 1}"
    elif (empty := np.flatnonzero(np.bincount(bag, minlength=num_bags) == 0)).size:
        fault = f"bag {empty[0]} is empty ({empty.size} such): give each an instance, or leave its label out"
    for repeat, folds in enumerate(arrays.get("fold", ())):
        known = np.unique(folds)
        if not known[0] == 0 < known[-1] == len(known) - 1 == arrays["fold"].max():
            held = f"'fold' of repeat {repeat} holds {', '.join(map(str, known[:20]))}"
            fault = f"{held}: number the folds 0, 1, 2 and so on without gaps, in the same way in each repeat"
    if fault:
        raise DataError(f"dataset='{source}': {fault}.")
    return arrays, names


def _splits(
    arrays: Arrays, names: tuple[str, ...], source: str, repeat: int, fold: int, validation_share: float
) -> np.ndarray:
    """Split of each bag: one fold for testing, a stratified share of the others for validation, the rest to train."""
    label, folds = arrays["label"], arrays.get("fold")
    if folds is not None and repeat >= len(folds):
        raise DataError(f"repeat={repeat} is not in dataset='{source}': choose 0 to {len(folds) - 1}.")
    of = stratified(label, [1 / NUM_FOLDS] * NUM_FOLDS, seed=repeat) if folds is None else folds[repeat]
    if fold not in of:
        known = ", ".join(map(str, np.unique(of)))
        raise DataError(f"fold={fold} has no bag in dataset='{source}', repeat {repeat}: choose one of {known}.")
    others, split = np.flatnonzero(of != fold), np.full(len(label), "test", dtype="<U10")
    part = stratified(label[others], (1 - validation_share, validation_share), seed=repeat * 1_000 + fold)
    split[others] = np.array(["train", "validation"])[part]
    return required(split, label, names, source)

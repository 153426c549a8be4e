"""Bags of feature vectors: a bag has a label, and which of its instances decide it may be known or not.

`clouds` are generated: instances are points of Gaussian clouds, one cloud a class and as many that no class has; the
foreground instances of a bag are points of its label's cloud. Source: this project's design.

`bags:PATH` is an .npz file with these arrays (N instances of D features, in any order, in n bags):

| array      | shape           | what                                                                          |
|------------|-----------------|-------------------------------------------------------------------------------|
| features   | (N, D)          | a feature vector for each instance                                              |
| bag        | (N,)            | the instance's bag, 0..n-1                                                      |
| label      | (n,)            | class of each bag, whole numbers or names                                       |
| fold       | (repeats, n)    | optional: test fold of each bag in each of the repeated cross-validations; (n,) |
|            |                 | for one; without it ten stratified folds are drawn, others for each `repeat`    |
| foreground | (N,)            | optional, bool: the instances that decide the label                             |

Test bags are those of one fold; of the other bags a stratified share is held out for validation. Features are
standardised with mean and standard deviation over the instances of the training bags alone.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from numpy.typing import NDArray

from fcamlib.config.sources import short_source
from fcamlib.config.tasks import Bags
from fcamlib.data import npz
from fcamlib.data.npz import Array, Arrays, Members, class_labels, standardised, stratified
from fcamlib.data.sdc import SPLITS, Bank, SDCData, SDCTask, generators, members_of
from fcamlib.errors import DataError

NUM_FOLDS = 10  # where a file has none
SEPARATION = 3.0  # typical distance of a cloud's centre from the origin, in standard deviations of a cloud
SCHEMA = {
    "features": Array("N D", "number", "features (N, D), instances by features"),
    "bag": Array("N", "whole", "the bag of each instance (N,)"),
    "label": Array("bags", "label", "the class of each bag (bags,)"),
    "fold": Array("repeats bags", "whole", "test folds (repeats, bags)", optional=True),
    "foreground": Array("N", "truth", "bool (N,)", optional=True),
}


def bags_task(config: Bags, seed: int) -> SDCTask:
    """Train, validation and test bags of `config`; `seed` draws those of `clouds`, and nothing of a file."""
    return _clouds(config, seed) if config.source == "clouds" else _file(config)


def num_repeats_and_folds(source: str, validation_share: float = 0.2) -> tuple[int, int]:
    """How many repeated cross-validations a file names (0: none), and how many folds each has.

    The split of every fold is tried, so that a file is refused before the first fold is trained.
    """
    arrays = _arrays(source)
    label, _ = class_labels(arrays["label"], source)
    folds = arrays.get("fold")
    num_folds = NUM_FOLDS if folds is None else int(folds.max()) + 1
    for repeat in range(1 if folds is None else len(folds)):
        for fold in range(num_folds):
            _members(arrays, label, source, repeat, fold, validation_share)
    return 0 if folds is None else len(folds), num_folds


def centres(num_clouds: int, num_features: int) -> NDArray[np.float64]:
    """Centres of the clouds, the same for every seed: (clouds, D), their distance from the origin `SEPARATION`."""
    drawn = np.random.default_rng(0).standard_normal((num_clouds, num_features))
    return SEPARATION * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _clouds(config: Bags, seed: int) -> SDCTask:
    drawn = [_draw(config, count, generator) for _, count, generator in generators(config, seed)]
    features, sizes, label, foreground = (np.concatenate(column) for column in zip(*drawn, strict=True))
    bag = np.repeat(np.arange(len(label)), sizes)
    members = members_of(np.repeat(SPLITS, [len(part[2]) for part in drawn]))
    names = tuple(f"cloud {number}" for number in range(config.num_classes))
    return _task(features, bag, label, foreground, members, names, "clouds")


def _draw(
    config: Bags, num_bags: int, generator: np.random.Generator
) -> tuple[Float32[np.ndarray, "N D"], Int64[np.ndarray, " n"], Int64[np.ndarray, " n"], Bool[np.ndarray, " N"]]:
    """Features of the instances in the order of bags, sizes and labels of bags, and which instances are foreground.

    A bag has 1 to `num_segments` instances, and of these 1 to a quarter are foreground.
    """
    label = generator.integers(config.num_classes, size=num_bags)
    sizes = generator.integers(1, config.num_segments + 1, size=num_bags)
    num_foreground = generator.integers(1, np.maximum(1, sizes // 4) + 1)
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    order = generator.random(int(sizes.sum()))
    bag = np.repeat(np.arange(num_bags), sizes)
    rank = np.empty(len(bag), dtype=np.int64)
    rank[np.lexsort((order, bag))] = np.arange(len(bag))  # a random order inside each bag
    foreground = rank - start[bag] < num_foreground[bag]
    cloud = np.where(foreground, label[bag], config.num_classes + generator.integers(config.num_classes, size=len(bag)))
    features = centres(2 * config.num_classes, config.num_features)[cloud]
    features = features + generator.standard_normal(features.shape)
    return features.astype(np.float32), sizes, label, foreground


def _file(config: Bags) -> SDCTask:
    source, arrays = config.source, _arrays(config.source)
    bag, (label, names) = arrays["bag"], class_labels(arrays["label"], source)
    members = _members(arrays, label, source, config.repeat, config.fold, config.validation_share)
    features = arrays["features"]
    values = standardised(features, features[members["train"][bag]], (0,), source)
    foreground = arrays.get("foreground", np.zeros(len(bag), dtype=bool))
    return _task(values, bag, label, foreground, members, names, short_source(source))


def _arrays(source: str) -> Arrays:
    """The checked arrays of a file: every bag has an instance, the folds of a repeat are numbered without a gap."""
    arrays = npz.load(source, SCHEMA)
    if "fold" in arrays:
        arrays["fold"] = np.atleast_2d(arrays["fold"])
    arrays = npz.checked(arrays, source, SCHEMA)
    bag, num_bags = arrays["bag"], len(arrays["label"])
    if (unknown := bag[(bag < 0) | (bag >= num_bags)]).size:
        fault = f"dataset='{source}': bag {int(unknown[0])} has no label"
        raise DataError(f"{fault}: 'label' has {num_bags} entries, for the bags 0 to {num_bags - 1}.")
    if (empty := np.flatnonzero(np.bincount(bag, minlength=num_bags) == 0)).size:
        fault = f"dataset='{source}': bag {int(empty[0])} is empty ({empty.size} such bags)"
        raise DataError(f"{fault}: give each at least one instance, or leave its label out.")
    for repeat, folds in enumerate(arrays.get("fold", ())):
        known = np.unique(folds)
        if not known[0] == 0 < known[-1] == len(known) - 1 == arrays["fold"].max():
            fault = f"dataset='{source}': 'fold' of repeat {repeat} holds {', '.join(map(str, known[:20]))}"
            raise DataError(f"{fault}: number the folds 0, 1, 2 and so on without a gap, alike in each repeat.")
    return arrays


def _members(
    arrays: Arrays, label: Int64[np.ndarray, " n"], source: str, repeat: int, fold: int, validation_share: float
) -> Members:
    """Bags of each split: the test fold, a stratified share of the others for validation, and the rest."""
    if "fold" in arrays:
        if repeat >= len(arrays["fold"]):
            raise DataError(f"repeat={repeat} is not in dataset='{source}': choose 0 to {len(arrays['fold']) - 1}.")
        of = arrays["fold"][repeat]
    else:
        of = stratified(label, [1 / NUM_FOLDS] * NUM_FOLDS, seed=repeat)
    if fold not in of:
        known = ", ".join(map(str, np.unique(of).tolist()))
        raise DataError(f"fold={fold} has no bag in dataset='{source}', repeat {repeat}: choose one of {known}.")
    others = np.flatnonzero(of != fold)
    held_out = np.zeros(len(label), dtype=bool)
    part = stratified(label[others], (1 - validation_share, validation_share), seed=repeat * 1_000 + fold)
    held_out[others[part == 1]] = True
    members = {"train": (of != fold) & ~held_out, "validation": held_out, "test": of == fold}
    return npz.required(members, label, source)


def _task(
    features: Float32[np.ndarray, "N D"],
    bag: Int64[np.ndarray, " N"],
    label: Int64[np.ndarray, " n"],
    foreground: Bool[np.ndarray, " N"],
    members: Members,
    names: tuple[str, ...],
    title: str,
) -> SDCTask:
    bank, order = Bank(torch.from_numpy(features)), np.argsort(bag, kind="stable")
    sizes = np.bincount(bag, minlength=len(label))
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    splits = {}
    for split, chosen in members.items():
        rows = np.flatnonzero(chosen)
        place = np.arange(sizes[rows].max())
        mask = place < sizes[rows, None]  # (n, M)
        instance = order[np.where(mask, start[rows, None] + place, 0)]  # padding points at any instance
        splits[split] = SDCData(
            bank,
            torch.from_numpy(instance.astype(np.int32)),
            torch.from_numpy(label[rows]),
            torch.from_numpy(foreground[instance] & mask),
            None if mask.all() else torch.from_numpy(mask),
        )
    return SDCTask(splits, names, title)

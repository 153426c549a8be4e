"""Mosaics: one foreground picture, whose class is the label, among background pictures.

A mosaic is a row of indices into the bank of base pictures, never a copy of pixels. Train, validation and test
mosaics are composed of disjoint base pictures. Source: arXiv 2307.13421, experiments on CIFAR.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fcamlib.config.tasks import Mosaics
from fcamlib.data.pictures import Pictures, class_index, load_pictures, source_title
from fcamlib.data.sdc import Bank, SDCData, SDCTask, generators
from fcamlib.errors import DataError

_NEEDED = "give at least two training pictures and one test picture"


def mosaic_task(config: Mosaics, seed: int) -> SDCTask:
    """Train, validation and test mosaics of `config`, drawn with `seed`.

    The label is uniform over the foreground classes, the foreground's place uniform over the segments, and
    every picture uniform over those of its class set in the split, with replacement.
    """
    pictures = load_pictures(config.source, config.image_size)
    foreground = class_index(config.foreground, pictures, config.source, "foreground")
    background = class_index(config.background, pictures, config.source, "background")
    background = background or sorted(set(range(len(pictures.class_names))) - set(foreground))
    if not background:
        raise DataError("background is empty: foreground names every class, so leave at least one of them out.")
    pools = pictures.pools()
    if config.paper_split:
        pools["test"] = pools["train"]
    bank = Bank(torch.from_numpy(pictures.values), scale=2.0 / pictures.white, shift=-1.0, pictures=True)
    splits = {}
    for split, count, generator in generators(config, seed):
        members = _members(pictures, pools[split], foreground, background, split)
        splits[split] = _draw(bank, members, count, config.num_segments, generator)
    title = source_title(config.source) + (" (test mosaics from training pictures)" if config.paper_split else "")
    return SDCTask(splits, config.foreground, title)


def _members(
    pictures: Pictures, pool: NDArray[np.bool_], foreground: list[int], background: list[int], split: str
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Pictures of each foreground class, and those of all background classes, in one split."""
    by_class = [np.flatnonzero(pool & (pictures.label == label)) for label in foreground]
    others = np.flatnonzero(pool & np.isin(pictures.label, background))
    for label, members in zip(foreground, by_class, strict=True):
        if members.size == 0:
            name = pictures.class_names[label]
            raise DataError(f"class '{name}' has no picture left for {split}: {_NEEDED}.")
    if others.size == 0:
        raise DataError(f"the background classes have no picture left for {split}: {_NEEDED}.")
    return by_class, others


def _draw(
    bank: Bank,
    members: tuple[list[NDArray[np.int64]], NDArray[np.int64]],
    num_mosaics: int,
    num_segments: int,
    generator: np.random.Generator,
) -> SDCData:
    by_class, others = members
    label = generator.integers(len(by_class), size=num_mosaics)
    place = generator.integers(num_segments, size=num_mosaics)
    segments = others.astype(np.int32)[generator.integers(others.size, size=(num_mosaics, num_segments))]
    sizes = np.array([group.size for group in by_class])
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    chosen = offsets[label] + generator.integers(sizes[label])
    segments[np.arange(num_mosaics), place] = np.concatenate(by_class)[chosen]
    foreground = np.zeros((num_mosaics, num_segments), dtype=bool)
    foreground[np.arange(num_mosaics), place] = True
    return SDCData(bank, torch.from_numpy(segments), torch.from_numpy(label), torch.from_numpy(foreground))

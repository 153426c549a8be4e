"""Mosaics: one foreground picture, whose class is the label, among background pictures.

A mosaic is a row of indices into the bank of base pictures; pixels are never copied. Train, validation and test
mosaics use disjoint sets of base pictures. Source: arXiv 2307.13421, experiments on CIFAR.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool

from fcamlib.config.tasks import Mosaics
from fcamlib.data.pictures import Pictures, load_pictures, source_title
from fcamlib.data.sdc import Bank, SDCData, SDCTask, generators
from fcamlib.errors import DataError


def mosaic_task(config: Mosaics, seed: int) -> SDCTask:
    """Train, validation and test mosaics of `config`, drawn with `seed`.

    The label is uniform over the foreground classes, the foreground's position is uniform over the segments, and
    pictures are drawn uniformly with replacement from the split's pictures of the respective classes.
    """
    pictures = load_pictures(config.source, config.image_size)
    foreground = _numbers(config.foreground, pictures, config.source, "foreground")
    background = _numbers(config.background, pictures, config.source, "background")
    background = background or sorted(set(range(len(pictures.class_names))) - set(foreground))
    if not background:
        raise DataError("background is empty because foreground names every class: leave at least one class out.")
    pools = pictures.pools()
    if config.paper_split:
        pools["test"] = pools["train"]
    bank = Bank(torch.from_numpy(pictures.values), scale=2.0 / pictures.white, shift=-1.0, pictures=True)
    splits = {}
    for split, count, generator in generators(config, seed):
        groups = [pools[split] & np.isin(pictures.label, classes) for classes in (*zip(foreground), background)]
        names = [*(f"class '{name}'" for name in config.foreground), "the background"]
        if empty := [name for name, group in zip(names, groups, strict=True) if not group.any()]:
            needed = "give at least two training pictures and one test picture"
            raise DataError(f"{empty[0]} has no pictures left for {split}: {needed}.")
        splits[split] = _draw(bank, groups, (count, config.num_segments), generator)
    title = source_title(config.source) + (" (test mosaics from training pictures)" if config.paper_split else "")
    return SDCTask(splits, config.foreground, title)


def _numbers(names: Sequence[str], pictures: Pictures, source: str, field: str) -> list[int]:
    """The numbers of the named classes; `DataError` for an unknown name."""
    known = {name: number for number, name in enumerate(pictures.class_names)}
    if unknown := [name for name in names if name not in known]:
        fault = f"{field} names '{unknown[0]}', which is not a class of dataset='{source}'"
        raise DataError(f"{fault}: choose from {', '.join(known)}.")
    return [known[name] for name in names]


def _draw(
    bank: Bank, groups: list[Bool[np.ndarray, " N"]], shape: tuple[int, int], generator: np.random.Generator
) -> SDCData:
    """Mosaics (n, M); `groups` are the pictures of each foreground class, and last those of the background."""
    *by_class, others = (np.flatnonzero(group) for group in groups)
    label = generator.integers(len(by_class), size=shape[0])
    place = generator.integers(shape[1], size=shape[0])
    segments = others.astype(np.int32)[generator.integers(others.size, size=shape)]
    sizes = np.array([members.size for members in by_class])
    offsets = np.cumsum(sizes) - sizes
    foreground = np.arange(shape[1]) == place[:, None]
    segments[foreground] = np.concatenate(by_class)[offsets[label] + generator.integers(sizes[label])]
    return SDCData(bank, torch.from_numpy(segments), torch.from_numpy(label), torch.from_numpy(foreground))

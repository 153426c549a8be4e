"""The paper's generated tasks: mosaics of pictures, and the linear orthogonal task.

A mosaic has one foreground picture, whose class is the label, among background pictures. It is a row of indices into
the bank of base pictures; pixels are never copied. Train, validation and test mosaics use disjoint sets of base
pictures. In the linear orthogonal task the foreground of class k is the unit vector e_k; background has one extra axis.
Source: arXiv 2307.13421, experiments on CIFAR, and sec. 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool

from fcamlib.config.sources import portable_source
from fcamlib.config.tasks import Mosaics, Orthogonal
from fcamlib.data.pictures import TITLES, Pictures, load_pictures
from fcamlib.data.sdc import Bank, Drawn, SDCData, SDCTask, generated, generators
from fcamlib.errors import DataError


def mosaic_task(config: Mosaics, seed: int) -> SDCTask:
    """Train, validation and test mosaics of `config`, drawn with `seed`.

    Label and position of the foreground are uniform; pictures are drawn with replacement from the split's pictures of
    the respective classes.
    """
    pictures = load_pictures(config.source, config.image_size, config.fingerprint)
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
        splits[split] = _draw_mosaics(bank, groups, (count, config.num_segments), generator)
    source = portable_source(config.source)
    title = TITLES.get(source, source.removeprefix("folder:"))
    title += " (test mosaics from training pictures)" if config.paper_split else ""
    return SDCTask(splits, config.foreground, title)


def _numbers(names: Sequence[str], pictures: Pictures, source: str, field: str) -> list[int]:
    """The numbers of the named classes; `DataError` for an unknown name."""
    known = pictures.class_names
    if unknown := [name for name in names if name not in known]:
        fault = f"{field} names '{unknown[0]}', which is not a class of dataset='{source}'"
        raise DataError(f"{fault}: choose from {', '.join(known)}.")
    return [known.index(name) for name in names]


def _draw_mosaics(
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


def orthogonal_task(config: Orthogonal, seed: int) -> SDCTask:
    """Train, validation and test instances of `config`, drawn with `seed`.

    Segments have C + 1 features. The foreground, at the first place, is e_k for label k, with Gaussian noise on
    every axis; a background segment is Gaussian on the last axis and zero on the others. Labels are uniform.
    The float64 bank holds, for each split, the foreground (one row per instance), then the background.
    """
    return generated(_draw_orthogonal, config, seed, map(str, range(config.num_classes)), "linear orthogonal task")


def _draw_orthogonal(config: Orthogonal, num_instances: int, generator: np.random.Generator) -> Drawn:
    """One split: foreground in the first rows and places, then background."""
    classes, places = config.num_classes, config.num_segments - 1
    num_backgrounds = config.num_backgrounds or num_instances * places
    label = generator.integers(classes, size=num_instances)
    values = np.zeros((num_instances + num_backgrounds, classes + 1))
    foreground = values[:num_instances]
    foreground += np.sqrt(config.foreground_variance) * generator.standard_normal(foreground.shape)
    foreground[np.arange(num_instances), label] += 1.0
    values[num_instances:, classes] = np.sqrt(config.background_variance) * generator.standard_normal(num_backgrounds)
    shape = (num_instances, places)
    chosen = generator.integers(num_backgrounds, size=shape) if config.num_backgrounds else np.arange(num_backgrounds)
    rows = np.column_stack([np.arange(num_instances), num_instances + chosen.reshape(shape)])
    is_foreground = rows < num_instances
    return values, rows.ravel(), is_foreground.ravel(), np.full(num_instances, config.num_segments), label

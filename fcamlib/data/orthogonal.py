"""The linear orthogonal task: the foreground of class k is the unit vector e_k; background has one extra axis.

Source: arXiv 2307.13421, sec. 3.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fcamlib.config.tasks import Orthogonal
from fcamlib.data.sdc import Bank, SDCData, SDCTask, generators


def orthogonal_task(config: Orthogonal, seed: int) -> SDCTask:
    """Train, validation and test instances of `config`, drawn with `seed`.

    Segments have C + 1 features. The foreground, at the first place, is e_k for label k, with Gaussian noise on
    every axis; a background segment is Gaussian on the last axis and zero on the others. Labels are uniform.
    The float64 bank holds, for each split, the foreground (one row per instance), then the background.
    """
    parts = {split: _draw(config, count, generator) for split, count, generator in generators(config, seed)}
    bank = Bank(torch.from_numpy(np.concatenate([values for values, _, _ in parts.values()])))
    splits, first = {}, 0
    for split, (values, label, rows) in parts.items():
        segments = torch.from_numpy((first + rows).astype(np.int32))
        foreground = torch.zeros(segments.shape, dtype=torch.bool)
        foreground[:, 0] = True
        splits[split] = SDCData(bank, segments, torch.from_numpy(label), foreground)
        first += len(values)
    return SDCTask(splits, tuple(map(str, range(config.num_classes))), "linear orthogonal task")


def _draw(
    config: Orthogonal, num_instances: int, generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the bank, labels and segment indices of one split."""
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
    background = num_instances + chosen.reshape(shape)
    return values, label, np.concatenate([np.arange(num_instances)[:, None], background], axis=1)

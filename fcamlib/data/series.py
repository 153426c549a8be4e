"""Time series: an instance is a multichannel series cut into windows; one window decides the label.

`motifs` are generated: slow drift and noise run through the whole series, one window holds the motif of the label's
class, and some of the others a distractor, a waveform of the same kind and energy that no class has. The windows of
all series are the bank; every window occurs in one series. Source: this project's design.

`series:PATH` is an .npz file with these arrays (n series, M windows):

| array      | shape                  | what                                                                     |
|------------|------------------------|--------------------------------------------------------------------------|
| series     | (n, channels, time)    | series, cut into windows of `window_length`; a rest at the end is left out |
| windows    | (n, M, channels, time) | in place of `series`: windows that are cut already                         |
| label      | (n,)                   | whole numbers or names of classes                                         |
| foreground | (n, time) or (n, M)    | optional, bool: the samples, or windows, that decide the label            |
| length     | (n,)                   | optional: samples of each series, or windows of it, that are not padding  |
| split      | (n,)                   | optional: train, validation, test, or 0, 1, 2                             |

Channels are standardised with mean and standard deviation of the training series.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from numpy.typing import NDArray

from fcamlib.config.sources import short_source
from fcamlib.config.tasks import Series
from fcamlib.data.npz import Array, Arrays, Members, checked, class_labels, load, splits_of, standardised
from fcamlib.data.sdc import SPLITS, Bank, SDCData, SDCTask, generators, members_of
from fcamlib.errors import DataError

AMPLITUDE = (0.8, 1.2)  # range of a waveform's root mean square
CYCLES = (1.0, 4.0)  # range of its two frequencies, in cycles per waveform
DRIFT = 1.0  # amplitude of the drift
SERIES = {
    "series": Array("n channels time", "number", "series (n, channels, time)"),
    "label": Array("n", "label", "the class of each series (n,)"),
    "foreground": Array("n time", "truth", "bool (n, time)", optional=True),
    "length": Array("n", "whole", "valid samples of each series (n,)", optional=True),
    "split": Array("n", "split", "train, validation or test of each series (n,)", optional=True),
}
WINDOWS = {
    "windows": Array("n M channels time", "number", "windows (n, M, channels, time), in place of series"),
    **SERIES,
    "foreground": Array("n M", "truth", "bool (n, M)", optional=True),
}
del WINDOWS["series"]


def series_task(config: Series, seed: int) -> SDCTask:
    """Train, validation and test series of `config`; `seed` draws those of `motifs`, and nothing of a file."""
    return _motifs(config, seed) if config.source == "motifs" else _file(config)


def waveforms(num_waveforms: int, num_channels: int, length: int) -> Float[np.ndarray, "W C T"]:
    """Waveforms with root mean square 1 that differ in frequencies and phases, the same for every seed.

    Each channel is a sum of two sinusoids under a Hann window, which starts and ends at zero.
    """
    generator = np.random.default_rng(0)
    time = (np.arange(length) + 0.5) / length
    shape = (num_waveforms, num_channels, 2, 1)
    cycles, phase = generator.uniform(*CYCLES, shape), generator.uniform(0, 2 * np.pi, shape)
    found = (np.sin(2 * np.pi * cycles * time + phase).sum(axis=2)) * np.sin(np.pi * time) ** 2  # (W, C, T)
    return found / np.sqrt((found**2).mean(axis=(1, 2), keepdims=True))


def _motifs(config: Series, seed: int) -> SDCTask:
    drawn = [_draw(config, count, generator) for _, count, generator in generators(config, seed)]
    windows, label, place = (np.concatenate(column) for column in zip(*drawn, strict=True))
    foreground = place[:, None] == np.arange(config.num_segments)
    names = tuple(f"motif {number}" for number in range(config.num_classes))
    members = members_of(np.repeat(SPLITS, [len(part[0]) for part in drawn]))
    return _task(windows, label, foreground, None, members, names, "motifs")


def _draw(
    config: Series, num_series: int, generator: np.random.Generator
) -> tuple[Float32[np.ndarray, "n M C T"], Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Windows, label and the motif's window of `num_series` series."""
    num_segments, num_channels, length = config.num_segments, config.num_channels, config.window_length
    label = generator.integers(config.num_classes, size=num_series)
    place = generator.integers(num_segments, size=num_series)
    is_motif = place[:, None] == np.arange(num_segments)
    held = np.where(
        is_motif, label[:, None], config.num_classes + generator.integers(config.num_classes, size=is_motif.shape)
    )  # (n, M): waveform of each window
    present = is_motif | (generator.random(is_motif.shape) < config.distractors)
    shapes = waveforms(2 * config.num_classes, num_channels, length // 2)
    background = _background(config, num_series, generator)
    windows = background.reshape(num_series, num_channels, num_segments, length).swapaxes(1, 2).copy()  # (n, M, C, T)
    scale = generator.uniform(*AMPLITUDE, is_motif.shape)
    start = generator.integers(length - length // 2 + 1, size=is_motif.shape)
    for series, segment in np.argwhere(present):
        part = slice(start[series, segment], start[series, segment] + length // 2)
        windows[series, segment, :, part] += scale[series, segment] * shapes[held[series, segment]]
    return windows.astype(np.float32), label, place


def _background(config: Series, num_series: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Drift, one slow sinusoid and a linear trend per channel, and white noise: (n, C, M * T)."""
    samples = config.num_segments * config.window_length
    time = np.arange(samples) / samples
    shape = (num_series, config.num_channels, 1)
    cycles, phase = generator.uniform(0.5, 2.0, shape), generator.uniform(0, 2 * np.pi, shape)
    drift = DRIFT * np.sin(2 * np.pi * cycles * time + phase) + generator.uniform(-DRIFT, DRIFT, shape) * (time - 0.5)
    return drift + config.noise * generator.standard_normal((num_series, config.num_channels, samples))


def _file(config: Series) -> SDCTask:
    source = config.source
    arrays = load(source, dict.fromkeys([*SERIES, *WINDOWS]))
    if ("series" in arrays) == ("windows" in arrays):
        raise DataError(f"dataset='{source}' needs one of the arrays 'series' and 'windows': give one of them.")
    arrays = checked(arrays, source, SERIES if "series" in arrays else WINDOWS)
    windows, foreground, mask = _cut(arrays, config) if "series" in arrays else _ready(arrays, config)
    label, names = class_labels(arrays["label"], source)
    members = splits_of(arrays.get("split"), label, source)
    seen = windows[members["train"]][mask[members["train"]]]  # (windows, C, T)
    windows = standardised(windows, seen, (0, 2), source)
    return _task(windows, label, foreground & mask, mask, members, names, short_source(source))


_Cut = tuple[Float[np.ndarray, "n M C T"], Bool[np.ndarray, "n M"], Bool[np.ndarray, "n M"]]


def _cut(arrays: Arrays, config: Series) -> _Cut:
    """Windows of `series`, which of them hold a foreground sample, and which are not padding."""
    values, length = arrays["series"], config.window_length
    num_series, num_channels, samples = values.shape
    if not 0 < length <= samples:
        fault = f"window_length={length} does not fit dataset='{config.source}'"
        raise DataError(f"{fault}, whose series have {samples} samples: choose one from 1 to {samples}.")
    num_windows = samples // length
    shape = (num_series, num_channels, num_windows, length)
    windows = values[:, :, : num_windows * length].reshape(shape).swapaxes(1, 2)
    inside = arrays.get("foreground", np.zeros((num_series, samples), dtype=bool))[:, : num_windows * length]
    foreground = np.any(inside.reshape(num_series, num_windows, length), axis=2, keepdims=True)[..., 0]
    return windows, foreground, _mask(arrays, config.source, num_windows, length, samples)


def _ready(arrays: Arrays, config: Series) -> _Cut:
    """The same where the file holds windows."""
    if config.window_length:
        fault = f"window_length={config.window_length} does not fit dataset='{config.source}'"
        raise DataError(f"{fault}, whose file holds windows: leave it out.")
    windows = arrays["windows"]
    foreground = arrays.get("foreground", np.zeros(windows.shape[:2], dtype=bool))
    return windows, foreground, _mask(arrays, config.source, windows.shape[1], 1, windows.shape[1])


def _mask(arrays: Arrays, source: str, num_windows: int, step: int, longest: int) -> Bool[np.ndarray, "n M"]:
    """Windows that lie whole inside the valid length of their series."""
    length = arrays.get("length", np.full(len(arrays["label"]), longest))
    if (wrong := np.flatnonzero((length < step) | (length > longest))).size:
        fault = f"dataset='{source}': series {wrong[0]} has length {length[wrong[0]]}"
        raise DataError(f"{fault}: give {step}, which is one window, to {longest}, or leave the series out.")
    return (np.arange(1, num_windows + 1) * step)[None, :] <= length[:, None]


def _task(
    windows: Float32[np.ndarray, "n M C T"],
    label: Int64[np.ndarray, " n"],
    foreground: Bool[np.ndarray, "n M"],
    mask: Bool[np.ndarray, "n M"] | None,
    members: Members,
    names: tuple[str, ...],
    title: str,
) -> SDCTask:
    bank = Bank(torch.from_numpy(np.ascontiguousarray(windows.reshape(-1, *windows.shape[2:]))))
    segments = torch.arange(foreground.size, dtype=torch.int32).view(foreground.shape)
    truth, padded = torch.from_numpy(foreground), None if mask is None or mask.all() else torch.from_numpy(mask)
    whole = SDCData(bank, segments, torch.from_numpy(label), truth, padded)
    return SDCTask(whole.split(members), names, title)

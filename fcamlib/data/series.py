"""Time series: an instance is a multichannel series cut into windows; one window decides the label.

`motifs` are generated: slow drift and noise run through the whole series, one window contains the motif of the label's
class, and some others contain a distractor, a waveform of the same kind and energy that belongs to no class. The bank
holds the windows of all series; each window occurs in one series. Source: this project's design.

`series:PATH` is an .npz file with the arrays of `SERIES` or `WINDOWS`, which the book's page on vectors explains.
Channels are standardised with the mean and standard deviation of the training series.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64

from fcamlib.config.sources import short_source
from fcamlib.config.tasks import Series
from fcamlib.data.npz import checked, class_labels, load, required, standardised, stratified
from fcamlib.data.sdc import SPLITS, Bank, SDCTask, by_split, generators
from fcamlib.errors import DataError

AMPLITUDE = (0.8, 1.2)  # range of a waveform's root mean square
CYCLES = (1.0, 4.0)  # range of its two frequencies, in cycles per waveform
DRIFT = 1.0  # amplitude of the drift
SHARES = (0.6, 0.2, 0.2)  # splits of the series of each class, if a file names none
_BOTH = {"label": "n label", "length": "n whole?", "split": "n split?"}
SERIES = {"series": "n channels time number", "foreground": "n time truth?"} | _BOTH
WINDOWS = {"windows": "n M channels time number", "foreground": "n M truth?"} | _BOTH


def series_task(config: Series, seed: int) -> SDCTask:
    """Train, validation and test series of `config`; `seed` draws `motifs` and has no effect on a file."""
    return _motifs(config, seed) if config.source == "motifs" else _file(config)


def waveforms(num_waveforms: int, num_channels: int, length: int) -> Float[np.ndarray, "W C T"]:
    """Waveforms with root mean square 1 and different frequencies and phases, the same for every seed.

    Each channel is a sum of two sinusoids times a Hann window, which starts and ends at zero.
    """
    generator = np.random.default_rng(0)
    time = (np.arange(length) + 0.5) / length
    shape = (num_waveforms, num_channels, 2, 1)
    cycles, phase = generator.uniform(*CYCLES, shape), generator.uniform(0, 2 * np.pi, shape)
    found = np.sin(2 * np.pi * cycles * time + phase).sum(axis=2) * np.sin(np.pi * time) ** 2  # (W, C, T)
    return found / np.sqrt((found**2).mean(axis=(1, 2), keepdims=True))


def _motifs(config: Series, seed: int) -> SDCTask:
    drawn = {split: _draw(config, count, generator) for split, count, generator in generators(config, seed)}
    windows, label, place = (np.concatenate(column) for column in zip(*drawn.values(), strict=True))
    split = np.repeat(list(drawn), [len(part[1]) for part in drawn.values()])
    series, window = (axis.ravel() for axis in np.indices(windows.shape[:2]))
    bank = Bank(torch.from_numpy(windows.reshape(-1, *windows.shape[2:])))
    splits = by_split(bank, np.arange(len(series)), series, window == place[series], label, split)
    return SDCTask(splits, tuple(f"motif {number}" for number in range(config.num_classes)), "motifs")


def _draw(
    config: Series, num_series: int, generator: np.random.Generator
) -> tuple[Float32[np.ndarray, "n M C T"], Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Windows, labels and motif positions of `num_series` series.

    The background of each channel is a slow sinusoid, a linear trend and white noise.
    """
    num_segments, num_channels, length = config.num_segments, config.num_channels, config.window_length
    label = generator.integers(config.num_classes, size=num_series)
    place = generator.integers(num_segments, size=num_series)
    is_motif = place[:, None] == np.arange(num_segments)
    held = np.where(
        is_motif, label[:, None], config.num_classes + generator.integers(config.num_classes, size=is_motif.shape)
    )  # (n, M): waveform of each window
    present = is_motif | (generator.random(is_motif.shape) < config.distractors)
    shapes = waveforms(2 * config.num_classes, num_channels, length // 2)
    samples, shape = num_segments * length, (num_series, num_channels, 1)
    time = np.arange(samples) / samples
    cycles, phase = generator.uniform(0.5, 2.0, shape), generator.uniform(0, 2 * np.pi, shape)
    drift = DRIFT * np.sin(2 * np.pi * cycles * time + phase) + generator.uniform(-DRIFT, DRIFT, shape) * (time - 0.5)
    background = drift + config.noise * generator.standard_normal((num_series, num_channels, samples))
    windows = background.reshape(num_series, num_channels, num_segments, length).swapaxes(1, 2).copy()  # (n, M, C, T)
    scale = generator.uniform(*AMPLITUDE, is_motif.shape)
    start = generator.integers(length - length // 2 + 1, size=is_motif.shape)
    for series, segment in np.argwhere(present):
        part = slice(start[series, segment], start[series, segment] + length // 2)
        windows[series, segment, :, part] += scale[series, segment] * shapes[held[series, segment]]
    return windows.astype(np.float32), label, place


def _file(config: Series) -> SDCTask:
    source, step = config.source, config.window_length or 1
    arrays = load(source, dict.fromkeys([*SERIES, *WINDOWS]))
    if ("series" in arrays) == ("windows" in arrays):
        raise DataError(f"dataset='{source}' needs either the array 'series' or the array 'windows': give one of them.")
    kind = "series" if "series" in arrays else "windows"
    arrays = checked(arrays, source, SERIES if kind == "series" else WINDOWS)
    values, (label, names) = arrays[kind], class_labels(arrays["label"], source)
    num_series, longest = len(values), values.shape[2 if kind == "series" else 1]  # samples, or windows
    fault = f"window_length={config.window_length} does not fit dataset='{source}', whose"
    if kind == "series" and not 0 < config.window_length <= longest:
        raise DataError(f"{fault} series have {longest} samples: choose a length from 1 to {longest}.")
    if kind == "windows" and config.window_length:
        raise DataError(f"{fault} file holds windows: leave it out.")
    length = arrays.get("length", np.full(num_series, longest))
    if (wrong := np.flatnonzero((length < step) | (length > longest))).size:
        fault = f"series {wrong[0]} has length {length[wrong[0]]}: give {step} (one window) to {longest}"
        raise DataError(f"dataset='{source}': {fault}, or leave the series out.")
    num_windows = longest // step
    mask = np.asarray((np.arange(num_windows) + 1) * step <= length[:, None])  # windows inside the valid length
    truth = arrays.get("foreground", np.zeros((num_series, longest), dtype=bool))[:, : num_windows * step]
    foreground = np.any(truth.reshape(num_series, num_windows, step), axis=2)
    if kind == "series":
        cut = values[:, :, : num_windows * step]
        values = cut.reshape(num_series, -1, num_windows, step).swapaxes(1, 2)  # (n, M, C, T)
    drawn = np.array(SPLITS)[stratified(label, SHARES, seed=0)]
    split = required(arrays.get("split", drawn), label, names, source)
    series, windows = mask.nonzero()[0], values[mask]  # (N,), (N, C, T), without padding
    bank = Bank(torch.from_numpy(standardised(windows, split[series] == "train", (0, 2), source)))
    splits = by_split(bank, np.arange(len(series)), series, foreground[mask], label, split)
    return SDCTask(splits, names, short_source(source))

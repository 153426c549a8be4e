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

from fcamlib.config import SeriesConfig, short_source
from fcamlib.data.arrays import Arrays, check_shape, class_labels, load_arrays, needed, real_numbers, splits_of
from fcamlib.data.sdc import SPLITS, Bank, SDCData, SDCTask
from fcamlib.errors import DataError

AMPLITUDE = (0.8, 1.2)  # range of a waveform's root mean square
CYCLES = (1.0, 4.0)  # range of its two frequencies, in cycles per waveform
DRIFT = 1.0  # amplitude of the drift
ALLOWED = {
    "series": "series (n, channels, time)",
    "windows": "windows (n, M, channels, time), in place of series",
    "label": "the class of each series (n,)",
    "foreground": "bool (n, time), with windows (n, M)",
    "length": "valid samples, or windows, of each series (n,)",
    "split": "train, validation or test of each series (n,)",
}


def series_task(config: SeriesConfig, seed: int) -> SDCTask:
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


def _motifs(config: SeriesConfig, seed: int) -> SDCTask:
    counts = {"train": config.num_train, "validation": config.num_validation, "test": config.num_test}
    windows: list[np.ndarray] = []
    label: list[np.ndarray] = []
    place: list[np.ndarray] = []
    for number, split in enumerate(SPLITS):
        drawn = _draw(config, counts[split], np.random.default_rng([seed, number]))
        for column, part in zip((windows, label, place), drawn, strict=True):
            column.append(part)
    foreground = np.concatenate(place)[:, None] == np.arange(config.num_segments)
    split_of = np.repeat(SPLITS, list(counts.values()))
    members = {split: split_of == split for split in SPLITS}
    names = tuple(f"motif {number}" for number in range(config.num_classes))
    return _task(np.concatenate(windows), np.concatenate(label), foreground, None, members, names, "motifs")


def _draw(
    config: SeriesConfig, num_series: int, generator: np.random.Generator
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


def _background(config: SeriesConfig, num_series: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Drift, one slow sinusoid and a linear trend per channel, and white noise: (n, C, M * T)."""
    samples = config.num_segments * config.window_length
    time = np.arange(samples) / samples
    shape = (num_series, config.num_channels, 1)
    cycles, phase = generator.uniform(0.5, 2.0, shape), generator.uniform(0, 2 * np.pi, shape)
    drift = DRIFT * np.sin(2 * np.pi * cycles * time + phase) + generator.uniform(-DRIFT, DRIFT, shape) * (time - 0.5)
    return drift + config.noise * generator.standard_normal((num_series, config.num_channels, samples))


def _file(config: SeriesConfig) -> SDCTask:
    source = config.source
    arrays = load_arrays(source, ALLOWED)
    if ("series" in arrays) == ("windows" in arrays):
        raise DataError(f"dataset='{source}' needs one of the arrays 'series' and 'windows': add {ALLOWED['series']}.")
    windows, foreground, mask = _cut(arrays, config) if "series" in arrays else _ready(arrays, config)
    raw = needed(arrays, source, "label", ALLOWED["label"])
    check_shape(raw, source, "label", (len(windows),), f"one label for each of the {len(windows)} series")
    label, names = class_labels(raw, source)
    if (split := arrays.get("split")) is not None:
        check_shape(split, source, "split", (len(windows),), f"one entry for each of the {len(windows)} series")
    members = splits_of(split, label, source)
    if foreground is None:
        foreground = np.zeros(windows.shape[:2], dtype=bool)
    windows = _standardised(windows, members["train"], mask)
    return _task(windows, label, foreground & mask, mask, members, names, short_source(source))


_Cut = tuple[Float32[np.ndarray, "n M C T"], Bool[np.ndarray, "n M"] | None, Bool[np.ndarray, "n M"]]


def _cut(arrays: Arrays, config: SeriesConfig) -> _Cut:
    """Windows of `series`, which of them are foreground, if that is known, and which are not padding."""
    source, length = config.source, config.window_length
    check_shape(arrays["series"], source, "series", (-1, -1, -1), "(n, channels, time)")
    values = real_numbers(arrays["series"], source, "series")
    num_series, num_channels, samples = values.shape
    if not 0 < length <= samples:
        raise DataError(
            f"window_length={length} does not fit dataset='{source}', whose series have {samples} samples: "
            f"choose one from 1 to {samples}."
        )
    num_windows = samples // length
    kept = values[:, :, : num_windows * length].reshape(num_series, num_channels, num_windows, length)
    foreground: np.ndarray | None = None
    if "foreground" in arrays:
        check_shape(arrays["foreground"], source, "foreground", (num_series, samples), f"bool {(num_series, samples)}")
        inside = arrays["foreground"].astype(bool)[:, : num_windows * length]
        foreground = np.any(inside.reshape(num_series, num_windows, length), axis=2, keepdims=True)[..., 0]
    return kept.swapaxes(1, 2), foreground, _mask(arrays, source, num_series, num_windows, length)


def _ready(arrays: Arrays, config: SeriesConfig) -> _Cut:
    """The same where the file holds windows."""
    source = config.source
    if config.window_length:
        raise DataError(
            f"window_length={config.window_length} does not fit dataset='{source}', whose file holds "
            "windows: leave it out."
        )
    check_shape(arrays["windows"], source, "windows", (-1, -1, -1, -1), "(n, M, channels, time)")
    values = real_numbers(arrays["windows"], source, "windows")
    shape, foreground = values.shape[:2], None
    if "foreground" in arrays:
        check_shape(arrays["foreground"], source, "foreground", shape, f"bool {shape}")
        foreground = arrays["foreground"].astype(bool)
    return values, foreground, _mask(arrays, source, shape[0], shape[1], 1)


def _mask(arrays: Arrays, source: str, num_series: int, num_windows: int, step: int) -> Bool[np.ndarray, "n M"]:
    """Windows that lie whole inside the valid length of their series."""
    if "length" not in arrays:
        return np.ones((num_series, num_windows), dtype=bool)
    length = arrays["length"]
    check_shape(length, source, "length", (num_series,), f"one number for each of the {num_series} series")
    if length.dtype.kind not in "iu":
        raise DataError(f"dataset='{source}': 'length' holds {length.dtype}: give whole numbers.")
    if (short := np.flatnonzero(length < step)).size:
        raise DataError(
            f"dataset='{source}': series {short[0]} has length {length[short[0]]}, less than one window: leave it out."
        )
    return (np.arange(1, num_windows + 1) * step)[None, :] <= length[:, None]


def _standardised(
    windows: Float32[np.ndarray, "n M C T"], train: Bool[np.ndarray, " n"], mask: Bool[np.ndarray, "n M"]
) -> Float32[np.ndarray, "n M C T"]:
    """Each channel with mean 0 and standard deviation 1 over the training series; a constant channel becomes 0."""
    seen = windows[train][mask[train]].astype(np.float64)  # (windows, C, T)
    mean, deviation = seen.mean(axis=(0, 2)), seen.std(axis=(0, 2))
    scale = np.where(deviation > 0, deviation, 1.0)
    return ((windows - mean[:, None]) / scale[:, None]).astype(np.float32)


def _task(
    windows: Float32[np.ndarray, "n M C T"],
    label: Int64[np.ndarray, " n"],
    foreground: Bool[np.ndarray, "n M"],
    mask: Bool[np.ndarray, "n M"] | None,
    members: dict[str, NDArray[np.bool_]],
    names: tuple[str, ...],
    title: str,
) -> SDCTask:
    num_series, num_segments = windows.shape[:2]
    bank = Bank(torch.from_numpy(np.ascontiguousarray(windows.reshape(-1, *windows.shape[2:]))))
    segments = torch.arange(num_series * num_segments, dtype=torch.int32).view(num_series, num_segments)
    is_padded = mask is not None and not mask.all()
    splits = {}
    for split, chosen in members.items():
        rows = np.flatnonzero(chosen)
        splits[split] = SDCData(
            bank,
            segments[rows],
            torch.from_numpy(label[rows]),
            torch.from_numpy(foreground[rows]),
            torch.from_numpy(mask[rows]) if mask is not None and is_padded else None,
        )
    return SDCTask(splits, names, title)

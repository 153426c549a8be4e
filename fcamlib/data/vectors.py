"""Time series and bags of feature vectors, generated or from a user's .npz file with one of the schemas below.

*Time series.* An instance is a multichannel series cut into windows; one window decides the label. `motifs` are
generated: slow drift and noise run through the whole series, one window contains the motif of the label's class, and
some others contain a distractor, a waveform of the same kind and energy that belongs to no class. Channels of
`series:PATH` are standardised with the mean and standard deviation of the training series.

*Bags.* The instances that decide a bag's label may be known or unknown. `clouds` are generated: instances are points of
Gaussian clouds, with one cloud per class and equally many that belong to no class; the foreground instances of a bag
come from the cloud of its label. Of `bags:PATH` one fold gives the test bags; a stratified share of the other bags is
held out for validation. Features are standardised over the instances of the training bags.

The book's page on vectors explains the arrays of the files. Source of the generated data: this project's design.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from fcamlib.config.sources import short_source
from fcamlib.config.tasks import Bags, Series
from fcamlib.data.files import Arrays, checked, class_labels, load, required, standardised, stratified
from fcamlib.data.sdc import SPLITS, Bank, Drawn, SDCTask, by_split, generated
from fcamlib.errors import DataError

AMPLITUDE = (0.8, 1.2)  # range of a waveform's root mean square
CYCLES = (1.0, 4.0)  # range of its two frequencies, in cycles per waveform
DRIFT = 1.0  # amplitude of the drift
SHARES = (0.6, 0.2, 0.2)  # splits of the series of each class, if a file names none
NUM_FOLDS = 10  # of bags, if a file has none
SEPARATION = 3.0  # distance of a cloud's centre from the origin, in standard deviations of the cloud
_SPLIT = {"label": "n label", "length": "n whole?", "split": "n split?"}
SERIES = {"series": "n channels time number", "foreground": "n time truth?"} | _SPLIT
WINDOWS = {"windows": "n M channels time number", "foreground": "n M truth?"} | _SPLIT
BAGS = {"features": "N D number", "bag": "N whole", "label": "bags label"}
BAGS |= {"fold": "repeats bags whole?", "foreground": "N truth?"}


def series_task(config: Series, seed: int) -> SDCTask:
    """Train, validation and test series of `config`; `seed` draws `motifs` and has no effect on a file."""
    if config.source != "motifs":
        return _series_of_file(config)
    return generated(_draw_series, config, seed, map("motif {}".format, range(config.num_classes)), config.source)


def bags_task(config: Bags, seed: int) -> SDCTask:
    """Train, validation and test bags of `config`; `seed` draws `clouds` and has no effect on a file."""
    if config.source != "clouds":
        return _bags_of_file(config)
    return generated(_draw_bags, config, seed, map("cloud {}".format, range(config.num_classes)), config.source)


# --- time series ------------------------------------------------------------------------------------------------------


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


def _draw_series(config: Series, num_series: int, generator: np.random.Generator) -> Drawn:
    """Series whose channels are a slow sinusoid, a linear trend and white noise, with waveforms in their windows."""
    num_segments, num_channels, length = config.num_segments, config.num_channels, config.window_length
    label = generator.integers(config.num_classes, size=num_series)
    place = generator.integers(num_segments, size=num_series)
    is_motif = place[:, None] == np.arange(num_segments)
    distractor = config.num_classes + generator.integers(config.num_classes, size=is_motif.shape)
    held = np.where(is_motif, label[:, None], distractor)  # (n, M): waveform of each window
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
    segments = windows.astype(np.float32).reshape(-1, num_channels, length)
    return segments, np.arange(len(segments)), is_motif.ravel(), np.full(num_series, num_segments), label


def _series_of_file(config: Series) -> SDCTask:
    source, step = config.source, config.window_length or 1
    arrays = load(source, dict.fromkeys([*SERIES, *WINDOWS]))
    if ("series" in arrays) == ("windows" in arrays):
        raise DataError(f"dataset='{source}' needs either the array 'series' or the array 'windows': give one of them.")
    kind = "series" if "series" in arrays else "windows"
    arrays = checked(arrays, source, SERIES if kind == "series" else WINDOWS)
    values, (label, names) = arrays[kind], class_labels(arrays["label"], source)
    num_series, longest = len(values), values.shape[2 if kind == "series" else 1]  # samples, or windows
    fault = (
        f"window_length={config.window_length} does not fit" if config.window_length else "window_length is needed for"
    )
    fault += f" dataset='{source}', whose"
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
    owner = mask.nonzero()[0]
    values = standardised(values[mask], split[owner] == "train", (0, 2), source)  # (N, C, T), without padding
    splits = by_split(Bank(torch.from_numpy(values)), owner, foreground[mask], label, split)
    return SDCTask(splits, names, short_source(source))


# --- bags -------------------------------------------------------------------------------------------------------------


def centres(num_clouds: int, num_features: int) -> NDArray[np.float64]:
    """Centres of the clouds (clouds, D), at distance `SEPARATION` from the origin, the same for every seed."""
    drawn = np.random.default_rng(0).standard_normal((num_clouds, num_features))
    return SEPARATION * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _draw_bags(config: Bags, num_bags: int, generator: np.random.Generator) -> Drawn:
    """Bags of 1 to `num_segments` instances, of which at least 1 and up to a quarter are foreground."""
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
    return features.astype(np.float32), np.arange(len(features)), foreground, sizes, label


def num_repeats_and_folds(source: str) -> tuple[int, int]:
    """How many repeated cross-validations a file defines (0: none), and how many folds each has.

    The split of every fold is checked, so an invalid file is refused before any training.
    """
    arrays, names = _checked_bags(source)
    folds = arrays.get("fold", np.arange(NUM_FOLDS)[None])
    for repeat, fold in np.ndindex(len(folds), int(folds.max()) + 1):
        _split(arrays, names, Bags(source=source, repeat=repeat, fold=fold))
    return len(arrays.get("fold", ())), int(folds.max()) + 1


def _bags_of_file(config: Bags) -> SDCTask:
    arrays, names = _checked_bags(config.source)
    bag = arrays["bag"]
    split = _split(arrays, names, config)
    features = standardised(arrays["features"], split[bag] == "train", (0,), config.source)
    foreground = arrays.get("foreground", np.zeros(len(bag), dtype=bool))
    splits = by_split(Bank(torch.from_numpy(features)), bag, foreground, arrays["label"], split)
    return SDCTask(splits, names, short_source(config.source))


def _checked_bags(source: str) -> tuple[Arrays, tuple[str, ...]]:
    """The arrays of a file, labels as numbers, and the names of the classes.

    Every bag must have an instance, and the folds of a repeat must be numbered without gaps.
    """
    arrays = load(source, BAGS)
    if "fold" in arrays:
        arrays["fold"] = np.atleast_2d(arrays["fold"])
    arrays = checked(arrays, source, BAGS)
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


def _split(arrays: Arrays, names: tuple[str, ...], config: Bags) -> np.ndarray:
    """Split of each bag: one fold for testing, a stratified share of the others for validation, the rest to train."""
    label, folds, source = arrays["label"], arrays.get("fold"), config.source
    repeat, fold, share = config.repeat, config.fold, config.validation_share
    if folds is not None and repeat >= len(folds):
        raise DataError(f"repeat={repeat} is not in dataset='{source}': choose 0 to {len(folds) - 1}.")
    of = stratified(label, [1 / NUM_FOLDS] * NUM_FOLDS, seed=repeat) if folds is None else folds[repeat]
    if fold not in of and folds is None and fold < NUM_FOLDS:
        fault = f"dataset='{source}' has {len(label)} bags, too few for {NUM_FOLDS} folds"
        raise DataError(f"{fault}: give more, or an array 'fold' with fewer.")
    if fold not in of:
        known = ", ".join(map(str, np.unique(of)))
        raise DataError(f"fold={fold} has no bag in dataset='{source}', repeat {repeat}: choose one of {known}.")
    others, split = np.flatnonzero(of != fold), np.full(len(label), "test", dtype="<U10")
    part = stratified(label[others], (1 - share, share), seed=repeat * 1_000 + fold)
    split[others] = np.array(["train", "validation"])[part]
    return required(split, label, names, source)

"""A user's .npz file, validated by a schema: shape, kind and range of every array are checked before conversion."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from fcamlib.config.sources import source_path
from fcamlib.data import SPLITS
from fcamlib.data.files import opened, require_memory
from fcamlib.errors import DataError

LARGEST = float(np.finfo(np.float32).max)
KINDS = {  # kind of an array -> allowed numpy kinds, required content
    "number": ("biuf", "finite numbers that float32 can hold"),
    "whole": ("iu", "whole numbers"),
    "truth": ("biuf", "True and False, or 0 and 1"),
    "label": ("biufU", "whole numbers or names, none missing"),
    "split": ("iuU", "train, validation, test, or 0, 1, 2"),
}
Arrays = dict[str, np.ndarray]


def load(source: str, allowed: Iterable[str]) -> Arrays:
    """The arrays of a `kind:PATH` source, unconverted; pickles are not loaded."""
    path, arrays = source_path(source), {}
    try:
        with opened(path) as content, zipfile.ZipFile(content) as archive:
            size = sum(member.file_size for member in archive.infolist())
            require_memory(2 * size, f"dataset='{source}': its arrays", "give fewer instances")
            for name in archive.namelist():
                with archive.open(name) as member:
                    array = np.lib.format.read_array(member, allow_pickle=False)
                if array.dtype.kind == "U":
                    "".join(array.ravel().tolist()).encode()  # a file can hold characters that are not in Unicode
                arrays[name.removesuffix(".npy")] = array
    except DataError:
        raise
    except Exception as error:  # with a damaged file, numpy and zipfile can raise anything
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200] or type(error).__name__
        reason = "it holds Python objects, which are not read" if "pickle" in reason else reason
        raise DataError(f"dataset='{source}': '{path}' cannot be read ({reason}): write it with numpy.savez.") from None
    if unknown := [name[:100] for name in arrays if name not in allowed]:
        raise DataError(f"dataset='{source}' holds an unknown array '{unknown[0]}': allowed are {', '.join(allowed)}.")
    return arrays


def checked(arrays: Arrays, source: str, schema: Mapping[str, str]) -> Arrays:
    """The converted arrays; `DataError` for the first that is missing or has another shape or kind.

    `schema` has the axes and the kind of each array, as in "N D number"; arrays whose kind ends in ? are optional.
    """
    sizes: dict[str, int] = {}
    found: Arrays = {}
    for name, (*axes, kind) in ((name, words.split()) for name, words in schema.items()):
        if name not in arrays and kind.endswith("?"):
            continue
        kinds, needed = KINDS[kind.strip("?")]
        if name not in arrays:
            raise DataError(f"dataset='{source}' has no array '{name}': add it, ({', '.join(axes)}), {needed}.")
        array = arrays[name]
        for axis, size in zip(axes, array.shape, strict=False):
            sizes.setdefault(axis, size)
        if 0 in array.shape or [*array.shape] != [sizes.get(axis) for axis in axes]:
            known = ", ".join(f"{axis} = {sizes[axis]}" for axis in axes if axis in sizes)
            shape = f"{array.shape}, but ({', '.join(axes)}) is needed"
            raise DataError(f"dataset='{source}': '{name}' has shape {shape}, with {known}.")
        if array.dtype.kind not in kinds:
            raise DataError(f"dataset='{source}': '{name}' holds {array.dtype}: give {needed}.")
        with np.errstate(invalid="ignore", over="ignore"):
            found[name], good = _converted(array, kind.strip("?"))
        if not good.all():
            place, count = tuple(np.argwhere(~good)[0].tolist()), int((~good).sum())
            value = f"{array[place].item()!a:.100} at {list(place)} ({count} such)"
            raise DataError(f"dataset='{source}': '{name}' is {value}: give {needed}.")
    return found


def _converted(array: np.ndarray, kind: str) -> tuple[np.ndarray, NDArray[np.bool_]]:
    """The array in the type of its kind, and which of its values are valid."""
    if kind == "number":
        array = array if array.dtype == np.float32 else array.astype(np.float64)
        return array, np.abs(array) <= LARGEST
    if kind == "truth":
        return array.astype(bool), np.isin(array, (0, 1))
    if kind == "split":
        names = array if array.dtype.kind == "U" else np.array([*SPLITS, "none"])[array.clip(0, 3)]
        return names, np.isin(array, SPLITS if array.dtype.kind == "U" else (0, 1, 2))
    if array.dtype.kind in "bU":
        return array, np.ones(array.shape, dtype=bool)
    whole = array.astype(np.int64)  # labels may be whole numbers in floats
    return whole, np.asarray(whole == array)


def class_labels(array: np.ndarray, source: str) -> tuple[Int64[np.ndarray, " n"], tuple[str, ...]]:
    """Checked labels -> class of each instance and the names of the classes, sorted."""
    names, label = np.unique(array, return_inverse=True)
    if len(names) < 2:
        raise DataError(f"dataset='{source}': 'label' names only one class ({names[0]}): give at least two.")
    return label.astype(np.int64), tuple(map(str, names))


def required(split: np.ndarray, label: Int64[np.ndarray, " n"], names: Sequence[str], source: str) -> np.ndarray:
    """The split of each instance; `DataError` if a split is empty or a class has no training instance."""
    if missing := set(SPLITS) - set(split.tolist()):
        raise DataError(f"dataset='{source}': no instance is left for {min(missing)}: give more, or other splits.")
    if unseen := set(label.tolist()) - set(label[split == "train"].tolist()):
        fault = f"class '{names[min(unseen)][:200]}' has no training instance"
        raise DataError(f"dataset='{source}': {fault}: give it some, or leave the class out.")
    return split


def stratified(label: Int64[np.ndarray, " n"], shares: Iterable[float], seed: int) -> Int64[np.ndarray, " n"]:
    """Number of the part, from 0, of each instance, so that every class is divided by `shares`, which sum to 1."""
    bounds, part = np.cumsum(list(shares)), np.zeros(len(label), dtype=np.int64)
    generator = np.random.default_rng(seed)
    for value in np.unique(label):
        members = generator.permutation(np.flatnonzero(label == value))
        place = np.searchsorted(bounds, (np.arange(len(members)) + 0.5) / len(members))
        part[members] = place.clip(max=len(bounds) - 1)
    return part


def standardised(
    values: NDArray[np.floating], seen: NDArray[np.bool_], axis: tuple[int, ...], source: str
) -> NDArray[np.float32]:
    """Values scaled to mean 0 and standard deviation 1 over `axis` of the `seen` ones; constant channels become 0.

    A channel counts as constant if its variation is below the resolution of the file's number type.
    """
    known = values[seen].astype(np.float64)
    mean, deviation = (getattr(known, name)(axis=axis, keepdims=True) for name in ("mean", "std"))
    resolution = 4 * np.finfo(values.dtype).eps * np.abs(known).max(axis=axis, keepdims=True)
    is_constant = (np.ptp(known, axis=axis, keepdims=True) <= resolution) | (deviation == 0)
    with np.errstate(over="ignore"):
        scaled = np.where(is_constant, 0.0, (values - mean) / np.where(is_constant, 1.0, deviation)).astype(np.float32)
    if not np.isfinite(scaled).all():
        raise DataError(f"dataset='{source}': a value is 1e38 standard deviations from the training mean: correct it.")
    return scaled

"""A user's .npz file, read by a schema: axes by letter, kind, range and length of every array, before it is converted.

| kind     | what the array may hold                                          | becomes            |
|----------|------------------------------------------------------------------|--------------------|
| `number` | finite numbers that float32 can hold                             | float32 or float64 |
| `whole`  | whole numbers                                                    | int64              |
| `truth`  | True and False, or 0 and 1                                       | bool               |
| `label`  | whole numbers or names of classes                                | int64 or text      |
| `split`  | train, validation, test, or 0, 1, 2                              | text               |
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from fcamlib.config.sources import source_path
from fcamlib.data.files import require_memory
from fcamlib.data.sdc import SPLITS, members_of
from fcamlib.errors import DataError

TEST_SHARE, VALIDATION_SHARE = 0.2, 0.2  # of the instances of each class, where a file names no split
LARGEST = float(np.finfo(np.float32).max)
Arrays = dict[str, np.ndarray]
Members = dict[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class Array:
    """One array of a schema: a letter for each axis, what it holds, what it is, and whether it may be missing."""

    axes: str
    kind: Literal["number", "whole", "truth", "label", "split"]
    about: str
    optional: bool = False


WANTED = {
    "number": ("biuf", "finite numbers that float32 can hold"),
    "whole": ("iu", "whole numbers"),
    "truth": ("biuf", "True and False, or 0 and 1"),
    "label": ("biufU", "whole numbers or names, none missing"),
    "split": ("iuU", "train, validation, test, or 0, 1, 2"),
}


def load(source: str, allowed: Iterable[str]) -> Arrays:
    """The arrays of a `kind:PATH` source as they lie in the file; no pickle is loaded."""
    path = source_path(source)
    if path.is_dir() or not path.is_file():
        raise DataError(f"dataset='{source}': '{path}' is no file: write an .npz file with numpy.savez.")
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            require_memory(2 * size, f"dataset='{source}': its arrays", "give fewer instances")
            arrays = {}
            for name in archive.namelist():
                with archive.open(name) as member:
                    arrays[name.removesuffix(".npy")] = np.lib.format.read_array(member, allow_pickle=False)
    except DataError:
        raise
    except Exception as error:  # of a damaged file, numpy and zipfile can raise anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        reason = "it holds Python objects, which are not read" if "pickle" in reason else reason
        raise DataError(f"dataset='{source}': '{path}' cannot be read ({reason}): write it with numpy.savez.") from None
    if unknown := [name[:100] for name in arrays if name not in set(allowed)]:
        raise DataError(f"dataset='{source}' holds an unknown '{unknown[0]}': allowed are {', '.join(allowed)}.")
    return arrays


def checked(arrays: Arrays, source: str, schema: Mapping[str, Array]) -> Arrays:
    """The arrays converted as `schema` says; the first that is missing, of another shape or kind is one sentence."""
    sizes: dict[str, int] = {}
    found: Arrays = {}
    for name, wanted in schema.items():
        if name not in arrays:
            if wanted.optional:
                continue
            raise DataError(f"dataset='{source}' has no array '{name}': add {wanted.about}.")
        array, axes = arrays[name], wanted.axes.split()
        for axis, size in zip(axes, array.shape, strict=False):
            sizes.setdefault(axis, size)
        if array.ndim != len(axes) or array.shape != tuple(sizes[axis] for axis in axes) or 0 in array.shape:
            known = ", ".join(f"{axis} = {sizes[axis]}" for axis in axes if sizes.get(axis))
            raise DataError(
                f"dataset='{source}': '{name}' has shape {array.shape}, and ({', '.join(axes)}) is needed"
                f"{' with ' + known if known else ''}: give {wanted.about}."
            )
        found[name] = _converted(array, source, name, wanted)
    return found


def _converted(array: np.ndarray, source: str, name: str, wanted: Array) -> np.ndarray:
    kinds, needed = WANTED[wanted.kind]
    if array.dtype.kind not in kinds:
        raise DataError(f"dataset='{source}': '{name}' holds {array.dtype}: give {needed}.")
    good: NDArray[np.bool_]
    with np.errstate(invalid="ignore", over="ignore"):
        if array.dtype.kind == "U":
            good = _is_text(array)
            if wanted.kind == "split" and good.all():
                good = np.isin(array, SPLITS)
        elif wanted.kind == "number":
            array = array if array.dtype == np.float32 else np.asarray(array, dtype=np.float64)
            good = np.abs(array) <= LARGEST
        elif wanted.kind in ("truth", "split"):
            good = np.isin(array, (0, 1) if wanted.kind == "truth" else (0, 1, 2))
        elif array.dtype.kind == "f":  # labels that are whole numbers
            good = np.asarray((np.abs(array) < 2**53) & (array == np.floor(array)))
        else:
            good = np.asarray(array <= np.iinfo(np.int64).max)
    if not good.all():
        place = tuple(int(i) for i in np.argwhere(~good)[0])
        value = ascii(array[place].item() if array.dtype.kind != "U" or _is_text(array).all() else "no text")[:100]
        count = int((~good).sum())
        raise DataError(f"dataset='{source}': '{name}' is {value} at {list(place)} ({count} such): give {needed}.")
    if wanted.kind == "split":
        return array if array.dtype.kind == "U" else np.array(SPLITS)[array]
    types = {"whole": np.int64, "truth": np.bool_, "label": array.dtype if array.dtype.kind in "bU" else np.int64}
    return array.astype(types.get(wanted.kind, array.dtype), copy=False)


def _is_text(array: np.ndarray) -> NDArray[np.bool_]:
    """Which strings hold Unicode characters alone: a file can hold numbers that are none."""
    if array.dtype.itemsize == 0:
        return np.ones(array.shape, dtype=bool)
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
    codes = native.view(np.uint32).reshape(*array.shape, -1)
    return np.asarray(((codes < 0xD800) | ((codes > 0xDFFF) & (codes < 0x110000))).all(axis=-1))


def class_labels(array: np.ndarray, source: str) -> tuple[Int64[np.ndarray, " n"], tuple[str, ...]]:
    """Checked labels -> class of each instance and the names of the classes, sorted."""
    names, label = np.unique(array, return_inverse=True)
    if len(names) < 2:
        raise DataError(f"dataset='{source}': 'label' names one class ({names[0]}): at least two are needed.")
    return label.astype(np.int64), tuple(str(name) for name in names)


def splits_of(split: np.ndarray | None, label: Int64[np.ndarray, " n"], source: str) -> Members:
    """Instances of train, validation and test: as the file says, or 20 % of each class for each of the two."""
    if split is None:
        drawn = stratified(label, (1 - TEST_SHARE - VALIDATION_SHARE, VALIDATION_SHARE, TEST_SHARE), seed=0)
        split = np.array(SPLITS)[drawn]
    return required(members_of(split), label, source)


def required(members: Members, label: Int64[np.ndarray, " n"], source: str) -> Members:
    """The splits, none of which may be empty; every class needs a training instance."""
    for name, chosen in members.items():
        if not chosen.any():
            raise DataError(f"dataset='{source}': no instance is left for {name}: give more, or other splits.")
    if missing := sorted(set(label.tolist()) - set(label[members["train"]].tolist())):
        raise DataError(f"dataset='{source}': class number {missing[0]} has no training instance: give it five.")
    return members


def stratified(label: Int64[np.ndarray, " n"], shares: Iterable[float], seed: int) -> Int64[np.ndarray, " n"]:
    """Part of each instance, 0.., so that every class is divided in `shares`, which sum to 1."""
    bounds, part = np.cumsum(list(shares)), np.zeros(len(label), dtype=np.int64)
    generator = np.random.default_rng(seed)
    for value in np.unique(label):
        members = generator.permutation(np.flatnonzero(label == value))
        place = np.searchsorted(bounds, (np.arange(len(members)) + 0.5) / len(members))
        part[members] = place.clip(max=len(bounds) - 1)
    return part


def standardised(
    values: NDArray[np.floating], seen: NDArray[np.floating], axis: tuple[int, ...], source: str
) -> NDArray[np.float32]:
    """Mean 0 and standard deviation 1 over `axis` of `seen`, computed in float64; a constant channel becomes 0.

    A channel is constant where it varies by less than the file's own type can tell at its size.
    """
    resolution = 4 * np.finfo(seen.dtype).eps
    seen = seen.astype(np.float64)
    mean, deviation = (getattr(seen, name)(axis=axis, keepdims=True) for name in ("mean", "std"))
    spread = np.ptp(seen, axis=axis, keepdims=True)
    is_constant = (spread <= resolution * np.abs(seen).max(axis=axis, keepdims=True)) | (deviation == 0)
    with np.errstate(over="ignore"):
        scaled = np.where(is_constant, 0.0, (values - mean) / np.where(is_constant, 1.0, deviation)).astype(np.float32)
    if not np.isfinite(scaled).all():
        raise DataError(f"dataset='{source}': a value is 1e38 standard deviations off the training mean: correct it.")
    return scaled

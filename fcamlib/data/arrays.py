"""Reading a user's .npz file: which arrays it has to hold, and one sentence for what is wrong with them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from fcamlib.config import source_path
from fcamlib.data.sdc import SPLITS
from fcamlib.errors import DataError

TEST_SHARE, VALIDATION_SHARE = 0.2, 0.2  # of the instances of each class, where a file names no split
Arrays = dict[str, np.ndarray]


def load_arrays(source: str, allowed: Mapping[str, str]) -> Arrays:
    """The arrays of a `kind:PATH` source; `allowed` says which there may be, and what each holds.

    Raises `DataError` in one sentence where the file is no .npz file, holds Python objects or an unknown array.
    No pickle is loaded.
    """
    path = source_path(source)
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                raise ValueError("it holds one array without a name")
            arrays = {name: content[name] for name in content.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"dataset='{source}': {_reason(path, error)}: write one with numpy.savez.") from None
    for name in arrays:
        if name not in allowed:
            raise DataError(f"dataset='{source}' holds '{name}', which is not known: allowed are {', '.join(allowed)}.")
    return arrays


def _reason(path: Path, error: Exception) -> str:
    if path.is_dir():
        return f"'{path}' is a folder, not an .npz file"
    if "allow_pickle" in str(error):
        return f"the file '{path}' holds Python objects, which are not read, or is no .npz file"
    return f"the file '{path}' is not a readable .npz file ({' '.join(str(error).split())})"


def needed(arrays: Arrays, source: str, name: str, about: str) -> np.ndarray:
    """The array `name`, or one sentence that it is missing."""
    if name not in arrays:
        raise DataError(f"dataset='{source}' has no array '{name}': add {about}.")
    return arrays[name]


def check_shape(array: np.ndarray, source: str, name: str, shape: tuple[int, ...], about: str) -> None:
    """Refuse an array of another shape than `shape`, in which -1 stands for any size from 1."""
    fits = array.ndim == len(shape)
    fits = fits and all(
        size == want or (want == -1 and size > 0) for size, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        raise DataError(f"dataset='{source}': '{name}' has shape {array.shape}, and {about} is needed.")


def real_numbers(array: np.ndarray, source: str, name: str) -> NDArray[np.float32]:
    """The array as float32; NaN, infinite values and what is no number are refused with their first place."""
    if array.dtype.kind not in "fiub":
        raise DataError(f"dataset='{source}': '{name}' holds {array.dtype}, not numbers: give float32.")
    with np.errstate(over="ignore"):
        values = np.asarray(array, dtype=np.float32)
    bad = ~np.isfinite(values)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"dataset='{source}': '{name}' is {values[place]} at {list(place)} ({int(bad.sum())} such values): "
            "give finite numbers."
        )
    return values


def class_labels(array: np.ndarray, source: str) -> tuple[Int64[np.ndarray, " n"], tuple[str, ...]]:
    """Labels as whole numbers or text -> class of each instance and the names of the classes, sorted."""
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.round(array)).all():
        array = array.astype(np.int64)
    if array.dtype.kind not in "iubU":
        raise DataError(f"dataset='{source}': 'label' holds {array.dtype}: give whole numbers or names, none missing.")
    names, label = np.unique(array, return_inverse=True)
    if len(names) < 2:
        raise DataError(f"dataset='{source}': 'label' names one class ({names[0]}): at least two are needed.")
    return label.astype(np.int64), tuple(str(name) for name in names)


def splits_of(array: np.ndarray | None, label: Int64[np.ndarray, " n"], source: str) -> dict[str, NDArray[np.bool_]]:
    """Which instances are for train, validation and test: as the file says, or 20 % of each class for each of the two.

    Parameters
    ----------
    array : (n,) of 0, 1, 2 or the names train, validation, test; None where the file has no split
    label : (n,) int64
    """
    if array is None:
        array = stratified(label, (1 - TEST_SHARE - VALIDATION_SHARE, VALIDATION_SHARE, TEST_SHARE), seed=0)
    named = array if array.dtype.kind == "U" else np.array([dict(enumerate(SPLITS)).get(int(s), str(s)) for s in array])
    if unknown := sorted(set(named.tolist()) - set(SPLITS)):
        raise DataError(f"dataset='{source}': 'split' holds {unknown[0]!r}: give {', '.join(SPLITS)}, or 0, 1, 2.")
    members = {split: named == split for split in SPLITS}
    for split, chosen in members.items():
        if not chosen.any():
            raise DataError(f"dataset='{source}': no instance is left for {split}: give more, or an array 'split'.")
    require_known_classes(label, members, source)
    return members


def require_known_classes(
    label: Int64[np.ndarray, " n"], members: Mapping[str, NDArray[np.bool_]], source: str
) -> None:
    """Refuse splits whose training part lacks a class that occurs elsewhere."""
    if missing := sorted(set(label.tolist()) - set(label[members["train"]].tolist())):
        raise DataError(
            f"dataset='{source}': class number {missing[0]} has no training instance: give each class at least five."
        )


def stratified(label: Int64[np.ndarray, " n"], shares: Iterable[float], seed: int) -> Int64[np.ndarray, " n"]:
    """Part of each instance, 0.., so that every class is divided in `shares`, which sum to 1."""
    bounds, part = np.cumsum(list(shares)), np.zeros(len(label), dtype=np.int64)
    generator = np.random.default_rng(seed)
    for value in np.unique(label):
        members = generator.permutation(np.flatnonzero(label == value))
        part[members] = np.searchsorted(bounds, (np.arange(len(members)) + 0.5) / len(members)).clip(
            max=len(bounds) - 1
        )
    return part

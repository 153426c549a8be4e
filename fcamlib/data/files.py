"""Files: a user's files are opened within limits and identified by content; official files are downloaded and verified.

Every array of an .npz file is checked by a schema: shape, kind and range, before conversion. Hashes of large files are
cached in the user's cache folder by size, time and inode, so unchanged files are not read again. Names that begin with
a dot are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import sys
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from filelock import FileLock
from jaxtyping import Int64
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from fcamlib.config.sources import source_path
from fcamlib.data import SPLITS
from fcamlib.errors import DataError, shown

REMEMBERED = 1 << 20  # bytes above which a hash is cached
SETTLED = 2.0  # seconds after which a changed file has a different time on every file system
MOST_BYTES = 1 << 32  # limit for a text or JSON file
PATIENCE = 30.0  # seconds that a download may be silent
LARGEST = float(np.finfo(np.float32).max)
KINDS = {  # kind of an array -> allowed numpy kinds, required content
    "number": ("biuf", "finite numbers that float32 can hold"),
    "whole": ("iu", "whole numbers"),
    "truth": ("biuf", "True and False, or 0 and 1"),
    "label": ("biufU", "whole numbers or names, none missing"),
    "split": ("iuU", "train, validation, test, or 0, 1, 2"),
}
Arrays = dict[str, np.ndarray]


def opened(file: Path, most_bytes: int = sys.maxsize) -> BufferedReader:
    """Open a user's file; `OSError` for a pipe, socket or device, which might block, and for a larger file."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "it is not a regular file", str(file))
    if status.st_size > most_bytes:
        raise OSError(0, f"it has more than {most_bytes / 1e9:.1f} GB", str(file))
    return file.open("rb")


def content_hash(path: Path) -> str:
    """sha256 of a file's content, or of the sorted names and contents of the files in a folder."""
    files = files_below(path) if path.is_dir() else [path]
    try:
        stats = [file.stat() for file in files]
        looks = [(s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev) for s in stats]
        note = platformdirs.user_cache_path("fcam") / "identity" / _sha256(repr((path, files, looks)))
        if is_large := sum(s.st_size for s in stats) >= REMEMBERED:
            with contextlib.suppress(OSError):
                if len(known := note.read_text("ascii", errors="replace")) == 64:
                    return known
        with ThreadPoolExecutor() as pool:  # hashing releases the interpreter lock
            digests = list(pool.map(_digest, files))
    except OSError as error:
        fault = f"the file '{error.filename or path}' cannot be read ({error.strerror})"
        raise DataError(f"{fault}: repair it, remove it, or change its permissions.") from None
    lines = [f"{file.relative_to(path)}\t{digest}" for file, digest in zip(files, digests, strict=True)]
    whole = digests[0] if files == [path] else _sha256("\n".join(lines))
    if is_large and time.time() - max(max(s.st_mtime, s.st_ctime) for s in stats) > SETTLED:
        with contextlib.suppress(OSError):  # a cache folder may be read-only
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(whole, "ascii")
    return whole


def fingerprint(files: Path | Mapping[str, Path | str]) -> str:
    """`content_hash` of a file or folder, or the sha256 of the names and contents of several; text is a known hash."""
    if isinstance(files, Path):
        return content_hash(files)
    known = {name: file if isinstance(file, str) else content_hash(file) for name, file in files.items()}
    return _sha256("".join(f"{digest}  {name}\n" for name, digest in known.items()))


def files_below(root: Path) -> list[Path]:
    """The sorted files in a folder and its subfolders, except names that begin with a dot; links are followed once."""
    found: list[tuple[str, str]] = []
    seen: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        raise DataError(f"the folder '{error.filename}' cannot be read ({error.strerror}): change its permissions.")

    for parent, folders, names in os.walk(root, onerror=refuse, followlinks=True):
        place = os.stat(parent)
        if (place.st_dev, place.st_ino) in seen:
            folders.clear()
            continue
        seen.add((place.st_dev, place.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))  # which of two links is followed
        found += [(parent, name) for name in names if not name.startswith(".")]
    return [Path(parent, name) for parent, name in sorted(found)]


def _digest(file: Path) -> str:
    with opened(file) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogateescape")).hexdigest()


def read_text(file: Path, owner: str) -> str:
    """The text of a user's file, given by the parameter `owner`; `DataError` if it is empty or not UTF-8."""
    try:
        with opened(file, MOST_BYTES) as stream:
            require_memory(4 * file.stat().st_size, f"{owner}: the contents of '{file}'", "give a smaller file")
            content = stream.read()
    except OSError as error:
        raise DataError(f"{owner}: the file '{file}' cannot be read ({error.strerror}).") from None
    if not content.strip():
        raise DataError(f"{owner}: the file '{file}' is empty.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        fault = f"line {line} of '{file}' is not UTF-8 text (byte 0x{error.object[error.start]:02x})"
        raise DataError(f"{owner}: {fault}: save the file as UTF-8.") from None


def read_json(file: Path, dataset: str, schema: Any, mend: str) -> Any:
    """The content of a JSON file as `schema`; the first error becomes one sentence that ends in `mend`."""
    text = read_text(file, f"dataset='{dataset}'")
    try:
        return TypeAdapter(schema).validate_json(text)
    except ValidationError as error:
        raise DataError(f"dataset='{dataset}': '{file}': {json_fault(error)}: {mend}.") from None


def json_fault(error: ValidationError) -> str:
    """The first error with its location, without the value: posts are never quoted."""
    faults = [
        (".".join(str(part) for part in fault["loc"] if part not in ("str", "int")), fault)  # parts of a union
        for fault in error.errors(include_url=False, include_input=False)
    ]
    place, fault = faults[0]
    if fault["type"] == "json_invalid":
        return f"it is not JSON ({fault['ctx']['error'].replace('line 1 column', 'column')})"
    if fault["type"] == "value_error":
        return fault["msg"].removeprefix("Value error, ")
    told = " or ".join(f"{each['msg'][0].lower()}{each['msg'][1:]}" for where, each in faults if where == place)
    return f"field {shown(place, 100)}: {told}" if place else "it is not a JSON object"


def require_memory(num_bytes: int, what: str, remedy: str) -> None:
    """Refuse, before reading it, anything that needs more memory than is free."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return
    if num_bytes > free:
        needed = f"{what} need {num_bytes / 1e9:,.1f} GB, but only {free / 1e9:,.1f} GB of memory are free"
        raise DataError(f"{needed}: {remedy}.")


def download(url: str, target: Path, sha256: str) -> None:
    """Download the file at `url` to `target`, which appears only complete and verified, with a bar on a terminal.

    `sha256` may be its first digits. One process downloads while others wait; a file that is there is not touched.
    """
    from torch.hub import download_url_to_file

    if target.is_file():  # needs no lock: its folder may be read-only
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f".{target.name}.lock")), contextlib.ExitStack() as stack:
            if not target.is_file():
                stack.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
                socket.setdefaulttimeout(PATIENCE)
                download_url_to_file(url, str(target), sha256, progress=sys.stderr.isatty())
    except (OSError, HTTPException, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        by_hand = f"run again, or put it at '{target}' yourself (sha256 {sha256})"
        raise DataError(f"the download of {url} to '{target}' failed ({reason}): {by_hand}.") from None


# --- arrays -----------------------------------------------------------------------------------------------------------


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
    if unknown := [shown(name, 100) for name in arrays if name not in allowed]:
        raise DataError(f"dataset='{source}' holds an unknown array '{unknown[0]}': allowed are {', '.join(allowed)}.")
    return arrays


def checked(arrays: Arrays, source: str, schema: Mapping[str, str]) -> Arrays:
    """The converted arrays; `DataError` for the first fault.

    `schema` has the axes and the kind of each array, as in "N D number"; arrays whose kind ends in ? are optional.
    """
    sizes: dict[str, int] = {}
    found: Arrays = {}
    for name, (*axes, kind) in ((name, words.split()) for name, words in schema.items()):
        kinds, needed = KINDS[kind.strip("?")]
        if name not in arrays:
            if kind.endswith("?"):
                continue
            raise DataError(f"dataset='{source}' has no array '{name}': add it, ({', '.join(axes)}), {needed}.")
        array = arrays[name]
        if array.ndim == len(axes):
            sizes = dict(zip(axes, array.shape, strict=True)) | sizes
        if 0 in array.shape or [*array.shape] != [sizes.get(axis) for axis in axes]:
            needed = ", ".join(f"{axis} = {sizes[axis]}" if axis in sizes else axis for axis in axes)
            raise DataError(f"dataset='{source}': '{name}' has shape {array.shape}, but ({needed}) is needed.")
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
    values, label = np.unique(array, return_inverse=True)
    names = tuple(map(str, values))
    if len(names) < 2:
        raise DataError(f"dataset='{source}': 'label' names only one class ({shown(names[0])}): give at least two.")
    return label.astype(np.int64), names


def required(split: np.ndarray, label: Int64[np.ndarray, " n"], names: Sequence[str], source: str) -> np.ndarray:
    """The split of each instance; `DataError` if a split is empty or a class has no training instance."""
    if missing := set(SPLITS) - set(split.tolist()):
        raise DataError(
            f"dataset='{source}': no instance is left for {min(missing)}: give more or, if you name splits, all three."
        )
    if unseen := set(label.tolist()) - set(label[split == "train"].tolist()):
        fault = f"class '{shown(names[min(unseen)])}' has no training instance"
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

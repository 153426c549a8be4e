"""Files: a user's opened within limits and told apart by content, the official ones downloaded whole and verified.

A second look at large files that have not changed reads nothing: their hash is remembered in the user's cache folder by
size, time and inode. Names that begin with a dot are no data.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from io import BufferedReader
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import Progress

from fcamlib.errors import DataError

REMEMBERED = 1 << 20  # bytes from which a hash is remembered
SETTLED = 2.0  # seconds after which a changed file has another time, on every file system
MOST_BYTES = 1 << 32  # of a text or JSON file
PATIENCE = 30.0  # seconds that a download may be silent, and before its speed counts
SLOWEST = 10_000.0  # bytes per second; a slower download is given up


def opened(file: Path, most_bytes: int = sys.maxsize) -> BufferedReader:
    """A user's file, open; a pipe, socket or device, which might be waited for, and a larger file are an `OSError`."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "it is no regular file", str(file))
    if status.st_size > most_bytes:
        raise OSError(0, f"it has more than {most_bytes / 1e9:.1f} GB", str(file))
    return file.open("rb")


def content_hash(path: Path) -> str:
    """sha256 of a file's content, or over the sorted names and contents of the files below a folder."""
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
        raise DataError(
            f"the file '{error.filename or path}' cannot be read ({error.strerror}): mend or remove it."
        ) from None
    lines = [f"{file.relative_to(path)}\t{digest}" for file, digest in zip(files, digests, strict=True)]
    whole = digests[0] if files == [path] else _sha256("\n".join(lines))
    if is_large and time.time() - max(max(s.st_mtime, s.st_ctime) for s in stats) > SETTLED:
        with contextlib.suppress(OSError):  # a cache folder may be read-only
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(whole, "ascii")
    return whole


def joint_hash(files: Mapping[str, Path]) -> str:
    """sha256 over the names and contents of several files or folders; empty for none."""
    lines = "".join(f"{content_hash(path)}  {name}\n" for name, path in files.items())
    return _sha256(lines) if files else ""


def files_below(root: Path) -> list[Path]:
    """The files below a folder by folder and name, without names that begin with a dot; links are followed once."""
    found: list[tuple[str, str]] = []
    seen: set[tuple[int, int]] = set()
    for parent, folders, names in os.walk(root, followlinks=True):
        place = os.stat(parent)
        if (place.st_dev, place.st_ino) in seen:
            folders.clear()
            continue
        seen.add((place.st_dev, place.st_ino))
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        found += [(parent, name) for name in names if not name.startswith(".")]
    return [Path(parent, name) for parent, name in sorted(found)]


def _digest(file: Path) -> str:
    with opened(file) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogateescape")).hexdigest()


def read_text(file: Path, owner: str) -> str:
    """The text of a user's file that the parameter `owner` names; what is empty or no UTF-8 is one sentence."""
    try:
        with opened(file, MOST_BYTES) as stream:
            content = stream.read()
    except OSError as error:
        raise DataError(f"{owner}: the file '{file}' cannot be read ({error.strerror}).") from None
    if not content.strip():
        raise DataError(f"{owner}: the file '{file}' is empty.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        fault = f"line {line} of '{file}' is not UTF-8 text (byte 0x{content[error.start]:02x})"
        raise DataError(f"{owner}: {fault}: save the file as UTF-8.") from None


def read_json(file: Path, dataset: str, schema: Any, mend: str) -> Any:
    """The content of a JSON file as `schema`; the first fault is one sentence that ends in `mend`."""
    text = read_text(file, f"dataset='{dataset}'")
    try:
        return TypeAdapter(schema).validate_json(text)
    except ValidationError as error:
        raise DataError(f"dataset='{dataset}': '{file}': {json_fault(error)}: {mend}.") from None


def json_fault(error: ValidationError) -> str:
    """The first fault with its place, without the value: posts are never quoted."""
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return f"it is not JSON ({fault['ctx']['error']})"
    if fault["type"] == "value_error":
        return fault["msg"].removeprefix("Value error, ")
    place = ".".join(map(str, fault["loc"]))[:100]
    return f"field {place}: {fault['msg'][0].lower()}{fault['msg'][1:]}" if place else "it is not a JSON object"


def require_memory(num_bytes: int, what: str, remedy: str) -> None:
    """Refuse what needs more memory than this machine has free, before it is read."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return
    if num_bytes > free:
        needed = f"{what} take {num_bytes / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB of memory are free"
        raise DataError(f"{needed}: {remedy}.")


def download(url: str, target: Path, size: int, sha256: str) -> None:
    """Get the file at `url`, of at most `size` bytes; `target` appears whole, with the checksum, or not at all.

    `sha256` may be the first digits of it. One process downloads, others wait for it.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f".{target.name}.lock")), contextlib.ExitStack() as stack:
            if target.is_file():
                return
            stack.callback(part.unlink, missing_ok=True)
            if shutil.disk_usage(target.parent).free < size:
                raise OSError(0, f"{size / 1e6:,.0f} MB are needed: free some space or set FCAM_DATA")
            if not (digest := _fetch(url, part, size)).startswith(sha256):
                raise OSError(0, f"its sha256 is {digest}")
            part.replace(target)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        by_hand = f"run again, or put it at '{target}' yourself (at most {size:,} bytes, sha256 {sha256})"
        raise DataError(f"the download of {url} to '{target}' failed ({reason}): {by_hand}.") from None


def _fetch(url: str, part: Path, size: int) -> str:
    """Write the file at `url` to `part`, with a progress bar on a terminal; its sha256."""
    request = urllib.request.Request(url, headers={"User-Agent": "fcamlib"})
    began, done, digest = time.monotonic(), 0, hashlib.sha256()
    bar = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())
    with bar, urllib.request.urlopen(request, timeout=PATIENCE) as response, part.open("wb") as file:
        wanted = int(response.headers.get("Content-Length", 0))
        task = bar.add_task(part.name.strip("."), total=wanted or size)
        while chunk := response.read1(1 << 18):
            file.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            bar.update(task, completed=done)
            elapsed = time.monotonic() - began
            if max(done, wanted) > size:
                raise OSError(0, f"it has more than {size:,} bytes")
            if elapsed > PATIENCE and done < SLOWEST * elapsed:
                raise OSError(0, f"{done:,} bytes in {elapsed:.0f} seconds are too slow")
    if done < wanted:
        raise OSError(0, f"it stopped after {done:,} of {wanted:,} bytes")
    return digest.hexdigest()

"""Files: a user's files are opened within limits and identified by content; official files are downloaded and verified.

Hashes of large files are cached in the user's cache folder by size, time and inode, so unchanged files are not read
again. Names that begin with a dot are ignored.
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

REMEMBERED = 1 << 20  # bytes above which a hash is cached
SETTLED = 2.0  # seconds after which a changed file has a different time on every file system
MOST_BYTES = 1 << 32  # limit for a text or JSON file
PATIENCE = 30.0  # seconds that a download may be silent, and before its speed is checked
SLOWEST = 10_000.0  # bytes per second; slower downloads are aborted


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
        raise DataError(
            f"the file '{error.filename or path}' cannot be read ({error.strerror}): repair or remove it."
        ) from None
    lines = [f"{file.relative_to(path)}\t{digest}" for file, digest in zip(files, digests, strict=True)]
    whole = digests[0] if files == [path] else _sha256("\n".join(lines))
    if is_large and time.time() - max(max(s.st_mtime, s.st_ctime) for s in stats) > SETTLED:
        with contextlib.suppress(OSError):  # a cache folder may be read-only
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(whole, "ascii")
    return whole


def joint_hash(files: Mapping[str, Path]) -> str:
    """sha256 of the names and contents of several files or folders; empty for none."""
    lines = "".join(f"{content_hash(path)}  {name}\n" for name, path in files.items())
    return _sha256(lines) if files else ""


def files_below(root: Path) -> list[Path]:
    """The sorted files in a folder and its subfolders, except names that begin with a dot; links are followed once."""
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
    """The text of a user's file, given by the parameter `owner`; `DataError` if it is empty or not UTF-8."""
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
    """The content of a JSON file as `schema`; the first error becomes one sentence that ends in `mend`."""
    text = read_text(file, f"dataset='{dataset}'")
    try:
        return TypeAdapter(schema).validate_json(text)
    except ValidationError as error:
        raise DataError(f"dataset='{dataset}': '{file}': {json_fault(error)}: {mend}.") from None


def json_fault(error: ValidationError) -> str:
    """The first error with its location, without the value: posts are never quoted."""
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return f"it is not JSON ({fault['ctx']['error']})"
    if fault["type"] == "value_error":
        return fault["msg"].removeprefix("Value error, ")
    place = ".".join(map(str, fault["loc"]))[:100]
    return f"field {place}: {fault['msg'][0].lower()}{fault['msg'][1:]}" if place else "it is not a JSON object"


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


def download(url: str, target: Path, size: int, sha256: str) -> None:
    """Download the file at `url`, of at most `size` bytes, to `target`, which appears only complete and verified.

    `sha256` may be its first digits. One process downloads while others wait.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f".{target.name}.lock")), contextlib.ExitStack() as stack:
            if target.is_file():
                return
            stack.callback(part.unlink, missing_ok=True)
            if shutil.disk_usage(target.parent).free < size:
                raise OSError(0, f"it needs {size / 1e6:,.0f} MB: free some space or set FCAM_DATA")
            if not (digest := _fetch(url, part, size)).startswith(sha256):
                raise OSError(0, f"its sha256 is {digest}")
            part.replace(target)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        by_hand = f"run again, or put it at '{target}' yourself (at most {size:,} bytes, sha256 {sha256})"
        raise DataError(f"the download of {url} to '{target}' failed ({reason}): {by_hand}.") from None


def _fetch(url: str, part: Path, size: int) -> str:
    """Write the file at `url` to `part`, with a progress bar on a terminal; return its sha256."""
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
                raise OSError(0, f"it is too slow: {done:,} bytes in {elapsed:.0f} seconds")
    if done < wanted:
        raise OSError(0, f"it stopped after {done:,} of {wanted:,} bytes")
    return digest.hexdigest()

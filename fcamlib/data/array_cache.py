"""Large arrays that are computed once and kept on disk: decoded pictures and features of frozen encoders.

An array is a folder with `rows.bin`, the raw values row by row, and `about.json`, which says what they are and holds
the sha256 of every chunk of rows. It is computed chunk by chunk in a folder beside it, `NAME.part`, where `done.txt`
lists the chunks that are written: a killed computation goes on there. The finished folder is renamed whole. Size and
checksums are verified before each use, and only the chunks that fail are computed again. Values are read as a memory
map, so that an array may be larger than the memory. bfloat16 values are stored as their two bytes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from rich.console import Console
from rich.progress import track
from torch import Tensor

from fcamlib.errors import DataError

log = logging.getLogger(__name__)

ROWS, ABOUT, DONE = "rows.bin", "about.json", "done.txt"
Compute = Callable[[range], Tensor]


@dataclass(frozen=True)
class Layout:
    """What a kept array is.

    Parameters
    ----------
    label : str
        Readable start of the folder's name.
    about : mapping of JSON values
        Everything that the values depend on.
    shape : tuple of int
        Rows first.
    dtype : torch.dtype
    chunk : int
        Rows that are computed at once; the last chunk may be shorter.
    """

    label: str
    about: Mapping[str, Any]
    shape: tuple[int, ...]
    dtype: torch.dtype
    chunk: int = 64

    @property
    def described(self) -> dict[str, Any]:
        """The content of `about.json` but for the checksums."""
        return {
            "about": dict(self.about), "shape": list(self.shape), "dtype": str(self.dtype).removeprefix("torch."),
            "chunk": self.chunk,
        }  # fmt: skip

    @property
    def name(self) -> str:
        """The folder's name: label and hash of everything else."""
        content = json.dumps(self.described, sort_keys=True).encode()
        return f"{self.label}-{hashlib.sha256(content).hexdigest()[:12]}"

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def num_bytes(self) -> int:
        """Bytes of the file."""
        return self.shape[0] * self.row_bytes

    @property
    def chunks(self) -> list[range]:
        """The rows of each chunk."""
        num_rows = self.shape[0]
        return [range(start, min(start + self.chunk, num_rows)) for start in range(0, num_rows, self.chunk)]


def kept(layout: Layout, root: Path, compute: Compute) -> Tensor:
    """The array of `layout` from the folder `root`, computed where it is not kept there yet.

    Parameters
    ----------
    layout : Layout
    root : Path
    compute : callable
        Rows of a range, of shape (len(range), *layout.shape[1:]) and type layout.dtype, on the CPU.

    Returns
    -------
    Tensor of `layout.shape`, a private memory map of the file.

    Raises
    ------
    DataError
        In one sentence where the disk is full or cannot be written.
    """
    final = root / layout.name
    try:
        # A whole array is used without the lock, so a folder shared read-only works too.
        if _bad_chunks(layout, final, _finished_sums(layout, final)):
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f".{layout.name}.lock"):
                _make_whole(layout, final, compute)
    except OSError as error:
        raise DataError(
            f"cannot keep {layout.num_bytes / 1e9:,.1f} GB in '{error.filename or root}' ({error.strerror or error}): "
            "make it writable, free some space, or set FCAM_DATA to another folder."
        ) from error
    values = torch.from_file(str(final / ROWS), shared=False, size=math.prod(layout.shape), dtype=layout.dtype)
    return values.view(layout.shape)


def _make_whole(layout: Layout, final: Path, compute: Compute) -> None:
    """Compute the chunks that are missing or damaged, then give the folder its name."""
    sums = _finished_sums(layout, final)
    bad = _bad_chunks(layout, final, sums)
    if not bad:  # made by a process that this one waited for
        return
    part = final.with_name(f"{final.name}.part")
    if final.exists():
        log.warning("'%s': %d of %d chunks are damaged and computed again.", final, len(bad), len(layout.chunks))
        shutil.rmtree(part, ignore_errors=True)
        os.replace(final, part)
        (part / DONE).write_text("".join(f"{number} {digest}\n" for number, digest in sums.items()), "ascii")
        (part / ABOUT).unlink(missing_ok=True)
    part.mkdir(exist_ok=True)
    sums = _fill(layout, part, compute)
    content = layout.described | {"sha256": [sums[number] for number in range(len(layout.chunks))]}
    (part / ABOUT).write_text(json.dumps(content, indent=1), "utf-8")
    (part / DONE).unlink()
    os.replace(part, final)


def _fill(layout: Layout, part: Path, compute: Compute) -> dict[int, str]:
    """Write every chunk that is not in `part` yet; the checksums of all."""
    sums = _noted_sums(part)
    bad = _bad_chunks(layout, part, sums)
    sums = {number: digest for number, digest in sums.items() if number not in bad}
    needed, free = sum(len(layout.chunks[number]) for number in bad) * layout.row_bytes, shutil.disk_usage(part).free
    present = (part / ROWS).stat().st_size if (part / ROWS).exists() else 0
    if free + present < needed:
        raise DataError(
            f"'{part.parent}' has {free / 1e9:,.1f} GB free and {needed / 1e9:,.1f} GB are needed: free some space or "
            "set FCAM_DATA to another folder."
        )
    (part / ROWS).touch()
    os.truncate(part / ROWS, layout.num_bytes)
    shown = {"console": Console(stderr=True), "disable": not sys.stderr.isatty()}
    with (part / ROWS).open("r+b") as rows, (part / DONE).open("w", encoding="ascii") as done:
        done.writelines(f"{number} {digest}\n" for number, digest in sums.items())
        for number in track(bad, description=layout.label, **shown):  # type: ignore[arg-type]
            chunk = layout.chunks[number]
            values = compute(chunk).to(layout.dtype).contiguous()
            if values.shape != (len(chunk), *layout.shape[1:]):
                raise ValueError(f"rows {chunk} have shape {tuple(values.shape)}, which is not that of {layout}.")
            content = values.view(torch.uint8).numpy().tobytes()
            rows.seek(chunk.start * layout.row_bytes)
            rows.write(content)
            rows.flush()  # before the note that it is there
            sums[number] = hashlib.sha256(content).hexdigest()
            done.write(f"{number} {sums[number]}\n")
            done.flush()
    return sums


def _finished_sums(layout: Layout, folder: Path) -> dict[int, str]:
    """The checksums in `about.json`; none where it is missing, damaged or about something else."""
    try:
        content = json.loads((folder / ABOUT).read_text("utf-8"))
        sums = content.pop("sha256")
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, AttributeError):
        return {}
    is_ours = content == json.loads(json.dumps(layout.described)) and isinstance(sums, list)
    return dict(enumerate(sums)) if is_ours else {}


def _noted_sums(part: Path) -> dict[int, str]:
    """The checksums in `done.txt`; a last line that was cut off is left out."""
    try:
        lines = (part / DONE).read_text("ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    pairs = [line.split() for line in lines]
    return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2 and pair[0].isdigit() and len(pair[1]) == 64}


def _bad_chunks(layout: Layout, folder: Path, sums: Mapping[int, str]) -> list[int]:
    """Numbers of the chunks that are missing or differ from their checksum; all where the file has another size."""
    everything = list(range(len(layout.chunks)))
    try:
        with (folder / ROWS).open("rb") as rows:
            if os.fstat(rows.fileno()).st_size != layout.num_bytes:
                return everything
            return [number for number in everything if not _agrees(layout, rows, number, sums.get(number))]
    except (FileNotFoundError, NotADirectoryError):
        return everything


def _agrees(layout: Layout, rows: Any, number: int, digest: str | None) -> bool:
    if digest is None:
        return False
    chunk = layout.chunks[number]
    rows.seek(chunk.start * layout.row_bytes)
    return hashlib.sha256(rows.read(len(chunk) * layout.row_bytes)).hexdigest() == digest

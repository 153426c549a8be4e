"""CIFAR-10 and CIFAR-100 from their official binary archives: downloaded once, verified, unpacked, read as plain bytes.

A record is the label bytes, then 1024 red, 1024 green and 1024 blue values, each plane row by row. CIFAR-10 has one
label byte; CIFAR-100 has two, the superclass first and the class second (https://www.cs.toronto.edu/~kriz/cifar.html).
An archive is used only when size, SHA-256 and MD5 agree; unpacked files only when they agree with the `SHA256SUMS`
that unpacking leaves beside them. torchvision's own reader unpickles, and its downloader can neither resume, time out
nor stay silent, so neither is used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import PARTIAL_CONTENT, HTTPException
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError

import numpy as np
from filelock import FileLock
from jaxtyping import Int64, UInt8
from rich.console import Console
from rich.progress import DownloadColumn, Progress

from fcamlib.errors import DataError

log = logging.getLogger(__name__)

CifarName = Literal["cifar10", "cifar100"]
MANIFEST = "SHA256SUMS"
IMAGE_BYTES = 3 * 32 * 32
MAX_NAMES_BYTES = 1 << 16
CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 60.0

CIFAR10_FOREGROUND = ("airplane", "automobile", "bird")
# Superclasses: arXiv 2307.13421's experiments; their classes: the table on the site above, spelled as in the archive.
CIFAR100_FOREGROUND_SUPERCLASSES = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
}
CIFAR100_FOREGROUND = tuple(name for names in CIFAR100_FOREGROUND_SUPERCLASSES.values() for name in names)


@dataclass(frozen=True)
class CifarSpec:
    """What an archive is and holds; `train` and `test` list (file, number of records) in reading order."""

    name: str
    url: str
    size: int
    sha256: str
    md5: str
    folder: str
    train: tuple[tuple[str, int], ...]
    test: tuple[tuple[str, int], ...]
    names_file: str
    label_bytes: int

    @property
    def archive(self) -> str:
        """The archive's file name."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def max_bytes(self) -> dict[str, int]:
        """Every file to unpack and its size: exact for records, an upper bound for the class names."""
        record_bytes = self.label_bytes + IMAGE_BYTES
        sizes = {file: num_records * record_bytes for file, num_records in self.train + self.test}
        return {self.names_file: MAX_NAMES_BYTES, **sizes}

    def fits(self, file: str, size: int) -> bool:
        """Whether `file` may have `size` bytes."""
        return size == self.max_bytes[file] or (file == self.names_file and 0 < size < MAX_NAMES_BYTES)


# MD5: the site above. Size and SHA-256: tensorflow/datasets, tensorflow_datasets/url_checksums/cifar10.txt and
# cifar100.txt (commit 333639b37af6c6fedf3610a4a2d42f1c6ef6f7d5).
CIFAR_SPECS = {
    "cifar10": CifarSpec(
        name="cifar10",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        size=170_052_171,
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        md5="c32a1d4ab5d03f1284b67883e8d87530",
        folder="cifar-10-batches-bin",
        train=tuple((f"data_batch_{batch}.bin", 10_000) for batch in range(1, 6)),
        test=(("test_batch.bin", 10_000),),
        names_file="batches.meta.txt",
        label_bytes=1,
    ),
    "cifar100": CifarSpec(
        name="cifar100",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        size=168_513_733,
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        md5="03b5dce01913d631647c71ecec9e9cb8",
        folder="cifar-100-binary",
        train=(("train.bin", 50_000),),
        test=(("test.bin", 10_000),),
        names_file="fine_label_names.txt",
        label_bytes=2,
    ),
}


@dataclass(frozen=True)
class CifarArrays:
    """Images (N, 32, 32, 3) in 0..255, height before width, channels RGB; labels (N,) index `class_names`."""

    train_images: UInt8[np.ndarray, "N 32 32 3"]
    train_labels: Int64[np.ndarray, " N"]
    test_images: UInt8[np.ndarray, "T 32 32 3"]
    test_labels: Int64[np.ndarray, " T"]
    class_names: tuple[str, ...]


def load_cifar(name: CifarName, root: Path, *, url: str | None = None, spec: CifarSpec | None = None) -> CifarArrays:
    """Read CIFAR from the folder `root`; where that was not done yet, download, verify and unpack the archive first.

    An archive put into `root` by hand is used like a downloaded one. `url` names a mirror, whose file must be the
    official one; `spec` describes another archive of the same layout.
    """
    spec, root = spec or CIFAR_SPECS[name], Path(root)
    folder = root / spec.folder
    try:
        # Verified files are read without the lock, so a folder shared read-only works too.
        if _damaged_file(spec, folder):
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f"{spec.archive}.lock"):
                if _damaged_file(spec, folder):
                    _unpack(spec, _obtain(spec, root, url or spec.url), folder)
        class_names = tuple((folder / spec.names_file).read_text(encoding="ascii").split())
        return CifarArrays(*_read(spec, folder, spec.train), *_read(spec, folder, spec.test), class_names)
    except OSError as error:
        raise DataError(
            f"{spec.name}: cannot use {error.filename or root} ({error.strerror or error}); make the folder {root} "
            "writable, free some space, or set FCAM_DATA to another folder."
        ) from error


def verify_cifar(name: CifarName, root: Path, *, spec: CifarSpec | None = None) -> str:
    """State of the data set in `root`: "absent", "verified" or "damaged: <first bad file>"; nothing is changed."""
    spec = spec or CIFAR_SPECS[name]
    folder, archive = Path(root) / spec.folder, Path(root) / spec.archive
    if folder.is_dir():
        bad_file = _damaged_file(spec, folder)
    elif archive.is_file():
        bad_file = None if _is_official(spec, archive) else spec.archive
    else:
        return "absent"
    return f"damaged: {bad_file}" if bad_file else "verified"


def _digest(path: Path, algorithm: str = "sha256") -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def _is_official(spec: CifarSpec, archive: Path) -> bool:
    matches_size = archive.stat().st_size == spec.size
    return matches_size and _digest(archive) == spec.sha256 and _digest(archive, "md5") == spec.md5


def _damaged_file(spec: CifarSpec, folder: Path) -> str | None:
    """The first unpacked file that is missing or differs from the manifest; None when all agree."""
    if not (folder / MANIFEST).is_file():
        return f"{folder.name}/{MANIFEST}"
    lines = (folder / MANIFEST).read_text(encoding="ascii", errors="replace").splitlines()
    digests = {file: digest for digest, _, file in (line.partition("  ") for line in lines)}
    for file in spec.max_bytes:
        path = folder / file
        if not path.is_file() or not spec.fits(file, path.stat().st_size) or _digest(path) != digests.get(file):
            return f"{folder.name}/{file}"
    return None


def _obtain(spec: CifarSpec, root: Path, url: str) -> Path:
    """The verified archive in `root`; a download gets the archive's name only once it is verified."""
    archive, part = root / spec.archive, root / f"{spec.archive}.part"
    if archive.is_file():
        if _is_official(spec, archive):
            return archive
        log.warning("%s has a wrong checksum and is downloaded again", archive)
    _download(spec, part, url)
    if not _is_official(spec, part):
        part.unlink()
        raise _failed(spec, root, url, "had a wrong checksum and was removed")
    os.replace(part, archive)
    return archive


def _failed(spec: CifarSpec, root: Path, url: str, reason: str) -> DataError:
    return DataError(
        f"{spec.name}: no verified copy in {root}, and the download from {url} {reason}; run again, or put "
        f"{spec.url} at {root / spec.archive} yourself ({spec.size} bytes, md5 {spec.md5}, sha256 {spec.sha256})."
    )


def _download(spec: CifarSpec, part: Path, url: str) -> None:
    """Complete `part` from `url`, going on where an interrupted download stopped."""
    num_done = part.stat().st_size if part.is_file() else 0
    if num_done >= spec.size:
        return
    needed, free = spec.size - num_done + sum(spec.max_bytes.values()), shutil.disk_usage(part.parent).free
    if free < needed:
        raise DataError(
            f"{spec.name}: {part.parent} has {free / 1e6:.0f} MB free and {needed / 1e6:.0f} MB are needed; "
            "free some space or set FCAM_DATA to another folder."
        )
    columns = (*Progress.get_default_columns(), DownloadColumn())
    progress = Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())
    with part.open("ab") as file, progress:
        task = progress.add_task(spec.archive, total=spec.size)
        for position, chunk in _stream(spec, part.parent, url, num_done):
            file.truncate(position)  # drops the earlier part when the server can only start over
            num_done = position + file.write(chunk)
            progress.update(task, completed=num_done)
            if num_done > spec.size:
                break
    if num_done < spec.size:
        raise _failed(spec, part.parent, url, f"stopped after {num_done} of {spec.size} bytes")


def _stream(spec: CifarSpec, root: Path, url: str, num_done: int) -> Iterator[tuple[int, bytes]]:
    """Pieces of the file at `url` with their positions; here every OSError is the network's, none the disk's."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "fcamlib", "Range": f"bytes={num_done}-"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            position = num_done if response.status == PARTIAL_CONTENT else 0
            if int(response.headers.get("Content-Length", spec.size - position)) != spec.size - position:
                raise _failed(spec, root, url, "offers a file of another size")
            while chunk := response.read(CHUNK_BYTES):
                yield position, chunk
                position += len(chunk)
    except DataError:
        raise
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise _failed(spec, root, url, f"failed ({error})") from error


def _unpack(spec: CifarSpec, archive: Path, folder: Path) -> None:
    """Unpack the verified archive beside `folder`, then move its files in, the manifest last."""
    scratch = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        _extract(spec, archive, scratch)
        lines = [f"{_digest(scratch / spec.folder / file)}  {file}\n" for file in spec.max_bytes]
        (scratch / MANIFEST).write_text("".join(lines), encoding="ascii", newline="\n")
        folder.mkdir(exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        for file in spec.max_bytes:
            os.replace(scratch / spec.folder / file, folder / file)
        os.replace(scratch / MANIFEST, folder / MANIFEST)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _extract(spec: CifarSpec, archive: Path, scratch: Path) -> None:
    """Unpack the expected members of `archive` and no others."""
    missing = {f"{spec.folder}/{file}": file for file in spec.max_bytes}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if file := missing.pop(member.name, None):
                    if not member.isreg() or not spec.fits(file, member.size):
                        raise DataError(f"{spec.name}: {member.name} in {archive} is not a file of the expected size.")
                    content = tar.extractfile(member)
                    assert content is not None, "a regular file"
                    (scratch / member.name).parent.mkdir(parents=True, exist_ok=True)
                    with content, (scratch / member.name).open("wb") as unpacked:
                        shutil.copyfileobj(content, unpacked)
    except tarfile.TarError as error:
        raise DataError(f"{spec.name}: {archive} is not a readable archive ({error}).") from error
    if missing:
        raise DataError(f"{spec.name}: {archive} lacks {', '.join(missing)}.")


def _read(
    spec: CifarSpec, folder: Path, files: tuple[tuple[str, int], ...]
) -> tuple[UInt8[np.ndarray, "N 32 32 3"], Int64[np.ndarray, " N"]]:
    """Images and labels of `files`, one after the other; the last label byte is the class."""
    num_images = sum(num_records for _, num_records in files)
    images, labels = np.empty((num_images, 32, 32, 3), dtype=np.uint8), np.empty(num_images, dtype=np.int64)
    start = 0
    for file, num_records in files:
        rows = slice(start, start := start + num_records)
        records = np.fromfile(folder / file, dtype=np.uint8).reshape(num_records, -1)
        labels[rows] = records[:, spec.label_bytes - 1]
        planes = records[:, spec.label_bytes :].reshape(num_records, 3, 32, 32)  # a view
        for channel in range(3):  # plane by plane: four times faster than moving the axis
            images[rows, ..., channel] = planes[:, channel]
    return images, labels

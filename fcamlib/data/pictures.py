"""Base pictures of each source: arrays of small pictures with class names, split into train, validation, test.

| source                | pictures                                                                       |
|-----------------------|--------------------------------------------------------------------------------|
| `digits`              | scikit-learn's, embedded                                                       |
| `cifar10`, `cifar100` | the official binary files, verified by checksum, downloaded if missing         |
| `folder:PATH`         | a user's: train/<class>/ and test/<class>/ with the same classes                 |

A picture is read as a viewer shows it: rotated by its EXIF data, with transparent parts on white.
"""

from __future__ import annotations

import hashlib
import logging
import tarfile
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fcamlib import paths
from fcamlib.config.sources import source_path
from fcamlib.data.files import content_hash, download, files_below, opened, require_memory
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
VALIDATION_SHARE = 0.1  # of the training pictures of each class
TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
ENDINGS = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}


@dataclass(frozen=True)
class Pictures:
    """Base pictures of a source, training pictures first; `white` is the largest pixel value."""

    values: UInt8[np.ndarray, "N H W C"]
    label: Int64[np.ndarray, " N"]
    num_train: int
    class_names: tuple[str, ...]
    white: int = 255

    def pools(self) -> dict[str, NDArray[np.bool_]]:
        """Masks of the disjoint train, validation and test pictures; validation is held out from training."""
        is_train = np.arange(len(self.label)) < self.num_train
        validation = np.zeros(len(self.label), dtype=bool)
        generator = np.random.default_rng(0)  # fixed: every seed of a run holds out the same pictures
        for label in range(len(self.class_names)):
            members = np.flatnonzero(is_train & (self.label == label))
            held_out = max(1, round(VALIDATION_SHARE * len(members)))
            validation[generator.permutation(members)[:held_out]] = True
        return {"train": is_train & ~validation, "validation": validation, "test": ~is_train}


@lru_cache(maxsize=2)
def load_pictures(source: str, image_size: int, fingerprint: str = "") -> Pictures:
    """The base pictures of `source`, those of a folder resized to `image_size`; kept until another `fingerprint`."""
    if source.startswith("folder:"):
        return _folder(source, image_size)
    pictures = _digits() if source == "digits" else _cifar(source)
    if (side := pictures.values.shape[1]) != image_size:
        fault = f"image_size={image_size} does not fit dataset='{source}' with pictures of {side} x {side} pixels"
        raise DataError(f"{fault}: leave image_size out.")
    return pictures


def _digits() -> Pictures:
    """scikit-learn's 1,797 digits of 8 x 8 pixels, values 0..16; 30% of each class are test pictures."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    label = digits.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(label)), test_size=0.3, random_state=0, stratify=label)
    order = np.concatenate([train, test])
    values = digits.images[order].astype(np.uint8)[..., None]
    return Pictures(values, label[order], len(train), tuple(str(d) for d in range(10)), white=16)


@dataclass(frozen=True)
class Cifar:
    """The official binary files of CIFAR-10 or CIFAR-100, and the archive that holds them.

    A record consists of `label_bytes` label bytes, the last of which is the class, then 1,024 red, 1,024 green and
    1,024 blue values, each plane row by row. `files` are the training files, the test file and the file of class names,
    each with its allowed sha256 (for a .txt, without line feeds at its end).
    Source: https://www.cs.toronto.edu/~kriz/cifar.html.
    """

    folder: str
    url: str
    sha256: str
    files: Mapping[str, tuple[str, ...]]
    label_bytes: int = 1


# Archives: tensorflow_datasets/url_checksums/cifar10.txt and cifar100.txt of tensorflow/datasets, commit 333639b.
CIFAR = {
    "cifar10": Cifar(
        folder="cifar-10-batches-bin",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        files={
            "data_batch_1.bin": ("cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",),
            "data_batch_2.bin": ("a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",),
            "data_batch_3.bin": ("bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",),
            "data_batch_4.bin": ("014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",),
            "data_batch_5.bin": ("755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",),
            "test_batch.bin": ("8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",),
            "batches.meta.txt": ("bb3914949cecedee6d1257f7f5fdb8f43fa3b2c8095fd1763161caf1b873fe59",),
        },
    ),
    "cifar100": Cifar(
        folder="cifar-100-binary",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        files={
            "train.bin": ("f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",),
            "test.bin": ("d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",),
            "fine_label_names.txt": (  # with "maple_tree", or as in some copies with "maple"
                "fbe8ad23bbaf24969898a386833b49c3aaf6ad1119d43f7b41cdea1b3416d578",
                "88be9e4327820b3c93ba5b29e4fa826b5e71912447321418baefb069d25780ac",
            ),
        },
        label_bytes=2,
    ),
}


def cifar_state(name: str) -> str:
    """State of a data set in the data folder: "absent", "verified" or "damaged: <file>"; nothing is changed."""
    cifar, folder = CIFAR[name], paths.data_dir() / CIFAR[name].folder
    if not folder.is_dir():
        return "absent"
    for path, digests in ((folder / file, digests) for file, digests in cifar.files.items()):
        content = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(content.rstrip(b"\n") if path.suffix == ".txt" else content).hexdigest() not in digests:
            return f"damaged: {cifar.folder}/{path.name}"
    return "verified"


def _cifar(name: str) -> Pictures:
    """The official files in the data folder; missing or damaged files are unpacked from the archive."""
    root, cifar = paths.data_dir(), CIFAR[name]
    try:
        if (state := cifar_state(name)) != "verified":
            if state != "absent":
                log.warning("%s in '%s' is not the official file and is replaced.", state, root)
            _unpack(cifar, root)
        *files, names = (root / cifar.folder / file for file in cifar.files)
        parts = [np.fromfile(file, dtype=np.uint8).reshape(-1, cifar.label_bytes + 3 * 32 * 32) for file in files]
        class_names = tuple(names.read_text("ascii").split())
    except OSError as error:
        fault = f"cannot use '{error.filename or root}' ({error.strerror or error})"
        remedy = f"make the folder '{root}' writable, free some space, or set FCAM_DATA to another folder"
        raise DataError(f"{name}: {fault}; {remedy}.") from None
    records = np.concatenate(parts)
    values = np.ascontiguousarray(np.moveaxis(records[:, cifar.label_bytes :].reshape(-1, 3, 32, 32), 1, 3))
    label = records[:, cifar.label_bytes - 1].astype(np.int64)
    return Pictures(values, label, len(records) - len(parts[-1]), class_names)


def _unpack(cifar: Cifar, root: Path) -> None:
    """Unpack the archive's files into their folder; the archive is downloaded if it is missing."""
    archive = root / cifar.url.rsplit("/", 1)[-1]
    if archive.is_file() and content_hash(archive) != cifar.sha256:
        raise DataError(f"'{archive}' is not the official archive (sha256 {cifar.sha256}): remove it.")
    download(cifar.url, archive, cifar.sha256)
    (root / cifar.folder).mkdir(exist_ok=True)
    with tarfile.open(archive) as tar, TemporaryDirectory(prefix=".", dir=root) as part:  # others may unpack as well
        for name in cifar.files:
            file = Path(part, name)
            file.write_bytes(tar.extractfile(f"{cifar.folder}/{name}").read())  # type: ignore[union-attr]
            file.replace(root / cifar.folder / name)


def _folder(source: str, image_size: int) -> Pictures:
    """A user's pictures, resized to `image_size`; train/ and test/ have the same classes."""
    train, test = (_classes(split, source) for split in folder_splits(source))
    if odd := sorted(set(train) ^ set(test)):
        raise DataError(f"dataset='{source}': class '{odd[0]}' is in only one of train/ and test/: add it to both.")
    files = [file for classes in (train, test) for members in classes.values() for file in members]
    label = [np.repeat(np.arange(len(part)), [len(members) for members in part.values()]) for part in (train, test)]

    def read(place: int) -> NDArray[np.uint8]:
        picture = as_shown(files[place])
        if picture.size != (image_size, image_size):
            picture = picture.resize((image_size, image_size), Image.Resampling.LANCZOS)
        return np.asarray(picture)

    return Pictures(decoded(len(files), image_size, read), np.concatenate(label), len(label[0]), tuple(train))


def folder_files(task: Any) -> Path:
    """The folder of a task; its splits are checked first, so that no unrelated large folder is read."""
    return folder_splits(task.source)[0].parent


def folder_splits(source: str) -> list[Path]:
    """The folders train/ and test/ of a `folder:PATH` source."""
    root = source_path(source)
    splits = [root / "train", root / "test"]
    if missing := [split.name for split in splits if not split.is_dir()]:
        needed = "it needs train/<class>/ and test/<class>/ with pictures"
        raise DataError(f"dataset='{source}': the folder '{root}' has no {missing[0]}/: {needed}.")
    return splits


def _classes(root: Path, source: str) -> dict[str, list[Path]]:
    """The pictures of each class in train/ or test/; other files are reported in the log."""
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if odd := [name for name in names if not name.isprintable()]:
        raise DataError(f"dataset='{source}': the class {odd[0]!a} of {root.name}/ is not readable text: rename it.")
    classes: dict[str, list[Path]] = {name: [] for name in names}
    unknown: list[Path] = []
    for file in files_below(root):
        is_picture = file.suffix.lower() in ENDINGS
        (classes.get(file.relative_to(root).parts[0], unknown) if is_picture else unknown).append(file)
    if unknown:
        log.warning("'%s' and %d more files are not pictures of a class and are ignored.", unknown[0], len(unknown) - 1)
    if empty := [name for name, files in classes.items() if not files]:
        raise DataError(f"dataset='{source}': class '{empty[0]}' has no pictures in {root.name}/: add at least one.")
    if not classes:
        raise DataError(f"dataset='{source}': '{root}' has no classes: put pictures into {root.name}/<class>/.")
    return classes


def decoded(number: int, image_size: int, read: Callable[[int], NDArray[np.uint8]]) -> UInt8[np.ndarray, "N S S 3"]:
    """`number` pictures, each from `read`, decoded in parallel after a check of the memory they need."""
    what = f"{number:,} pictures of image_size={image_size}"
    require_memory(number * image_size**2 * 3, what, "give a smaller image_size or fewer pictures")
    values = np.empty((number, image_size, image_size, 3), dtype=np.uint8)

    def fill(place: int) -> None:
        values[place] = read(place)

    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:  # decoding releases the interpreter lock
        warnings.simplefilter("ignore")  # Pillow warns about metadata that change no pixel
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        list(pool.map(fill, range(number)))
    return values


def as_shown(file: Path, is_turned: bool = True) -> Image.Image:
    """The picture in RGB as a viewer shows it: on white and, if `is_turned`, rotated by its EXIF data."""
    try:
        with opened(file) as content, Image.open(content) as picture:  # given a path, Pillow garbles rotated TIFF files
            picture.load()
            is_deep = picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in ("PNG", "PPM"))
            return _on_white(ImageOps.exif_transpose(picture) if is_turned else picture, is_deep)
    except Exception as error:  # with a damaged file, a decoder can raise anything
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, UnidentifiedImageError):
            reason = "it is not a picture"
        reason = " ".join(reason.split())[:200]
        raise DataError(f"the picture '{file}' cannot be read ({reason}): repair or remove it.") from None


def _on_white(picture: Image.Image, is_deep: bool) -> Image.Image:
    """The picture in RGB, with transparent parts on white; of 16-bit pixels (`is_deep`) the upper 8 bits are used."""
    if is_deep:
        values = np.asarray(picture)
        grey = (values >> 8).astype(np.uint8)
        grey[values == picture.info.get("transparency", -1)] = 255
        return Image.fromarray(grey).convert("RGB")
    if picture.mode in ("I", "F"):
        raise ValueError("its pixels have 32 bits: save it with 8")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return picture.convert("RGB")

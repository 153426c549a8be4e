"""Base pictures of each source: arrays of small pictures with class names, split into train, validation, test."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray

from fcamlib import paths
from fcamlib.config import portable_source, source_path
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
VALIDATION_SHARE = 0.1  # of the training pictures of each class
TITLES = {
    "digits": "digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "folder:cifar10-jpeg": "CIFAR-10 (JPEG copy)",
}


@dataclass(frozen=True)
class Pictures:
    """Base pictures of a source.

    Parameters
    ----------
    values : (N, height, width, channels) uint8
        Training pictures first, then test pictures.
    label : (N,) int64
        Class of each picture, an index into `class_names`.
    num_train : int
        How many of them are training pictures.
    class_names : tuple of str
    white : int
        The largest value a pixel can take.
    """

    values: UInt8[np.ndarray, "N H W C"]
    label: Int64[np.ndarray, " N"]
    num_train: int
    class_names: tuple[str, ...]
    white: int = 255

    def pools(self) -> dict[str, NDArray[np.bool_]]:
        """Which pictures belong to train, validation and test: disjoint, validation held out of training."""
        is_train = np.arange(len(self.label)) < self.num_train
        validation = np.zeros(len(self.label), dtype=bool)
        generator = np.random.default_rng(0)  # fixed: every seed of a run holds out the same pictures
        for label in range(len(self.class_names)):
            members = np.flatnonzero(is_train & (self.label == label))
            held_out = max(1, round(VALIDATION_SHARE * len(members)))
            validation[generator.permutation(members)[:held_out]] = True
        return {"train": is_train & ~validation, "validation": validation, "test": ~is_train}


def source_title(source: str) -> str:
    """How a data source is called in figures and tables."""
    portable = portable_source(source)
    return TITLES.get(portable, portable.removeprefix("folder:"))


@lru_cache(maxsize=2)
def load_pictures(source: str, image_size: int) -> Pictures:
    """The base pictures of `source`, resized to `image_size` where they differ.

    Raises `DataError` in one sentence where the source is missing or damaged.
    """
    kind = source.split(":", 1)[0]
    loaders: dict[str, Callable[[], Pictures]] = {
        "digits": _digits,
        "cifar10": lambda: _cifar("cifar10"),
        "cifar100": lambda: _cifar("cifar100"),
        "folder": lambda: _folder(source, image_size),
    }
    pictures = loaders[kind]()
    if kind != "folder" and pictures.values.shape[1] != image_size:
        raise DataError(
            f"image_size={image_size} does not fit dataset='{source}', "
            f"whose pictures have {pictures.values.shape[1]} pixels a side: leave image_size out."
        )
    return pictures


def _digits() -> Pictures:
    """scikit-learn's 1,797 digits of 8 x 8 pixels, values 0..16; 30 % of each class are test pictures."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    label = digits.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(label)), test_size=0.3, random_state=0, stratify=label)
    order = np.concatenate([train, test])
    values = digits.images[order].astype(np.uint8)[..., None]
    return Pictures(values, label[order], len(train), tuple(str(d) for d in range(10)), white=16)


def _cifar(name: Literal["cifar10", "cifar100"]) -> Pictures:
    from fcamlib.data.cifar import load_cifar

    arrays = load_cifar(name, paths.data_dir())
    values = np.concatenate([arrays.train_images, arrays.test_images])
    label = np.concatenate([arrays.train_labels, arrays.test_labels]).astype(np.int64)
    return Pictures(values, label, len(arrays.train_labels), tuple(arrays.class_names))


def _folder(source: str, image_size: int) -> Pictures:
    """torchvision's ImageFolder layout: train/<class>/ and test/<class>/ with the same classes."""
    from torchvision.datasets import ImageFolder

    root = source_path(source)
    parts = []
    for split in ("train", "test"):
        if not (root / split).is_dir():
            raise DataError(
                f"dataset='{source}': the folder '{root}' has no {split}/ in it: "
                "it needs train/<class>/ and test/<class>/ with pictures."
            )
        try:
            parts.append(ImageFolder(str(root / split)))
        except FileNotFoundError as error:
            raise DataError(f"dataset='{source}': {' '.join(str(error).split())}") from None
    train, test = parts
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))[0]
        raise DataError(f"dataset='{source}': class '{odd}' is in only one of train/ and test/: both need it.")
    samples = train.samples + test.samples
    with ThreadPoolExecutor() as pool:  # decoding releases the interpreter lock
        values = np.stack(list(pool.map(lambda sample: _read(sample[0], image_size), samples)))
    label = np.array([label for _, label in samples], dtype=np.int64)
    return Pictures(values, label, len(train.samples), tuple(train.classes))


def _read(path: str, image_size: int) -> NDArray[np.uint8]:
    """One picture as (image_size, image_size, 3) uint8; grey and CMYK pictures become RGB."""
    from PIL import Image

    try:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        reason = " ".join(str(error).replace(f"'{path}'", "").split())
        raise DataError(f"the picture '{Path(path)}' cannot be read ({reason}): mend or remove it.") from None
    if picture.size != (image_size, image_size):
        picture = picture.resize((image_size, image_size), Image.Resampling.LANCZOS)
    return np.asarray(picture)


def class_index(names: Sequence[str], pictures: Pictures, source: str, field: str) -> list[int]:
    """Class names -> indices; an unknown name is one sentence."""
    known = {name: index for index, name in enumerate(pictures.class_names)}
    for name in names:
        if name not in known:
            raise DataError(
                f"{field} names '{name}', which is not a class of dataset='{source}': "
                f"choose from {', '.join(pictures.class_names)}."
            )
    return [known[name] for name in names]

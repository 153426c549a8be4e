"""Captioning tasks: pictures, their captions as numbers, and the boxes of their objects.

| source              | pictures                                     | module                |
|---------------------|----------------------------------------------|-----------------------|
| `scenes`            | generated shapes, written in COCO's layout   | `fcamlib.data.scenes` |
| `coco`, `coco:PATH` | COCO 2014, official layout                   | `fcamlib.data.coco`   |

Training and validation pictures come from train2014, where the last ones by image id are held out for validation; test
pictures are val2014. The vocabulary is that of the training captions.
Source: arXiv 2307.13421, experiments on MSCOCO.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from fcamlib import paths
from fcamlib.config.captions import CocoConfig, ScenesConfig, coco_files
from fcamlib.data import coco
from fcamlib.data.array_cache import Layout, kept
from fcamlib.data.categories import category_words, word_categories
from fcamlib.data.coco import CocoPicture, pictures_digest
from fcamlib.data.sdc import Bank
from fcamlib.data.vocabulary import PAD, build_vocabulary, encode, numbers_of
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
IN_MEMORY = 2**30  # bytes of decoded pictures of a split that are held in memory
_DRAW = 300  # keeps these draws apart from others of the same seed


@dataclass(frozen=True)
class ObjectBoxes:
    """The objects of one picture.

    Parameters
    ----------
    category : tuple of int
        Index into the task's categories.
    box : (N, 4) float64
        x0, y0, x1, y1 as fractions of the picture as a model sees it, in [0, 1].
    """

    category: tuple[int, ...]
    box: Float[Tensor, "N 4"]


@dataclass(frozen=True)
class CaptionData:
    """One split of a captioning task.

    Parameters
    ----------
    pictures : Bank
        P pictures (3, S, S), stored as uint8, or P x (L, D) frozen features of L regions in bfloat16.
    picture : (N,) int64
        Row of `pictures` of each caption.
    tokens : (N, T) int64
        START, the words of each caption, END, then PAD.
    references : for each picture, its captions, each a tuple of words; not cut, and not limited to the vocabulary
    objects : for each picture, its objects
    image_ids : (P,) int64
        The official ids.
    """

    pictures: Bank
    picture: Int[Tensor, " N"]
    tokens: Int[Tensor, "N T"]
    references: tuple[tuple[tuple[str, ...], ...], ...]
    objects: tuple[ObjectBoxes, ...]
    image_ids: Int[Tensor, " P"]


@dataclass(frozen=True)
class CaptionTask:
    """Train, validation and test data with one vocabulary.

    Parameters
    ----------
    splits : "train", "validation", "test" -> CaptionData
    vocabulary : tuple of str
        By number: the special words of `fcamlib.data.vocabulary`, then words by falling frequency.
    categories : tuple of str
    word_category : (V,) int64
        Category that each word of the vocabulary names, -1 where it names none.
    title : str
    """

    splits: dict[str, CaptionData]
    vocabulary: tuple[str, ...]
    categories: tuple[str, ...]
    word_category: Int[Tensor, " V"]
    title: str


def caption_task(config: ScenesConfig | CocoConfig, seed: int, device: torch.device | None = None) -> CaptionTask:
    """The pictures, captions and boxes of `config`.

    Parameters
    ----------
    config : ScenesConfig or CocoConfig
    seed : int
        Draws the scenes, and the pictures where fewer than all are asked for.
    device : torch.device, optional
        Where a frozen encoder computes features that are not in the cache yet; the CPU by default.

    Raises
    ------
    DataError
        In one sentence where the source is missing or damaged, or holds fewer pictures than are asked for.
    """
    extra: Mapping[str, Sequence[str]] = {}
    words_file = ""
    if isinstance(config, ScenesConfig):
        from fcamlib.data.scenes import SHAPE_WORDS, scenes_files

        files, extra, title = scenes_files(config, seed), SHAPE_WORDS, "scenes"
    else:
        files, words_file, title = coco_files(config.source), config.words, coco_title(config)
    pictures, categories = _pictures(files, config, seed)
    names = tuple(categories.values())
    training = chain.from_iterable(picture.captions for picture in pictures["train"])
    vocabulary = build_vocabulary(training, config.min_count)
    named = word_categories(vocabulary, names, category_words(names, words_file, extra))
    index = {number: place for place, number in enumerate(categories)}
    splits = {
        split: _data(chosen, _bank(chosen, config, device), vocabulary, index, config.max_words)
        for split, chosen in pictures.items()
    }
    return CaptionTask(splits, vocabulary, names, torch.tensor(named), title)


def coco_title(config: CocoConfig) -> str:
    """How the data are called in figures and tables."""
    name = "COCO" if ":" not in config.source else config.portable().source
    return name + (f" ({config.features.upper()} features)" if config.features else "")


def _pictures(
    files: Mapping[str, Path], config: ScenesConfig | CocoConfig, seed: int
) -> tuple[dict[str, list[CocoPicture]], dict[int, str]]:
    """The pictures of each split by rising image id, and the names of the categories by id."""
    source = config.source
    read = {
        split: coco.read_split(
            files[f"annotations/captions_{split}.json"],
            files[f"annotations/instances_{split}.json"],
            files[split],
            source,
        )
        for split in ("train2014", "val2014")
    }
    if read["train2014"].categories != read["val2014"].categories:
        raise DataError(f"dataset='{source}': train2014 and val2014 have other categories: they have to be the same.")
    official, test = list(read["train2014"].pictures), list(read["val2014"].pictures)
    if config.num_validation >= len(official):
        raise DataError(
            f"num_validation={config.num_validation:,} leaves no training picture of the {len(official):,} of "
            f"dataset='{source}': give a smaller number."
        )
    held_out = len(official) - config.num_validation
    pictures = {
        "train": _drawn(official[:held_out], config.num_train, [seed, _DRAW], f"train of dataset='{source}'"),
        "validation": official[held_out:],
        "test": _drawn(test, config.num_test, [seed, _DRAW + 1], f"test of dataset='{source}'"),
    }
    for chosen in pictures.values():
        coco.check_pictures(chosen, source)
    return pictures, dict(read["train2014"].categories)


def _drawn(pictures: list[CocoPicture], number: int, seed: list[int], what: str) -> list[CocoPicture]:
    """All pictures for 0, else that many, drawn without replacement and in their own order."""
    if number > len(pictures):
        raise DataError(
            f"num_{what}: {number:,} pictures are asked for, and there are {len(pictures):,}: ask for at most those."
        )
    if number in (0, len(pictures)):
        return pictures
    chosen = np.random.default_rng(seed).permutation(len(pictures))[:number]
    return [pictures[place] for place in sorted(chosen.tolist())]


def _bank(pictures: Sequence[CocoPicture], config: ScenesConfig | CocoConfig, device: torch.device | None) -> Bank:
    """What a model sees of `pictures`: pixels in [-1, 1], or features of a frozen encoder."""
    root = paths.data_dir() / "kept"
    if isinstance(config, CocoConfig) and config.features == "vgg19":
        from fcamlib.data.features import picture_features, vgg19_encoder

        return Bank(picture_features(pictures, config.image_size, vgg19_encoder(config.weights), decoded, root, device))
    return Bank(pixels(pictures, config.image_size, root), scale=2 / 255, shift=-1.0, pictures=True)


def pixels(
    pictures: Sequence[CocoPicture], image_size: int, root: Path, in_memory: int = IN_MEMORY
) -> UInt8[Tensor, "P S S 3"]:
    """The pictures as a model sees them, before scaling; more than `in_memory` bytes are decoded once, into `root`."""
    shape = (len(pictures), image_size, image_size, 3)
    if math.prod(shape) <= in_memory:
        return decoded(pictures, image_size)
    about = {"pictures": pictures_digest(pictures), "image_size": image_size}
    layout = Layout("pictures", about, shape, torch.uint8, chunk=256)
    return kept(layout, root, lambda chunk: decoded(pictures[chunk.start : chunk.stop], image_size))


def decoded(pictures: Sequence[CocoPicture], image_size: int) -> UInt8[Tensor, "n S S 3"]:
    """The pictures as a model sees them, before scaling."""
    values = torch.empty((len(pictures), image_size, image_size, 3), dtype=torch.uint8)

    def read(place: int) -> None:
        values[place] = torch.from_numpy(coco.read_picture(pictures[place], image_size).copy())

    with ThreadPoolExecutor() as pool:  # decoding releases the interpreter lock
        list(pool.map(read, range(len(pictures))))
    return values


def _data(
    pictures: Sequence[CocoPicture],
    bank: Bank,
    vocabulary: tuple[str, ...],
    index: Mapping[int, int],
    max_words: int,
) -> CaptionData:
    numbers = numbers_of(vocabulary)
    captions = [(row, caption) for row, picture in enumerate(pictures) for caption in picture.captions]
    num_longer = sum(len(caption) > max_words for _, caption in captions)
    if num_longer:
        log.warning("%d captions are longer than max_words=%d and are cut.", num_longer, max_words)
    encoded = [encode(caption[:max_words], numbers) for _, caption in captions]
    tokens = np.full((len(encoded), max(map(len, encoded))), PAD, dtype=np.int64)
    for place, row in enumerate(encoded):
        tokens[place, : len(row)] = row
    return CaptionData(
        pictures=bank,
        picture=torch.tensor([row for row, _ in captions]),
        tokens=torch.from_numpy(tokens),
        references=tuple(picture.captions for picture in pictures),
        objects=tuple(_objects(picture, index) for picture in pictures),
        image_ids=torch.tensor([picture.image_id for picture in pictures]),
    )


def _objects(picture: CocoPicture, index: Mapping[int, int]) -> ObjectBoxes:
    """The objects that are, at least in part, within the centred square."""
    width, height = picture.width, picture.height
    placed = [(index[category], coco.cropped_box(box, width, height)) for category, box in picture.objects]
    inside = [(category, box) for category, box in placed if box is not None]
    boxes = torch.tensor([box for _, box in inside], dtype=torch.float64).reshape(-1, 4)
    return ObjectBoxes(tuple(category for category, _ in inside), boxes)

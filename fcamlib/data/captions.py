"""Captioning tasks: pictures, captions as word numbers, boxes of objects, and the words that name the objects.

| source              | pictures                        | module                |
|---------------------|---------------------------------|-----------------------|
| `scenes`            | generated shapes                | `fcamlib.data.scenes` |
| `coco`, `coco:PATH` | the layout of COCO 2014         | `fcamlib.data.coco`   |

The last training pictures by image id are held out for validation; the test pictures are val2014. The vocabulary holds
the words that occur often enough in the training captions, by falling frequency, then by spelling. A category's own
name, if it is one word, and its simple plural always name it; further words for COCO's 80 categories are in
`coco_words.yaml` next to this module. A user's YAML file in the same form can add words, move words to another
category, and list words that name no category under `none`. A word counts only for pictures that show an object of its
category, since attention is measured against that object's boxes. Source: arXiv 2307.13421, experiments on MSCOCO.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import takewhile
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fcamlib import paths
from fcamlib.config.tasks import Coco, Scenes, read_yaml
from fcamlib.data import coco, features, scenes
from fcamlib.data.coco import Box, CocoPicture, words_of
from fcamlib.data.files import read_text
from fcamlib.data.sdc import Bank, drawn, frequent_words
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
TABLE = "coco_words.yaml"
ENCODERS = {"vgg19": "VGG-19", "efficientnet-lite0": "EfficientNet-Lite0"}  # as their authors write them
NONE = "none"  # in a user's table, instead of a category
_DRAW = 300  # makes these draws independent of others with the same seed
PAD, START, END, UNKNOWN = 0, 1, 2, 3
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")  # by number; no word of a caption holds < or >


def decode(tokens: Iterable[int], vocabulary: Sequence[str]) -> tuple[str, ...]:
    """The words of `tokens` up to the first END, without START and PAD; UNKNOWN stays as `<unk>`."""
    said = takewhile(lambda token: token != END, tokens)
    return tuple(vocabulary[token] for token in said if token not in (PAD, START))


@dataclass(frozen=True)
class ObjectBoxes:
    """The N objects of one picture: category indices and boxes.

    A box is x0, y0, x1, y1 as float64 fractions, in [0, 1], of the picture as a model sees it.
    """

    category: tuple[int, ...]
    box: Float[Tensor, "N 4"]


@dataclass(frozen=True)
class Phrase:
    """Words of a caption, from position `start` to before `end`, and the boxes (N, 4) of the objects they name."""

    caption: int
    start: int
    end: int
    box: Float[Tensor, "N 4"]


@dataclass(frozen=True)
class CaptionData:
    """One split of a captioning task: P pictures, their N captions and their objects."""

    pictures: Bank  # P x (3, S, S), stored as uint8, or P x (L, D) frozen features of L regions in float16
    picture: Int[Tensor, " N"]  # row of `pictures` for each caption
    tokens: Int[Tensor, "N T"]  # START, the words of each caption, END, then PAD
    references: tuple[tuple[tuple[str, ...], ...], ...]  # of each picture, its captions as words, uncut
    objects: tuple[ObjectBoxes, ...]  # of each picture
    image_ids: Int[Tensor, " P"]
    phrases: tuple[Phrase, ...] = ()  # by caption; empty if the source does not link words to boxes


@dataclass(frozen=True)
class CaptionTask:
    """Train, validation and test data with one vocabulary."""

    splits: dict[str, CaptionData]
    vocabulary: tuple[str, ...]
    categories: tuple[str, ...]
    word_category: Int[Tensor, " V"]  # the category that each word of the vocabulary names, or -1
    title: str


def caption_task(config: Scenes | Coco, seed: int, device: torch.device = features.CPU) -> CaptionTask:
    """The pictures, captions and boxes of `config`.

    `seed` draws the scenes, and the subset of pictures if fewer than all are requested; a frozen encoder computes
    features that are not cached on `device`.
    """
    if isinstance(config, Scenes):
        official, test, categories = scenes.scene_pictures(config, seed)
        named, title = {word: name for name, words in scenes.SHAPE_WORDS.items() for word in words}, "scenes"
    else:
        official, test, categories = coco.coco_pictures(config.source)
        named = category_words(categories, config.words)
        title = config.portable.source[5:] or "COCO"  # a user's data are named by their folder
        title += f" ({ENCODERS[config.features]} features)" if config.features else ""
    if (held_out := len(official) - config.num_validation) < 1:
        fault = f"num_validation={config.num_validation:,} leaves none of the {len(official):,} training pictures"
        raise DataError(f"{fault} of dataset='{config.source}': give a smaller number.")
    what = f"pictures of dataset='{config.source}'"
    pictures = {
        "train": drawn(official[:held_out], config.num_train, [seed, _DRAW], f"training {what}"),
        "validation": official[held_out:],
        "test": drawn(test, config.num_test, [seed, _DRAW + 1], f"test {what}"),
    }
    counts = frequent_words((caption for picture in pictures["train"] for caption in picture.captions), config)
    vocabulary = (*SPECIAL, *sorted(counts, key=lambda word: (-counts[word], word)))
    word_category = torch.tensor([categories.index(named[word]) if word in named else -1 for word in vocabulary])
    splits = {
        split: _data(chosen, _bank(chosen, config, device), vocabulary, config.max_words)
        for split, chosen in pictures.items()
    }
    return CaptionTask(splits, vocabulary, categories, word_category, title)


def _bank(pictures: Sequence[CocoPicture], config: Scenes | Coco, device: torch.device) -> Bank:
    """The input of a model: pixels in [-1, 1], or features of a frozen encoder."""
    if isinstance(config, Coco) and config.features:
        encoder, root = features.ENCODERS[config.features](config.weights), paths.data_dir() / "kept"
        return Bank(torch.from_numpy(features.picture_features(pictures, config.image_size, encoder, root, device)))
    values = torch.from_numpy(coco.pixels_of(pictures, config.image_size))
    return Bank(values, scale=2 / 255, shift=-1.0, pictures=True)


def _data(pictures: Sequence[CocoPicture], bank: Bank, vocabulary: tuple[str, ...], max_words: int) -> CaptionData:
    numbers = {word: number for number, word in enumerate(vocabulary)}
    captions = [(row, caption) for row, picture in enumerate(pictures) for caption in picture.captions]
    if num_longer := sum(len(caption) > max_words for _, caption in captions):
        log.warning("%d captions are longer than %d words and are cut.", num_longer, max_words)
    words = [[numbers.get(word, UNKNOWN) for word in caption[:max_words]] for _, caption in captions]
    objects, phrases, first = [], [], 0
    for picture in pictures:
        placed = [(category, box) for category, given in picture.objects for box in _inside(picture, [given])]
        shown = torch.tensor([box for _, box in placed], dtype=torch.float64).reshape(-1, 4)
        objects.append(ObjectBoxes(tuple(category for category, _ in placed), shown))
        for caption, start, end, linked in sorted(picture.phrases):
            if end <= max_words and (boxes := _inside(picture, linked)):
                phrases.append(Phrase(first + caption, start, end, torch.tensor(boxes, dtype=torch.float64)))
        first += len(picture.captions)
    return CaptionData(
        pictures=bank,
        picture=torch.tensor([row for row, _ in captions]),
        tokens=pad_sequence([torch.tensor([START, *own, END]) for own in words], True, PAD),
        references=tuple(tuple(picture.captions) for picture in pictures),
        objects=tuple(objects),
        image_ids=torch.tensor([picture.image_id for picture in pictures]),
        phrases=tuple(phrases),
    )


def _inside(picture: CocoPicture, boxes: Iterable[Box]) -> list[Box]:
    """The boxes, as fractions, that overlap the centre square."""
    placed = [coco.cropped_box(box, picture.width, picture.height) for box in boxes]
    return [box for box in placed if box is not None]


def category_words(categories: Sequence[str], words_file: str = "") -> dict[str, str]:
    """Word -> the category that it names, from the built-in table and a user's file."""
    own = {word: name for name in categories for word in own_words(name)}
    built_in = read_yaml(resources.files("fcamlib.data").joinpath(TABLE).read_text("utf-8"))[0]
    named = {word: name for name, words in built_in.items() if name in categories for word in words} | own
    if words_file:
        named |= _user_words(paths.expanded(words_file), categories, own)
    return {word: name for word, name in named.items() if name != NONE}


def own_words(category: str) -> tuple[str, ...]:
    """A category's name and its simple plural; empty if the name is not a single word."""
    if words_of(category) != (category,):
        return ()
    if category.endswith("y") and category[-2:-1] not in tuple("aeiou"):
        return (category, f"{category[:-1]}ies")
    return (category, f"{category}es" if category.endswith(("s", "x", "ch", "sh")) else f"{category}s")


def _user_words(file: Path, categories: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """Word -> category, from a user's YAML table of lists."""
    text, named = read_text(file, "words"), dict[str, str]()
    try:
        table, *others = read_yaml(text) or [None]
        if others or not isinstance(table, dict) or not all(isinstance(each, list) and each for each in table.values()):
            raise ValueError("write 'category: [word, word]' on each line")
        if unknown := sorted(table.keys() - {*categories, NONE}):
            raise ValueError(f"'{unknown[0][:100]}' is not a category of the data: known are {', '.join(categories)}")
        for name, word in ((name, str(word)) for name, words in table.items() for word in words):
            if words_of(word) != (word,):
                raise ValueError(f"field '{name}': {word[:100]!r} is not a single lower-case word")
            if (other := named.setdefault(word, own.get(word, name))) != name:
                raise ValueError(f"field '{name}': the word '{word}' already belongs to '{other}'")
    except ValueError as error:
        raise DataError(f"words='{file}' is not a YAML table of words ({error}).") from None
    return named

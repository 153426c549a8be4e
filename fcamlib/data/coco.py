"""The layout of COCO 2014: annotation files and pictures -> pictures with their captions and object boxes.

```
annotations/captions_train2014.json    annotations/instances_train2014.json    train2014/*.jpg
annotations/captions_val2014.json      annotations/instances_val2014.json      val2014/*.jpg
```

Missing, broken or ambiguous data are refused with one sentence; captions, boxes and phrases of unknown pictures are
left out and counted in the log. Pictures are cropped to their centre square and resized; boxes refer to the size that
the instances file states. Boxes of crowds count as boxes of their category.
Format: https://cocodataset.org/#format-data.

A caption is converted to lower case and split into words: runs of letters and digits, joined by single hyphens or
apostrophes inside a word ("t-shirt", "don't"); the ending 's is a separate word ("man's" is "man", "'s"). Everything
else, such as punctuation, is left out.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps
from pydantic import BaseModel, Field, field_validator

from fcamlib import paths
from fcamlib.config.sources import source_path
from fcamlib.data.files import read_json
from fcamlib.data.pictures import as_shown, decoded
from fcamlib.errors import DataError, shown

log = logging.getLogger(__name__)
COCO_SPLITS = ("train2014", "val2014")  # our test pictures are the official val
PLACES = [f"annotations/{kind}_{split}.json" for kind in ("captions", "instances") for split in COCO_SPLITS]
PLACES += COCO_SPLITS
COCO_URLS = {split: f"http://images.cocodataset.org/zips/{split}.zip" for split in COCO_SPLITS}
COCO_URLS["annotations"] = "http://images.cocodataset.org/annotations/annotations_trainval2014.zip"
Box = tuple[float, float, float, float]
Linked = tuple[int, int, int, tuple[Box, ...]]  # caption of the picture, first word, end (exclusive), boxes
Id = Annotated[int, Field(ge=0, lt=2**63)]  # kept as int64
Side = Annotated[int, Field(ge=1, le=1_000_000)]
Edge = Annotated[float, Field(ge=-1e7, le=1e7, allow_inf_nan=False)]
_WORD = re.compile(r"[^\W_]+(?:[-'](?!s\b)[^\W_]+)*|(?<=[^\W_])'s\b")


def words_of(caption: str) -> tuple[str, ...]:
    """The words of a caption under the rule above; empty if it has none."""
    return tuple(_WORD.findall(caption.lower().replace("\u2019", "'")))


class _Picture(BaseModel):
    id: Id
    file_name: Annotated[str, Field(min_length=1, max_length=1_000)]
    width: Side
    height: Side

    @field_validator("file_name")
    @classmethod
    def _inside(cls, name: str) -> str:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
            raise ValueError(f"file_name {name[:100]!r} leaves the folder of the pictures")
        return name


class _Phrase(BaseModel):  # words separated by blanks, from `start` to before `end`
    start: Id
    end: Id
    entity: Id


class _Caption(BaseModel):
    id: Id
    image_id: Id
    caption: str
    phrases: list[_Phrase] = []


class _Instance(BaseModel):
    id: Id
    image_id: Id
    category_id: Id
    bbox: tuple[Edge, Edge, Edge, Edge]  # x, y of the upper left corner, width, height in pixels
    entities: list[Id] = []  # shown by the box, numbered as in phrases; 0 is not visible


class _Category(BaseModel):
    id: Id
    name: Annotated[str, Field(min_length=1)]


class _CaptionsFile(BaseModel):
    images: list[_Picture]
    annotations: list[_Caption]


class _InstancesFile(BaseModel):
    images: list[_Picture]
    annotations: list[_Instance]
    categories: list[_Category]


@dataclass(frozen=True)
class CocoPicture:
    """A picture with its captions, its objects (category index, box), and phrases with their boxes.

    `pixels` is the picture's file, or a generated picture at the size that a model sees. Sizes and boxes are in
    annotated pixels.
    """

    image_id: int
    pixels: Path | UInt8[np.ndarray, "S S 3"]
    width: int
    height: int
    captions: list[tuple[str, ...]] = field(default_factory=list)
    objects: list[tuple[int, Box]] = field(default_factory=list)
    phrases: list[Linked] = field(default_factory=list)


def coco_files(source: str) -> dict[str, Path]:
    """The four annotation files and two picture folders of `coco` or `coco:PATH`, by relative path."""
    files = {place: source_path(source) / place for place in PLACES}
    if missing := [place for place, path in files.items() if not path.exists()]:
        unpack = f"unpack {COCO_URLS[missing[0].split('/')[0]]} into '{source_path(source)}'"
        fault = f"dataset='{source}': there is no '{files[missing[0]]}'"
        raise DataError(f"{fault}: {unpack}, or set FCAM_DATA to the folder around coco/.")
    return files


def task_files(task: Any) -> dict[str, Path]:
    """The files that determine a task: those of the data, and the user's table of words and weights."""
    given = {name: paths.expanded(path) for name in ("words", "weights") if (path := getattr(task, name))}
    if missing := [name for name, path in given.items() if not path.is_file()]:
        fault = f"{missing[0]}='{shown(given[missing[0]])}' is not a file"
        raise DataError(f"{fault}: give the path of a file, or leave {missing[0]} out.")
    names = {"words": "more0", "weights": "more1"}
    return coco_files(task.source) | {names[name]: path for name, path in given.items()}


def coco_pictures(source: str) -> tuple[list[CocoPicture], list[CocoPicture], tuple[str, ...]]:
    """The pictures of train2014 and of val2014, which must be disjoint, and the category names."""
    (official, categories), (test, others) = (read_split(split, source) for split in COCO_SPLITS)
    if categories != others:
        raise DataError(f"dataset='{source}': train2014 and val2014 have different categories: use the same in both.")
    if shared := {picture.image_id for picture in official} & {picture.image_id for picture in test}:
        fault = f"image id {min(shared)} is in both train2014 and val2014"
        raise DataError(f"dataset='{source}': {fault}: remove it from one.")
    return official, test, categories


def read_split(split: str, source: str) -> tuple[list[CocoPicture], tuple[str, ...]]:
    """The pictures of an official split and the category names, both by increasing id."""
    files = coco_files(source)
    words, boxes = (files[f"annotations/{kind}_{split}.json"] for kind in ("captions", "instances"))
    captioned, detected = _parsed(words, _CaptionsFile, source), _parsed(boxes, _InstancesFile, source)
    told = Counter[str]()
    listed = sorted(detected.categories, key=lambda entry: entry.id)
    names = tuple(dict.fromkeys(entry.name for entry in listed))  # two ids of one name are one category
    sizes = {entry.id: entry for entry in detected.images}
    pictures: dict[int, CocoPicture] = {}
    for entry in sorted(captioned.images, key=lambda entry: entry.id):
        size, file = sizes.get(entry.id, entry), files[split] / entry.file_name
        pictures[entry.id] = CocoPicture(entry.id, file, size.width, size.height)
    shown = _add_objects(pictures, detected, {entry.id: names.index(entry.name) for entry in listed}, told)
    _add_captions(pictures, captioned, shown, told)
    found = [picture for picture in pictures.values() if picture.captions]
    told["pictures without a caption are left out"] = len(pictures) - len(found)
    without = [picture for picture in found if not picture.objects and picture.image_id not in sizes]
    told[f"pictures are not in '{boxes.name}' and have no boxes"] = len(without)
    for what, count in (+told).items():
        log.warning("dataset='%s': %s: %d %s.", source, split, count, what)
    if not found:
        raise DataError(f"dataset='{source}': '{words}' has no pictures with captions.")
    if missing := [str(picture.pixels) for picture in found if not os.path.isfile(str(picture.pixels))]:
        fault = f"{len(missing):,} of {len(found):,} pictures are missing; the first is '{missing[0]}'"
        raise DataError(f"dataset='{source}': {fault}: unpack {COCO_URLS[split]} again.")
    return found, names


def _add_objects(
    pictures: dict[int, CocoPicture], file: _InstancesFile, places: dict[int, int], told: Counter[str]
) -> dict[tuple[int, int], list[Box]]:
    """Add the objects to the pictures; return the boxes of each entity of a picture."""
    shown: dict[tuple[int, int], list[Box]] = defaultdict(list)
    for item in file.annotations:
        if item.image_id not in pictures:
            told["boxes of unknown pictures are left out"] += 1
        elif item.bbox[2] <= 0 or item.bbox[3] <= 0:
            told["boxes without area are left out"] += 1
        else:
            for entity in item.entities:
                shown[item.image_id, entity].append(item.bbox)
            if item.category_id in places:
                pictures[item.image_id].objects.append((places[item.category_id], item.bbox))
            else:
                told["boxes of unknown categories are left out"] += 1
    return shown


def _add_captions(
    pictures: dict[int, CocoPicture], file: _CaptionsFile, shown: dict[tuple[int, int], list[Box]], told: Counter[str]
) -> None:
    """Add captions to the pictures, and the phrases whose entity is visible."""
    for item in file.annotations:
        words, picture = words_of(item.caption), pictures.get(item.image_id)
        if picture is None or not words:
            told[f"captions {'without a word' if picture else 'of unknown pictures'} are left out"] += 1
            continue
        behind = [0, *accumulate(len(words_of(part)) for part in item.caption.split())]  # words before each blank
        for phrase in item.phrases:
            boxes = tuple(shown[item.image_id, phrase.entity]) if phrase.entity else ()
            if not phrase.start < phrase.end < len(behind) or behind[-1] != len(words):
                told["phrases that are not in their caption are left out"] += 1
            elif behind[phrase.start] < behind[phrase.end] and boxes:
                linked = (len(picture.captions), behind[phrase.start], behind[phrase.end], boxes)
                picture.phrases.append(linked)
        picture.captions.append(words)


def _parsed(file: Path, schema: type[Any], source: str) -> Any:
    """The required fields of an annotation file; no id may occur twice."""
    mend = f"repair it, or unpack it from {COCO_URLS['annotations']}"
    content = read_json(file, source, schema, mend)
    for name in schema.model_fields:
        for number, count in Counter(entry.id for entry in getattr(content, name)).most_common(1):
            if count > 1:
                raise DataError(f"dataset='{source}': '{file}': id {number} occurs {count} times in '{name}': {mend}.")
    return content


def cropped_box(box: Box, width: int, height: int) -> Box | None:
    """A box in pixels -> x0, y0, x1, y1 as fractions of the picture's centre square; None if it is outside.

    With s = min(width, height), a point (x, y) becomes ((x - (width - s) / 2) / s, (y - (height - s) / 2) / s).
    """
    x, y, box_width, box_height = box
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    edges = ((x - left) / side, (y - top) / side, (x + box_width - left) / side, (y + box_height - top) / side)
    x0, y0, x1, y1 = (min(max(edge, 0.0), 1.0) for edge in edges)
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def pixels_of(pictures: Sequence[CocoPicture], image_size: int) -> UInt8[np.ndarray, "n S S 3"]:
    """The pictures as a model sees them, before scaling."""
    return decoded(len(pictures), image_size, lambda place: _square(pictures[place], image_size))


def _square(picture: CocoPicture, image_size: int) -> UInt8[np.ndarray, "S S 3"]:
    """The picture's centre square, resized."""
    if not isinstance(picture.pixels, Path):
        return picture.pixels
    for is_turned in (True, False):  # boxes refer to the picture as a viewer shows it, or to the unrotated file
        shown = as_shown(picture.pixels, is_turned)
        width, height = shown.size
        # In a smaller copy one side may be rounded to whole pixels.
        if abs(width * picture.height - height * picture.width) <= max(picture.width, picture.height):
            return np.asarray(ImageOps.fit(shown, (image_size, image_size), Image.Resampling.BILINEAR))
    fault = f"is {width} x {height} pixels, but its boxes refer to {picture.width} x {picture.height}"
    raise DataError(f"the picture '{picture.pixels}' {fault}: use the official picture.")


def survey(root: Path) -> str:
    """The state of a COCO folder for `fcam check`: absent, what is missing, or how much is present."""
    if not root.is_dir():
        return "absent; the data card on captions says what to download"
    if missing := [place for place in PLACES if not (root / place).exists()]:
        return f"NOT USABLE: there is no {missing[0]}"
    return "present: " + ", ".join(f"{len(os.listdir(root / split)):,} pictures in {split}/" for split in COCO_SPLITS)

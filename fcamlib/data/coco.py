"""The layout of COCO 2014: annotation files and pictures -> pictures with their captions and object boxes.

```
annotations/captions_train2014.json    annotations/instances_train2014.json    train2014/*.jpg
annotations/captions_val2014.json      annotations/instances_val2014.json      val2014/*.jpg
```

Of the annotation files only the fields needed are kept, and pycocotools' index joins them. What does not fit is either
refused in one sentence, or left out and counted in the log:

| fault                                                                     | what happens               |
|---------------------------------------------------------------------------|----------------------------|
| a folder, annotation file or picture is missing; a picture is broken      | one sentence               |
| an annotation file is cut off or lacks a field; an id stands twice        | one sentence with the place |
| the picture's shape is not the one that its boxes were drawn on           | one sentence               |
| a caption of an unknown picture, or without a word                        | left out, counted          |
| a picture without a caption                                               | left out, counted          |
| a picture with captions that the instances file does not know             | kept without boxes, counted |
| a box of an unknown picture, an unknown category, or without area         | left out, counted          |

Grey and CMYK pictures become RGB. A picture is cropped to its centred square and resized. Boxes of crowds count as
boxes of their category. Format: https://cocodataset.org/#format-data.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps
from pycocotools.coco import COCO
from pydantic import BaseModel, Field, ValidationError

from fcamlib.config.captions import COCO_URLS
from fcamlib.data.vocabulary import words_of
from fcamlib.errors import DataError

log = logging.getLogger(__name__)

Box = tuple[float, float, float, float]


class PictureEntry(BaseModel):
    """One entry of `images`."""

    id: int
    file_name: Annotated[str, Field(min_length=1)]
    width: Annotated[int, Field(ge=1)]
    height: Annotated[int, Field(ge=1)]


class CaptionEntry(BaseModel):
    """One entry of a captions file's `annotations`."""

    id: int
    image_id: int
    caption: str


class InstanceEntry(BaseModel):
    """One entry of an instances file's `annotations`: x, y of the upper left corner, width, height in pixels."""

    id: int
    image_id: int
    category_id: int
    bbox: Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=4, max_length=4)]


class CategoryEntry(BaseModel):
    """One entry of `categories`."""

    id: int
    name: Annotated[str, Field(min_length=1)]


class CaptionsFile(BaseModel):
    """What is read of a captions file."""

    images: list[PictureEntry]
    annotations: list[CaptionEntry]


class InstancesFile(BaseModel):
    """What is read of an instances file."""

    images: list[PictureEntry]
    annotations: list[InstanceEntry]
    categories: list[CategoryEntry]


@dataclass(frozen=True)
class CocoPicture:
    """A picture with at least one caption.

    Parameters
    ----------
    image_id : int
        The official id.
    file : Path
    width, height : int
        As annotated, in pixels.
    captions : tuple of tuples of words
    objects : tuple of (category id, x, y, width, height)
        In annotated pixels, x and y of the upper left corner.
    """

    image_id: int
    file: Path
    width: int
    height: int
    captions: tuple[tuple[str, ...], ...]
    objects: tuple[tuple[int, Box], ...]


@dataclass(frozen=True)
class CocoSplit:
    """The pictures of an official split by rising image id, and the names of the categories by rising category id."""

    pictures: tuple[CocoPicture, ...]
    categories: Mapping[int, str]


def read_split(captions: Path, instances: Path, folder: Path, source: str) -> CocoSplit:
    """One official split. Raises `DataError` in one sentence; what is left out is counted in the log."""
    captioned = _indexed(captions, CaptionsFile, source)
    detected = _indexed(instances, InstancesFile, source)
    left_out: Counter[str] = Counter()
    categories = {number: detected.cats[number]["name"] for number in sorted(detected.cats)}
    texts = _texts(captioned, left_out)
    left_out["boxes of unknown pictures"] = sum(
        len(entries) for number, entries in detected.imgToAnns.items() if number not in detected.imgs
    )
    pictures = []
    for number in sorted(captioned.imgs):
        entry = captioned.imgs[number]
        if number not in texts:
            left_out["pictures without a caption"] += 1
            continue
        objects = [(item["category_id"], tuple(item["bbox"])) for item in detected.imgToAnns.get(number, [])]
        known = [(category, box) for category, box in objects if category in categories]
        real = tuple((category, box) for category, box in known if box[2] > 0 and box[3] > 0)
        left_out["boxes of unknown categories"] += len(objects) - len(known)
        left_out["boxes without area"] += len(known) - len(real)
        pictures.append(
            CocoPicture(number, folder / entry["file_name"], entry["width"], entry["height"], texts[number], real)
        )
    unknown = sum(picture.image_id not in detected.imgs for picture in pictures)
    for what, count in left_out.items():
        if count:
            log.warning("dataset='%s': %s: %d %s are left out.", source, folder.name, count, what)
    if unknown:
        log.warning(
            "dataset='%s': %s: %d pictures are not in '%s' and have no boxes.",
            source, folder.name, unknown, instances.name,
        )  # fmt: skip
    if not pictures:
        raise DataError(f"dataset='{source}': '{captions}' has no picture with a caption.")
    return CocoSplit(tuple(pictures), categories)


def _texts(captioned: COCO, left_out: Counter[str]) -> dict[int, tuple[tuple[str, ...], ...]]:
    """The captions of each picture as words, in the file's order."""
    texts: dict[int, tuple[tuple[str, ...], ...]] = {}
    for number, entries in captioned.imgToAnns.items():
        if number not in captioned.imgs:
            left_out["captions of unknown pictures"] += len(entries)
            continue
        words = [words_of(entry["caption"]) for entry in entries]
        left_out["captions without a word"] += sum(not caption for caption in words)
        if kept := tuple(caption for caption in words if caption):
            texts[number] = kept
    return texts


def _indexed(file: Path, schema: type[CaptionsFile] | type[InstancesFile], source: str) -> COCO:
    """pycocotools' index of the fields needed; one sentence for the first fault of the file."""
    try:
        content = schema.model_validate_json(file.read_bytes())
    except OSError as error:
        raise DataError(f"dataset='{source}': the file '{file}' cannot be read ({error.strerror}).") from None
    except ValidationError as error:
        raise _wrong(file, source, _fault(error)) from None
    index = COCO()
    index.dataset = content.model_dump()
    with contextlib.redirect_stdout(io.StringIO()):  # it prints
        index.createIndex()
    sizes = {"images": len(index.imgs), "annotations": len(index.anns), "categories": len(index.cats)}
    for name, entries in index.dataset.items():
        if sizes[name] != len(entries):
            (number, count), *_ = Counter(entry["id"] for entry in entries).most_common(1)
            raise _wrong(file, source, f"id {number} stands {count} times in '{name}'")
    return index


def _wrong(file: Path, source: str, what: str) -> DataError:
    return DataError(
        f"dataset='{source}': '{file}': {what}: unpack it anew from {COCO_URLS['annotations_trainval2014']}, or mend it."
    )


def _fault(error: ValidationError) -> str:
    """The first fault with its place."""
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return f"it is not complete JSON ({fault['ctx']['error']})"
    reason = fault["msg"][0].lower() + fault["msg"][1:]
    return f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: {reason}"


def cropped_box(box: Box, width: int, height: int) -> Box | None:
    """A box in pixels -> x0, y0, x1, y1 as fractions of the picture's centred square; None where it lies outside.

    With s = min(width, height), a point (x, y) becomes ((x - (width - s) / 2) / s, (y - (height - s) / 2) / s).
    """
    x, y, box_width, box_height = box
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    edges = ((x - left) / side, (y - top) / side, (x + box_width - left) / side, (y + box_height - top) / side)
    x0, y0, x1, y1 = (min(max(edge, 0.0), 1.0) for edge in edges)
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def check_pictures(pictures: Sequence[CocoPicture], source: str) -> None:
    """Refuse a data set of which a picture's file is missing, in one sentence that counts them."""
    missing = [picture.file for picture in pictures if not picture.file.is_file()]
    if missing:
        folder = missing[0].parent
        get = f"unpack {COCO_URLS[folder.name]} anew" if folder.name in COCO_URLS else "put them there"
        raise DataError(
            f"dataset='{source}': {len(missing):,} of {len(pictures):,} pictures are missing, the first is "
            f"'{missing[0]}': {get}."
        )


def read_picture(picture: CocoPicture, image_size: int) -> UInt8[np.ndarray, "S S 3"]:
    """The picture's centred square, resized; grey and CMYK pictures become RGB."""
    try:
        with Image.open(picture.file) as opened:
            opened.load()
            converted = opened.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = " ".join(str(error).replace(f"'{picture.file}'", "").split())
        raise DataError(f"the picture '{picture.file}' cannot be read ({reason}): put it there anew.") from None
    width, height = converted.size
    # A smaller copy may differ by the rounding of one side to whole pixels.
    if abs(width * picture.height - height * picture.width) > max(picture.width, picture.height):
        raise DataError(
            f"the picture '{picture.file}' is {width} x {height} pixels, and its boxes were drawn on "
            f"{picture.width} x {picture.height}: put the official picture there."
        )
    return np.asarray(ImageOps.fit(converted, (image_size, image_size), Image.Resampling.BILINEAR))


def pictures_digest(pictures: Sequence[CocoPicture]) -> str:
    """sha256 over the names and sizes of the pictures' files, in order."""
    lines = (f"{picture.file.name}\t{picture.file.stat().st_size}" for picture in pictures)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def survey(root: Path) -> str:
    """What `fcam check` says of a COCO folder: absent, what is missing, or how much is there."""
    if not root.is_dir():
        return "absent; see the data card on captions for what to fetch"
    counts = []
    for split in ("train2014", "val2014"):
        for kind in ("captions", "instances"):
            if not (root / "annotations" / f"{kind}_{split}.json").is_file():
                return f"NOT USABLE: there is no annotations/{kind}_{split}.json"
        if not (root / split).is_dir():
            return f"NOT USABLE: there is no {split}/"
        counts.append(f"{_num_files(root / split):,} pictures in {split}/")
    return f"present: {', '.join(counts)}"


def _num_files(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())

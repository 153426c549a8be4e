"""Captions: which pictures, words and object boxes a captioning run is trained and tested on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError, field_validator

from fcamlib.config.sources import TaskConfig, portable_source, short_source, source_path
from fcamlib.errors import DataError, UserError, explain

CAPTION_DATASETS = ("scenes", "coco", "coco:PATH")
COCO_SPLITS = ("train", "val")  # the official names; our test pictures are the official val
COCO_URLS = {
    "train2014": "http://images.cocodataset.org/zips/train2014.zip",
    "val2014": "http://images.cocodataset.org/zips/val2014.zip",
    "annotations_trainval2014": "http://images.cocodataset.org/annotations/annotations_trainval2014.zip",
}
SCENE_SIDES = 8  # the side of a scene is a multiple of this, so that a grid of regions fits


class ScenesConfig(TaskConfig):
    """Generated pictures of coloured shapes with captions and boxes, in COCO's own layout."""

    source: Literal["scenes"] = Field("scenes", description="scenes")
    fingerprint: str = Field("", description="always empty: the other fields and the seed say what is drawn")
    num_train: int = Field(1_000, ge=1, le=1_000_000, description="training pictures, five captions each")
    num_validation: int = Field(100, ge=1, le=1_000_000, description="validation pictures, held out from training")
    num_test: int = Field(200, ge=1, le=1_000_000, description="test pictures")
    image_size: int = Field(56, ge=48, le=512, description="side of a picture in pixels, a multiple of 8")
    max_objects: int = Field(3, ge=1, le=3, description="most shapes of a picture; every number up to it is as likely")
    min_count: int = Field(1, ge=1, description="occurrences in training captions that a word of the vocabulary needs")
    max_words: int = Field(20, ge=1, le=1_000, description="words of a caption that are trained on, from its start")

    @field_validator("image_size")
    @classmethod
    def _check_size(cls, value: int) -> int:
        if value % SCENE_SIDES:
            raise ValueError(f"image_size={value} is not allowed: give a multiple of {SCENE_SIDES}, such as 56")
        return value

    @property
    def slug(self) -> str:
        """The task in the name of a run."""
        return f"scenes-n{self.num_train}"

    @property
    def described(self) -> str:
        """Size of the task in words."""
        return f"{self.num_train:,} pictures"

    def portable(self) -> ScenesConfig:
        """The same: nothing here belongs to one machine."""
        return self


class CocoConfig(TaskConfig):
    """Pictures with captions and object boxes in the layout of COCO 2014."""

    source: str = Field("coco", pattern=r"^coco(:.+)?$", description="coco or coco:PATH")
    fingerprint: str = Field("", description="sha256 over annotations, sizes of pictures, word table and weights")
    num_train: int = Field(0, ge=0, description="training pictures; 0 means all of train2014 that are not held out")
    num_validation: int = Field(5_000, ge=1, description="pictures held out: the last of train2014 by image id")
    num_test: int = Field(0, ge=0, description="test pictures; 0 means all of val2014")
    image_size: int = Field(224, ge=32, le=1_024, description="side in pixels of the centred square that is kept")
    min_count: int = Field(5, ge=1, description="occurrences in training captions that a word of the vocabulary needs")
    max_words: int = Field(50, ge=1, le=1_000, description="words of a caption that are trained on, from its start")
    features: Literal["", "vgg19"] = Field("", description="vgg19: features of a frozen encoder instead of pictures")
    weights: str = Field("", description="file of the frozen encoder's weights; empty: torchvision's ImageNet weights")
    words: str = Field("", description="YAML file with more words for the categories, see the data card")

    @property
    def slug(self) -> str:
        """The task in the name of a run."""
        size = f"-n{self.num_train}" if self.num_train else ""
        return short_source(self.source) + size + (f"-{self.features}" if self.features else "")

    @property
    def described(self) -> str:
        """Size of the task in words."""
        return f"{self.num_train:,} pictures" if self.num_train else "all pictures"

    def current_fingerprint(self) -> str:
        """sha256 over the annotations' contents, the pictures' names and sizes, the word table and the weights."""
        return coco_fingerprint(self.source, (self.words, self.weights))

    def portable(self) -> CocoConfig:
        """The same without what only one machine knows: files count by content, which the fingerprint holds."""
        names = {name: Path(getattr(self, name)).name for name in ("words", "weights")}
        return self.model_copy(update={"source": portable_source(self.source), **names})


def _tag(data: Any) -> str:
    source = data.get("source", "") if isinstance(data, dict) else data.source
    return "scenes" if source == "scenes" else "coco"


CaptionsDataConfig = Annotated[
    Annotated[ScenesConfig, Tag("scenes")] | Annotated[CocoConfig, Tag("coco")], Discriminator(_tag)
]
CAPTIONS_DATA: TypeAdapter[ScenesConfig | CocoConfig] = TypeAdapter(CaptionsDataConfig)


def captions_data(dataset: str, parameters: Mapping[str, Any] | None = None) -> ScenesConfig | CocoConfig:
    """The data of `dataset` with other than the default parameters; the first fault is one sentence (`UserError`).

    The fingerprint of a user's own data is taken now, so they have to lie there.
    """
    kind = dataset.split(":", 1)[0]
    if dataset != "scenes" and kind != "coco":
        raise UserError(f"dataset='{dataset}' is unknown: choose {', '.join(CAPTION_DATASETS)}.")
    model: type[ScenesConfig] | type[CocoConfig] = ScenesConfig if kind == "scenes" else CocoConfig
    try:
        config = model.model_validate({**(parameters or {}), "source": dataset})
    except ValidationError as error:
        raise UserError(explain(error, model)) from None
    return config.model_copy(update={"fingerprint": config.current_fingerprint()})


def coco_files(source: str) -> dict[str, Path]:
    """The four annotation files and two picture folders of a COCO source, by their place below its folder.

    Raises `DataError` in one sentence where one is missing.
    """
    root = source_path(source)
    places = [f"annotations/{kind}_{split}2014.json" for kind in ("captions", "instances") for split in COCO_SPLITS]
    files = {place: root / place for place in places}
    folders = {f"{split}2014": root / f"{split}2014" for split in COCO_SPLITS}
    missing = [place for place, file in files.items() if not file.is_file()]
    missing += [f"{place}/" for place, folder in folders.items() if not folder.is_dir()]
    if missing:
        archive = missing[0].rstrip("/") if missing[0].endswith("/") else "annotations_trainval2014"
        raise DataError(
            f"dataset='{source}': there is no '{root / missing[0]}': unpack {COCO_URLS[archive]} into '{root}', "
            "or set FCAM_DATA to the folder around coco/."
        )
    return {**files, **folders}


def coco_fingerprint(source: str, more: Iterable[str] = ()) -> str:
    """sha256 over the contents of the annotation files and of `more` files, and the pictures' names and sizes."""
    digest = hashlib.sha256()
    places = {**coco_files(source), **{f"more{n}": Path(path).expanduser() for n, path in enumerate(more) if path}}
    for place, path in places.items():
        try:
            if path.is_dir():
                with os.scandir(path) as entries:
                    lines = sorted(f"{entry.name}\t{entry.stat().st_size}" for entry in entries)
                content = hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()
            else:
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DataError(
                f"dataset='{source}': '{error.filename or path}' cannot be read ({error.strerror})."
            ) from None
        digest.update(f"{content}  {place}\n".encode())
    return digest.hexdigest()

"""Captions: which pictures, words and object boxes a captioning run is trained and tested on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError, field_validator

from fcamlib.config.sources import TaskConfig, portable_source, short_source
from fcamlib.errors import UserError, explain

CAPTION_DATASETS = ("scenes", "coco", "coco:PATH")
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
    fingerprint: str = Field("", description="sha256 over annotations, pictures, word table and weights")
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
        """sha256 over the contents of annotations, pictures, word table and weights."""
        from fcamlib.data.identity import fingerprint

        return fingerprint(self)

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

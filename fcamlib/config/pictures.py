"""Mosaics of pictures: the task, and the parameters that people set for it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from fcamlib.config.base import SCHEDULES, MemoryLayout, Names, Schedules
from fcamlib.config.grid import Defaults, TaskExperiment
from fcamlib.config.networks import PARAMETRIC
from fcamlib.config.sources import TaskConfig, short_source, source_fingerprint

PICTURE_NETWORKS = ("cifar10", "cifar100", "digits", "mlp", "linear")


class MosaicsConfig(TaskConfig):
    """A mosaic task: which pictures, and how they are composed."""

    source: str = Field(description="digits, cifar10, cifar100 or folder:PATH")
    fingerprint: str = Field("", description="sha256 over the names and sizes of a folder's files")
    foreground: tuple[str, ...] = Field(min_length=2, description="classes that decide the label")
    background: tuple[str, ...] = Field((), description="classes of the other segments; empty means all others")
    num_segments: int = Field(ge=1, le=100_000, description="segments of a mosaic, one of them foreground")
    num_train: int = Field(ge=1, description="training mosaics")
    num_validation: int = Field(ge=1, description="validation mosaics")
    num_test: int = Field(ge=1, description="test mosaics")
    image_size: int = Field(ge=4, le=1024, description="height and width of a segment in pixels")
    paper_split: bool = Field(False, description="draw test mosaics from training pictures, as the public scripts do")

    @property
    def slug(self) -> str:
        """The task in the name of a run."""
        return f"{short_source(self.source)}-m{self.num_segments}-n{self.num_train}"

    @property
    def described(self) -> str:
        """Size of the task in words."""
        return f"m = {self.num_segments}, {self.num_train:,} mosaics"


# Settings of each kind of source where the user gives none. The CIFAR networks are the paper's; the sizes and
# epochs suit a laptop, and the paper's own stand in notebooks/profiles/paper.yaml.
_IMAGES: dict[str, Any] = {
    "num_train": 10_000,
    "num_validation": 2_000,
    "num_test": 10_000,
    "epochs": 30,
    "learning_rates": (0.05,),
    "hard_learning_rates": (0.01,),
    "batch_size": 256,
    "precision": "float32",
    "image_size": 32,
    "focus_network": "cifar10",
    "classification_network": "cifar10",
}
SOURCE_DEFAULTS: Defaults = {
    "digits": {
        "foreground": ("0", "1", "2"),
        "num_train": 2_000,
        "num_validation": 500,
        "num_test": 2_000,
        "epochs": 20,
        "learning_rates": (0.05,),
        "hard_learning_rates": (0.05,),
        "batch_size": 64,
        "precision": "float64",
        "image_size": 8,
        "focus_network": "digits",
        "classification_network": "digits",
    },
    "cifar10": {**_IMAGES, "foreground": ("airplane", "automobile", "bird")},
    "cifar100": {**_IMAGES, "focus_network": "cifar100", "classification_network": "cifar100"},
    "folder": _IMAGES,
}


class Experiment(TaskExperiment):
    """A grid of runs on mosaics of pictures, as people set it.

    0, "" and [] mean the default of the data source.
    """

    defaults: ClassVar[Defaults] = SOURCE_DEFAULTS
    with_path: ClassVar[dict[str, str]] = {"folder": "folder"}
    networks: ClassVar[tuple[str, ...]] = PICTURE_NETWORKS
    parametric: ClassVar[tuple[str, ...]] = PARAMETRIC
    listed: ClassVar[tuple[str, ...]] = ("foreground", "background")

    dataset: str = Field("digits", description="digits, cifar10, cifar100, or folder:PATH with train/ and test/")
    foreground: Names = Field((), description="classes that decide the label, comma-separated")
    background: Names = Field((), description="classes of the other segments; default all others")
    num_segments: int = Field(5, ge=2, le=100_000, description="segments of a mosaic, one of them foreground")
    num_train: int = Field(0, ge=0, le=100_000_000, description="training mosaics")
    num_validation: int = Field(
        0, ge=0, le=100_000_000, description="validation mosaics, from training pictures held out"
    )
    num_test: int = Field(0, ge=0, le=100_000_000, description="test mosaics, from test pictures")
    image_size: int = Field(0, ge=0, le=1024, description="height and width of a segment in pixels")
    paper_split: bool = Field(False, description="draw test mosaics from training pictures, as the public scripts do")
    paradigms: Schedules = Field(SCHEDULES, description="any of soft, hard, lvml, hybrid")
    batch_size: int = Field(0, ge=0, description="mosaics per step")
    memory_layout: MemoryLayout = Field("channels_last", description="channels_last or contiguous")

    @model_validator(mode="after")
    def _check_pictures(self) -> Experiment:
        if self.kind == "folder" and not self.foreground:
            raise ValueError(
                f"foreground is empty: dataset='{self.dataset}' needs the classes that decide the label, "
                "such as foreground=cat,dog"
            )
        if len(self.foreground) == 1:
            raise ValueError(f"foreground={self.foreground[0]} is one class: name at least two to tell apart")
        if both := sorted(set(self._foreground()) & set(self.background)):
            raise ValueError(f"background names {both[0]!r}, which is foreground too: a class can be only one of them")
        if 0 < self.image_size < 4:
            raise ValueError(f"image_size={self.image_size} is too small: give at least 4 pixels")
        return self

    def _data(self) -> MosaicsConfig:
        return MosaicsConfig(
            source=self.dataset,
            fingerprint=source_fingerprint(self.dataset) if self.kind == "folder" else "",
            foreground=self._foreground(),
            background=self.background,
            num_segments=self.num_segments,
            num_train=self._filled("num_train"),
            num_validation=self._filled("num_validation"),
            num_test=self._filled("num_test"),
            image_size=self._filled("image_size"),
            paper_split=self.paper_split,
        )

    def _foreground(self) -> tuple[str, ...]:
        if self.kind == "cifar100" and not self.foreground:
            from fcamlib.data.pictures import CIFAR100_FOREGROUND  # imports numpy, so only where needed

            return tuple(CIFAR100_FOREGROUND)
        return self._filled("foreground")

"""Time series: the task, and the parameters that people set for it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from fcamlib.config.base import SCHEDULES, Schedules
from fcamlib.config.grid import Defaults, TaskExperiment
from fcamlib.config.sources import TaskConfig, short_source, source_fingerprint

SERIES_NETWORKS = ("conv1d", "mlp", "linear")
_GENERATED = ("num_segments", "num_channels", "num_classes", "num_train", "num_validation", "num_test")


class SeriesConfig(TaskConfig):
    """A task on multichannel series cut into windows; of a user's file only `window_length` is to be chosen."""

    source: str = Field(description="motifs or series:PATH")
    fingerprint: str = Field("", description="sha256 of the user's file")
    window_length: int = Field(ge=0, le=100_000, description="samples of a window; 0: the file holds windows")
    num_segments: int = Field(0, ge=0, le=100_000, description="motifs: windows of a series")
    num_channels: int = Field(0, ge=0, le=10_000, description="motifs: channels of a series")
    num_classes: int = Field(0, ge=0, le=64, description="motifs: classes, one motif each")
    num_train: int = Field(0, ge=0, description="motifs: training series")
    num_validation: int = Field(0, ge=0, description="motifs: validation series")
    num_test: int = Field(0, ge=0, description="motifs: test series")
    noise: float = Field(0.0, ge=0, le=100, description="motifs: standard deviation of the noise")
    distractors: float = Field(0.0, ge=0, le=1, description="motifs: share of the other windows with a distractor")

    @property
    def slug(self) -> str:
        """The task in the name of a run."""
        size = f"-m{self.num_segments}-n{self.num_train}" if self.num_train else f"-w{self.window_length}"
        return short_source(self.source) + size

    @property
    def described(self) -> str:
        """Size of the task in words."""
        if not self.num_train:
            return f"windows of {self.window_length} samples" if self.window_length else "the file's own windows"
        return f"m = {self.num_segments}, {self.num_train:,} series"

    @model_validator(mode="after")
    def _check_sizes(self) -> SeriesConfig:
        if self.source == "motifs":
            for name in (*_GENERATED, "window_length"):
                least = 2 if name == "num_classes" else 8 if name == "window_length" else 1
                if getattr(self, name) < least:
                    raise ValueError(f"{name}={getattr(self, name)} is too small for motifs: give {least} or more")
        return self


class SeriesExperiment(TaskExperiment):
    """A grid of runs on time series, as people set it."""

    defaults: ClassVar[Defaults] = {
        "motifs": {
            "window_length": 24,
            "num_segments": 5,
            "num_channels": 2,
            "num_classes": 3,
            "num_train": 300,
            "num_validation": 100,
            "num_test": 300,
            "noise": 0.6,
            "distractors": 0.5,
            "epochs": 16,
            "learning_rates": (0.05,),  # of 0.02, 0.05 and 0.1 the best on validation series, with seeds 100 to 102
            "hard_learning_rates": (0.05,),
            "batch_size": 30,
            "precision": "float64",
            "focus_network": "conv1d",
            "classification_network": "conv1d",
        },
        "series": {
            "epochs": 30,
            "learning_rates": (0.02,),
            "hard_learning_rates": (0.01,),
            "batch_size": 64,
            "precision": "float32",
            "focus_network": "conv1d",
            "classification_network": "conv1d",
        },
    }
    with_path: ClassVar[dict[str, str]] = {"series": "file"}
    networks: ClassVar[tuple[str, ...]] = SERIES_NETWORKS

    dataset: str = Field("motifs", description="motifs, or series:PATH with an .npz file")
    window_length: int = Field(0, ge=0, le=100_000, description="samples of a window")
    num_segments: int = Field(0, ge=0, le=100_000, description="windows of a series, one of them foreground")
    num_channels: int = Field(0, ge=0, le=10_000, description="channels of a series")
    num_classes: int = Field(0, ge=0, le=64, description="classes, one motif each")
    num_train: int = Field(0, ge=0, le=100_000_000, description="training series")
    num_validation: int = Field(0, ge=0, le=100_000_000, description="validation series")
    num_test: int = Field(0, ge=0, le=100_000_000, description="test series")
    noise: float = Field(0.0, ge=0, le=100, description="standard deviation of the noise")
    distractors: float = Field(0.0, ge=0, le=1, description="share of the other windows that hold a distractor")
    paradigms: Schedules = Field(SCHEDULES, description="any of soft, hard, lvml, hybrid")
    batch_size: int = Field(0, ge=0, description="series per step")

    @model_validator(mode="after")
    def _check_series(self) -> SeriesExperiment:
        if self.kind == "series":
            for name in (*_GENERATED, "noise", "distractors"):
                if getattr(self, name):
                    raise ValueError(
                        f"{name}={getattr(self, name)} does not belong to dataset='{self.dataset}', "
                        "whose file says it: leave it out"
                    )
            return self
        if 0 < self.window_length < 8:
            raise ValueError(f"window_length={self.window_length} is too short for a motif: give at least 8 samples")
        if self.num_classes == 1:
            raise ValueError("num_classes=1 leaves nothing to tell apart: give at least 2")
        return self

    def _data(self) -> SeriesConfig:
        if self.kind == "series":
            fingerprint = source_fingerprint(self.dataset)
            return SeriesConfig(source=self.dataset, fingerprint=fingerprint, window_length=self.window_length)
        sizes = {name: self._filled(name) for name in (*_GENERATED, "window_length", "noise", "distractors")}
        return SeriesConfig(source=self.dataset, **sizes)

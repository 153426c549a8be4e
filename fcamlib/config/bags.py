"""Bags of feature vectors: the task, and the parameters that people set for it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from fcamlib.config.base import SCHEDULES, Schedules
from fcamlib.config.grid import Defaults, TaskExperiment
from fcamlib.config.sources import TaskConfig, short_source, source_fingerprint
from fcamlib.config.training import ModelConfig

BAGS_NETWORKS = ("mlp", "linear")
_GENERATED = ("num_segments", "num_features", "num_classes", "num_train", "num_validation", "num_test")
_SPLIT = ("repeat", "fold")


class BagsConfig(TaskConfig):
    """A task on bags of feature vectors: generated clouds, or a user's file and which of its folds is the test fold."""

    source: str = Field(description="clouds or bags:PATH")
    fingerprint: str = Field("", description="sha256 of the user's file")
    repeat: int = Field(0, ge=0, description="bags:PATH: which of the repeated cross-validations")
    fold: int = Field(0, ge=0, description="bags:PATH: test fold")
    validation_share: float = Field(0.2, gt=0, lt=1, description="bags:PATH: share of the training bags held out")
    num_segments: int = Field(0, ge=0, le=100_000, description="clouds: instances of the largest bag")
    num_features: int = Field(0, ge=0, le=100_000, description="clouds: features of an instance")
    num_classes: int = Field(0, ge=0, le=1_000, description="clouds: classes of bags")
    num_train: int = Field(0, ge=0, description="clouds: training bags")
    num_validation: int = Field(0, ge=0, description="clouds: validation bags")
    num_test: int = Field(0, ge=0, description="clouds: test bags")

    @property
    def slug(self) -> str:
        """The task in the name of a run."""
        if self.num_train:
            return f"{short_source(self.source)}-m{self.num_segments}-n{self.num_train}"
        return f"{short_source(self.source)}-r{self.repeat}-f{self.fold}"

    @property
    def described(self) -> str:
        """Size of the task in words."""
        if self.num_train:
            return f"m up to {self.num_segments}, {self.num_train:,} bags"
        return f"repeat {self.repeat}, test fold {self.fold}"

    @model_validator(mode="after")
    def _check_sizes(self) -> BagsConfig:
        if self.source == "clouds":
            for name in _GENERATED:
                least = 2 if name in ("num_classes", "num_features") else 1
                if getattr(self, name) < least:
                    raise ValueError(f"{name}={getattr(self, name)} is too small for clouds: give {least} or more")
        return self


class BagsExperiment(TaskExperiment):
    """A grid of runs on bags of feature vectors, as people set it."""

    defaults: ClassVar[Defaults] = {
        "clouds": {
            "num_segments": 12,
            "num_features": 10,
            "num_classes": 3,
            "num_train": 400,
            "num_validation": 150,
            "num_test": 300,
            "epochs": 12,
            "learning_rates": (0.02,),  # of 0.02, 0.05 and 0.1 the best on validation bags, with seed 100
            "hard_learning_rates": (0.02,),
            "batch_size": 50,
            "precision": "float64",
            "focus_network": "mlp",
            "classification_network": "mlp",
        },
        "bags": {
            "epochs": 40,
            "learning_rates": (0.01,),
            "hard_learning_rates": (0.01,),
            "batch_size": 16,
            "precision": "float32",
            "focus_network": "mlp",
            "classification_network": "mlp",
        },
    }
    with_path: ClassVar[dict[str, str]] = {"bags": "file"}
    networks: ClassVar[tuple[str, ...]] = BAGS_NETWORKS

    dataset: str = Field("clouds", description="clouds, or bags:PATH with an .npz file")
    repeat: int = Field(0, ge=0, description="which of the repeated cross-validations")
    fold: int = Field(0, ge=0, description="test fold")
    num_segments: int = Field(0, ge=0, le=100_000, description="instances of the largest bag")
    num_features: int = Field(0, ge=0, le=100_000, description="features of an instance")
    num_classes: int = Field(0, ge=0, le=1_000, description="classes of bags")
    num_train: int = Field(0, ge=0, le=100_000_000, description="training bags")
    num_validation: int = Field(0, ge=0, le=100_000_000, description="validation bags")
    num_test: int = Field(0, ge=0, le=100_000_000, description="test bags")
    encoder: str = Field("", description="mlp, or none")
    paradigms: Schedules = Field(SCHEDULES, description="any of soft, hard, lvml, hybrid")
    batch_size: int = Field(0, ge=0, description="bags per step")

    @model_validator(mode="after")
    def _check_bags(self) -> BagsExperiment:
        for name in _GENERATED if self.kind == "bags" else _SPLIT:
            if getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)} does not belong to dataset='{self.dataset}': leave it out"
                )
        if self.encoder not in ("", "none", "mlp"):
            raise ValueError(f"encoder='{self.encoder}' is unknown: choose mlp or none")
        if self.num_classes == 1 or self.num_features == 1:
            raise ValueError("num_classes and num_features of clouds start at 2: give at least that many")
        return self

    def _data(self) -> BagsConfig:
        if self.kind == "bags":
            fingerprint = source_fingerprint(self.dataset)
            return BagsConfig(source=self.dataset, fingerprint=fingerprint, repeat=self.repeat, fold=self.fold)
        return BagsConfig(source=self.dataset, **{name: self._filled(name) for name in _GENERATED})

    def _model(self) -> ModelConfig:
        encoder = "" if self.encoder == "none" else self.encoder
        return super()._model().model_copy(update={"encoder": encoder})

"""How a run is trained: phases, networks by name, numerics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, model_serializer, model_validator

from fcamlib.config.base import Device, Frozen, MemoryLayout, Optimizer, Paradigm, Precision


class Phase(Frozen):
    """One stretch of training with one loss and a fresh optimiser."""

    paradigm: Paradigm = Field(description="training loss of the phase")
    epochs: int = Field(ge=1, description="passes over the training instances")
    learning_rates: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        min_length=1, description="learning rate; the best on validation where there are several"
    )
    search_epochs: int = Field(
        0, ge=0, description="epochs after which candidate learning rates are compared; 0 means all"
    )
    optimizer: Optimizer = Field("sgd", description="optimiser")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")

    @model_validator(mode="after")
    def _check_search(self) -> Phase:
        if self.search_epochs > self.epochs:
            raise ValueError(
                f"search_epochs={self.search_epochs} is more than epochs={self.epochs}: give at most those"
            )
        return self

    @property
    def compared_after(self) -> int:
        """Epochs after which learning rates are compared."""
        return self.search_epochs or self.epochs

    def is_measured(self, epoch: int, evaluate_every: int) -> bool:
        """Whether validation and test data are measured after `epoch`, counted from 1."""
        return epoch in (self.compared_after, self.epochs) or epoch % evaluate_every == 0

    def epochs_alike(self, other: Phase, evaluate_every: int) -> int:
        """After how many epochs two phases that start alike still are: same weights, same measures, same comparison."""
        one, two = (phase.model_copy(update={"epochs": 1, "search_epochs": 0}) for phase in (self, other))
        both = range(1, min(self.epochs, other.epochs) + 1) if one == two else range(0)

        def differs(epoch: int) -> bool:
            here, there = (
                (phase.is_measured(epoch, evaluate_every), epoch <= phase.compared_after) for phase in (self, other)
            )
            return here != there

        return next((epoch for epoch in both if differs(epoch)), len(both) + 1) - 1


class ModelConfig(Frozen):
    """Networks by name, see `fcamlib.networks` and `fcamlib.encoders`."""

    focus: str = Field(description="focus network")
    classifier: str = Field(description="classification network")
    encoder: str = Field("", description="encoder of the segments; empty means none")

    @model_serializer(mode="wrap")
    def _without_absent_encoder(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """A model without an encoder is written, and hashed, as before there were any."""
        return {name: value for name, value in handler(self).items() if name != "encoder" or value}


class TrainingConfig(Frozen):
    """How the numbers are computed. Nothing here is picked by what a machine does faster."""

    batch_size: int = Field(256, ge=1, description="instances per step")
    precision: Precision = Field(
        "float32", description="floating-point format; tfloat32 is float32 on a CPU; bfloat16 by autocast"
    )
    memory_layout: MemoryLayout = Field("channels_last", description="memory layout of pictures")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    device: Device = Field("auto", description="auto: CUDA when present, except in float64")
    keep: Literal["last", "best"] = Field(
        "last", description="weights a phase ends with: its last epoch's, or its best by validation accuracy"
    )
    evaluate_every: int = Field(1, ge=1, description="epochs between evaluations on validation and test")

"""Theory: sweeps at fixed attention weights, the gradient flow, and the cost of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fcamlib.config.defaults import SWEEPS
from fcamlib.config.parameters import Parameters, TaskParameters
from fcamlib.config.results import Config, Epochs, Momentum, Rate, Rates, Seed, Seeds, Share, Threads, Training
from fcamlib.config.sources import require_network
from fcamlib.config.tasks import Some, task_of
from fcamlib.errors import UserError


class FixedFocus(Momentum):
    """Training at fixed attention weights."""

    paradigms: Some[Literal["soft", "hard", "lvml"]] = Field(
        ("soft", "hard", "lvml"), description="any of soft, hard, lvml"
    )
    alphas: Some[Share] = Field((0.2, 0.4, 0.6, 0.8, 1.0), description="attention weights of the foreground, 0 to 1")
    seeds: Seeds = Field((0,), description="each draws data, initial weights and batch order")
    epochs: Epochs = Field(100, description="epochs of training")
    initial: Literal["zero", "random"] = Field("random", description="initial weights: zero or random")


class Sweep(Config, FixedFocus):
    """The classification model trained for every fixed attention weight, paradigm and seed."""

    compute: ClassVar[str] = "fcamlib.theory.sweep:compute"
    label: ClassVar[str] = "fixed-focus-{0.data.slug}"
    group: ClassVar[str] = "fixed-focus sweeps"
    kind: Literal["fixed_focus"] = "fixed_focus"
    data: Annotated[Any, task_of("sweep")]
    classifier: str = Field(description="classification network")
    learning_rates: Rates = Field(description="one rate per paradigm, in their order")
    training: Training = Training()

    @model_validator(mode="after")
    def _check_lengths(self) -> Any:
        if (given := len(self.learning_rates)) != (needed := len(self.paradigms)):
            raise UserError(f"learning_rates has {given} values for {needed} paradigms: give one for each.")
        return self

    @property
    def steps(self) -> int:
        """Epochs."""
        return self.epochs


class SweepGrid(TaskParameters, Training, FixedFocus):
    """A fixed-focus sweep: every paradigm at every alpha with every seed."""

    command: ClassVar[str] = "sweep"
    usual: ClassVar[str] = "orthogonal"
    fixed: ClassVar[tuple[str, ...]] = ("keep", "memory_layout", "paper_split", "num_validation", "num_test")
    own_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = SWEEPS

    soft_learning_rate: Rate = Field(0.05, description="learning rate of soft attention")
    hard_learning_rate: Rate = Field(0.01, description="learning rate of hard attention")
    lvml_learning_rate: Rate = Field(0.05, description="learning rate of LVML")
    classification_network: str = Field("linear", description="name of the classification network")

    @model_validator(mode="after")
    def _check_network(self) -> Any:
        require_network("classification_network", self.classification_network, self.task.networks)
        return self

    def idle(self) -> Iterable[tuple[str, str]]:
        for paradigm in {"soft", "hard", "lvml"} - set(self.paradigms):
            yield f"{paradigm}_learning_rate", f"{paradigm} is not trained"

    def config(self) -> Sweep:
        """The sweep."""
        rates = tuple(getattr(self, f"{paradigm}_learning_rate") for paradigm in self.paradigms)
        training = self.part(Training, memory_layout="contiguous")
        return self.part(
            Sweep, data=self.task, classifier=self.classification_network, learning_rates=rates, training=training
        )


Segments = Some[Annotated[int, Field(ge=2, le=10_000)]]
Numbers = Some[Annotated[int, Field(ge=2, le=10**6)]]
MAX_TRAINED = 20_000  # limit of segments times classes in the setting that is also trained


class CostParameters(Parameters):
    """The cost of a step over the number of segments, with the digits networks and pictures of the same size."""

    num_segments: Segments = Field((2, 5, 20, 100, 1_000, 10_000), description="numbers of segments to measure")
    batch_size: int = Field(64, ge=1, le=4_096, description="instances per step")
    num_pictures: int = Field(20_000, ge=2, le=10**6, description="pictures in the bank, from which segments are drawn")
    num_classes: int = Field(3, ge=2, le=1_000, description="classes")
    repeats: int = Field(3, ge=1, le=100, description="measurements of each step")
    threads: Threads = 1
    counted_segments: Segments = Field((2, 20, 200), description="numbers of segments to count operations and bytes")
    draws: int = Field(20_000, ge=100, le=10**6, description="draws of the sampled losses")
    seed: Seed = Field(0, description="draws pictures, instances, weights and samples")


class FlowParameters(Parameters, Momentum):
    """Settings of the gradient flow; the first is also trained by SGD.

    Source of the defaults: arXiv 2307.13421, the figures of sec. 4.
    """

    num_segments: Numbers = Field((20, 100), description="segments of each setting, one of them foreground")
    num_classes: Numbers = Field((20, 1000), description="classes of each setting")
    end_times: Some[Annotated[float, Field(gt=0, le=1e12)]] = Field(
        (1e3, 4e5), description="time at which the flow of each setting ends"
    )
    seeds: Seeds = Field((0, 1, 2, 3, 4), description="of the training; each draws instances and batches")
    num_train: int = Field(800, ge=2, le=10**5, description="training instances of the first setting")
    epochs: int = Field(20, ge=2, le=10**4, description="of SGD; with the end time, they determine the learning rate")
    batch_size: int = Field(40, ge=1, le=10**5, description="instances per step")

    @model_validator(mode="after")
    def _check_lists(self) -> Any:
        for name in ("num_classes", "end_times"):
            if (given := len(getattr(self, name))) != (needed := len(self.num_segments)):
                raise UserError(f"{name} has {given} values and num_segments {needed}: give one for each setting.")
        if len(set(self.settings())) < len(self.num_segments):
            raise UserError("num_segments, num_classes and end_times contain a setting twice: give each once.")
        if (size := self.num_segments[0] * self.num_classes[0]) > MAX_TRAINED:
            raise UserError(
                f"num_segments times num_classes is {size:,} in the first setting, which is too large to train: "
                f"begin with a setting of at most {MAX_TRAINED:,}."
            )
        return self

    def settings(self) -> list[tuple[int, int, float]]:
        """Segments, classes and end time of each setting."""
        return list(zip(self.num_segments, self.num_classes, self.end_times, strict=True))

    @property
    def steps(self) -> int:
        """Steps of SGD."""
        return self.epochs * math.ceil(self.num_train / self.batch_size)

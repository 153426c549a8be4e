"""Parameters of the page on the gradient flow, as people set them."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from fcamlib.config.base import Frozen, Numbers, Seeds, _as_list

Counts = Annotated[tuple[Annotated[int, Field(ge=2, le=10**6)], ...], BeforeValidator(_as_list), Field(min_length=1)]
MAX_TRAINED = 20_000  # segments times classes of the setting that is trained as well as solved


class FlowExperiment(Frozen):
    """Settings of the gradient flow; the first is trained by SGD too.

    Source of the defaults: arXiv 2307.13421, the figures of sec. 4.
    """

    num_segments: Counts = Field((20, 100), description="segments of each setting, one of them foreground")
    num_classes: Counts = Field((20, 1000), description="classes of each setting")
    end_times: Numbers = Field((1e3, 4e5), description="time of the flow that each setting ends at")
    seeds: Seeds = Field((0, 1, 2, 3, 4), description="seeds of the training; each draws instances and batches")
    num_train: int = Field(800, ge=2, le=10**5, description="training instances of the first setting")
    epochs: int = Field(20, ge=2, le=10**4, description="of SGD; with the end time they fix the learning rate")
    batch_size: int = Field(40, ge=1, description="instances per step")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")

    @model_validator(mode="after")
    def _check_settings(self) -> FlowExperiment:
        for name in ("num_classes", "end_times"):
            if len(getattr(self, name)) != len(self.num_segments):
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} values and num_segments {len(self.num_segments)}: "
                    "give one for each setting"
                )
        for time in self.end_times:
            if not 0 < time <= 1e12:
                raise ValueError(f"end_times={time:g} is not allowed: give times above 0, up to 1e12")
        if len(set(self.settings())) < len(self.settings()):
            raise ValueError("num_segments, num_classes and end_times name a setting twice: give each once")
        if self.num_segments[0] * self.num_classes[0] > MAX_TRAINED:
            raise ValueError(
                f"num_segments={self.num_segments[0]} with num_classes={self.num_classes[0]} is too large to be "
                f"trained, as the first setting is: begin with one whose product is at most {MAX_TRAINED:,}"
            )
        return self

    def settings(self) -> list[tuple[int, int, float]]:
        """Segments, classes and end time of each setting."""
        return list(zip(self.num_segments, self.num_classes, self.end_times, strict=True))

    @property
    def steps(self) -> int:
        """Steps of SGD."""
        return self.epochs * math.ceil(self.num_train / self.batch_size)

"""Parameters of the page on the cost of attention, as people set them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from fcamlib.config.base import Frozen, _as_list

Segments = Annotated[tuple[Annotated[int, Field(ge=2, le=10_000)], ...], BeforeValidator(_as_list), Field(min_length=1)]


class CostExperiment(Frozen):
    """What a step costs as instances get more segments: pictures of the digits' size and the digits networks."""

    num_segments: Segments = Field((2, 5, 20, 100, 1_000, 10_000), description="segments of an instance")
    batch_size: int = Field(64, ge=1, le=4_096, description="instances of a step")
    num_pictures: int = Field(20_000, ge=2, le=10**6, description="pictures of the bank that segments are drawn from")
    num_classes: int = Field(3, ge=2, le=1_000, description="classes")
    repeats: int = Field(3, ge=1, le=100, description="times that each step is measured")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    live: bool = Field(False, description="measure here instead of showing the recorded measurements")
    counted_segments: Segments = Field((2, 20, 200), description="segments at which operations and bytes are counted")
    draws: int = Field(20_000, ge=100, le=10**6, description="draws of the sampled losses")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="draws pictures, instances, weights and samples")

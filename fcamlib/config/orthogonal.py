"""The linear orthogonal task of the fixed-focus analysis."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fcamlib.config.sources import TaskConfig


class OrthogonalConfig(TaskConfig):
    """One axis a class for the foreground, one more for the background. Source: arXiv 2307.13421, sec. 3."""

    source: Literal["orthogonal"] = "orthogonal"
    fingerprint: Literal[""] = ""
    num_segments: int = Field(20, ge=2, le=100_000, description="segments of an instance, the first one foreground")
    num_classes: int = Field(20, ge=2, le=100_000, description="classes, each with an axis of its own")
    num_train: int = Field(5_000, ge=1, le=10_000_000, description="training instances")
    num_validation: int = Field(1, ge=1, le=10_000_000, description="validation instances")
    num_test: int = Field(1, ge=1, le=10_000_000, description="test instances")
    foreground_variance: float = Field(1e-10, ge=0, le=1e6, description="noise of the foreground, on every axis")
    background_variance: float = Field(1e-2, ge=0, le=1e6, description="variance of the background, on its own axis")
    num_backgrounds: int = Field(
        500,
        ge=0,
        le=10_000_000,
        description="background segments of a split, drawn from with replacement; 0 gives every place its own",
    )

    @property
    def slug(self) -> str:
        """The task in the name of a result."""
        return f"orthogonal-m{self.num_segments}-c{self.num_classes}-n{self.num_train}"

    @property
    def described(self) -> str:
        """Size of the task in words."""
        return f"m = {self.num_segments}, C = {self.num_classes}, {self.num_train:,} instances"

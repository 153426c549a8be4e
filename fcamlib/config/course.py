"""The course of a run: what its model does with the test data after each epoch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from fcamlib.config.base import StoredConfig
from fcamlib.config.pictures import MosaicsConfig
from fcamlib.config.runs import RunConfig


class CourseConfig(StoredConfig):
    """Everything that the numbers of a course depend on: a run on mosaics, and how many of them are followed."""

    kind: Literal["course"] = "course"
    run: RunConfig = Field(description="the run that is followed")
    num_examples: int = Field(0, ge=0, le=10_000, description="test mosaics whose attention is kept, the first ones")

    @model_validator(mode="after")
    def _check_run(self) -> CourseConfig:
        if not isinstance(self.run.data, MosaicsConfig):
            raise ValueError(f"run.data.source='{self.run.data.source}' is no task of mosaics: give a run on pictures")
        if self.run.training.keep != "last":
            raise ValueError(
                "run.training.keep='best' ends a phase with the weights of an earlier epoch, which the next one would "
                "not follow from: give keep='last'"
            )
        if self.num_examples > self.run.data.num_test:
            raise ValueError(
                f"num_examples={self.num_examples} is more than num_test={self.run.data.num_test}: give at most those"
            )
        return self

    @property
    def name(self) -> str:
        """Readable name with the first 8 hex digits of the config's hash."""
        return f"course-{self.run.data.slug}-{self.run.paradigm}-s{self.run.seed}-{self.digest()[:8]}"

    def portable(self) -> CourseConfig:
        """The same with the data source without its path."""
        return self.model_copy(update={"run": self.run.portable()})

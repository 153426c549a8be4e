"""`RunConfig`: everything that a run's numbers depend on; its hash names the run in the store."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from fcamlib.config.bags import BagsConfig, BagsExperiment
from fcamlib.config.base import Paradigm, StoredConfig
from fcamlib.config.grid import TaskExperiment
from fcamlib.config.pictures import Experiment, MosaicsConfig
from fcamlib.config.series import SeriesConfig, SeriesExperiment
from fcamlib.config.sources import TaskConfig, portable_source
from fcamlib.config.text import TextConfig, TextExperiment
from fcamlib.config.training import ModelConfig, Phase, TrainingConfig

EXPERIMENTS: tuple[type[TaskExperiment], ...] = (Experiment, TextExperiment, SeriesExperiment, BagsExperiment)
_TASKS: tuple[type[TaskConfig], ...] = (MosaicsConfig, TextConfig, SeriesConfig, BagsConfig)  # of these, in order
_TAG_OF = {kind: task.__name__ for domain, task in zip(EXPERIMENTS, _TASKS, strict=True) for kind in domain.defaults}


def _tag(data: Any) -> str:
    """The class that describes a data source, by the source's kind; one that is unknown is taken for pictures."""
    if not isinstance(data, dict):
        return type(data).__name__
    return _TAG_OF.get(str(data.get("source", "")).split(":", 1)[0], MosaicsConfig.__name__)


Data = Annotated[
    Annotated[MosaicsConfig, Tag("MosaicsConfig")]
    | Annotated[TextConfig, Tag("TextConfig")]
    | Annotated[SeriesConfig, Tag("SeriesConfig")]
    | Annotated[BagsConfig, Tag("BagsConfig")],
    Discriminator(_tag),
]


class RunConfig(StoredConfig):
    """Everything that a run's numbers depend on."""

    data: Data
    model: ModelConfig
    phases: tuple[Phase, ...] = Field(min_length=1)
    training: TrainingConfig = TrainingConfig()
    seed: int = Field(ge=0, le=2**31 - 1, description="draws mosaics, initial weights and the order of batches")

    @property
    def paradigm(self) -> str:
        """Name of the schedule: a paradigm, "hybrid" for soft then hard, otherwise joined by "+"."""
        names = [phase.paradigm for phase in self.phases]
        if set(names) == {names[0]}:
            return names[0]
        return "hybrid" if names == ["soft", "hard"] else "+".join(names)

    @property
    def aggregation(self) -> Paradigm:
        """How the trained model predicts: as the paradigm of its last phase does."""
        return self.phases[-1].paradigm

    @property
    def name(self) -> str:
        """Readable name with the first 8 hex digits of the config's hash."""
        return f"{self.data.slug}-{self.paradigm}-s{self.seed}-{self.digest()[:8]}"

    def epochs_alike(self, other: RunConfig) -> int:
        """After how many epochs of their first phase two runs are still the same, 0 where they begin differently.

        A hybrid is the soft run up to its switch.
        """
        if self.model_copy(update={"phases": other.phases}) != other:
            return 0
        return self.phases[0].epochs_alike(other.phases[0], self.training.evaluate_every)

    def portable(self) -> RunConfig:
        """The same with the data source without its path: a user's data count by name and content."""
        data = self.data.model_copy(update={"source": portable_source(self.data.source)})
        return self.model_copy(update={"data": data})

"""The parameters that people set and that every domain shares: a grid of runs on one task."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fcamlib.config.base import (
    SCHEDULES,
    Device,
    Frozen,
    Optimizer,
    Paradigm,
    Precision,
    Rates,
    Seeds,
    TextSchedule,
    TextSchedules,
)
from fcamlib.config.networks import network_fault
from fcamlib.config.sources import TaskConfig
from fcamlib.config.training import ModelConfig, Phase, TrainingConfig

if TYPE_CHECKING:
    from fcamlib.config.runs import RunConfig

Defaults = dict[str, dict[str, Any]]  # kind of source -> field -> value where the user gives none


class TaskExperiment(Frozen):
    """A grid of runs, as people set it: every paradigm with every seed on one task.

    0, "" and [] mean the default of the data source. A subclass adds the fields of its domain.
    """

    defaults: ClassVar[Defaults] = {}
    with_path: ClassVar[dict[str, str]] = {}  # kinds written kind:PATH -> what the path names
    path_optional: ClassVar[dict[str, str]] = {}  # the same of kinds that go without a path too
    networks: ClassVar[tuple[str, ...]] = ()
    parametric: ClassVar[tuple[str, ...]] = ("mlp",)  # networks that may be named with depth and width
    listed: ClassVar[tuple[str, ...]] = ()  # fields whose values have to differ, besides those of all domains

    dataset: str = Field(description="data source")
    paradigms: TextSchedules = Field(SCHEDULES, description="any of soft, hard, lvml, hybrid")
    seeds: Seeds = Field((0,), description="seeds; each draws mosaics, initial weights and batch order")
    epochs: int = Field(0, ge=0, description="epochs of training")
    switch_epoch: int = Field(0, ge=0, description="hybrid: epochs of soft attention before hard; default half")
    learning_rates: Rates = Field((), description="learning rates; several are compared on validation")
    hard_learning_rates: Rates = Field((), description="learning rates of the hybrid's hard phase")
    search_epochs: int = Field(0, ge=0, description="epochs after which learning rates are compared; default all")
    optimizer: Optimizer = Field("sgd", description="sgd or adam")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")
    batch_size: int = Field(0, ge=0, description="instances per step")
    keep: Literal["last", "best"] = Field("last", description="weights of the last or the best validation epoch")
    focus_network: str = Field("", description="name of the focus network, or mlp:DEPTHxWIDTH")
    classification_network: str = Field("", description="name of the classification network, or mlp:DEPTHxWIDTH")
    precision: Literal["", Precision] = Field("", description="float64, float32, tfloat32 (on a GPU) or bfloat16")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    device: Device = Field("auto", description="auto (CUDA when present, except in float64), cpu or cuda")
    evaluate_every: int = Field(1, ge=1, description="epochs between evaluations")

    @classmethod
    def datasets(cls) -> tuple[str, ...]:
        """The data sources of this domain, as a user writes them."""
        bare = [kind for kind in cls.defaults if kind not in cls.with_path]
        named = [f"{kind}:PATH" for kind in cls.defaults if kind in cls.with_path or kind in cls.path_optional]
        return (*bare, *named)

    @model_validator(mode="after")
    def _check_training(self) -> TaskExperiment:
        named = self.with_path | self.path_optional
        if self.kind not in self.defaults or (self.kind not in named and self.dataset != self.kind):
            raise ValueError(unknown_dataset(self.dataset, self.datasets()))
        if self.dataset == f"{self.kind}:" or (self.kind in self.with_path and self.dataset == self.kind):
            what = named[self.kind]
            raise ValueError(f"dataset='{self.dataset}' names no {what}: write {self.kind}:PATH")
        for name in (*self.listed, "seeds", "paradigms", "learning_rates", "hard_learning_rates"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}={','.join(map(str, values))} names a value twice: give each once")
        for name in ("focus_network", "classification_network"):
            if (given := getattr(self, name)) and (fault := network_fault(name, given, self.networks, self.parametric)):
                raise ValueError(fault)
        if "hybrid" in self.paradigms and not 0 < self._switch() < self._filled("epochs"):
            raise ValueError(
                f"switch_epoch={self.switch_epoch} does not lie inside epochs={self._filled('epochs')}: "
                "the hybrid needs at least one epoch of soft and one of hard attention"
            )
        return self

    @property
    def kind(self) -> str:
        """The data source's name without a path."""
        return self.dataset.split(":", 1)[0]

    def configs(self) -> list[RunConfig]:
        """The runs of the grid, paradigm by paradigm, seed by seed."""
        from fcamlib.config.runs import RunConfig  # knows the data of every domain, so it comes after this module

        data, model, training = self._data(), self._model(), self._training()
        return [
            RunConfig(data=data, model=model, phases=self._phases(paradigm), training=training, seed=seed)
            for paradigm in self.paradigms
            for seed in self.seeds
        ]

    @abstractmethod
    def _data(self) -> TaskConfig:
        """The task of the grid."""

    def _model(self) -> ModelConfig:
        return ModelConfig(focus=self._filled("focus_network"), classifier=self._filled("classification_network"))

    def _training(self) -> TrainingConfig:
        return TrainingConfig(
            batch_size=self._filled("batch_size"),
            precision=self._filled("precision"),
            memory_layout=getattr(self, "memory_layout", "contiguous"),
            threads=self.threads,
            device=self.device,
            keep=self.keep,
            evaluate_every=self.evaluate_every,
        )

    def _phases(self, paradigm: TextSchedule) -> tuple[Phase, ...]:
        epochs = self._filled("epochs")
        if paradigm != "hybrid":
            return (self._phase(paradigm, epochs, self._filled("learning_rates")),)
        return (
            self._phase("soft", self._switch(), self._filled("learning_rates")),
            self._phase("hard", epochs - self._switch(), self._filled("hard_learning_rates")),
        )

    def _phase(self, paradigm: Paradigm, epochs: int, learning_rates: tuple[float, ...]) -> Phase:
        return Phase(
            paradigm=paradigm,
            epochs=epochs,
            learning_rates=learning_rates,
            search_epochs=min(self.search_epochs, epochs) if len(learning_rates) > 1 else 0,
            optimizer=self.optimizer,
            momentum=self.momentum,
        )

    def _switch(self) -> int:
        return self.switch_epoch or self._filled("epochs") // 2

    def _filled(self, name: str) -> Any:
        """The user's value of a field, or its data source's default."""
        return getattr(self, name) or self.defaults[self.kind][name]


def unknown_dataset(dataset: str, known: tuple[str, ...]) -> str:
    """The sentence for a data source that does not exist, without its full stop."""
    *first, last = known
    choice = f"{', '.join(first)} or {last}" if first else last
    return f"dataset='{dataset}' is unknown: choose {choice}"

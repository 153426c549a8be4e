"""A study: every task with every model, schedule and seed, kept as one table; and the parameters that people set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from fcamlib.config.base import (
    SCHEDULES,
    Device,
    Frozen,
    Names,
    Optimizer,
    Precision,
    Rates,
    Schedules,
    Seeds,
    StoredConfig,
    _as_list,
)
from fcamlib.config.experiments import experiment
from fcamlib.config.pictures import SOURCE_DEFAULTS
from fcamlib.config.runs import Data, RunConfig
from fcamlib.config.sources import portable_source
from fcamlib.config.training import ModelConfig, Phase, TrainingConfig
from fcamlib.errors import UserError, explain

Counts = Annotated[tuple[Annotated[int, Field(ge=2, le=100_000)], ...], BeforeValidator(_as_list), Field(min_length=1)]
Shares = Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], BeforeValidator(_as_list), Field(min_length=1)]


_NETWORKS = ("linear", "mlp:1x8", "mlp:1x64", "mlp:3x64", "mlp:3x64:layer", "mlp:3x64:batch")
_CHOSEN: dict[str, Any] = {"learning_rates": (0.02, 0.05), "search_epochs": 5}  # on validation mosaics of each seed
_ABLATION: dict[str, Any] = {
    "paradigms": ("soft", "hard", "hybrid"),
    "num_train": 1_000,
    "num_validation": 500,
    "num_test": 1_000,
    "epochs": 20,
    "seeds": (0, 1, 2, 3, 4),
}
# The studies that are kept with the source, by the names that `fcam study NAME` takes.
RECORDED_STUDIES: dict[str, dict[str, Any]] = {
    "scale": {
        "num_segments": (5, 20, 100, 1_000, 5_000),
        "epochs": 40,
        "seeds": (0, 1, 2),
    },
    "capacities": {**_ABLATION, **_CHOSEN, "focus_networks": _NETWORKS, "classification_networks": _NETWORKS},
    "switches": {**_ABLATION, **_CHOSEN, "soft_shares": (0.1, 0.25, 0.5, 0.75, 0.9)},
    "rates": {**_ABLATION, "each_learning_rate": (0.005, 0.01, 0.02, 0.05, 0.1)},
}


class StudyConfig(StoredConfig):
    """Everything that the numbers of a study depend on: each combination is the run of a `RunConfig`."""

    kind: Literal["study"] = "study"
    tasks: tuple[Data, ...] = Field(min_length=1, description="what is trained and tested on")
    models: tuple[ModelConfig, ...] = Field(min_length=1, description="focus and classification networks")
    schedules: tuple[tuple[Phase, ...], ...] = Field(min_length=1, description="phases of training")
    seeds: tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...] = Field(
        min_length=1, description="each draws its own data, initial weights and order of batches"
    )
    training: TrainingConfig = TrainingConfig()

    @property
    def name(self) -> str:
        """Readable name with the first 8 hex digits of the config's hash."""
        cells = len(self.tasks) * len(self.models) * len(self.schedules)
        return f"study-{self.tasks[0].slug}-{cells}x{len(self.seeds)}-{self.digest()[:8]}"

    def portable(self) -> StudyConfig:
        """The same with the data sources without their paths."""
        tasks = [task.model_copy(update={"source": portable_source(task.source)}) for task in self.tasks]
        return self.model_copy(update={"tasks": tuple(tasks)})

    def runs(self) -> Iterator[RunConfig]:
        """The runs, those on the same data one after another."""
        for task in self.tasks:
            for seed in self.seeds:
                for model in self.models:
                    for phases in self.schedules:
                        yield RunConfig(data=task, model=model, phases=phases, training=self.training, seed=seed)

    def __len__(self) -> int:
        return len(self.tasks) * len(self.models) * len(self.schedules) * len(self.seeds)


class StudyExperiment(Frozen):
    """A study of mosaics, as people set it: every combination of the values in its lists.

    0, "" and [] mean the default of the data source.
    """

    dataset: str = Field("digits", description="digits, cifar10, cifar100 or folder:PATH")
    foreground: Names = Field((), description="classes that decide the label, comma-separated")
    background: Names = Field((), description="classes of the other segments; default all others")
    image_size: int = Field(0, ge=0, le=1024, description="height and width of a segment in pixels")
    num_segments: Counts = Field((5,), description="segments of a mosaic, each number a task")
    num_train: int = Field(0, ge=0, le=100_000_000, description="training mosaics")
    num_validation: int = Field(0, ge=0, le=100_000_000, description="validation mosaics")
    num_test: int = Field(0, ge=0, le=100_000_000, description="test mosaics")
    focus_networks: Names = Field((), description="focus networks, such as linear,mlp:1x32,cnn:2x8:layer")
    classification_networks: Names = Field((), description="classification networks, each with each focus network")
    paradigms: Schedules = Field(SCHEDULES, description="any of soft, hard, lvml, hybrid")
    soft_shares: Shares = Field((0.5,), description="hybrid: shares of the epochs that are soft, each trained")
    learning_rates: Rates = Field((), description="learning rates; several are compared on validation")
    hard_learning_rates: Rates = Field((), description="learning rates of the hybrid's hard phase")
    each_learning_rate: Rates = Field((), description="rates of all phases, each trained and kept, in their place")
    search_epochs: int = Field(0, ge=0, description="epochs after which learning rates are compared; default all")
    seeds: Seeds = Field((0,), description="seeds; each draws mosaics, initial weights and batch order")
    epochs: int = Field(0, ge=0, le=1_000_000, description="epochs of training")
    batch_size: int = Field(0, ge=0, le=10_000_000, description="mosaics per step")
    optimizer: Optimizer = Field("sgd", description="sgd or adam")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")
    precision: Literal["", Precision] = Field("", description="float64, float32, tfloat32 (on a GPU) or bfloat16")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    device: Device = Field("auto", description="auto (CUDA when present, except in float64), cpu or cuda")

    @model_validator(mode="after")
    def _check_together(self) -> StudyExperiment:
        listed = (name for name, field in type(self).model_fields.items() if isinstance(getattr(self, name), tuple))
        for name in listed:
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}={','.join(map(str, values))} names a value twice: give each once")
        if self.each_learning_rate and (self.learning_rates or self.hard_learning_rates):
            raise ValueError("each_learning_rate and learning_rates exclude each other: give one")
        if self.dataset.split(":", 1)[0] not in SOURCE_DEFAULTS:
            raise ValueError(f"dataset='{self.dataset}' is unknown: choose digits, cifar10, cifar100 or folder:PATH")
        switches = [round(share * self._epochs()) for share in self.soft_shares]
        if len(set(switches)) < len(switches):
            raise ValueError(
                f"soft_shares={','.join(map(str, self.soft_shares))} gives two equal switches with "
                f"epochs={self._epochs()}: give shares that are further apart, or more epochs"
            )
        return self

    def config(self) -> StudyConfig:
        """The study; `UserError` where a combination is not allowed."""
        tasks = [self._one(num_segments=number)[0].data for number in self.num_segments]
        models = [
            self._one(focus_network=focus, classification_network=classifier)[0].model
            for focus in self.focus_networks or ("",)
            for classifier in self.classification_networks or ("",)
        ]
        schedules = [run.phases for run in self._scheduled()]
        return StudyConfig(
            tasks=tuple(tasks),
            models=tuple(models),
            schedules=tuple(dict.fromkeys(schedules)),
            seeds=self.seeds,
            training=self._one()[0].training,
        )

    def _scheduled(self) -> Iterator[RunConfig]:
        """A run of every schedule."""
        epochs = self._epochs()
        for rate in self.each_learning_rate or (None,):
            rates = {} if rate is None else {"learning_rates": (rate,), "hard_learning_rates": (rate,)}
            for paradigm in self.paradigms:
                for share in self.soft_shares if paradigm == "hybrid" else (0.0,):
                    switch = round(share * epochs)
                    if paradigm == "hybrid" and not 0 < switch < epochs:
                        raise UserError(
                            f"soft_shares={share:g} of epochs={epochs} leaves a phase without an epoch: "
                            "give a share nearer to one half, or more epochs."
                        )
                    yield from self._one(paradigms=(paradigm,), switch_epoch=switch, **rates)

    def _epochs(self) -> int:
        return self.epochs or int(SOURCE_DEFAULTS[self.dataset.split(":", 1)[0]]["epochs"])

    def _one(self, **given: Any) -> list[RunConfig]:
        """The runs of one combination with the first seed, made as those of `fcam run` are."""
        shared = (
            "dataset", "foreground", "background", "image_size", "num_train", "num_validation", "num_test",
            "learning_rates", "hard_learning_rates", "search_epochs", "epochs", "batch_size", "optimizer", "momentum",
            "precision", "threads", "device",
        )  # fmt: skip
        fixed = {name: getattr(self, name) for name in shared} | {"num_segments": 5, "paradigms": ("soft",)}
        # Measured at the end of a phase alone: with many short trainings, measures would cost more than they do.
        return experiment({**fixed, "evaluate_every": 1_000_000, **given}).configs()


class AblationExperiment(StudyExperiment):
    """Three studies on one task: capacities of the networks, the hybrid's switch, and learning rates.

    The networks are those of the first; the other two have the data source's own.
    """

    num_segments: Counts = Field((5,), max_length=1, description="segments of a mosaic")
    soft_shares: Shares = Field((0.1, 0.25, 0.5, 0.75, 0.9), description="shares of the epochs that are soft")
    each_learning_rate: Rates = Field(
        (0.005, 0.01, 0.02, 0.05, 0.1), min_length=1, description="learning rates, each trained"
    )
    paradigms: Schedules = Field(("soft", "hard", "hybrid"), description="soft, hard and hybrid")

    def capacities(self) -> StudyConfig:
        """Every focus network with every classification network."""
        return self._study(soft_shares=(0.5,), each_learning_rate=())

    def switches(self) -> StudyConfig:
        """The hybrid with each share of soft epochs; all soft is SA, none HA."""
        return self._study(focus_networks=(), classification_networks=(), each_learning_rate=())

    def rates(self) -> StudyConfig:
        """Every learning rate for itself."""
        return self._study(
            focus_networks=(), classification_networks=(), soft_shares=(0.5,), learning_rates=(), hard_learning_rates=()
        )

    def _study(self, **changed: Any) -> StudyConfig:
        names = StudyExperiment.model_fields
        kept = {name: getattr(self, name) for name in names}
        return StudyExperiment.model_validate(kept | changed).config()


def study_experiment(parameters: Mapping[str, Any]) -> StudyExperiment:
    """Parameters as text or values -> a checked experiment; the first fault is one sentence (`UserError`)."""
    try:
        return StudyExperiment.model_validate(dict(parameters))
    except ValidationError as error:
        raise UserError(explain(error, StudyExperiment)) from None

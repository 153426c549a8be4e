"""Flat parameters, as users set them in a notebook, a profile or a shell, and the configs made from them.

Each parameter belongs to the task (`num_segments`) or to one of the classes here (`epochs`) and is declared once, with
range and description. A parameter that is left out takes the default of its data source (`fcamlib.config.defaults`); so
does one that is 0 or empty, if the source has a default.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from fcamlib.config.results import (
    COMPARED,
    Comparison,
    CrossValidation,
    Epochs,
    Model,
    Optimizer,
    Phase,
    Rate,
    Rates,
    Run,
    Schedule,
    Seeds,
    Study,
    Training,
    checked,
)
from fcamlib.config.sources import SOURCES, Source, load_plugins, require_network, written
from fcamlib.config.tasks import Frozen, Mosaics, Names, Several, Some, Task, as_list, read_yaml, require_distinct
from fcamlib.errors import UserError, one_line, shown, unknown_name
from fcamlib.paradigms import SCHEDULES

log = logging.getLogger(__name__)
PROFILES = Path("notebooks/profiles")  # profiles that can be given by name, in a source checkout
P = TypeVar("P", bound="Parameters")
Called = Mapping[str, str]  # field -> the name that the user knows it by


def is_empty(value: Any, default: Any = None) -> bool:
    """Whether a value means the data source's default: "", an empty list, or 0 for a number."""
    zero = () if isinstance(default, tuple) else ("0", "0.0")
    return shown(value).strip() in ("", "[]", "()", *zero)


class Parameters(Frozen):
    """Validated parameters of one kind of result; lists contain each value once."""

    fixed: ClassVar[tuple[str, ...]] = ()  # fields that are not parameters here

    @classmethod
    def known(cls, dataset: Any = None) -> dict[str, FieldInfo]:
        """Name -> field of each allowed parameter."""
        return dict(cls.model_fields)

    @classmethod
    def of(cls: type[P], parameters: Mapping[str, Any], called: Called | None = None) -> P:
        """Validate parameters given as text or values; the first error becomes one sentence (`UserError`)."""
        found: P = checked(cls, parameters, called)
        for name, why in found.idle():
            if not is_empty(parameters.get(name, 0)):
                log.warning("%s=%s has no effect: %s.", (called or {}).get(name, name), shown(parameters[name]), why)
        return found

    def idle(self) -> Iterable[tuple[str, str]]:
        """Parameters that have no effect given the others, and why."""
        return ()

    @model_validator(mode="after")
    def _check_lists(self) -> Any:
        require_distinct(self)
        return self

    def part(self, model: type[Any], **more: Any) -> Any:
        """A part of a config, from the parameters of the same names."""
        names = set(model.model_fields) & set(type(self).model_fields) - {*self.fixed, *more}
        return model(**{name: getattr(self, name) for name in names}, **more)


def find_source(dataset: Any, sources: Mapping[str, Source]) -> Source:
    """The source of `dataset` among `sources`; `UserError` if it is unknown or its path is missing."""
    kind, colon, path = str(dataset).partition(":")
    found = sources.get(kind)
    if found is None or not (bool(path and found.path) if colon else found.optional or not found.path):
        *first, last = written(sources)
        raise UserError(f"dataset='{shown(dataset)}' is unknown: choose {', '.join(first)} or {last}.")
    return found


def task_on(dataset: str, fields: Mapping[str, Any] | None = None) -> Any:
    """The task of a data source, with the fingerprint of a user's data, which must exist."""
    model = find_source(dataset, SOURCES).task
    task: Task = checked(model, {**(fields or {}), "source": dataset}, {"source": "dataset"})
    return task.model_copy(update={"fingerprint": task.current_fingerprint()})


class TaskParameters(Parameters):
    """Parameters of training on a data source: those of its task and those of the class."""

    command: ClassVar[str]  # the command whose data sources are allowed
    usual: ClassVar[str] = "digits"  # default data source
    own_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # by source, in addition to the source's own

    task: Task

    @property
    def dataset(self) -> str:
        """The data source."""
        return self.task.source

    @classmethod
    def sources(cls) -> dict[str, Source]:
        """The data sources allowed for these parameters, by kind."""
        return {kind: source for kind, source in SOURCES.items() if cls.command in source.task.commands}

    @classmethod
    def known(cls, dataset: Any = None) -> dict[str, FieldInfo]:
        """Name -> field of each parameter of the data source."""
        source = find_source(dataset or cls.usual, cls.sources())
        fields = {"dataset": Task.model_fields["source"]} | source.task.model_fields | cls.model_fields
        without = {"source", "fingerprint", "task", *source.without, *cls.fixed}
        without |= set() if source.task.encoders or cls.command != "grid" else {"encoder"}
        without |= set() if issubclass(source.task, Mosaics) else {"memory_layout"}
        return {name: field for name, field in fields.items() if name not in without}

    @classmethod
    def defaults(cls, kind: str) -> dict[str, Any]:
        """The defaults of a source."""
        fields = {**SOURCES[kind].task.model_fields, **cls.model_fields}
        values = {**SOURCES[kind].defaults, **cls.own_defaults.get(kind, {})}
        return {name: value for name, value in values.items() if name in fields}

    @model_validator(mode="before")
    @classmethod
    def _sort(cls, parameters: Any) -> Any:
        """Sort flat parameters into the task and the fields of the class, and fill in defaults."""
        load_plugins()
        dataset = parameters.get("dataset") or cls.usual
        known = cls.known(dataset)
        kind = dataset.split(":", 1)[0]
        values = cls.defaults(kind)
        for name, value in parameters.items():
            if name not in known and not (name in SOURCES[kind].without and is_empty(value)):
                raise UserError(cls._foreign(name, dataset, known))
            if name in known and name != "dataset" and not (name in values and is_empty(value, values[name])):
                values[name] = value
        own = {name: values.pop(name) for name in cls.model_fields if name in values}
        return own | {"task": task_on(dataset, cls._task_fields(values, own))}

    @classmethod
    def _task_fields(cls, fields: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the task, including those that follow from other parameters."""
        return fields

    @classmethod
    def _foreign(cls, name: str, dataset: str, known: Iterable[str]) -> str:
        """The message for a parameter that the data source does not have."""
        others = {kind: s for kind, s in cls.sources().items() if name in cls.known(f"{kind}:x" if s.path else kind)}
        if not others:
            return unknown_name(name, known)
        choice = f"leave it out, or choose a dataset that has it ({', '.join(written(others))})"
        return f"{name} does not belong to dataset='{shown(dataset)}': {choice}."


def require_two_phases(switch: int, epochs: int, said: str = "") -> None:
    """Refuse a switch that leaves one of two phases without an epoch; `said` is the user's parameter."""
    if not 0 < switch < epochs:
        said = said or f"switch_epoch={switch}"
        raise UserError(f"{said} with epochs={epochs} leaves a phase without an epoch: give each at least one.")


class Grid(TaskParameters, Training, Optimizer):
    """A grid of runs: every paradigm with every seed on one task."""

    command: ClassVar[str] = "grid"

    paradigms: Some[Schedule] = Field(
        COMPARED, description="any of soft, hard, lvml, logit_mixture, hybrid, soft+soft, hard+hard"
    )
    seeds: Seeds = Field((0,), description="each draws instances, initial weights and batch order")
    epochs: Epochs = Field(20, description="epochs of training")
    switch_epoch: int = Field(0, ge=0, description="hybrid: epochs of its first phase; default half")
    learning_rates: Rates = Field((0.05,), description="if several, the best on validation data is used")
    hard_learning_rates: Rates = Field((0.05,), description="learning rates of the hybrid's second phase")
    search_epochs: int = Field(0, ge=0, description="epochs after which learning rates are compared; default all")
    focus_network: str = Field("mlp", description="name of the focus network, or mlp:DEPTHxWIDTH")
    classification_network: str = Field("mlp", description="name of the classification network, or mlp:DEPTHxWIDTH")
    encoder: str = Field("", description="of text: embedding or transformer; of bags: mlp or none")

    @model_validator(mode="after")
    def _check(self) -> Any:
        self.model(self.focus_network, self.classification_network)
        if self.encoder and self.encoder not in self.task.encoders:
            raise UserError(f"encoder='{shown(self.encoder)}' is unknown: choose {' or '.join(self.task.encoders)}.")
        for schedule in self.paradigms:
            self.phases(schedule)
        return self

    @property
    def schedules(self) -> list[str]:
        """The paradigms with two phases."""
        return [name for name in self.paradigms if name in SCHEDULES]

    def idle(self) -> Iterable[tuple[str, str]]:
        if not self.schedules:
            yield from ((name, "it belongs to the hybrid") for name in ("switch_epoch", "hard_learning_rates"))
        if max(len(self.learning_rates), len(self.hard_learning_rates)) == 1:
            yield "search_epochs", "there is only one learning rate"
        if self.optimizer == "adam":
            yield "momentum", "it belongs to SGD"

    def configs(self) -> list[Run]:
        """The runs, paradigm by paradigm, seed by seed."""
        training, model = self.part(Training), self.model(self.focus_network, self.classification_network)
        return [
            Run(data=self.task, model=model, phases=self.phases(paradigm), training=training, seed=seed)
            for paradigm in self.paradigms
            for seed in self.seeds
        ]

    def model(self, focus: str, classifier: str) -> Model:
        """Networks by name; for text, a transformer gets the smaller focus network by default."""
        focus = focus or ("text50" if self.encoder == "transformer" else "text200")
        classifier = classifier or "text200"
        for name, network in (("focus_network", focus), ("classification_network", classifier)):
            require_network(name, network, self.task.networks, self.task.shapes)
        encoder = "" if self.encoder == "none" else self.encoder
        return Model(focus=focus, classifier=classifier, encoder=encoder)

    def phases(self, schedule: str, share: float = 0.0, rates: tuple[float, ...] = ()) -> tuple[Phase, ...]:
        """The phases of a schedule, optionally with a given share of epochs in the first, or with given rates."""
        first_rates, second_rates = rates or self.learning_rates, rates or self.hard_learning_rates
        if schedule not in SCHEDULES:
            return (self._phase(schedule, self.epochs, first_rates),)
        first, second = SCHEDULES[schedule].paradigms
        switch = round(share * self.epochs) if share else self.switch_epoch or self.epochs // 2
        require_two_phases(switch, self.epochs, f"soft_shares={share:g}" if share else "")
        return self._phase(first, switch, first_rates), self._phase(second, self.epochs - switch, second_rates)

    def _phase(self, paradigm: str, epochs: int, rates: tuple[float, ...]) -> Phase:
        search = min(self.search_epochs, epochs) if len(rates) > 1 else 0
        return self.part(Phase, paradigm=paradigm, epochs=epochs, learning_rates=rates, search_epochs=search)


class StudyGrid(Grid):
    """A study: every combination of the values in its lists."""

    command: ClassVar[str] = "study"
    fixed: ClassVar[tuple[str, ...]] = (
        "focus_network", "classification_network", "encoder", "switch_epoch", "keep", "memory_layout", "paper_split",
    )  # fmt: skip

    num_segments: Several[Annotated[int, Field(ge=2, le=100_000)]] = Field(
        (), description="numbers of segments, one task each"
    )
    focus_networks: Names = Field((), description="focus networks, such as linear,mlp:1x32,cnn:2x8:layer")
    classification_networks: Names = Field((), description="classification networks, combined with each focus network")
    soft_shares: Some[Annotated[float, Field(gt=0, lt=1)]] = Field(
        (0.5,), description="hybrid: shares of the epochs in its first phase"
    )
    each_learning_rate: Several[Rate] = Field(
        (), description="learning rates to train separately; each replaces the rates of all phases"
    )
    evaluate_every: Epochs = Field(1_000_000, description="epochs between evaluations; default: only at phase ends")

    @classmethod
    def known(cls, dataset: Any = None) -> dict[str, FieldInfo]:
        known, task = super().known(dataset), find_source(dataset or cls.usual, cls.sources()).task
        return {name: field for name, field in known.items() if name != "num_segments" or name in task.model_fields}

    @classmethod
    def _task_fields(cls, fields: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        numbers = as_list(own.get("num_segments", ()))
        first = numbers[0] if isinstance(numbers, list | tuple) and numbers else 0
        return fields | ({"num_segments": first} if first else {})

    @model_validator(mode="after")
    def _check_study(self) -> Any:
        self.config()
        return self

    def idle(self) -> Iterable[tuple[str, str]]:
        yield from super().idle()
        if not self.schedules:
            yield "soft_shares", "it belongs to the hybrid"
        if self.each_learning_rate:
            yield from ((f"{which}learning_rates", "each_learning_rate takes its place") for which in ("", "hard_"))

    def config(self, **changed: Any) -> Study:
        """The study; `changed` overrides parameters, such as `soft_shares=(0.5,)`."""
        if changed:
            return self.model_copy(update=changed).config()
        focus = self.focus_networks or (self.focus_network,)
        classifiers = self.classification_networks or (self.classification_network,)
        schedules = [
            self.phases(paradigm, share, rates)
            for rates in tuple((rate,) for rate in self.each_learning_rate) or ((),)
            for paradigm in self.paradigms
            for share in self.soft_shares
        ]
        return Study(
            tasks=tuple(self.task.model_copy(update={"num_segments": number}) for number in self.num_segments)
            or (self.task,),
            models=tuple(self.model(first, second) for first in focus for second in classifiers),
            schedules=tuple(dict.fromkeys(schedules)),
            seeds=self.seeds,
            training=self.part(Training, memory_layout="channels_last"),
        )


class Folds(Parameters, Comparison):
    """Repeated cross-validation on a user's bags."""

    dataset: str = Field(description="bags:PATH, an .npz file of bags")
    repeats: int = Field(0, ge=0, le=1_000, description="repeated cross-validations; default the file's, else 5")

    def config(self) -> CrossValidation:
        """The cross-validation; the default number of repeats is the file's, else 5."""
        kind, _, path = self.dataset.partition(":")
        if kind != "bags" or not path:
            raise UserError(f"dataset='{shown(self.dataset)}' cannot be cross-validated: give bags:PATH.")
        named, folds = import_module(SOURCES[kind].loader.split(":")[0]).num_repeats_and_folds(self.dataset)
        if named and self.repeats > named:
            raise UserError(
                f"repeats={self.repeats} exceeds the repeats in dataset='{shown(self.dataset)}': give at most {named}."
            )
        fingerprint = task_on(self.dataset).fingerprint
        repeats = self.repeats or named or 5
        return self.part(CrossValidation, source=self.dataset, fingerprint=fingerprint, repeats=repeats, folds=folds)


def profile_file(profile: str) -> Path:
    """The file of a profile given by its name in `PROFILES` or by its path."""
    for path in (PROFILES / f"{profile}.yaml", Path(profile)):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in PROFILES.glob("*.yaml")))
    known = f"choose {known}, or " if known else ""
    raise UserError(f"the profile '{shown(profile)}' does not exist: {known}give the path of a YAML file.")


def grids(path: Path) -> list[dict[str, Any]]:
    """The parameters in each document of a profile."""
    try:
        contents = read_yaml(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"the profile '{shown(path)}' cannot be read as YAML ({one_line(error)}).") from None
    if not contents or not all(isinstance(content, dict) for content in contents):
        raise UserError(f"the profile '{shown(path)}' is not a list of 'name: value' lines.")
    return [{str(name): value for name, value in content.items()} for content in contents]

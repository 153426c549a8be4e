"""Flat parameters, as people set them in a notebook, a profile or a shell, and the configs that they make.

Each parameter belongs to the task (`num_segments`), or to one of the classes here (`epochs`); all are declared
once, with range and sentence. One that is left out takes its data source's default (`fcamlib.config.defaults`); so does
one that is 0 or empty, where the source has a default.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, model_serializer, model_validator
from pydantic.fields import FieldInfo

from fcamlib.config.defaults import CAPTIONS, SWEEPS
from fcamlib.config.results import (
    COMPARED,
    METHODS,
    REFERENCES,
    CaptionModel,
    CaptionPhase,
    CaptionRun,
    CaptionTraining,
    CrossValidation,
    Epochs,
    Method,
    Model,
    Momentum,
    Optimizer,
    Phase,
    Rate,
    RateOrNone,
    Run,
    Schedule,
    Seed,
    Share,
    Study,
    Sweep,
    Training,
    network_fault,
)
from fcamlib.config.sources import SOURCES, Source, load_plugins, written
from fcamlib.config.tasks import Frozen, Mosaics, Names, Task, as_list, as_names, require_distinct
from fcamlib.errors import UserError, explain, shown, unknown_name
from fcamlib.paradigms import SCHEDULES

log = logging.getLogger(__name__)
Rates = Annotated[tuple[Rate, ...], BeforeValidator(as_list)]
Seeds = Annotated[tuple[Seed, ...], BeforeValidator(as_list), Field(min_length=1)]
Schedules = Annotated[tuple[Schedule, ...], BeforeValidator(as_names), Field(min_length=1)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(as_list), Field(min_length=1)]
P = TypeVar("P", bound="Parameters")
Defaults = dict[str, dict[str, Any]] | None
Called = Mapping[str, str]  # field -> the name that the user knows it by


def is_empty(value: Any, default: Any = None) -> bool:
    """Whether a value stands for the data source's default: "", an empty list, or 0 in place of a number."""
    if isinstance(value, str):
        value = {"[]": [], "0": 0, "0.0": 0}.get(value.strip(), value.strip())
    if isinstance(value, bool) or (isinstance(default, tuple) and value == 0):
        return False
    return value in ("", 0, [], ())


class Parameters(Frozen):
    """Parameters of one kind of result, checked; a list names each value once."""

    fixed: ClassVar[tuple[str, ...]] = ()  # fields that are no parameters here

    @classmethod
    def known(cls, dataset: Any = None) -> dict[str, FieldInfo]:
        """Name -> field of each parameter that may be given."""
        return dict(cls.model_fields)

    @classmethod
    def of(cls: type[P], parameters: Mapping[str, Any], called: Called | None = None) -> P:
        """Parameters as text or values, checked; the first fault is one sentence (`UserError`)."""
        found: P = _checked(cls, parameters, called)
        for name, why in found.idle():
            if not is_empty(parameters.get(name, 0)):
                log.warning("%s=%s has no effect: %s.", (called or {}).get(name, name), shown(parameters[name]), why)
        return found

    def idle(self) -> Iterable[tuple[str, str]]:
        """Parameters that cannot have an effect beside the others, and why."""
        return ()

    @model_validator(mode="after")
    def _check_lists(self) -> Any:
        require_distinct(self)
        return self

    def _part(self, model: type[Any], **more: Any) -> Any:
        """A part of a config, from the parameters of the same names."""
        names = set(model.model_fields) & set(type(self).model_fields) - {*self.fixed, *more}
        return model(**{name: getattr(self, name) for name in names}, **more)


def _checked(model: Any, values: Mapping[str, Any], called: Called | None = None) -> Any:
    try:
        return model.model_validate(dict(values), context=called)
    except ValidationError as error:
        raise UserError(explain(error, model, called)) from None


def find_source(dataset: Any, sources: Mapping[str, Source]) -> Source:
    """The source of `dataset` among `sources`; `UserError` where there is none, or no path behind it."""
    *first, last = written(sources)
    choice = f"{', '.join(first)} or {last}" if first else last
    if not isinstance(dataset, str):
        raise UserError(f"dataset={shown(dataset)} is not allowed: give text, one of {choice}.")
    kind, colon, path = dataset.partition(":")
    found = sources.get(kind)
    if found is None or (colon and not found.path):
        raise UserError(f"dataset='{shown(dataset)}' is unknown: choose {choice}.")
    if found.path and not path and (colon or not found.optional):
        raise UserError(f"dataset='{dataset}' names no {found.path.split()[0]}: write {kind}:PATH.")
    return found


def task_on(dataset: str, fields: Mapping[str, Any] | None = None, called: Called | None = None) -> Any:
    """The task of a data source, with the fingerprint of a user's data, which have to lie there."""
    model = find_source(dataset, SOURCES).task
    task: Task = _checked(model, {**(fields or {}), "source": dataset}, {**(called or {}), "source": "dataset"})
    return task.model_copy(update={"fingerprint": task.current_fingerprint()})


class TaskParameters(Parameters):
    """Parameters of what is trained on a data source: those of its task, and those of the class."""

    command: ClassVar[str] = "grid"  # whose data sources are meant
    usual: ClassVar[str] = "digits"  # data source where none is given
    own_defaults: ClassVar[Defaults] = None  # by source, beside those of its task

    task: Task

    @classmethod
    def sources(cls) -> dict[str, Source]:
        """The data sources that these parameters are for, by kind."""
        return {kind: source for kind, source in SOURCES.items() if source.task.command == cls.command}

    @classmethod
    def source(cls, dataset: Any) -> Source:
        """The source of `dataset`; `UserError` where these parameters have none."""
        return find_source(dataset, cls.sources())

    @classmethod
    def known(cls, dataset: Any = None) -> dict[str, FieldInfo]:
        """Name -> field of each parameter that the data source has."""
        source = cls.source(dataset or cls.usual)
        fields = {"dataset": Task.model_fields["source"]} | source.task.model_fields | cls.model_fields
        without = ("source", "fingerprint", "task", *source.without, *cls.fixed)
        return {name: field for name, field in fields.items() if name not in without}

    @classmethod
    def defaults(cls, kind: str) -> Mapping[str, Any]:
        """What a source takes where a parameter is left out."""
        source = SOURCES[kind]
        if cls.own_defaults is None:
            return source.defaults
        of_task = {name: value for name, value in source.defaults.items() if name in source.task.model_fields}
        return of_task | cls.own_defaults.get(kind, {})

    @model_validator(mode="before")
    @classmethod
    def _sort(cls, parameters: Any, info: Any) -> Any:
        """Sort flat parameters into the task and the fields of the class, and fill in defaults."""
        load_plugins()
        dataset = parameters.get("dataset") or cls.usual
        source, known = cls.source(dataset), cls.known(dataset)
        defaults = cls.defaults(dataset.split(":", 1)[0])
        given = {}
        for name, value in parameters.items():
            if name not in known and not (name in source.without and is_empty(value)):
                raise UserError(cls._foreign(name, dataset, list(known)))
            if name in known and name != "dataset" and not (name in defaults and is_empty(value, defaults[name])):
                given[name] = value
        fields = {**source.task.model_fields, **cls.model_fields}
        values = {name: value for name, value in defaults.items() if name in fields} | given
        of_task = {name: value for name, value in values.items() if name not in cls.model_fields}
        task = task_on(dataset, cls._task_fields(source, of_task, values), info.context)
        return {name: value for name, value in values.items() if name in cls.model_fields} | {"task": task}

    @classmethod
    def _task_fields(cls, source: Source, fields: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the task, with those that follow from other parameters."""
        return fields

    @classmethod
    def _foreign(cls, name: str, dataset: str, known: list[str]) -> str:
        """The sentence for a parameter that the data source does not have."""
        others = {kind: s for kind, s in cls.sources().items() if name in cls.known(f"{kind}:x" if s.path else kind)}
        if not others:
            return unknown_name(name, known)
        return (
            f"{name} does not belong to dataset='{shown(dataset)}': leave it out, or choose a dataset that has it "
            f"({', '.join(written(others))})."
        )

    @model_serializer(mode="wrap")
    def _flat(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """The parameters as they are set."""
        values = handler(self)
        values |= {"dataset": self.dataset, **self.task.model_dump(mode="json")}
        return {name: values[name] for name in self.known(self.dataset)}

    @property
    def dataset(self) -> str:
        """The data source."""
        return self.task.source


class Grid(TaskParameters, Training, Optimizer):
    """A grid of runs: every paradigm with every seed on one task."""

    paradigms: Schedules = Field(
        COMPARED, description="any of soft, hard, lvml, logit_mixture, hybrid, soft+soft, hard+hard"
    )
    seeds: Seeds = Field((0,), description="each draws instances, initial weights and batch order")
    epochs: Epochs = Field(20, description="epochs of training")
    switch_epoch: int = Field(0, ge=0, description="hybrid: epochs of its first phase; default half")
    learning_rates: Rates = Field((0.05,), min_length=1, description="several are compared on validation")
    hard_learning_rates: Rates = Field((0.05,), min_length=1, description="learning rates of the hybrid's second phase")
    search_epochs: int = Field(0, ge=0, description="epochs after which learning rates are compared; default all")
    focus_network: str = Field("mlp", description="name of the focus network, or mlp:DEPTHxWIDTH")
    classification_network: str = Field("mlp", description="name of the classification network, or mlp:DEPTHxWIDTH")
    encoder: str = Field("", description="of text: embedding or transformer; of bags: mlp or none")

    @classmethod
    def known(cls, dataset: Any = None) -> dict[str, FieldInfo]:
        """Name -> field of each parameter that the data source has."""
        task = cls.source(dataset or cls.usual).task
        without = (*(["encoder"] * (not task.encoders)), *(["memory_layout"] * (not issubclass(task, Mosaics))))
        return {name: field for name, field in super().known(dataset).items() if name not in without}

    @model_validator(mode="after")
    def _check_networks(self) -> Any:
        task = type(self.task)
        for name in ("focus_network", "classification_network"):
            given = getattr(self, name)
            if given and (fault := network_fault(name, given, task.networks, task.shapes)):
                raise ValueError(fault)
        if self.encoder and self.encoder not in task.encoders:
            raise ValueError(f"encoder='{shown(self.encoder)}' is unknown: choose {' or '.join(task.encoders)}")
        for schedule in self.schedules:
            self.phases(schedule)
        return self

    def idle(self) -> Iterable[tuple[str, str]]:
        """Parameters that cannot have an effect beside the others, and why."""
        if not self.schedules:
            yield from ((name, "it belongs to the hybrid") for name in ("switch_epoch", "hard_learning_rates"))
        if max(len(self.learning_rates), len(self.hard_learning_rates)) == 1:
            yield "search_epochs", "there is one learning rate alone"
        if self.optimizer == "adam":
            yield "momentum", "it belongs to SGD"

    def configs(self) -> list[Run]:
        """The runs, paradigm by paradigm, seed by seed."""
        training, model = self._part(Training), self.model(self.focus_network, self.classification_network)
        return [
            Run(data=self.task, model=model, phases=self.phases(paradigm), training=training, seed=seed)
            for paradigm in self.paradigms
            for seed in self.seeds
        ]

    @property
    def schedules(self) -> list[str]:
        """Those of the paradigms that have two phases."""
        return [name for name in self.paradigms if name in SCHEDULES]

    def model(self, focus: str, classifier: str) -> Model:
        """Networks by name; of text the smaller focus network suits a transformer, which is large itself."""
        focus = focus or ("text50" if self.encoder == "transformer" else "text200")
        encoder = "" if self.encoder == "none" else self.encoder
        return Model(focus=focus, classifier=classifier or "text200", encoder=encoder)

    def phases(self, schedule: str, switch: int = 0, rates: tuple[float, ...] = ()) -> tuple[Phase, ...]:
        """The phases of a schedule; with another switch, or with the same rates in each, where these are given."""
        first_rates, second_rates = rates or self.learning_rates, rates or self.hard_learning_rates
        if schedule not in SCHEDULES:
            return (self._phase(schedule, self.epochs, first_rates),)
        first, second = SCHEDULES[schedule].paradigms
        switch = switch or self.switch_epoch or self.epochs // 2
        if not 0 < switch < self.epochs:
            raise ValueError(
                f"switch_epoch={self.switch_epoch} does not lie inside epochs={self.epochs}: "
                "each phase needs at least one epoch"
            )
        return self._phase(first, switch, first_rates), self._phase(second, self.epochs - switch, second_rates)

    def _phase(self, paradigm: str, epochs: int, rates: tuple[float, ...]) -> Phase:
        search = min(self.search_epochs, epochs) if len(rates) > 1 else 0
        return Phase(paradigm=paradigm, epochs=epochs, learning_rates=rates, search_epochs=search,
                     optimizer=self.optimizer, momentum=self.momentum)  # fmt: skip


Counts = Annotated[tuple[Annotated[int, Field(ge=2, le=100_000)], ...], BeforeValidator(as_list), Field(min_length=1)]
Shares = Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], BeforeValidator(as_list), Field(min_length=1)]


class StudyGrid(Grid):
    """A study of mosaics: every combination of the values in its lists."""

    fixed: ClassVar[tuple[str, ...]] = (
        "focus_network", "classification_network", "encoder", "switch_epoch", "keep", "memory_layout", "paper_split",
    )  # fmt: skip

    num_segments: Counts = Field((5,), description="segments of a mosaic, each number a task")
    focus_networks: Names = Field((), description="focus networks, such as linear,mlp:1x32,cnn:2x8:layer")
    classification_networks: Names = Field((), description="classification networks, each with each focus network")
    soft_shares: Shares = Field((0.5,), description="hybrid: shares of the epochs that are soft, each trained")
    each_learning_rate: Rates = Field((), description="rates of all phases, each trained and kept, in their place")
    evaluate_every: Epochs = Field(1_000_000, description="epochs between evaluations; default: each phase's end alone")

    @classmethod
    def sources(cls) -> dict[str, Source]:
        """Pictures alone."""
        return {kind: source for kind, source in SOURCES.items() if issubclass(source.task, Mosaics)}

    @model_validator(mode="after")
    def _check_study(self) -> Any:
        for name in ("focus_networks", "classification_networks"):
            for network in getattr(self, name):
                if fault := network_fault(name[:-1], network, self.task.networks, self.task.shapes):
                    raise ValueError(fault)
        switches = [self._switch(share) for share in self.soft_shares]
        if len(set(switches)) < len(switches):
            raise ValueError(
                f"soft_shares={','.join(map(str, self.soft_shares))} gives two equal switches with "
                f"epochs={self.epochs}: give shares that are further apart, or more epochs"
            )
        return self

    @classmethod
    def of(cls: type[P], parameters: Mapping[str, Any], called: Called | None = None) -> P:
        """Parameters as text or values, checked; the first fault is one sentence (`UserError`)."""
        rates = [name for name in ("learning_rates", "hard_learning_rates") if not is_empty(parameters.get(name, 0))]
        if cls is StudyGrid and rates and not is_empty(parameters.get("each_learning_rate", 0)):
            raise UserError(f"each_learning_rate and {rates[0]} exclude each other: give one.")
        return super().of(parameters, called)

    def idle(self) -> Iterable[tuple[str, str]]:
        """Parameters that cannot have an effect beside the others, and why."""
        yield from super().idle()
        if not self.schedules:
            yield "soft_shares", "it belongs to the hybrid"

    def config(self) -> Study:
        """The study."""
        usual = (self.focus_network,), (self.classification_network,)
        focus, classifiers = self.focus_networks or usual[0], self.classification_networks or usual[1]
        each: list[tuple[float, ...]] = [(rate,) for rate in self.each_learning_rate] or [()]
        schedules = [
            self.phases(paradigm, self._switch(share), rates)
            for rates in each
            for paradigm in self.paradigms
            for share in self.soft_shares
        ]
        return Study(
            tasks=tuple(self.task.model_copy(update={"num_segments": number}) for number in self.num_segments),
            models=tuple(self.model(first, second) for first in focus for second in classifiers),
            schedules=tuple(dict.fromkeys(schedules)),
            seeds=self.seeds,
            training=self._part(Training, memory_layout="channels_last"),
        )

    def _switch(self, share: float) -> int:
        switch = round(share * self.epochs)
        if self.schedules and not 0 < switch < self.epochs:
            raise ValueError(
                f"soft_shares={share:g} of epochs={self.epochs} leaves a phase without an epoch: "
                "give a share nearer to one half, or more epochs"
            )
        return switch


class Ablation(StudyGrid):
    """Three studies on one task: capacities of the networks, the hybrid's switch, and learning rates."""

    num_segments: Counts = Field((5,), max_length=1, description="segments of a mosaic")
    soft_shares: Shares = Field((0.1, 0.25, 0.5, 0.75, 0.9), description="shares of the epochs that are soft")
    each_learning_rate: Rates = Field((0.005, 0.01, 0.02, 0.05, 0.1), min_length=1, description="each is trained")
    paradigms: Schedules = Field(("soft", "hard", "hybrid"), description="soft, hard and hybrid")

    def capacities(self) -> Study:
        """Every focus network with every classification network."""
        return self._study(soft_shares=(0.5,), each_learning_rate=())

    def switches(self) -> Study:
        """The hybrid with each share of soft epochs; all soft is SA, none HA."""
        return self._study(focus_networks=(), classification_networks=(), each_learning_rate=())

    def rates(self) -> Study:
        """Every learning rate for itself."""
        return self._study(focus_networks=(), classification_networks=(), soft_shares=(0.5,))

    def _study(self, **changed: Any) -> Study:
        return self.model_copy(update=changed).config()


class CaptionGrid(TaskParameters, CaptionTraining, CaptionModel):
    """A grid of captioning runs: every paradigm with every seed.

    All paradigms have two phases of the same lengths and learning rates, each with a fresh optimiser, and differ in
    nothing but the loss: soft then soft, hard then hard, and the hybrid's soft then hard.
    """

    command: ClassVar[str] = "caption"
    usual: ClassVar[str] = "scenes"
    own_defaults: ClassVar[Defaults] = CAPTIONS
    losses: ClassVar[dict[str, tuple[str, str]]] = {
        "soft": ("soft", "soft"), "hard": ("hard", "hard"), "hybrid": ("soft", "hard"),
    }  # fmt: skip

    paradigms: Annotated[
        tuple[Literal["soft", "hard", "hybrid"], ...], BeforeValidator(as_names), Field(min_length=1)
    ] = Field(("soft", "hard", "hybrid"), description="any of soft, hard, hybrid (soft, then hard)")
    seeds: Seeds = Field((0,), description="each draws weights, batches and regions; of scenes also the pictures")
    epochs: Epochs = Field(20, description="epochs of training")
    switch_epoch: int = Field(10, ge=0, description="epochs of the first phase")
    encoder_learning_rate: RateOrNone = Field(1e-5, description="of the encoder in the first phase")
    decoder_learning_rate: Rate = Field(1e-3, description="of the decoder in the first phase")
    later_encoder_learning_rate: RateOrNone = Field(1e-7, description="of the encoder in the second phase")
    later_decoder_learning_rate: Rate = Field(1e-5, description="of the decoder in the second phase")

    @classmethod
    def _task_fields(cls, source: Source, fields: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        frozen = values.get("encoder") == "features" and "features" in source.task.model_fields
        return fields | {"features": fields.get("features") or "vgg19"} if frozen else fields

    @model_validator(mode="after")
    def _check_switch(self) -> Any:
        if not 0 < self.switch_epoch < self.epochs:
            raise ValueError(
                f"switch_epoch={self.switch_epoch} does not lie inside epochs={self.epochs}: "
                "give each phase at least one epoch"
            )
        return self

    def configs(self) -> list[CaptionRun]:
        """The runs, paradigm by paradigm, seed by seed."""
        model, training = self._part(CaptionModel), self._part(CaptionTraining)
        return [
            CaptionRun(data=self.task, model=model, phases=self._phases(paradigm), training=training, seed=seed)
            for paradigm in self.paradigms
            for seed in self.seeds
        ]

    def _phases(self, paradigm: str) -> tuple[CaptionPhase, ...]:
        epochs = self.switch_epoch, self.epochs - self.switch_epoch
        encoder = self.encoder_learning_rate, self.later_encoder_learning_rate
        decoder = self.decoder_learning_rate, self.later_decoder_learning_rate
        fields = ("paradigm", "epochs", "encoder_learning_rate", "decoder_learning_rate")
        values = zip(self.losses[paradigm], epochs, encoder, decoder, strict=True)
        return tuple(CaptionPhase.model_validate(dict(zip(fields, each, strict=True))) for each in values)


class SweepGrid(TaskParameters, Training, Momentum):
    """A fixed-focus sweep: every paradigm at every alpha with every seed."""

    usual: ClassVar[str] = "orthogonal"
    fixed: ClassVar[tuple[str, ...]] = ("keep", "memory_layout", "paper_split", "num_validation", "num_test")
    own_defaults: ClassVar[Defaults] = SWEEPS

    paradigms: Annotated[
        tuple[Literal["soft", "hard", "lvml"], ...], BeforeValidator(as_names), Field(min_length=1)
    ] = Field(("soft", "hard", "lvml"), description="any of soft, hard, lvml")
    alphas: Annotated[tuple[Share, ...], BeforeValidator(as_list), Field(min_length=1)] = Field(
        (0.2, 0.4, 0.6, 0.8, 1.0), description="attention weights of the foreground, from 0 to 1"
    )
    seeds: Seeds = Field((0,), description="each draws data, initial weights and batch order")
    epochs: Epochs = Field(100, description="epochs of training")
    soft_learning_rate: Rate = Field(0.05, description="learning rate of soft attention")
    hard_learning_rate: Rate = Field(0.01, description="learning rate of hard attention")
    lvml_learning_rate: Rate = Field(0.05, description="learning rate of LVML")
    classification_network: str = Field("linear", description="name of the classification network")
    initial: Literal["zero", "random"] = Field("random", description="initial weights: zero or random")

    @classmethod
    def sources(cls) -> dict[str, Source]:
        """The orthogonal task and pictures."""
        found = {kind: source for kind, source in SOURCES.items() if issubclass(source.task, Mosaics)}
        return {"orthogonal": SOURCES["orthogonal"]} | found

    @classmethod
    def _task_fields(cls, source: Source, fields: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        return fields | {"num_validation": 1, "num_test": 1}  # a sweep looks at neither

    @model_validator(mode="after")
    def _check_network(self) -> Any:
        if fault := network_fault("classification_network", self.classification_network, self.task.networks):
            raise ValueError(fault)
        return self

    def idle(self) -> Iterable[tuple[str, str]]:
        """Parameters that cannot have an effect beside the others, and why."""
        for paradigm in {"soft", "hard", "lvml"} - set(self.paradigms):
            yield f"{paradigm}_learning_rate", f"{paradigm} is not trained"

    def config(self) -> Sweep:
        """The sweep."""
        return self._part(
            Sweep,
            data=self.task,
            classifier=self.classification_network,
            learning_rates=tuple(getattr(self, f"{paradigm}_learning_rate") for paradigm in self.paradigms),
            training=self._part(Training, memory_layout="contiguous"),
        )


class Folds(Parameters):
    """Repeated cross-validation on a user's bags."""

    dataset: str = Field(description="bags:PATH, an .npz file of bags")
    methods: Annotated[tuple[Method, ...], BeforeValidator(as_names)] = Field(
        (), description=f"any of {', '.join(METHODS)}; default all installed"
    )
    repeats: int = Field(0, ge=0, le=1_000, description="repeated cross-validations; default the file's, else 5")
    epochs: int = Field(20, ge=2, le=1_000_000, description="epochs of each candidate; the hybrid's first half is soft")
    learning_rates: Rates = Field((0.001, 0.003), min_length=1, description="compared on validation bags")
    batch_size: int = Field(16, ge=1, le=10_000_000, description="bags per step")

    def config(self) -> CrossValidation:
        """What is computed; of a file with folds, as many repeats as it names."""
        kind, _, path = self.dataset.partition(":")
        if kind != "bags" or not path:
            raise UserError(f"dataset='{shown(self.dataset)}' cannot be cross-validated: give bags:PATH.")
        named, folds = import_module(SOURCES[kind].loader.split(":")[0]).num_repeats_and_folds(self.dataset)
        if named and self.repeats > named:
            raise UserError(
                f"repeats={self.repeats} is more than dataset='{shown(self.dataset)}' has: give at most {named}."
            )
        installed = (method for method in METHODS if method not in REFERENCES or find_spec("torchmil"))
        return self._part(
            CrossValidation,
            source=self.dataset,
            fingerprint=SOURCES["bags"].task(source=self.dataset).current_fingerprint(),
            methods=self.methods or tuple(installed),
            repeats=self.repeats or named or 5,
            folds=folds,
        )


Segments = Annotated[tuple[Annotated[int, Field(ge=2, le=10_000)], ...], BeforeValidator(as_list), Field(min_length=1)]
FlowCounts = Annotated[tuple[Annotated[int, Field(ge=2, le=10**6)], ...], BeforeValidator(as_list), Field(min_length=1)]
MAX_TRAINED = 20_000  # segments times classes of the setting that is trained as well as solved


class CostParameters(Parameters):
    """What a step costs as instances get more segments: pictures of the digits' size and the digits networks."""

    num_segments: Segments = Field((2, 5, 20, 100, 1_000, 10_000), description="segments that are measured")
    batch_size: int = Field(64, ge=1, le=4_096, description="instances of a step")
    num_pictures: int = Field(20_000, ge=2, le=10**6, description="pictures of the bank that segments are drawn from")
    num_classes: int = Field(3, ge=2, le=1_000, description="classes")
    repeats: int = Field(3, ge=1, le=100, description="times that each step is measured")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    counted_segments: Segments = Field((2, 20, 200), description="segments at which operations and bytes are counted")
    draws: int = Field(20_000, ge=100, le=10**6, description="draws of the sampled losses")
    seed: Seed = Field(0, description="draws pictures, instances, weights and samples")


class FlowParameters(Parameters, Momentum):
    """Settings of the gradient flow; the first is trained by SGD too.

    Source of the defaults: arXiv 2307.13421, the figures of sec. 4.
    """

    num_segments: FlowCounts = Field((20, 100), description="segments of each setting, one of them foreground")
    num_classes: FlowCounts = Field((20, 1000), description="classes of each setting")
    end_times: Numbers = Field((1e3, 4e5), description="time of the flow that each setting ends at")
    seeds: Seeds = Field((0, 1, 2, 3, 4), description="of the training; each draws instances and batches")
    num_train: int = Field(800, ge=2, le=10**5, description="training instances of the first setting")
    epochs: int = Field(20, ge=2, le=10**4, description="of SGD; with the end time they fix the learning rate")
    batch_size: int = Field(40, ge=1, le=10**5, description="instances per step")

    @model_validator(mode="after")
    def _check_lists(self) -> Any:
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

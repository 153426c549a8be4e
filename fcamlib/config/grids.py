"""The parameters of each kind of result, and the configs made from them; the recorded studies by name."""
# ruff: noqa: F403, F405  (the configs made here are those of `results`)

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from importlib import import_module
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fcamlib.config.parameters import SWEEPS, Parameters, TaskParameters, task_on
from fcamlib.config.results import *
from fcamlib.config.sources import SOURCES, require_network
from fcamlib.config.tasks import Names, Several, Some, as_list, require_distinct
from fcamlib.errors import UserError, shown
from fcamlib.paradigms import SCHEDULES

_NETWORKS = ("linear", "mlp:1x8", "mlp:1x64", "mlp:3x64", "mlp:3x64:layer", "mlp:3x64:batch")
_CHOSEN: dict[str, Any] = {"learning_rates": (0.02, 0.05), "search_epochs": 5}  # on validation mosaics of each seed
_ABLATION: dict[str, Any] = {
    "paradigms": ("soft", "hard", "hybrid"), "num_train": 1_000, "num_validation": 500, "num_test": 1_000,
    "epochs": 20, "seeds": (0, 1, 2, 3, 4),
}  # fmt: skip
_SWITCHES = (  # name, data, networks (empty: the default ones), epochs, and the epochs at which the hybrid switches
    ("digits", "digits", (), 20, (1, 2, 3, 5, 10, 15, 19)), ("keywords", "keywords", (), 8, (1, 2, 3, 4, 6, 7)),
    ("mlp", "digits", ("mlp:1x32",), 20, (1, 2, 3, 5, 10, 15, 19)),
    ("motifs", "motifs", (), 16, (1, 2, 4, 6, 8, 10, 12, 15)), ("clouds", "clouds", (), 12, (1, 2, 3, 4, 6, 9, 11)),
)  # fmt: skip
STUDIES: dict[str, dict[str, Any]] = {  # recorded studies, by the names that `fcam study` accepts
    "scale": {"num_segments": (5, 20, 100, 1_000, 5_000), "epochs": 40, "seeds": (0, 1, 2, 3, 4)},
    "capacities": {**_ABLATION, **_CHOSEN, "focus_networks": _NETWORKS, "classification_networks": _NETWORKS},
    "switches": {**_ABLATION, **_CHOSEN, "soft_shares": (0.1, 0.25, 0.5, 0.75, 0.9)},
    **{
        f"switches-{name}": {
            "dataset": dataset,
            "paradigms": ("soft", "hard", "hybrid"),
            "focus_networks": networks,
            "classification_networks": networks,
            "seeds": tuple(range(10)),
            "soft_shares": tuple(round(epoch / epochs, 3) for epoch in switches),
        }
        for name, dataset, networks, epochs, switches in _SWITCHES
    },
    "controls": {"paradigms": ("soft", "hard", "hybrid", "soft+soft", "hard+hard"), "seeds": tuple(range(30))},
    "rates": {**_ABLATION, "each_learning_rate": (0.005, 0.01, 0.02, 0.05, 0.1)},
    **{
        f"lengths-{name}": {"dataset": name, "each_epochs": (once, 2 * once, 4 * once), "seeds": tuple(range(30))}
        for name, once in (("digits", 20), ("keywords", 8), ("motifs", 16), ("clouds", 12))
    },
    "lengths-rates": {"dataset": "motifs", "epochs": 64, "each_learning_rate": (0.01, 0.02), "seeds": tuple(range(30))},
}


def require_two_phases(switch: int, epochs: int, said: str = "", of: str = "epochs") -> None:
    """Refuse a switch that leaves one of two phases without an epoch; `said` and `of` are the user's parameters."""
    if not 0 < switch < epochs:
        said = said or (f"switch_epoch={switch}" if switch else "a switch at half")
        raise UserError(f"{said} with {of}={epochs} leaves a phase without an epoch: give each at least one.")


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

    def idle(self) -> Iterable[tuple[str, str]]:
        if not {*self.paradigms} & {*SCHEDULES}:
            yield from (
                (name, "it belongs to the hybrid") for name in ("switch_epoch", "hard_learning_rates", "soft_shares")
            )
        if max(len(self.learning_rates), len(self.hard_learning_rates)) == 1:
            yield "search_epochs", "there is only one learning rate"
        if self.optimizer == "adam":
            yield "momentum", "it belongs to SGD"

    def configs(self) -> list[Run]:
        """The runs, paradigm by paradigm, seed by seed."""
        model = self.model(self.focus_network, self.classification_network)
        common = {"data": self.task, "model": model, "training": self.part(Training)}
        pairs = product(map(self.phases, self.paradigms), self.seeds)
        return [Run(**common, phases=phases, seed=seed) for phases, seed in pairs]

    def model(self, focus: str, classifier: str) -> Model:
        """Networks by name; for text, a transformer gets the smaller focus network by default."""
        focus = focus or ("text50" if self.encoder == "transformer" else "text200")
        classifier = classifier or "text200"
        for name, network in (("focus_network", focus), ("classification_network", classifier)):
            require_network(name, network, self.task.networks, self.task.shapes)
        encoder = "" if self.encoder == "none" else self.encoder
        return Model(focus=focus, classifier=classifier, encoder=encoder)

    def phases(
        self, schedule: str, share: float = 0.0, rates: tuple[float, ...] = (), epochs: int = 0
    ) -> tuple[Phase, ...]:
        """The phases of a schedule, if given with this share of epochs in the first, these rates, this many epochs."""
        first_rates, second_rates = rates or self.learning_rates, rates or self.hard_learning_rates
        epochs, of = (epochs, "each_epochs") if epochs else (self.epochs, "epochs")
        if schedule not in SCHEDULES:
            return (self._phase(schedule, epochs, first_rates),)
        first, second = SCHEDULES[schedule].paradigms
        switch = round(share * epochs) if share else self.switch_epoch or epochs // 2
        require_two_phases(switch, epochs, f"soft_shares={share:g}" if share else "", of)
        return self._phase(first, switch, first_rates), self._phase(second, epochs - switch, second_rates)

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
        (), description="numbers of segments, one task each; default 5 for digits"
    )
    focus_networks: Names = Field((), description="focus networks, such as linear,mlp:1x32,cnn:2x8:layer")
    classification_networks: Names = Field((), description="classification networks, combined with each focus network")
    soft_shares: Some[Annotated[float, Field(gt=0, lt=1)]] = Field(
        (0.5,), description="hybrid: shares of the epochs in its first phase"
    )
    each_epochs: Several[Epochs] = Field((), description="numbers of epochs to train separately")
    each_learning_rate: Several[Rate] = Field(
        (), description="learning rates to train separately; each replaces the rates of all phases"
    )
    evaluate_every: Epochs = Field(1_000_000, description="epochs between evaluations; default: only at phase ends")

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
        if self.each_learning_rate:
            yield from ((f"{which}learning_rates", "each_learning_rate takes its place") for which in ("", "hard_"))
        if self.each_epochs:
            yield "epochs", "each_epochs takes its place"

    def config(self, **changed: Any) -> Study:
        """The study; `changed` overrides parameters, such as `soft_shares=(0.5,)`."""
        if changed:
            return self.model_copy(update=changed).config()
        tasks = tuple(self.task.model_copy(update={"num_segments": number}) for number in self.num_segments)
        focus = self.focus_networks or (self.focus_network,)
        classifiers = self.classification_networks or (self.classification_network,)
        rates = tuple((rate,) for rate in self.each_learning_rate) or ((),)
        varied = product(self.each_epochs or (0,), rates, self.paradigms, self.soft_shares)
        schedules = (self.phases(name, share, own, epochs) for epochs, own, name, share in varied)
        return Study(
            tasks=tasks or (self.task,),
            models=tuple(self.model(*pair) for pair in product(focus, classifiers)),
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
            fault = f"repeats={self.repeats} exceeds the repeats in dataset='{shown(self.dataset)}'"
            raise UserError(f"{fault}: give at most {named}.")
        known = {"source": self.dataset, "fingerprint": task_on(self.dataset).fingerprint, "folds": folds}
        return self.part(CrossValidation, **known, repeats=self.repeats or named or 5)


class CaptionGrid(TaskParameters, CaptionTraining, CaptionModel):
    """A grid of captioning runs: every paradigm with every seed.

    All paradigms have two phases of the same lengths and learning rates, the hybrid soft then hard.
    """

    command: ClassVar[str] = "caption"
    usual: ClassVar[str] = "scenes"
    paradigms: Some[Literal["soft", "hard", "hybrid"]] = Field(
        ("soft", "hard", "hybrid"), description="any of soft, hard, hybrid (soft, then hard)"
    )
    seeds: Seeds = Field((0,), description="each draws weights, batches and regions, and the pictures of scenes")
    epochs: Epochs = Field(20, description="epochs of training")
    switch_epoch: int = Field(10, ge=0, description="epochs of the first phase")
    encoder_learning_rate: RateOrNone = Field(1e-5, description="of the encoder in the first phase")
    decoder_learning_rate: Rate = Field(1e-3, description="of the decoder in the first phase")
    later_encoder_learning_rate: RateOrNone = Field(1e-7, description="of the encoder in the second phase")
    later_decoder_learning_rate: Rate = Field(1e-5, description="of the decoder in the second phase")

    @classmethod
    def _task_fields(cls, fields: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        return fields | ({"features": ""} if "features" in fields and own["encoder"] != "features" else {})

    @model_validator(mode="after")
    def _check_switch(self) -> Any:
        require_two_phases(self.switch_epoch, self.epochs)
        if self.encoder == "features" and not getattr(self.task, "features", ""):
            raise UserError(f"encoder=features does not belong to dataset='{self.dataset}': choose smallcnn.")
        return self

    def idle(self) -> Iterable[tuple[str, str]]:
        if self.paradigms == ("soft",):
            yield from ((name, "hard is not trained") for name in ("credit", "baseline_momentum", "entropy_weight"))
        frozen = ("region_dim", "encoder_learning_rate", "later_encoder_learning_rate")
        for name in frozen if self.encoder == "features" else ("features", "weights"):
            yield name, f"encoder={self.encoder} does not use it"

    def configs(self) -> list[CaptionRun]:
        """The runs, paradigm by paradigm, seed by seed."""
        common = {"data": self.task, "model": self.part(CaptionModel), "training": self.part(CaptionTraining)}
        pairs = product(map(self._phases, self.paradigms), self.seeds)
        return [CaptionRun(**common, phases=phases, seed=seed) for phases, seed in pairs]

    def _phases(self, paradigm: str) -> tuple[CaptionPhase, CaptionPhase]:
        first, second = SCHEDULES[paradigm].paradigms if paradigm in SCHEDULES else (paradigm, paradigm)
        later = {name: getattr(self, f"later_{name}") for name in ("encoder_learning_rate", "decoder_learning_rate")}
        return (
            self.part(CaptionPhase, paradigm=first, epochs=self.switch_epoch),
            CaptionPhase(paradigm=second, epochs=self.epochs - self.switch_epoch, **later),
        )


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
        require_network("classification_network", self.classification_network, self.task.networks, self.task.shapes)
        return self

    def idle(self) -> Iterable[tuple[str, str]]:
        for paradigm in {"soft", "hard", "lvml"} - set(self.paradigms):
            yield f"{paradigm}_learning_rate", f"{paradigm} is not trained"

    def config(self) -> Sweep:
        """The sweep."""
        rates = tuple(getattr(self, f"{paradigm}_learning_rate") for paradigm in self.paradigms)
        own = {"classifier": self.classification_network, "learning_rates": rates}
        return self.part(Sweep, data=self.task, **own, training=self.part(Training, memory_layout="contiguous"))


def grid_of(parameters: Mapping[str, Any]) -> Grid | CaptionGrid:
    """The grid of a profile's document: of captioning runs if its data source has captions."""
    kind = str(parameters.get("dataset", "")).partition(":")[0]
    return (CaptionGrid if kind in CaptionGrid.sources() else Grid).of(parameters)


SINGLE: dict[str, Any] = {"study": StudyGrid, "sweep": SweepGrid, "crossval": Folds}  # commands with one result


def configs_of(document: Mapping[str, Any]) -> list[Any]:
    """The configs of a profile's document: of its grid, or of the `command` in it, for a study with its `name`."""
    given = dict(document)
    command = str(given.pop("command", "grid"))
    if command == "grid":
        return grid_of(given).configs()
    if command not in SINGLE:
        raise UserError(f"command='{shown(command)}' is unknown: choose one of grid, {', '.join(SINGLE)}.")
    if command == "study" and "name" in given:
        if (name := str(given.pop("name"))) not in STUDIES:
            raise UserError(f"name='{shown(name)}' is not a study: choose one of {', '.join(STUDIES)}.")
        given = STUDIES[name] | given
    return [SINGLE[command].of(given).config()]


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
    """Settings of the gradient flow; the first is also trained by SGD. Source: arXiv 2307.13421, figures of sec. 4."""

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
    def _check_lists(self) -> Any:  # in place of the check of all parameters: settings may share a value
        require_distinct(self, but=("num_segments", "num_classes", "end_times"))
        for name in ("num_classes", "end_times"):
            if (given := len(getattr(self, name))) != (needed := len(self.num_segments)):
                raise UserError(f"{name} has {given} values and num_segments {needed}: give one for each setting.")
        if (size := self.num_segments[0] * self.num_classes[0]) > MAX_TRAINED:
            fault = f"num_segments times num_classes is {size:,} in the first setting, which is too large to train"
            raise UserError(f"{fault}: begin with a setting of at most {MAX_TRAINED:,}.")
        return self

    def settings(self) -> list[tuple[int, int, float]]:
        """Segments, classes and end time of each setting."""
        return list(zip(self.num_segments, self.num_classes, self.end_times, strict=True))

    @property
    def steps(self) -> int:
        return self.epochs * math.ceil(self.num_train / self.batch_size)

"""Configs of results: everything on which their numbers depend. The hash of a config names the result's folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationError, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from fcamlib.config.sources import load_plugins, short_source
from fcamlib.config.tasks import AnyTask, Frozen, Some, Words
from fcamlib.errors import UserError, explain, shown
from fcamlib.paradigms import PAPER, PARADIGMS, SCHEDULES

COMPARED = (*PAPER, "hybrid")  # paradigms of a grid by default
REFERENCES = ("abmil", "gated-abmil")  # from the library torchmil
METHODS = (*COMPARED, *REFERENCES)


def installed_methods() -> tuple[str, ...]:
    """The methods of a cross-validation that are installed."""
    return METHODS if find_spec("torchmil") else COMPARED


def among(names: Callable[[], Iterable[str]]) -> AfterValidator:
    """Check that a name is one of `names()`, which registration can extend."""

    def check(value: str) -> str:
        *known, last = names()
        if value not in (*known, last):
            raise PydanticCustomError("choice", "choose {choice}", {"choice": f"{', '.join(known)} or {last}"})
        return value

    return AfterValidator(check)


Paradigm = Annotated[str, among(lambda: PARADIGMS)]
Schedule = Annotated[str, among(lambda: (*PARADIGMS, *SCHEDULES))]
Method = Annotated[str, among(lambda: METHODS)]
Precision = Literal["float64", "float32", "tfloat32", "bfloat16"]
Layout = Literal["channels_last", "contiguous"]
Epochs = Annotated[int, Field(ge=1, le=1_000_000)]
Layer = Annotated[int, Field(ge=1, le=65_536)]
Threads = Annotated[int, Field(ge=1, le=256, description="CPU threads")]
BatchSize = Annotated[int, Field(ge=1, le=10_000_000)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Rate = Annotated[float, Field(gt=0, le=100)]
RateOrNone = Annotated[float, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Seeds = Some[Seed]
Rates = Some[Rate]


class Momentum(Frozen):
    """SGD with momentum."""

    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")


class Optimizer(Momentum):
    """SGD or Adam."""

    optimizer: Literal["sgd", "adam"] = Field("sgd", description="sgd or adam")


class Phase(Optimizer):
    """A phase of training with one loss and a fresh optimiser."""

    paradigm: Paradigm = Field(description="training loss of the phase")
    epochs: Epochs = Field(description="passes over the training instances")
    learning_rates: Some[Annotated[float, Field(gt=0)]] = Field(description="the best on validation data is used")
    search_epochs: int = Field(0, ge=0, description="epochs after which learning rates are compared; 0 means all")

    @property
    def compared_after(self) -> int:
        """Epochs after which candidate learning rates are compared: all if there is no search."""
        return min(self.search_epochs, self.epochs) or self.epochs

    def is_measured(self, epoch: int, evaluate_every: int) -> bool:
        """Whether validation and test data are measured after `epoch`, counted from 1."""
        return epoch in (self.compared_after, self.epochs) or epoch % evaluate_every == 0

    @property
    def steps(self) -> int:
        """Epochs of the phase, including those of rejected learning rates."""
        return (len(self.learning_rates) - 1) * self.compared_after + self.epochs


class Model(Frozen):
    """Networks by name; see `fcamlib.networks`."""

    focus: str = Field(description="focus network")
    classifier: str = Field(description="classification network")
    encoder: str = Field("", description="encoder of the segments; empty means none")

    @model_serializer(mode="wrap")
    def _without_absent_encoder(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Leave an absent encoder out, so that it does not enter the hash."""
        return {name: value for name, value in handler(self).items() if name != "encoder" or value}


class Computing(Frozen):
    """Numerical settings. None of them adapts to the speed of the machine."""

    batch_size: BatchSize = Field(256, description="instances per step")
    precision: Precision = Field("float32", description="float64, float32, tfloat32 (on a GPU) or bfloat16 (autocast)")
    threads: Threads = 1
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: CUDA where present, except in float64")
    evaluate_every: Epochs = Field(1, description="epochs between evaluations on validation and test")


class Training(Computing):
    """Training of a model of segments."""

    memory_layout: Layout = Field("channels_last", description="of pictures: channels_last or contiguous")
    keep: Literal["last", "best"] = Field("last", description="keep a phase's last weights, or its best on validation")


class Comparison(Frozen):
    """Training of a cross-validation on each fold."""

    methods: Some[Method] = Field(
        default_factory=installed_methods, description=f"any of {', '.join(METHODS)}; default all installed"
    )
    epochs: int = Field(20, ge=2, le=1_000_000, description="epochs of each candidate; the hybrid's first half is soft")
    learning_rates: Rates = Field((0.001, 0.003), description="compared on validation bags")
    batch_size: BatchSize = Field(16, description="bags per step")


class Config(Frozen):
    """Base of the configs that define stored results; a field `kind` (none: `Run`) gives the class to `read`."""

    compute: ClassVar[str]  # "module:function" that computes the result, imported when called
    label: ClassVar[str]  # readable part of the name, with {0} for the config
    group: ClassVar[str] = "runs"  # title of its kind in `fcam list`

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON of the portable config."""
        content = self.portable.model_dump(mode="json")
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name of the result's folder: readable, ending in the first 8 hexadecimal digits of `digest`."""
        return f"{self.label.format(self)}-{self.digest[:8]}"

    @property
    def steps(self) -> int:
        """Number of epochs, or of trainings, in the computation."""
        return sum(phase.steps for phase in getattr(self, "phases", ()))


class Run(Config):
    """One training."""

    compute: ClassVar[str] = "fcamlib.running:run"
    label: ClassVar[str] = "{0.data.slug}-{0.paradigm}-s{0.seed}"
    data: AnyTask
    model: Model
    phases: Some[Phase]
    training: Training = Training()
    seed: Seed = Field(description="draws mosaics, initial weights and batch order")

    @property
    def paradigm(self) -> str:
        """Name of the schedule: the loss of the only phase, "hybrid" for soft then hard, otherwise joined by "+"."""
        names = tuple(phase.paradigm for phase in self.phases)
        return next((name for name, schedule in SCHEDULES.items() if schedule.paradigms == names), "+".join(names))

    @property
    def aggregation(self) -> str:
        """Prediction rule of the trained model."""
        return self.phases[-1].paradigm


class Study(Config):
    """Every task with every model, schedule and seed, kept as one table."""

    compute: ClassVar[str] = "fcamlib.running:study"
    label: ClassVar[str] = "study-{0.tasks[0].slug}-{0.shape}"  # with the numbers of settings and seeds
    group: ClassVar[str] = "studies"
    kind: Literal["study"] = "study"
    tasks: Some[AnyTask] = Field(description="data sets for training and testing")
    models: Some[Model] = Field(description="focus and classification networks")
    schedules: Some[tuple[Phase, ...]] = Field(description="phases of training")
    seeds: Seeds = Field(description="each draws data, initial weights and batch order")
    training: Training = Training()

    @property
    def shape(self) -> str:
        return f"{self.steps // len(self.seeds)}x{len(self.seeds)}"

    def runs(self) -> Iterator[Run]:
        """The runs, grouped by data."""
        for task, seed, model, phases in product(self.tasks, self.seeds, self.models, self.schedules):
            yield Run(data=task, model=model, phases=phases, training=self.training, seed=seed)

    @property
    def steps(self) -> int:
        return len(self.tasks) * len(self.models) * len(self.schedules) * len(self.seeds)


class CrossValidation(Config, Comparison):
    """Every method on every fold of every repeat, all with the same splits, encoder, optimiser and selection.

    On each fold all learning rates start from the same weights; the one with the highest validation accuracy at its
    best epoch (ties: lowest validation loss) is kept, with the weights of that epoch.
    """

    compute: ClassVar[str] = "fcamlib.crossval:cross_validation"
    label: ClassVar[str] = "{0.slug}-cv{0.repeats}x{0.folds}"
    group: ClassVar[str] = "cross-validations"
    kind: Literal["cross-validation"] = "cross-validation"
    source: str = Field(description="bags:PATH")
    fingerprint: str = Field(description="sha256 of the file")
    repeats: int = Field(ge=1, le=1_000, description="repeated cross-validations")
    folds: int = Field(ge=2, le=1_000, description="folds per repeat")
    validation_share: float = Field(0.2, gt=0, lt=1, description="share of the training bags held out")
    threads: Threads = 1

    @property
    def slug(self) -> str:
        return short_source(self.source)

    @property
    def steps(self) -> int:
        return self.repeats * self.folds * len(self.methods)


class CaptionPhase(Frozen):
    """A phase of training with one loss, a fresh optimiser (Adam) and a fresh baseline."""

    paradigm: Literal["soft", "hard"] = Field(description="soft, or hard by REINFORCE")
    epochs: Epochs = Field(description="passes over the training captions")
    encoder_learning_rate: RateOrNone = Field(description="of the encoder; unused with frozen features")
    decoder_learning_rate: Rate = Field(description="of all other weights")

    @property
    def steps(self) -> int:
        return self.epochs


class CaptionModel(Frozen):
    """Sizes of encoder and decoder; the defaults are the paper's. Source: arXiv 2307.13421, experiments on MSCOCO."""

    encoder: Literal["smallcnn", "features"] = Field("features", description="smallcnn, or frozen features")
    region_dim: Layer = Field(512, description="features of a smallcnn region")
    attention_dim: Layer = Field(256, description="units of additive attention")
    embedding_dim: Layer = Field(512, description="features of a word")
    hidden_dim: Layer = Field(512, description="units of the LSTM")
    state_sees: Literal["region", "word"] = Field("region", description="LSTM input: word and region, or only the word")
    start_state: Literal["zero", "mean"] = Field("mean", description="initial state; mean: of the regions")


class CaptionTraining(Computing):
    """Training and decoding of a captioning model."""

    batch_size: BatchSize = Field(100, description="captions per step")
    gradient_clip: float = Field(5.0, gt=0, description="largest norm of the gradient of all weights")
    teacher_forcing: Share = Field(1.0, description="probability that a step reads the given word")
    baseline_momentum: float = Field(0.9, ge=0, lt=1, description="of the reward baseline, a moving average")
    credit: Literal["caption", "rest"] = Field("caption", description="a region's reward: whole caption or rest of it")
    entropy_weight: RateOrNone = Field(0.0, description="weight of attention's entropy in the hard loss")
    max_words: Words = Field(15, description="most words of a decoded caption")


class CaptionRun(Config):
    """One training of a captioning model."""

    compute: ClassVar[str] = "fcamlib.captioning.training:compute"
    label: ClassVar[str] = "captions-{0.data.slug}-{0.paradigm}-s{0.seed}"
    group: ClassVar[str] = "captions"
    kind: Literal["captions"] = "captions"
    data: AnyTask
    model: CaptionModel
    phases: Some[CaptionPhase]
    training: CaptionTraining = CaptionTraining()
    seed: Seed = Field(description="draws weights, batches and regions, and the pictures of scenes")

    @property
    def paradigm(self) -> str:
        """Name of the schedule; two phases with the same loss are named once."""
        names = dict.fromkeys(phase.paradigm for phase in self.phases)
        return "hybrid" if tuple(names) == SCHEDULES["hybrid"].paradigms else "+".join(names)

    @property
    def prefix(self) -> CaptionRun | None:
        """The run of all phases but the last, from whose weights this one continues; None for a single phase."""
        return self.model_copy(update={"phases": self.phases[:-1]}) if len(self.phases) > 1 else None


class FixedFocus(Momentum):
    """Training at fixed attention weights."""

    paradigms: Some[Literal["soft", "hard", "lvml"]] = Field(
        ("soft", "hard", "lvml"), description="any of soft, hard, lvml"
    )
    alphas: Some[Share] = Field((0.2, 0.4, 0.6, 0.8, 1.0), description="attention weights of the foreground, 0 to 1")
    seeds: Seeds = Field((0,), description="each draws data, initial weights and batch order")
    epochs: Epochs = Field(100, description="epochs of training")
    initial: Literal["zero", "random"] = Field("random", description="initial weights: zero or random")


class Sweep(Config, FixedFocus):
    """The classification model trained for every fixed attention weight, paradigm and seed."""

    compute: ClassVar[str] = "fcamlib.theory.sweep:compute"
    label: ClassVar[str] = "fixed-focus-{0.data.slug}"
    group: ClassVar[str] = "fixed-focus sweeps"
    kind: Literal["fixed_focus"] = "fixed_focus"
    data: AnyTask
    classifier: str = Field(description="classification network")
    learning_rates: Rates = Field(description="one rate per paradigm, in their order")
    training: Training = Training()

    @model_validator(mode="after")
    def _check_lengths(self) -> Any:
        if (given := len(self.learning_rates)) != (needed := len(self.paradigms)):
            raise UserError(f"learning_rates has {given} values for {needed} paradigms: give one for each.")
        return self

    @property
    def steps(self) -> int:
        return self.epochs


def read(content: bytes) -> Config:
    """The config in a config.json; the field `kind` gives its class. Raises `UserError` if it is invalid."""
    load_plugins()
    kinds = {one.model_fields["kind"].default: one for one in Config.__subclasses__() if "kind" in one.model_fields}
    kind: Any = None
    with suppress(ValueError, RecursionError, AttributeError):  # `checked` refuses what is not a JSON object
        kind = json.loads(content).get("kind")
    if kind is not None and kind not in [*kinds]:
        choice = f"choose {', '.join(kinds)}, or leave it out for a run"
        raise UserError(f"kind={shown(repr(kind), 60)} is not allowed: {choice}.")
    return checked(Run if kind is None else kinds[kind], content)


def checked(model: Any, values: Any, called: Mapping[str, str] | None = None) -> Any:
    """An instance of `model` from values or JSON; the first error becomes one sentence (`UserError`)."""
    try:
        return model.model_validate_json(values) if isinstance(values, bytes) else model.model_validate(dict(values))
    except ValidationError as error:
        raise UserError(explain(error, model, called)) from None

"""Results: what their numbers depend on. The hash of a config's JSON names the result's folder in the store."""

from __future__ import annotations

import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationError, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from fcamlib import paradigms
from fcamlib.config.sources import load_plugins, portable_source, short_source
from fcamlib.config.tasks import Count, Frozen, task_of
from fcamlib.errors import UserError, explain, shown

COMPARED = (*paradigms.PAPER, "hybrid")  # what a grid trains where nothing is said
REFERENCES = ("abmil", "gated-abmil")  # from the library torchmil
METHODS = (*COMPARED, *REFERENCES)


def one_of(names: Callable[[], tuple[str, ...]]) -> Any:
    """The type of a name among `names()`, which may grow by registration."""

    def check(value: str) -> str:
        if value not in (known := names()):
            choice = ", ".join(known[:-1]) + f" or {known[-1]}"
            raise PydanticCustomError("choice", "choose {choice}", {"choice": choice})
        return value

    return Annotated[str, AfterValidator(check)]


if TYPE_CHECKING:
    Paradigm = str
    Schedule = str
    Method = str
    GridTask = Any
    SweepTask = Any
    CaptionTask = Any
else:
    Paradigm = one_of(lambda: tuple(paradigms.PARADIGMS))
    Schedule = one_of(lambda: (*paradigms.PARADIGMS, *paradigms.SCHEDULES))
    Method = one_of(lambda: METHODS)
    GridTask, SweepTask, CaptionTask = task_of("grid"), task_of("sweep", "grid"), task_of("caption")
Precision = Literal["float64", "float32", "tfloat32", "bfloat16"]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Rate = Annotated[float, Field(gt=0, le=100)]
RateOrNone = Annotated[float, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Epochs = Annotated[int, Field(ge=1, le=1_000_000)]
Size = Annotated[int, Field(ge=1, le=65_536)]

# --- networks by name -------------------------------------------------------------------------------------------------

OUTSIDE: list[str] = []  # networks registered by other packages, which may be named with every task
_SHAPE = re.compile(r"(mlp|cnn):([1-9]\d{0,5})x([1-9]\d{0,5})(?::(batch|layer))?")
_LARGEST = {"depth": 32, "width": 8_192}


@dataclass(frozen=True)
class NetworkShape:
    """What a name such as `mlp:2x64:layer` says: `depth` hidden layers of `width` units or filters, normalised."""

    kind: str
    depth: int
    width: int
    norm: str = ""


def register_network(name: str) -> None:
    """Let configs name a network; `fcamlib.networks.register` calls it."""
    OUTSIDE.append(name)


def network_shape(name: str) -> NetworkShape:
    """Depth, width and normalisation in a name; `ValueError`, a sentence without its full stop, where it is wrong."""
    found = _SHAPE.fullmatch(name)
    if found is None:
        form = "KIND:DEPTHxWIDTH, and :batch or :layer after it for a normalisation"
        raise ValueError(f"'{shown(name)}' is not understood: write {form}, such as mlp:2x64 or mlp:2x64:layer")
    kind, depth, width, norm = found.groups(default="")
    for word, value in (("depth", int(depth)), ("width", int(width))):
        if value > _LARGEST[word]:
            raise ValueError(f"'{name}' has {word} {value}: give at most {_LARGEST[word]}")
    return NetworkShape(kind, int(depth), int(width), norm)


def network_fault(field: str, name: str, known: Sequence[str], shapes: Sequence[str] = ("mlp", "cnn")) -> str:
    """What is wrong with the name of a network, as a sentence without its full stop; empty where nothing is."""
    if name in known or name in OUTSIDE:
        return ""
    if name.split(":", 1)[0] not in shapes or ":" not in name:
        forms = " or ".join(f"{kind}:DEPTHxWIDTH" for kind in shapes)
        names = ", ".join([*known, *OUTSIDE])
        return f"{field}='{shown(name)}' is unknown: choose one of {names}, or {forms}, such as {shapes[0]}:2x64"
    try:
        network_shape(name)
    except ValueError as error:
        return f"{field}={error}"
    return ""


def written_first(*names: str) -> Any:
    """A serializer that writes these fields first, since config.json keeps its bytes whatever a class inherits."""

    def ordered(self: Frozen, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        content = handler(self)
        return {name: content[name] for name in names if name in content} | content

    return model_serializer(mode="wrap")(ordered)


# --- how it is trained ------------------------------------------------------------------------------------------------


class Momentum(Frozen):
    """SGD with momentum."""

    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")


class Optimizer(Momentum):
    """SGD or Adam."""

    optimizer: Literal["sgd", "adam"] = Field("sgd", description="sgd or adam")


class Phase(Optimizer):
    """One stretch of training with one loss and a fresh optimiser."""

    paradigm: Paradigm = Field(description="training loss of the phase")
    epochs: Epochs = Field(description="passes over the training instances")
    learning_rates: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        min_length=1, description="learning rate; the best on validation where there are several"
    )
    search_epochs: int = Field(0, ge=0, description="epochs after which learning rates are compared; 0 means all")
    _written = written_first("paradigm", "epochs", "learning_rates", "search_epochs", "optimizer")

    @model_validator(mode="after")
    def _check_search(self) -> Phase:
        if self.search_epochs > self.epochs:
            raise ValueError(
                f"search_epochs={self.search_epochs} is more than epochs={self.epochs}: give at most those"
            )
        return self

    @property
    def compared_after(self) -> int:
        """Epochs after which learning rates are compared."""
        return self.search_epochs or self.epochs

    def is_measured(self, epoch: int, evaluate_every: int) -> bool:
        """Whether validation and test data are measured after `epoch`, counted from 1."""
        return epoch in (self.compared_after, self.epochs) or epoch % evaluate_every == 0

    @property
    def steps(self) -> int:
        """Epochs that the phase costs, with those of the learning rates that lose."""
        return (len(self.learning_rates) - 1) * self.compared_after + self.epochs


class Model(Frozen):
    """Networks by name, see `fcamlib.networks` and `fcamlib.encoders`."""

    focus: str = Field(description="focus network")
    classifier: str = Field(description="classification network")
    encoder: str = Field("", description="encoder of the segments; empty means none")

    @model_serializer(mode="wrap")
    def _without_absent_encoder(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Leave an absent encoder out, so that it does not count in the hash."""
        return {name: value for name, value in handler(self).items() if name != "encoder" or value}


class Computing(Frozen):
    """How the numbers are computed. Nothing here is picked by what a machine does faster."""

    batch_size: int = Field(256, ge=1, le=10_000_000, description="instances per step")
    precision: Precision = Field(
        "float32", description="float64, float32, tfloat32 (float32 on a CPU) or bfloat16 (by autocast)"
    )
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto (CUDA when present, except in float64), cpu or cuda"
    )
    evaluate_every: Epochs = Field(1, description="epochs between evaluations on validation and test")


class Training(Computing):
    """How a model of segments is trained."""

    memory_layout: Literal["channels_last", "contiguous"] = Field(
        "channels_last", description="layout of pictures in memory: channels_last or contiguous"
    )
    keep: Literal["last", "best"] = Field(
        "last", description="weights a phase ends with: its last epoch's, or its best by validation accuracy"
    )
    _written = written_first("batch_size", "precision", "memory_layout", "threads", "device", "keep")


class CaptionPhase(Frozen):
    """One stretch of training with one loss, a fresh optimiser (Adam) and a fresh baseline."""

    paradigm: Literal["soft", "hard"] = Field(description="soft, or hard by REINFORCE")
    epochs: Epochs = Field(description="passes over the training captions")
    encoder_learning_rate: RateOrNone = Field(description="of the encoder; without effect on features")
    decoder_learning_rate: Rate = Field(description="of everything else")

    @property
    def steps(self) -> int:
        """Epochs that the phase costs."""
        return self.epochs


class CaptionModel(Frozen):
    """Sizes of encoder and decoder. The paper's are the defaults; source: arXiv 2307.13421, experiments on MSCOCO."""

    encoder: Literal["smallcnn", "features"] = Field(
        "features", description="smallcnn, trained from scratch, or frozen features"
    )
    region_dim: Size = Field(512, description="numbers of a region of smallcnn")
    attention_dim: Size = Field(256, description="units of additive attention")
    embedding_dim: Size = Field(512, description="numbers of a word's vector")
    hidden_dim: Size = Field(512, description="units of the LSTM")
    state_sees: Literal["region", "word"] = Field(
        "region", description="LSTM's input: the word before and the attended region, or that word alone"
    )
    start_state: Literal["zero", "learned", "mean"] = Field(
        "mean", description="LSTM's first state: zero, learned, or from the mean region"
    )


class CaptionTraining(Computing):
    """How a captioning model is trained and read out."""

    batch_size: int = Field(100, ge=1, le=10_000_000, description="captions per step")
    gradient_clip: float = Field(5.0, gt=0, description="largest norm of the gradient of all weights")
    teacher_forcing: Share = Field(
        1.0, description="probability that the word before is the caption's own, not the model's guess"
    )
    baseline_momentum: float = Field(0.9, ge=0, lt=1, description="of the moving average of rewards, subtracted")
    credit: Literal["caption", "rest"] = Field(
        "caption", description="rewards a region with the log probability of the caption, or of its rest"
    )
    entropy_weight: float = Field(0.0, ge=0, le=100, description="weight of attention's entropy in the hard loss")
    max_words: int = Field(15, ge=1, le=1_000, description="words after which decoding stops")
    _written = written_first(
        "batch_size",
        "gradient_clip",
        "teacher_forcing",
        "baseline_momentum",
        "credit",
        "entropy_weight",
        "max_words",
    )


# --- what is stored ---------------------------------------------------------------------------------------------------


class Config(Frozen):
    """What a stored result depends on.

    A class other than `Run` has a field `kind: Literal["..."] = "..."`, by which `read` finds it. `compute` names the
    function that computes the result, "module:function"; it is imported when it is called.
    """

    compute: ClassVar[str]
    group: ClassVar[str] = "runs"  # title of its kind in `fcam list`

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON of what the result depends on."""
        content = self.portable.model_dump(mode="json")
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    @property
    def name(self) -> str:
        """Folder of the result: readable, ending in the first 8 hex digits of `digest`."""
        return f"{self.label}-{self.digest[:8]}"

    @property
    @abstractmethod
    def label(self) -> str:
        """Readable part of the name."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Epochs, or trainings, that computing takes."""

    @property
    def portable(self) -> Any:
        """The same without what only one machine knows, such as where a folder lies."""

        def moved(value: Any) -> Any:
            return tuple(map(moved, value)) if isinstance(value, tuple) else getattr(value, "portable", value)

        return self.model_copy(update={name: moved(getattr(self, name)) for name in type(self).model_fields})


def schedule_of(names: tuple[str, ...]) -> str:
    """Name of a schedule of paradigms: the only one, "hybrid" for soft then hard, otherwise joined by "+"."""
    known = {schedule.paradigms: name for name, schedule in paradigms.SCHEDULES.items()}
    return known.get(names, "+".join(names))


class Run(Config):
    """One training."""

    compute: ClassVar[str] = "fcamlib.running:run"
    data: GridTask
    model: Model
    phases: tuple[Phase, ...] = Field(min_length=1)
    training: Training = Training()
    seed: Seed = Field(description="draws mosaics, initial weights and the order of batches")

    @property
    def paradigm(self) -> str:
        """Name of the schedule."""
        return schedule_of(tuple(phase.paradigm for phase in self.phases))

    @property
    def aggregation(self) -> str:
        """How the trained model predicts: as the paradigm of its last phase does."""
        return self.phases[-1].paradigm

    @property
    def label(self) -> str:
        """Readable part of the name."""
        return f"{self.data.slug}-{self.paradigm}-s{self.seed}"

    @property
    def steps(self) -> int:
        """Epochs of all phases."""
        return sum(phase.steps for phase in self.phases)


class CaptionRun(Config):
    """One training of a captioning model."""

    compute: ClassVar[str] = "fcamlib.captioning.training:compute"
    group: ClassVar[str] = "captions"
    kind: Literal["captions"] = "captions"
    data: CaptionTask
    model: CaptionModel
    phases: tuple[CaptionPhase, ...] = Field(min_length=1)
    training: CaptionTraining = CaptionTraining()
    seed: Seed = Field(description="draws weights, batches and regions; of scenes also the pictures")

    @property
    def paradigm(self) -> str:
        """Name of the schedule; phases of one loss count once."""
        names = tuple(phase.paradigm for phase in self.phases)
        return schedule_of(names if len(set(names)) > 1 else names[:1])

    @property
    def steps(self) -> int:
        """Epochs of all phases."""
        return sum(phase.epochs for phase in self.phases)

    @property
    def prefix(self) -> CaptionRun | None:
        """The run of all phases but the last, whose weights this one goes on from; None of a single phase."""
        return self.model_copy(update={"phases": self.phases[:-1]}) if len(self.phases) > 1 else None

    @property
    def label(self) -> str:
        """Readable part of the name."""
        return f"captions-{self.data.slug}-{self.paradigm}-s{self.seed}"


class Sweep(Config, Momentum):
    """The classification model trained at every fixed attention, paradigm and seed."""

    compute: ClassVar[str] = "fcamlib.theory.sweep:compute"
    group: ClassVar[str] = "fixed-focus sweeps"
    kind: Literal["fixed_focus"] = "fixed_focus"
    data: SweepTask
    classifier: str = Field(description="classification network")
    paradigms: tuple[Literal["soft", "hard", "lvml"], ...] = Field(min_length=1, description="training losses")
    alphas: tuple[Share, ...] = Field(min_length=1, description="attention weights of the foreground, each held fixed")
    seeds: tuple[Seed, ...] = Field(min_length=1, description="each draws data, initial weights and batch order")
    epochs: Epochs = Field(description="passes over the training instances")
    learning_rates: tuple[Rate, ...] = Field(min_length=1, description="rate of each paradigm, in their order")
    initial: Literal["zero", "random"] = Field(description="zero weights, or Xavier's of the network")
    training: Training = Training()
    _written = written_first("kind", "data", "classifier", "paradigms", "alphas", "seeds", "epochs", "learning_rates")

    @model_validator(mode="after")
    def _check_lengths(self) -> Sweep:
        if len(self.learning_rates) != len(self.paradigms):
            raise ValueError(
                f"learning_rates holds {len(self.learning_rates)} values for {len(self.paradigms)} paradigms: "
                "give one for each"
            )
        return self

    @property
    def label(self) -> str:
        """Readable part of the name."""
        return f"fixed-focus-{self.data.slug}"

    @property
    def steps(self) -> int:
        """Epochs."""
        return self.epochs


class Study(Config):
    """Every task with every model, schedule and seed, kept as one table."""

    compute: ClassVar[str] = "fcamlib.running:study"
    group: ClassVar[str] = "studies"
    kind: Literal["study"] = "study"
    tasks: tuple[GridTask, ...] = Field(min_length=1, description="what is trained and tested on")
    models: tuple[Model, ...] = Field(min_length=1, description="focus and classification networks")
    schedules: tuple[tuple[Phase, ...], ...] = Field(min_length=1, description="phases of training")
    seeds: tuple[Seed, ...] = Field(min_length=1, description="each draws data, initial weights and batch order")
    training: Training = Training()

    @property
    def label(self) -> str:
        """Readable part of the name."""
        cells = len(self.tasks) * len(self.models) * len(self.schedules)
        return f"study-{self.tasks[0].slug}-{cells}x{len(self.seeds)}"

    def runs(self) -> Iterator[Run]:
        """The runs, those on the same data one after another."""
        for task, seed, model, phases in product(self.tasks, self.seeds, self.models, self.schedules):
            yield Run(data=task, model=model, phases=phases, training=self.training, seed=seed)

    @property
    def steps(self) -> int:
        """Trainings."""
        return len(self.tasks) * len(self.models) * len(self.schedules) * len(self.seeds)


class CrossValidation(Config):
    """Every method on every fold of every repeat, all with the same splits, encoder, optimiser and selection.

    On each fold each learning rate trains from the same weights; the one whose best epoch has the highest validation
    accuracy (then the lowest validation loss) is kept, with the weights of that epoch.
    """

    compute: ClassVar[str] = "fcamlib.crossval:cross_validation"
    group: ClassVar[str] = "cross-validations"
    kind: Literal["cross-validation"] = "cross-validation"
    source: str = Field(description="bags:PATH")
    fingerprint: str = Field(description="sha256 of the file")
    methods: tuple[Method, ...] = Field(min_length=1, description=f"any of {', '.join(METHODS)}")
    repeats: int = Field(ge=1, le=1_000, description="repeated cross-validations")
    folds: int = Field(ge=2, le=1_000, description="folds of each")
    validation_share: float = Field(0.2, gt=0, lt=1, description="share of the training bags held out")
    epochs: int = Field(ge=2, le=1_000_000, description="epochs of each candidate; the hybrid's first half is soft")
    learning_rates: tuple[Rate, ...] = Field(min_length=1, description="of Adam, compared on validation bags")
    batch_size: Count = Field(description="bags per step")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")

    @property
    def portable(self) -> Any:
        """The same with the data source without its path."""
        return self.model_copy(update={"source": portable_source(self.source)})

    @property
    def label(self) -> str:
        """Readable part of the name."""
        return f"{short_source(self.source)}-cv{self.repeats}x{self.folds}"

    @property
    def steps(self) -> int:
        """Trainings."""
        return self.repeats * self.folds * len(self.methods)


KINDS: dict[str | None, type[Config]] = {None: Run, "captions": CaptionRun, "fixed_focus": Sweep, "study": Study,
                                         "cross-validation": CrossValidation}  # fmt: skip


def kind_of(content: bytes) -> type[Config] | None:
    """The class of a config.json by its field `kind`, `Run` without one; None where it is unknown."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return None
    kind = fields.get("kind") if isinstance(fields, dict) else None
    return KINDS.get(kind) if kind is None or isinstance(kind, str) else None


def read(content: bytes) -> Config:
    """The config that a config.json holds; `UserError` says what is wrong with it."""
    load_plugins()
    model = kind_of(content) or Run  # what is no JSON is refused when it is read
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise UserError(explain(error, model)) from None

"""A fixed-focus sweep: what its numbers depend on, and the parameters that people set for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from fcamlib.config.base import Device, Frozen, Names, Precision, Seeds, StoredConfig, _as_list, _as_names
from fcamlib.config.experiments import experiment
from fcamlib.config.orthogonal import OrthogonalConfig
from fcamlib.config.pictures import PICTURE_NETWORKS, MosaicsConfig
from fcamlib.config.sources import portable_source
from fcamlib.config.training import TrainingConfig
from fcamlib.errors import UserError, explain

FocusParadigm = Literal["soft", "hard", "lvml"]
FOCUS_PARADIGMS: tuple[FocusParadigm, ...] = ("soft", "hard", "lvml")
Alphas = Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], BeforeValidator(_as_list), Field(min_length=1)]
FocusParadigms = Annotated[tuple[FocusParadigm, ...], BeforeValidator(_as_names), Field(min_length=1)]


def _tag(data: Any) -> str:
    source = data.get("source", "orthogonal") if isinstance(data, dict) else getattr(data, "source", "")
    return "orthogonal" if source == "orthogonal" else "mosaics"


class FixedFocusConfig(StoredConfig):
    """Everything that the numbers of a fixed-focus sweep depend on."""

    kind: Literal["fixed_focus"] = "fixed_focus"
    data: Annotated[
        Annotated[OrthogonalConfig, Tag("orthogonal")] | Annotated[MosaicsConfig, Tag("mosaics")], Discriminator(_tag)
    ]
    classifier: str = Field(description="classification network")
    paradigms: tuple[FocusParadigm, ...] = Field(min_length=1, description="training losses")
    alphas: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        min_length=1, description="attention weights of the foreground, each held fixed"
    )
    seeds: tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...] = Field(
        min_length=1, description="each draws its own data, initial weights and order of batches"
    )
    epochs: int = Field(ge=1, le=1_000_000, description="passes over the training instances")
    learning_rates: tuple[Annotated[float, Field(gt=0, le=100)], ...] = Field(
        min_length=1, description="learning rate of each paradigm, in their order"
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")
    initial: Literal["zero", "random"] = Field(description="zero weights, or Xavier's of the network")
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _check_lengths(self) -> FixedFocusConfig:
        if len(self.learning_rates) != len(self.paradigms):
            raise ValueError(
                f"learning_rates holds {len(self.learning_rates)} values for {len(self.paradigms)} paradigms: "
                "give one for each"
            )
        if self.data.num_segments < 2:
            raise ValueError(f"num_segments={self.data.num_segments} leaves no background: give at least 2")
        return self

    @property
    def name(self) -> str:
        """Readable name with the first 8 hex digits of the config's hash."""
        return f"fixed-focus-{self.data.slug}-{self.digest()[:8]}"

    def portable(self) -> FixedFocusConfig:
        """The same with the data source without its path."""
        data = self.data.model_copy(update={"source": portable_source(self.data.source)})
        return self.model_copy(update={"data": data})


_IMAGES: dict[str, Any] = {  # the paper's
    "num_segments": 5,
    "num_train": 10_000,
    "epochs": 100,
    "soft_learning_rate": 0.004,
    "hard_learning_rate": 0.01,
    "lvml_learning_rate": 0.004,
    "batch_size": 256,
    "classification_network": "cifar10",
    "precision": "float32",
    "initial": "random",
}
FOCUS_DEFAULTS: dict[str, dict[str, Any]] = {
    "orthogonal": {  # the paper's
        "num_segments": 20,
        "num_train": 5_000,
        "epochs": 100,
        "soft_learning_rate": 0.05,
        "hard_learning_rate": 0.01,
        "lvml_learning_rate": 0.05,
        "batch_size": 256,
        "classification_network": "linear",
        "precision": "float64",
        "initial": "zero",
    },
    "digits": {
        "num_segments": 5,
        "num_train": 2_000,
        "epochs": 40,
        "soft_learning_rate": 0.02,
        "hard_learning_rate": 0.05,
        "lvml_learning_rate": 0.02,
        "batch_size": 64,
        "classification_network": "digits",
        "precision": "float64",
        "initial": "random",
    },
    "cifar10": _IMAGES,
    "cifar100": {**_IMAGES, "classification_network": "cifar100"},
    "folder": _IMAGES,
}


class FixedFocusExperiment(Frozen):
    """A fixed-focus sweep, as people set it: every paradigm at every alpha with every seed.

    0, "" and [] mean the default of the data source.
    """

    dataset: str = Field("orthogonal", description="orthogonal, digits, cifar10, cifar100 or folder:PATH")
    num_segments: int = Field(0, ge=0, le=100_000, description="segments of an instance, one of them foreground")
    num_classes: int = Field(0, ge=0, le=100_000, description="orthogonal: classes; default 20")
    num_train: int = Field(0, ge=0, le=10_000_000, description="training instances")
    foreground_variance: float = Field(1e-10, ge=0, le=1e6, description="orthogonal: noise of the foreground")
    background_variance: float = Field(1e-2, ge=0, le=1e6, description="orthogonal: variance of the background")
    num_backgrounds: int = Field(
        500, ge=0, le=10_000_000, description="orthogonal: background segments to draw from; 0 for one a place"
    )
    foreground: Names = Field((), description="pictures: classes that decide the label, comma-separated")
    background: Names = Field((), description="pictures: classes of the other segments; default all others")
    image_size: int = Field(0, ge=0, le=1024, description="pictures: height and width of a segment in pixels")
    paradigms: FocusParadigms = Field(FOCUS_PARADIGMS, description="any of soft, hard, lvml")
    alphas: Alphas = Field((0.2, 0.4, 0.6, 0.8, 1.0), description="attention weights of the foreground, from 0 to 1")
    seeds: Seeds = Field((0,), description="seeds; each draws data, initial weights and batch order")
    epochs: int = Field(0, ge=0, le=1_000_000, description="epochs of training")
    soft_learning_rate: float = Field(0, ge=0, le=100, description="learning rate of soft attention")
    hard_learning_rate: float = Field(0, ge=0, le=100, description="learning rate of hard attention")
    lvml_learning_rate: float = Field(0, ge=0, le=100, description="learning rate of LVML")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")
    batch_size: int = Field(0, ge=0, le=10_000_000, description="instances per step")
    classification_network: str = Field("", description="cifar10, cifar100, digits, mlp or linear")
    initial: Literal["", "zero", "random"] = Field("", description="initial weights: zero or random")
    precision: Literal["", Precision] = Field("", description="float64, float32, tfloat32 (on a GPU) or bfloat16")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    device: Device = Field("auto", description="auto (CUDA when present, except in float64), cpu or cuda")
    evaluate_every: int = Field(1, ge=1, le=1_000_000, description="epochs between measures")

    @model_validator(mode="after")
    def _check_together(self) -> FixedFocusExperiment:
        if self.source_kind not in FOCUS_DEFAULTS:
            raise ValueError(
                f"dataset='{self.dataset}' is unknown: choose orthogonal, digits, cifar10, cifar100 or folder:PATH"
            )
        for name in ("paradigms", "alphas", "seeds"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}={','.join(map(str, values))} names a value twice: give each once")
        if self.classification_network not in ("", *PICTURE_NETWORKS):
            known = ", ".join(PICTURE_NETWORKS)
            raise ValueError(
                f"classification_network='{self.classification_network}' is unknown: choose one of {known}"
            )
        foreign = ("foreground", "background", "image_size") if self.dataset == "orthogonal" else ("num_classes",)
        for name in foreign:
            if value := getattr(self, name):
                raise ValueError(f"{name}={value} does not belong to dataset='{self.dataset}': leave it out")
        for name in ("num_segments", "num_classes"):
            if getattr(self, name) == 1:
                raise ValueError(f"{name}=1 is not allowed: give a whole number of at least 2")
        return self

    @property
    def source_kind(self) -> str:
        """The data source's name without a path."""
        return self.dataset.split(":", 1)[0]

    def config(self) -> FixedFocusConfig:
        """The sweep."""
        return FixedFocusConfig(
            data=self._orthogonal() if self.dataset == "orthogonal" else self._mosaics(),
            classifier=self._filled("classification_network"),
            paradigms=self.paradigms,
            alphas=self.alphas,
            seeds=self.seeds,
            epochs=self._filled("epochs"),
            learning_rates=tuple(self._filled(f"{paradigm}_learning_rate") for paradigm in self.paradigms),
            momentum=self.momentum,
            initial=self._filled("initial"),
            training=TrainingConfig(
                batch_size=self._filled("batch_size"),
                precision=self._filled("precision"),
                memory_layout="contiguous",
                threads=self.threads,
                device=self.device,
                evaluate_every=self.evaluate_every,
            ),
        )

    def _orthogonal(self) -> OrthogonalConfig:
        return OrthogonalConfig(
            num_segments=self._filled("num_segments"),
            num_classes=self.num_classes or 20,
            num_train=self._filled("num_train"),
            foreground_variance=self.foreground_variance,
            background_variance=self.background_variance,
            num_backgrounds=self.num_backgrounds,
        )

    def _mosaics(self) -> MosaicsConfig:
        """The task that `Experiment` makes of the same parameters, with as few other mosaics as can be."""
        names = ("dataset", "foreground", "background", "image_size")
        given = {name: getattr(self, name) for name in names}
        sizes = {name: self._filled(name) for name in ("num_segments", "num_train")}
        made = experiment({**given, **sizes, "num_validation": 1, "num_test": 1, "paradigms": "soft"})
        return MosaicsConfig.model_validate(made.configs()[0].data.model_dump())

    def _filled(self, name: str) -> Any:
        """The user's value of a field, or its data source's default."""
        return getattr(self, name) or FOCUS_DEFAULTS[self.source_kind][name]


def fixed_focus_experiment(parameters: Mapping[str, Any]) -> FixedFocusExperiment:
    """Parameters as text or values -> a checked experiment; the first fault is one sentence (`UserError`)."""
    try:
        return FixedFocusExperiment.model_validate(dict(parameters))
    except ValidationError as error:
        raise UserError(explain(error, FixedFocusExperiment)) from None

"""Configurations: what defines a run, and the parameters that people set.

`RunConfig` holds everything that a run's numbers depend on; its hash names the run in the store.
`Experiment` is the flat set of parameters shared by the notebooks, the command line and the profiles; it
coerces what papermill and a shell deliver as text, fills in each data source's defaults and yields the runs.
Nothing here imports torch, so that a command line or a pipeline starts at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from fcamlib import paths
from fcamlib.errors import DataError, UserError, explain

Paradigm = Literal["soft", "hard", "lvml"]
Schedule = Literal["soft", "hard", "lvml", "hybrid"]
Optimizer = Literal["sgd", "adam"]
Precision = Literal["float64", "float32", "bfloat16"]
MemoryLayout = Literal["channels_last", "contiguous"]
Device = Literal["auto", "cpu", "cuda"]
SCHEDULES: tuple[Schedule, ...] = ("soft", "hard", "lvml", "hybrid")
NETWORKS = ("cifar10", "cifar100", "digits", "mlp", "linear")  # what `fcamlib.networks` holds, known without torch


class Frozen(BaseModel):
    """Base of all configurations: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Phase(Frozen):
    """One stretch of training with one loss and a fresh optimiser."""

    paradigm: Paradigm = Field(description="training loss of the phase")
    epochs: int = Field(ge=1, description="passes over the training instances")
    learning_rates: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        min_length=1, description="learning rate; the best on validation where there are several"
    )
    search_epochs: int = Field(
        0, ge=0, description="epochs after which candidate learning rates are compared; 0 means all"
    )
    optimizer: Optimizer = Field("sgd", description="optimiser")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")

    @model_validator(mode="after")
    def _check_search(self) -> Phase:
        if self.search_epochs > self.epochs:
            raise ValueError(
                f"search_epochs={self.search_epochs} is more than epochs={self.epochs}: give at most those"
            )
        return self


class MosaicsConfig(Frozen):
    """A mosaic task: which pictures, and how they are composed."""

    source: str = Field(description="digits, cifar10, cifar100 or folder:PATH")
    fingerprint: str = Field("", description="sha256 over the names and sizes of a folder's files")
    foreground: tuple[str, ...] = Field(min_length=2, description="classes that decide the label")
    background: tuple[str, ...] = Field((), description="classes of the other segments; empty means all others")
    num_segments: int = Field(ge=1, le=100_000, description="segments of a mosaic, one of them foreground")
    num_train: int = Field(ge=1, description="training mosaics")
    num_validation: int = Field(ge=1, description="validation mosaics")
    num_test: int = Field(ge=1, description="test mosaics")
    image_size: int = Field(ge=4, le=1024, description="height and width of a segment in pixels")
    paper_split: bool = Field(False, description="draw test mosaics from training pictures, as the public scripts do")


class ModelConfig(Frozen):
    """Networks by name, see `fcamlib.networks`."""

    focus: str = Field(description="focus network")
    classifier: str = Field(description="classification network")


class TrainingConfig(Frozen):
    """How the numbers are computed. Nothing here is picked by what a machine does faster."""

    batch_size: int = Field(256, ge=1, description="instances per step")
    precision: Precision = Field("float32", description="floating-point format; bfloat16 by autocast")
    memory_layout: MemoryLayout = Field("channels_last", description="memory layout of pictures")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    device: Device = Field("auto", description="auto: CUDA when present, except in float64")
    keep: Literal["last", "best"] = Field(
        "last", description="weights a phase ends with: its last epoch's, or its best by validation accuracy"
    )
    evaluate_every: int = Field(1, ge=1, description="epochs between evaluations on validation and test")


class RunConfig(Frozen):
    """Everything that a run's numbers depend on."""

    data: MosaicsConfig
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
        data = self.data
        readable = f"{short_source(data.source)}-m{data.num_segments}-n{data.num_train}-{self.paradigm}-s{self.seed}"
        return f"{readable}-{self.digest()[:8]}"

    def digest(self) -> str:
        """sha256 of the canonical JSON; a folder counts by its name and content, not by where it lies."""
        content = self.model_dump(mode="json")
        content["data"]["source"] = portable_source(self.data.source)
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def portable_source(source: str) -> str:
    """The data source without the part of a folder's path that only one machine knows."""
    return f"folder:{Path(source.removeprefix('folder:')).name}" if source.startswith("folder:") else source


def short_source(source: str) -> str:
    """The data source as part of a file name."""
    name = portable_source(source).removeprefix("folder:")
    readable = "".join(c if c.isalnum() or c in "-_" else "-" for c in name).strip("-").lower()
    return readable[:48] or "data"  # a file name holds 255 bytes, and a letter takes up to four


def folder_path(source: str) -> Path:
    """The folder of a `folder:PATH` source: as given, else inside the data folder."""
    given = Path(source.removeprefix("folder:")).expanduser()
    candidates = [given] if given.is_absolute() else [Path.cwd() / given, paths.data_dir() / given]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    looked = " nor ".join(f"'{c}'" for c in candidates)
    raise DataError(
        f"dataset='{source}': there is no folder {looked}; give the path of a folder that holds "
        "train/<class>/ and test/<class>/ with pictures, or set FCAM_DATA to the folder around it."
    )


def folder_fingerprint(source: str) -> str:
    """sha256 over the sorted relative names and sizes of the files below a folder source."""
    root = folder_path(source)
    lines = []
    for parent, _, files in os.walk(root, followlinks=True):  # as torchvision's ImageFolder does
        for file in files:
            path = Path(parent, file)
            try:
                lines.append(f"{path.relative_to(root).as_posix()}\t{path.stat().st_size}")
            except OSError as error:
                raise DataError(f"the file '{path}' cannot be read ({error.strerror}): mend or remove it.") from None
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


# Settings of each kind of source where the user gives none. The CIFAR networks are the paper's; the sizes and
# epochs suit a laptop, and the paper's own stand in notebooks/profiles/paper.yaml.
_IMAGES: dict[str, Any] = {
    "num_train": 10_000,
    "num_validation": 2_000,
    "num_test": 10_000,
    "epochs": 30,
    "learning_rates": (0.05,),
    "hard_learning_rates": (0.01,),
    "precision": "float32",
    "image_size": 32,
    "focus_network": "cifar10",
    "classification_network": "cifar10",
}
SOURCE_DEFAULTS: dict[str, dict[str, Any]] = {
    "digits": {
        "foreground": ("0", "1", "2"),
        "num_train": 2_000,
        "num_validation": 500,
        "num_test": 2_000,
        "epochs": 20,
        "learning_rates": (0.05,),
        "hard_learning_rates": (0.05,),
        "precision": "float64",
        "image_size": 8,
        "focus_network": "digits",
        "classification_network": "digits",
    },
    "cifar10": {**_IMAGES, "foreground": ("airplane", "automobile", "bird")},
    "cifar100": {**_IMAGES, "focus_network": "cifar100", "classification_network": "cifar100"},
    "folder": _IMAGES,
}


def _as_list(value: Any, loader: type[yaml.SafeLoader] | type[yaml.BaseLoader] = yaml.SafeLoader) -> Any:
    """Text from a shell or papermill as a list: "[0, 1]", "0,1", "0" or a single value."""
    if isinstance(value, str):
        try:
            loaded = yaml.load(value, loader) if value.strip().startswith("[") else value.split(",")
        except yaml.YAMLError:
            return value
        value = [v.strip() if isinstance(v, str) else v for v in loaded]
        return [v for v in value if v != ""]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


def _as_names(value: Any) -> Any:
    """A list of names; text stays as it is written, so that a class may be called 01 or no."""
    value = _as_list(value, yaml.BaseLoader)
    return [str(v) for v in value] if isinstance(value, list | tuple) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_as_names)]
Rates = Annotated[tuple[Annotated[float, Field(gt=0, le=100)], ...], BeforeValidator(_as_list)]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...], BeforeValidator(_as_list), Field(min_length=1)]
Schedules = Annotated[tuple[Schedule, ...], BeforeValidator(_as_names), Field(min_length=1)]


class Experiment(Frozen):
    """A grid of runs, as people set it: every paradigm with every seed on one task.

    0, "" and [] mean the default of the data source.
    """

    dataset: str = Field("digits", description="digits, cifar10, cifar100, or folder:PATH with train/ and test/")
    foreground: Names = Field((), description="classes that decide the label, comma-separated")
    background: Names = Field((), description="classes of the other segments; default all others")
    num_segments: int = Field(5, ge=2, le=100_000, description="segments of a mosaic, one of them foreground")
    num_train: int = Field(0, ge=0, le=100_000_000, description="training mosaics")
    num_validation: int = Field(
        0, ge=0, le=100_000_000, description="validation mosaics, from training pictures held out"
    )
    num_test: int = Field(0, ge=0, le=100_000_000, description="test mosaics, from test pictures")
    image_size: int = Field(0, ge=0, le=1024, description="height and width of a segment in pixels")
    paper_split: bool = Field(False, description="draw test mosaics from training pictures, as the public scripts do")
    paradigms: Schedules = Field(SCHEDULES, description="any of soft, hard, lvml, hybrid")
    seeds: Seeds = Field((0,), description="seeds; each draws mosaics, initial weights and batch order")
    epochs: int = Field(0, ge=0, description="epochs of training")
    switch_epoch: int = Field(0, ge=0, description="hybrid: epochs of soft attention before hard; default half")
    learning_rates: Rates = Field((), description="learning rates; several are compared on validation")
    hard_learning_rates: Rates = Field((), description="learning rates of the hybrid's hard phase")
    search_epochs: int = Field(0, ge=0, description="epochs after which learning rates are compared; default all")
    optimizer: Optimizer = Field("sgd", description="sgd or adam")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")
    batch_size: int = Field(0, ge=0, description="mosaics per step; default 256, or 64 on digits")
    keep: Literal["last", "best"] = Field("last", description="weights of the last or the best validation epoch")
    focus_network: str = Field("", description="cifar10, cifar100, digits, mlp or linear")
    classification_network: str = Field("", description="cifar10, cifar100, digits, mlp or linear")
    precision: Literal["", "float64", "float32", "bfloat16"] = Field("", description="float64, float32 or bfloat16")
    memory_layout: MemoryLayout = Field("channels_last", description="channels_last or contiguous")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    device: Device = Field("auto", description="auto (CUDA when present, except in float64), cpu or cuda")
    evaluate_every: int = Field(1, ge=1, description="epochs between evaluations")

    @model_validator(mode="after")
    def _check_together(self) -> Experiment:
        if self.kind not in SOURCE_DEFAULTS or (self.kind != "folder" and self.dataset != self.kind):
            raise ValueError(f"dataset='{self.dataset}' is unknown: choose digits, cifar10, cifar100 or folder:PATH")
        if self.dataset in ("folder", "folder:"):
            raise ValueError(f"dataset='{self.dataset}' names no folder: write folder:PATH")
        if self.kind == "folder" and not self.foreground:
            raise ValueError(
                f"foreground is empty: dataset='{self.dataset}' needs the classes that decide the label, "
                "such as foreground=cat,dog"
            )
        if len(self.foreground) == 1:
            raise ValueError(f"foreground={self.foreground[0]} is one class: name at least two to tell apart")
        for name in ("foreground", "background", "seeds", "paradigms", "learning_rates", "hard_learning_rates"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}={','.join(map(str, values))} names a value twice: give each once")
        if both := sorted(set(self._foreground()) & set(self.background)):
            raise ValueError(f"background names {both[0]!r}, which is foreground too: a class can be only one of them")
        for name in ("focus_network", "classification_network"):
            if getattr(self, name) not in ("", *NETWORKS):
                raise ValueError(f"{name}='{getattr(self, name)}' is unknown: choose one of {', '.join(NETWORKS)}")
        if 0 < self.image_size < 4:
            raise ValueError(f"image_size={self.image_size} is too small: give at least 4 pixels")
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
        data = self._data()
        return [self._config(data, paradigm, seed) for paradigm in self.paradigms for seed in self.seeds]

    def _config(self, data: MosaicsConfig, paradigm: Schedule, seed: int) -> RunConfig:
        return RunConfig(
            data=data,
            model=ModelConfig(focus=self._filled("focus_network"), classifier=self._filled("classification_network")),
            phases=self._phases(paradigm),
            training=TrainingConfig(
                batch_size=self.batch_size or (64 if self.kind == "digits" else 256),
                precision=self._filled("precision"),
                memory_layout=self.memory_layout,
                threads=self.threads,
                device=self.device,
                keep=self.keep,
                evaluate_every=self.evaluate_every,
            ),
            seed=seed,
        )

    def _data(self) -> MosaicsConfig:
        return MosaicsConfig(
            source=self.dataset,
            fingerprint=folder_fingerprint(self.dataset) if self.kind == "folder" else "",
            foreground=self._foreground(),
            background=self.background,
            num_segments=self.num_segments,
            num_train=self._filled("num_train"),
            num_validation=self._filled("num_validation"),
            num_test=self._filled("num_test"),
            image_size=self._filled("image_size"),
            paper_split=self.paper_split,
        )

    def _foreground(self) -> tuple[str, ...]:
        if self.kind == "cifar100" and not self.foreground:
            from fcamlib.data.cifar import CIFAR100_FOREGROUND  # imports numpy, so only where needed

            return tuple(CIFAR100_FOREGROUND)
        return self._filled("foreground")

    def _phases(self, paradigm: Schedule) -> tuple[Phase, ...]:
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
        return getattr(self, name) or SOURCE_DEFAULTS[self.kind][name]


def experiment(parameters: Mapping[str, Any], called: Mapping[str, str] | None = None) -> Experiment:
    """Parameters as text or values -> a checked `Experiment`; the first fault is one sentence (`UserError`).

    `called` holds the names that the user knows fields by, where they differ.
    """
    try:
        return Experiment.model_validate(dict(parameters))
    except ValidationError as error:
        raise UserError(explain(error, Experiment, called)) from None

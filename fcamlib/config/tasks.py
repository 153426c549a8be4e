"""Tasks, which describe the data of a model: one frozen class per domain; and values that arrive as text.

Each field is declared once: its range and description serve the command line, notebooks, profiles and the store.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from fcamlib.config.sources import SOURCES, load_plugins, portable_source, short_source, source_path
from fcamlib.errors import UserError, explain, shown


class _Reader(yaml.BaseLoader):
    """YAML with text values, since a class may be called 01 or no; without aliases and repeated names."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value]
        if twice := [name for name in names if names.count(name) > 1]:
            raise yaml.YAMLError(f"it names {shown(twice[0])} twice: give it once")
        return super().construct_mapping(node, deep)


def read_yaml(text: str) -> list[Any]:
    """The documents of a YAML text, with values as text. Raises `ValueError`."""
    try:
        return list(yaml.load_all(text, _Reader))
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except (yaml.YAMLError, TypeError, AttributeError) as error:
        raise ValueError(shown(" ".join(str(error).split()))) from None


def as_list(value: Any) -> Any:
    """A list from shell or papermill text: "[0, 1]", "0,1" or "0"; a single number becomes a list of one."""
    if isinstance(value, str):
        try:
            found = read_yaml(value)[0] if value.strip().startswith("[") else value.split(",")
        except ValueError:
            return value
        return [part for part in (v.strip() if isinstance(v, str) else v for v in found) if part != ""]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


T = TypeVar("T")
Several = Annotated[tuple[T, ...], BeforeValidator(as_list)]
Some = Annotated[tuple[T, ...], BeforeValidator(as_list), Field(min_length=1)]
Names = Several[Annotated[str, Field(max_length=1_000)]]
Count = Annotated[int, Field(ge=1, le=100_000_000)]
CountOrAll = Annotated[int, Field(ge=0, le=100_000_000)]
Size = Annotated[int, Field(ge=0, le=100_000)]
Words = Annotated[int, Field(ge=1, le=1_000)]


class Frozen(BaseModel):
    """Base of all configurations: immutable, without unknown fields; numbers are accepted as text (class 0)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)

    @property
    def portable(self) -> Any:
        """The same without machine-specific paths: a fingerprint identifies files by content."""

        def moved(value: Any) -> Any:
            return tuple(map(moved, value)) if isinstance(value, tuple) else getattr(value, "portable", value)

        parts = {name: portable_source(value) if name == "source" else moved(value) for name, value in self}
        return self.model_copy(update=parts)


def require_distinct(model: BaseModel, but: Collection[str] = ()) -> None:
    """Refuse a list that contains a value twice, except for the fields `but`."""
    for name, values in model:
        if name not in but and isinstance(values, tuple) and len(set(values)) < len(values):
            raise UserError(f"{name}={shown(','.join(map(str, values)))} contains a value twice: give each once.")


class Task(Frozen):
    """A data source, and how instances are made from it."""

    commands: ClassVar[tuple[str, ...]] = ("grid", "study")  # whose parameters include the task
    noun: ClassVar[str] = "instances"
    networks: ClassVar[tuple[str, ...]] = ("mlp", "linear")  # networks that fit, by name
    shapes: ClassVar[tuple[str, ...]] = ("mlp",)  # networks that fit, by depth and width
    encoders: ClassVar[tuple[str, ...]] = ()
    generated: ClassVar[dict[str, dict[str, int]]] = {}  # kind of source -> least sizes; they are 0 for a user's file
    source: str = Field(max_length=4_096, description="name of the data source, or kind:PATH")
    fingerprint: str = Field("", description="sha256 of the user's own data")

    @property
    def kind(self) -> str:
        """The name of the source without a path."""
        return self.source.split(":", 1)[0]

    @property
    def slug(self) -> str:
        """The task in the name of a result."""
        return short_source(self.source) + "".join(f"-{letter}{value}" for letter, value in self.sizes().items())

    @property
    def described(self) -> str:
        """Size of the task in words, for titles."""
        sizes = self.sizes()
        told = [f"{name} = {sizes[name.lower()]:,}" for name in ("m", "C") if name.lower() in sizes]
        return ", ".join([*told, f"{sizes['n']:,} {self.noun}" if "n" in sizes else f"all {self.noun}"])

    def sizes(self) -> dict[str, int]:
        """The sizes in the task's name: m segments, n training instances."""
        found = {"m": getattr(self, "num_segments", 0), "n": getattr(self, "num_train", 0)}
        return {letter: value for letter, value in found.items() if value}

    def current_fingerprint(self) -> str:
        """sha256 of the user's files as they are now; empty for data that are generated or have official checksums."""
        source = SOURCES.get(self.kind)
        if source is None or not source.path or not (source.files or ":" in self.source):
            return ""
        module, _, function = source.files.partition(":")
        files = getattr(import_module(module), function)(self) if module else source_path(self.source)
        return import_module("fcamlib.data.files").fingerprint(files)  # nothing else in a config reads data

    @model_validator(mode="after")
    def _check_sizes(self) -> Any:
        require_distinct(self)
        for name, least in self.generated.get(self.kind, {}).items():
            if (value := getattr(self, name)) < least:
                raise UserError(f"{name}={value} is too small for {self.kind}: give {least} or more.")
        return self


class Mosaics(Task):
    """Mosaics of pictures, one of them foreground."""

    commands: ClassVar[tuple[str, ...]] = ("grid", "study", "sweep")
    noun: ClassVar[str] = "mosaics"
    networks: ClassVar[tuple[str, ...]] = ("cifar10", "cifar100", "digits", "mlp", "linear")
    shapes: ClassVar[tuple[str, ...]] = ("mlp", "cnn")
    foreground: Names = Field((), description="classes that decide the label, comma-separated")
    background: Names = Field((), description="classes of the other segments; empty means all others")
    num_segments: int = Field(5, ge=2, le=100_000, description="segments of a mosaic, one of them foreground")
    num_train: Count = Field(description="training mosaics")
    num_validation: Count = Field(description="validation mosaics, from training pictures held out")
    num_test: Count = Field(description="test mosaics, from test pictures")
    image_size: int = Field(ge=4, le=1_024, description="height and width of a segment in pixels")
    paper_split: bool = Field(False, description="draw test mosaics from training pictures, as the public scripts do")

    @model_validator(mode="after")
    def _check_classes(self) -> Any:
        if not self.foreground:
            needed = "needs the classes that decide the label, such as foreground=cat,dog"
            raise UserError(f"foreground is empty: dataset='{shown(self.source)}' {needed}.")
        if len(self.foreground) == 1:
            raise UserError(f"foreground={shown(self.foreground[0])} is one class: name at least two.")
        if both := sorted(set(self.foreground) & set(self.background)):
            raise UserError(f"background names '{shown(both[0])}', which is also foreground: choose one of them.")
        return self


class Splits(Task):
    """Sizes of the splits, for sources that may be a file."""

    num_train: CountOrAll = Field(0, description="training instances; 0 means all")
    num_validation: CountOrAll = Field(0, description="validation instances; 0 means all")
    num_test: CountOrAll = Field(0, description="test instances; 0 means all")


class Text(Splits):
    """Posts: segments are words, the foreground is the rationale."""

    noun: ClassVar[str] = "posts"
    networks: ClassVar[tuple[str, ...]] = ("text200", "text50", "mlp", "linear")
    encoders: ClassVar[tuple[str, ...]] = ("embedding", "transformer")
    max_tokens: int = Field(512, ge=4, le=100_000, description="words kept of a post, from its start")
    label: Literal["majority", "first"] = Field("majority", description="HateXplain: majority or first annotator")
    rationale: Literal["union", "majority", "first"] = Field(
        "union", description="HateXplain: union, majority or first"
    )
    min_count: Count = Field(1, description="least occurrences of a word in the vocabulary")
    paper_vocabulary: bool = Field(False, description="build the vocabulary from all splits, as the public scripts do")
    label_noise: float = Field(0.0, ge=0, lt=1, description="share of training labels changed to another class")


_LEAST = {"num_segments": 2, "num_classes": 2, **dict.fromkeys(("num_train", "num_validation", "num_test"), 1)}


class Series(Splits):
    """Time series cut into windows; for a user's file only `window_length` applies."""

    noun: ClassVar[str] = "series"
    networks: ClassVar[tuple[str, ...]] = ("conv1d", "mlp", "linear")
    generated: ClassVar[dict[str, dict[str, int]]] = {"motifs": _LEAST | {"num_channels": 1, "window_length": 8}}
    window_length: Size = Field(0, description="samples per window; 0: the file holds windows")
    num_segments: Size = Field(0, description="windows of a series, one of them foreground")
    num_channels: int = Field(0, ge=0, le=10_000, description="channels of a series")
    num_classes: int = Field(0, ge=0, le=64, description="classes, one motif each")
    noise: float = Field(0.0, ge=0, le=100, description="standard deviation of the noise")
    distractors: float = Field(0.0, ge=0, le=1, description="share of the other windows with a distractor")

    @property
    def described(self) -> str:
        own = f"windows of {self.window_length} samples" if self.window_length else "the file's own windows"
        return super().described if self.num_train else own

    def sizes(self) -> dict[str, int]:
        return super().sizes() if self.num_train else {"w": self.window_length}


class Bags(Splits):
    """Bags of feature vectors: generated clouds, or a user's file with one of its folds as test fold."""

    noun: ClassVar[str] = "bags"
    encoders: ClassVar[tuple[str, ...]] = ("mlp", "none")
    generated: ClassVar[dict[str, dict[str, int]]] = {"clouds": _LEAST | {"num_features": 2}}
    repeat: int = Field(0, ge=0, le=10_000, description="which of the repeated cross-validations")
    fold: int = Field(0, ge=0, le=10_000, description="test fold")
    validation_share: float = Field(0.2, gt=0, lt=1, description="share of the training bags held out")
    num_segments: Size = Field(0, description="instances of the largest bag")
    num_features: Size = Field(0, description="features per instance")
    num_classes: int = Field(0, ge=0, le=1_000, description="classes of bags")

    @property
    def slug(self) -> str:
        return super().slug if self.num_train else f"{short_source(self.source)}-r{self.repeat}-f{self.fold}"

    @property
    def described(self) -> str:
        own = f"repeat {self.repeat}, test fold {self.fold}"
        return f"m up to {self.num_segments}, {self.num_train:,} bags" if self.num_train else own


class Orthogonal(Task):
    """One axis per class for the foreground, one more for the background. Source: arXiv 2307.13421, sec. 3."""

    commands: ClassVar[tuple[str, ...]] = ("sweep",)
    networks: ClassVar[tuple[str, ...]] = Mosaics.networks
    source: Literal["orthogonal"] = "orthogonal"
    fingerprint: Literal[""] = ""
    num_segments: int = Field(20, ge=2, le=100_000, description="segments of an instance, the first one foreground")
    num_classes: int = Field(20, ge=2, le=100_000, description="classes, one axis each")
    num_train: int = Field(5_000, ge=1, le=10_000_000, description="training instances")
    num_validation: int = Field(1, ge=1, le=10_000_000, description="validation instances")
    num_test: int = Field(1, ge=1, le=10_000_000, description="test instances")
    foreground_variance: float = Field(1e-10, ge=0, le=1e6, description="noise of the foreground, on every axis")
    background_variance: float = Field(1e-2, ge=0, le=1e6, description="variance of the background, on its own axis")
    num_backgrounds: int = Field(500, ge=0, le=10_000_000, description="backgrounds to draw from; 0: one per place")

    def sizes(self) -> dict[str, int]:
        return {"m": self.num_segments, "c": self.num_classes, "n": self.num_train}


class Scenes(Task):
    """Generated pictures of coloured shapes with captions and boxes."""

    commands: ClassVar[tuple[str, ...]] = ("caption",)
    noun: ClassVar[str] = "pictures"
    source: Literal["scenes"] = "scenes"
    fingerprint: str = Field("", description="always empty: the other fields and the seed determine the data")
    num_train: int = Field(1_000, ge=1, le=1_000_000, description="training pictures, five captions each")
    num_validation: int = Field(100, ge=1, le=1_000_000, description="validation pictures, held out from training")
    num_test: int = Field(200, ge=1, le=1_000_000, description="test pictures")
    image_size: int = Field(56, ge=48, le=512, multiple_of=8, description="side of a picture in pixels")
    max_objects: int = Field(3, ge=1, le=3, description="most shapes in a picture; numbers up to it are equally likely")
    min_count: Count = Field(1, description="least occurrences in training captions of a word in the vocabulary")
    max_words: Words = Field(20, description="words of a caption used in training, from its start")


class Coco(Task):
    """Pictures with captions and object boxes in the layout of COCO 2014."""

    commands: ClassVar[tuple[str, ...]] = ("caption",)
    noun: ClassVar[str] = "pictures"
    source: str = Field("coco", max_length=4_096, pattern=r"^coco(:.+)?$", description="coco or coco:PATH")
    fingerprint: str = Field("", description="sha256 over annotations, pictures, word table and weights")
    num_train: CountOrAll = Field(0, description="training pictures; 0 means all not held out")
    num_validation: Count = Field(5_000, description="pictures held out: the last of train2014 by image id")
    num_test: CountOrAll = Field(0, description="test pictures; 0 means all of val2014")
    image_size: int = Field(224, ge=32, le=1_024, description="side in pixels of the kept centre square")
    min_count: Count = Field(5, description="least occurrences in training captions of a word in the vocabulary")
    max_words: Words = Field(50, description="words of a caption used in training, from its start")
    features: Literal["", "vgg19", "efficientnet-lite0"] = Field("", description="frozen encoder; default vgg19")
    weights: str = Field("", description="file of the frozen encoder's weights; empty: its ImageNet weights")
    words: str = Field("", description="YAML file with more words for the categories (see the data card)")

    @property
    def slug(self) -> str:
        return super().slug + (f"-{self.features}" if self.features else "")

    @property
    def described(self) -> str:
        return f"{super().described} of {self.image_size} pixels"

    @property
    def portable(self) -> Any:
        return super().portable.model_copy(update={n: Path(getattr(self, n)).name for n in ("words", "weights")})


def read_task(value: Any, info: Any) -> Any:
    """A task from a config.json; its class follows from its source."""
    if isinstance(value, Task):
        return value
    load_plugins()
    kind = str(value.get("source", "orthogonal")).split(":", 1)[0] if isinstance(value, dict) else "digits"
    if kind not in SOURCES:
        advice = f"choose one of {', '.join(SOURCES)}, or name its module in FCAM_PLUGINS"
        raise UserError(f"{info.field_name}.source='{shown(kind)}' is unknown: {advice}.")
    model = SOURCES[kind].task
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise UserError(explain(error, model, within=f"{info.field_name}.")) from None


AnyTask = Annotated[Any, BeforeValidator(read_task)]

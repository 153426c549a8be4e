"""Tasks: what a model is trained and tested on, one frozen class for each domain; and values that arrive as text.

A field is declared here once: its range and its sentence serve the command line, notebooks, profiles and the store.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from fcamlib.config.sources import SOURCES, load_plugins, portable_source, short_source
from fcamlib.errors import explain, shown

IDENTITY = "fcamlib.data.identity"  # imported where a user's data are looked at, the one place where a config does
LONGEST_TEXT = 1_000_000  # characters of YAML that are read
DEEPEST = 20  # nested lists and mappings


class _Limits:
    """YAML without aliases, repeated names and deep nesting, which make small files large or ambiguous."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Read one node of the document."""
        if self.check_event(yaml.AliasEvent):  # type: ignore[attr-defined]
            raise yaml.YAMLError("aliases (*name) are not read")
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST} deep")
        node = super().compose_node(parent, index)  # type: ignore[misc]
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Read a mapping."""
        names = [key.value for key, _ in node.value]
        if twice := [name for name in names if names.count(name) > 1]:
            raise yaml.YAMLError(f"it names {shown(twice[0])} twice: give it once")
        return super().construct_mapping(node, deep)  # type: ignore[misc]


class _Values(_Limits, yaml.SafeLoader):
    """Numbers become numbers; dates stay text."""


class _Words(_Limits, yaml.BaseLoader):
    """Everything stays text: a class may be called 01 or no."""


_Values.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag != "tag:yaml.org,2002:timestamp"]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(text: str, as_words: bool = False) -> list[Any]:
    """The documents of a YAML text; the one reader of YAML, with limits. `ValueError` says what is wrong with it."""
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"it is longer than {LONGEST_TEXT:,} characters")
    try:
        return list(yaml.load_all(text, _Words if as_words else _Values))
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(shown(" ".join(str(error).split()))) from None


def as_list(value: Any, as_words: bool = False) -> Any:
    """Text from a shell or papermill as a list: "[0, 1]", "0,1" or "0"; a single number is a list of one."""
    if isinstance(value, str):
        try:
            found = read_yaml(value, as_words)[0] if value.strip().startswith("[") else value.split(",")
        except ValueError:
            return value
        return [part for part in (v.strip() if isinstance(v, str) else v for v in found) if part != ""]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


def as_names(value: Any) -> Any:
    """The same of names, which stay as they are written."""
    value = as_list(value, as_words=True)
    return [str(v) if isinstance(v, int | float) else v for v in value] if isinstance(value, list | tuple) else value


Count = Annotated[int, Field(ge=1, le=100_000_000)]
CountOrAll = Annotated[int, Field(ge=0, le=100_000_000)]
Names = Annotated[tuple[Annotated[str, Field(max_length=1_000)], ...], BeforeValidator(as_names)]


class Frozen(BaseModel):
    """Base of all configurations: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def require_distinct(model: BaseModel) -> None:
    """Refuse a list that names a value twice."""
    for name in type(model).model_fields:
        values = getattr(model, name)
        if isinstance(values, tuple) and len(set(values)) < len(values):
            raise ValueError(f"{name}={shown(','.join(map(str, values)))} names a value twice: give each once")


class Task(Frozen):
    """A data source, and how instances are made of it.

    A subclass outside this package adds its fields, and is registered with `fcamlib.config.register_source`.
    """

    command: ClassVar[str] = "grid"  # whose parameters hold the task: grid, sweep or caption
    noun: ClassVar[str] = "instances"
    networks: ClassVar[tuple[str, ...]] = ("mlp", "linear")  # those that fit, by name
    shapes: ClassVar[tuple[str, ...]] = ("mlp",)  # those that fit, with depth and width
    encoders: ClassVar[tuple[str, ...]] = ()

    source: str = Field(max_length=4_096, description="name of the data source, or kind:PATH")
    fingerprint: str = Field("", description="sha256 of the user's own data")

    @property
    def kind(self) -> str:
        """The source's name without a path."""
        return self.source.split(":", 1)[0]

    @property
    def portable(self) -> Any:
        """The same without what only one machine knows: a user's data count by name and content."""
        return self.model_copy(update={"source": portable_source(self.source)})

    @property
    def slug(self) -> str:
        """The task in the name of a result."""
        return short_source(self.source) + "".join(f"-{letter}{value}" for letter, value in self.sizes().items())

    @property
    def described(self) -> str:
        """Size of the task in words, as titles show it behind the source's name."""
        sizes = self.sizes()
        return (f"m = {sizes['m']}, " if "m" in sizes else "") + (
            f"{sizes['n']:,} {self.noun}" if "n" in sizes else f"all {self.noun}"
        )

    def sizes(self) -> dict[str, int]:
        """What tells tasks of one source apart: m segments, n training instances."""
        found = {"m": getattr(self, "num_segments", 0), "n": getattr(self, "num_train", 0)}
        return {letter: value for letter, value in found.items() if value}

    def current_fingerprint(self) -> str:
        """Fingerprint of the data as they lie there now; empty for sources that have none of the user's own."""
        if self.kind not in SOURCES or not SOURCES[self.kind].path:
            return ""
        return import_module(IDENTITY).fingerprint(self)

    def _require_sizes(self, least: dict[str, int]) -> None:
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name}={getattr(self, name)} is too small for {self.kind}: give {low} or more")


class Mosaics(Task):
    """Mosaics of pictures, one of them foreground."""

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
    def _check(self) -> Mosaics:
        require_distinct(self)
        if not self.foreground:
            raise ValueError(
                f"foreground is empty: dataset='{shown(self.source)}' needs the classes that decide the label, "
                "such as foreground=cat,dog"
            )
        if len(self.foreground) == 1:
            raise ValueError(f"foreground={shown(self.foreground[0])} is one class: name at least two to tell apart")
        if both := sorted(set(self.foreground) & set(self.background)):
            raise ValueError(
                f"background names '{shown(both[0])}', which is foreground too: a class can be only one of them"
            )
        return self


class Text(Task):
    """Posts: segments are words, the foreground is the rationale."""

    noun: ClassVar[str] = "posts"
    networks: ClassVar[tuple[str, ...]] = ("text200", "text50", "mlp", "linear")
    encoders: ClassVar[tuple[str, ...]] = ("embedding", "transformer")

    num_train: CountOrAll = Field(0, description="training posts; 0 means all")
    num_validation: CountOrAll = Field(0, description="validation posts; 0 means all")
    num_test: CountOrAll = Field(0, description="test posts; 0 means all")
    max_tokens: int = Field(512, ge=4, le=100_000, description="words of a post that are kept, from its start")
    label: Literal["majority", "first"] = Field("majority", description="HateXplain: majority or first annotator")
    rationale: Literal["union", "majority", "first"] = Field(
        "union", description="HateXplain: words that any, most or the first annotator marked"
    )
    min_count: Count = Field(1, description="occurrences that a word of the vocabulary needs")
    paper_vocabulary: bool = Field(False, description="take the vocabulary from all splits, as the public scripts do")
    label_noise: float = Field(0.0, ge=0, lt=1, description="share of training labels changed to another class")


class Series(Task):
    """Time series cut into windows; of a user's file only `window_length` is to be chosen."""

    noun: ClassVar[str] = "series"
    networks: ClassVar[tuple[str, ...]] = ("conv1d", "mlp", "linear")

    window_length: int = Field(0, ge=0, le=100_000, description="samples of a window; 0: the file holds windows")
    num_segments: int = Field(0, ge=0, le=100_000, description="windows of a series, one of them foreground")
    num_channels: int = Field(0, ge=0, le=10_000, description="channels of a series")
    num_classes: int = Field(0, ge=0, le=64, description="classes, one motif each")
    num_train: CountOrAll = Field(0, description="training series")
    num_validation: CountOrAll = Field(0, description="validation series")
    num_test: CountOrAll = Field(0, description="test series")
    noise: float = Field(0.0, ge=0, le=100, description="standard deviation of the noise")
    distractors: float = Field(0.0, ge=0, le=1, description="share of the other windows that hold a distractor")

    @property
    def described(self) -> str:
        """Size of the task in words."""
        if self.num_train:
            return super().described
        return f"windows of {self.window_length} samples" if self.window_length else "the file's own windows"

    def sizes(self) -> dict[str, int]:
        """Segments and training series; of a user's file the length of a window."""
        return super().sizes() if self.num_train else {"w": self.window_length}

    @model_validator(mode="after")
    def _check(self) -> Series:
        if self.kind == "motifs":
            sizes = ("num_channels", "num_train", "num_validation", "num_test")
            self._require_sizes({"num_segments": 2, "num_classes": 2, "window_length": 8, **dict.fromkeys(sizes, 1)})
        return self


class Bags(Task):
    """Bags of feature vectors: generated clouds, or a user's file and which of its folds is the test fold."""

    noun: ClassVar[str] = "bags"
    encoders: ClassVar[tuple[str, ...]] = ("mlp", "none")

    repeat: int = Field(0, ge=0, le=10_000, description="which of the repeated cross-validations")
    fold: int = Field(0, ge=0, le=10_000, description="test fold")
    validation_share: float = Field(0.2, gt=0, lt=1, description="share of the training bags held out")
    num_segments: int = Field(0, ge=0, le=100_000, description="instances of the largest bag")
    num_features: int = Field(0, ge=0, le=100_000, description="features of an instance")
    num_classes: int = Field(0, ge=0, le=1_000, description="classes of bags")
    num_train: CountOrAll = Field(0, description="training bags")
    num_validation: CountOrAll = Field(0, description="validation bags")
    num_test: CountOrAll = Field(0, description="test bags")

    @property
    def slug(self) -> str:
        """The task in the name of a result."""
        return super().slug if self.num_train else f"{short_source(self.source)}-r{self.repeat}-f{self.fold}"

    @property
    def described(self) -> str:
        """Size of the task in words."""
        return (
            f"m up to {self.num_segments}, {self.num_train:,} bags"
            if self.num_train
            else f"repeat {self.repeat}, test fold {self.fold}"
        )

    @model_validator(mode="after")
    def _check(self) -> Bags:
        if self.kind == "clouds":
            sizes = ("num_train", "num_validation", "num_test")
            self._require_sizes({"num_segments": 2, "num_classes": 2, "num_features": 2, **dict.fromkeys(sizes, 1)})
        return self


class Orthogonal(Task):
    """One axis a class for the foreground, one more for the background. Source: arXiv 2307.13421, sec. 3."""

    command: ClassVar[str] = "sweep"
    networks: ClassVar[tuple[str, ...]] = Mosaics.networks

    source: Literal["orthogonal"] = "orthogonal"
    fingerprint: Literal[""] = ""
    num_segments: int = Field(20, ge=2, le=100_000, description="segments of an instance, the first one foreground")
    num_classes: int = Field(20, ge=2, le=100_000, description="classes, each with an axis of its own")
    num_train: int = Field(5_000, ge=1, le=10_000_000, description="training instances")
    num_validation: int = Field(1, ge=1, le=10_000_000, description="validation instances")
    num_test: int = Field(1, ge=1, le=10_000_000, description="test instances")
    foreground_variance: float = Field(1e-10, ge=0, le=1e6, description="noise of the foreground, on every axis")
    background_variance: float = Field(1e-2, ge=0, le=1e6, description="variance of the background, on its own axis")
    num_backgrounds: int = Field(
        500, ge=0, le=10_000_000, description="background segments to draw from; 0 for one a place"
    )

    @property
    def described(self) -> str:
        """Size of the task in words."""
        return f"m = {self.num_segments}, C = {self.num_classes}, {self.num_train:,} instances"

    def sizes(self) -> dict[str, int]:
        """Segments, classes and training instances."""
        return {"m": self.num_segments, "c": self.num_classes, "n": self.num_train}


class Captions(Task):
    """Pictures with captions and object boxes."""

    command: ClassVar[str] = "caption"
    noun: ClassVar[str] = "pictures"


class Scenes(Captions):
    """Generated pictures of coloured shapes with captions and boxes."""

    source: Literal["scenes"] = "scenes"
    fingerprint: str = Field("", description="always empty: the other fields and the seed say what is drawn")
    num_train: int = Field(1_000, ge=1, le=1_000_000, description="training pictures, five captions each")
    num_validation: int = Field(100, ge=1, le=1_000_000, description="validation pictures, held out from training")
    num_test: int = Field(200, ge=1, le=1_000_000, description="test pictures")
    image_size: int = Field(56, ge=48, le=512, multiple_of=8, description="side of a picture in pixels")
    max_objects: int = Field(3, ge=1, le=3, description="most shapes of a picture; every number up to it is as likely")
    min_count: Count = Field(1, description="occurrences in training captions that a word of the vocabulary needs")
    max_words: int = Field(20, ge=1, le=1_000, description="words of a caption that are trained on, from its start")


class Coco(Captions):
    """Pictures with captions and object boxes in the layout of COCO 2014."""

    source: str = Field("coco", max_length=4_096, pattern=r"^coco(:.+)?$", description="coco or coco:PATH")
    fingerprint: str = Field("", description="sha256 over annotations, pictures, word table and weights")
    num_train: CountOrAll = Field(0, description="training pictures; 0 means all that are not held out")
    num_validation: Count = Field(5_000, description="pictures held out: the last of train2014 by image id")
    num_test: CountOrAll = Field(0, description="test pictures; 0 means all of val2014")
    image_size: int = Field(224, ge=32, le=1_024, description="side in pixels of the centred square that is kept")
    min_count: Count = Field(5, description="occurrences in training captions that a word of the vocabulary needs")
    max_words: int = Field(50, ge=1, le=1_000, description="words of a caption that are trained on, from its start")
    features: Literal["", "vgg19", "efficientnet-lite0"] = Field(
        "", description="frozen encoder whose features stand for pictures; vgg19 unless given"
    )
    weights: str = Field("", description="file of the frozen encoder's weights; empty: its ImageNet weights")
    words: str = Field("", description="YAML file with more words for the categories, see the data card")

    @property
    def slug(self) -> str:
        """The task in the name of a result."""
        return super().slug + (f"-{self.features}" if self.features else "")

    @property
    def portable(self) -> Any:
        """The same without what only one machine knows: files count by content, which the fingerprint holds."""
        names = {name: Path(getattr(self, name)).name for name in ("words", "weights")}
        return self.model_copy(update={"source": portable_source(self.source), **names})


def task_of(*commands: str) -> Any:
    """The type of a field that holds a task of some commands; its class is found by its source."""

    def read(value: Any, info: Any) -> Any:
        if isinstance(value, dict):
            load_plugins()
            kind = str(value.get("source", "orthogonal")).split(":", 1)[0]
            model = SOURCES[kind].task if kind in SOURCES else Mosaics
            try:
                value = model.model_validate(value)
            except ValidationError as error:
                raise ValueError(explain(error, model, within=f"{info.field_name}.")) from None
        if isinstance(value, Task) and value.command not in commands:
            raise ValueError(f"{info.field_name}.source='{shown(value.source)}' is data of `fcam {value.command}`")
        return value

    return Annotated[SerializeAsAny[Task], BeforeValidator(read)]

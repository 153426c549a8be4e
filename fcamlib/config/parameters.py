"""Flat parameters, as users set them in a notebook, a profile or a shell; the data sources and their defaults.

Each parameter belongs to the task (`num_segments`) or to a class of `fcamlib.config.grids` (`epochs`) and is declared
once, with range and description. A parameter that is left out or empty takes the default of its data source, if it has
one; in a notebook, so does one that is 0. The CIFAR networks are the paper's; sizes and epochs suit a laptop, and the
paper's own are in notebooks/profiles/paper.yaml.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import model_validator
from pydantic.fields import FieldInfo

from fcamlib import paths
from fcamlib.config import tasks
from fcamlib.config.results import checked
from fcamlib.config.sources import SOURCES, Source, load_plugins, written
from fcamlib.config.tasks import Frozen, Mosaics, Task, as_list, read_yaml, require_distinct
from fcamlib.errors import UserError, one_line, shown, unknown_name

log = logging.getLogger(__name__)
PROFILES = Path("notebooks/profiles")  # profiles that can be given by name, in a source checkout
P = TypeVar("P", bound="Parameters")


def is_empty(value: Any, or_zero: bool = False) -> bool:
    """Whether a value is "" or an empty list (or 0), which means the data source's default."""
    return shown(value).strip() in ("", "[]", "()", *(("0", "0.0") if or_zero else ()))


class Parameters(Frozen):
    """Validated parameters of one kind of result; lists contain each value once."""

    fixed: ClassVar[tuple[str, ...]] = ()  # fields that are not parameters here

    @classmethod
    def known(cls, dataset: Any = None) -> dict[str, FieldInfo]:
        """Name -> field of each allowed parameter."""
        return dict(cls.model_fields)

    @classmethod
    def of(
        cls: type[P],
        parameters: Mapping[str, Any],
        called: Mapping[str, str] | None = None,
        given: Collection[str] | None = None,
    ) -> P:
        """Validate parameters given as text or values; `called` maps fields to the names that a user knows.

        A warning names parameters without effect that the user gave: those in `given`, by default all.
        """
        found: P = checked(cls, parameters, called)
        for name, why in found.idle():
            if name in (parameters if given is None else given) and not is_empty(parameters[name], or_zero=True):
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
        without |= {"num_segments"} - source.task.model_fields.keys()
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
                if not any(name in cls.known(other) for other in written(cls.sources())):
                    raise UserError(unknown_name(name, known))
                raise UserError(f"{name} does not belong to dataset='{shown(dataset)}': leave it out.")
            if name in known and name != "dataset" and not (name in values and is_empty(value)):
                values[name] = value
        own = {name: values.pop(name) for name in cls.model_fields if name in values}
        return own | {"task": task_on(dataset, cls._task_fields(values, own))}

    @classmethod
    def _task_fields(cls, fields: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the task, including those that follow from other parameters."""
        return fields

    @classmethod
    def without_zeros(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a notebook, without those left at 0 for which the data source has a default or no use."""
        dataset = parameters.get("dataset") or cls.usual
        source = find_source(dataset, cls.sources())
        own = {**cls.defaults(dataset.split(":", 1)[0]), **dict.fromkeys(source.without)}
        return {
            name: value
            for name, value in parameters.items()
            if name not in own or isinstance(own[name], tuple) or not is_empty(value, or_zero=True)
        }


def profile_file(profile: str) -> Path:
    """The file of a profile given by its name in `PROFILES` or by its path."""
    folder = PROFILES if PROFILES.is_dir() else (paths.checkout() or Path()) / PROFILES
    for path in (folder / f"{profile}.yaml", Path(profile)):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in folder.glob("*.yaml")))
    advice = f"give the path of a YAML file{f', or one of {known}' if known else ''}"
    raise UserError(f"the profile '{shown(profile)}' does not exist: {advice}.")


def grids(path: Path) -> list[dict[str, Any]]:
    """The parameters in each document of a profile."""
    try:
        contents = read_yaml(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"the profile '{shown(path)}' cannot be read as YAML ({one_line(error)}).") from None
    if not contents or not all(isinstance(content, dict) for content in contents):
        raise UserError(f"the profile '{shown(path)}' is not a list of 'name: value' lines.")
    return [{str(name): value for name, value in content.items()} for content in contents]


# CIFAR-100's animals and people, the foreground of the paper's experiment
LIVING = tuple(
    as_list("""
    beaver, dolphin, otter, seal, whale, aquarium_fish, flatfish, ray, shark, trout, bee, beetle, butterfly,
    caterpillar, cockroach, bear, leopard, lion, tiger, wolf, camel, cattle, chimpanzee, elephant, kangaroo, fox,
    porcupine, possum, raccoon, skunk, crab, lobster, snail, spider, worm, baby, boy, girl, man, woman,
    crocodile, dinosaur, lizard, snake, turtle, hamster, mouse, rabbit, shrew, squirrel
    """)
)


def _training(rate: float, hard_rate: float, network: str, **more: Any) -> dict[str, Any]:
    """Learning rates, networks and other defaults of a source."""
    rates = {"learning_rates": (rate,), "hard_learning_rates": (hard_rate,)}
    networks = {"focus_network": network, "classification_network": network}
    return rates | networks | {"precision": "float32", "memory_layout": "contiguous"} | more


_PICTURES = _training(0.05, 0.01, "cifar10", memory_layout="channels_last", epochs=30, batch_size=256) | {
    "num_train": 10_000, "num_validation": 2_000, "num_test": 10_000, "image_size": 32,
}  # fmt: skip
_DIGITS = _training(0.05, 0.05, "digits", memory_layout="channels_last", epochs=20, batch_size=64) | {
    "num_train": 2_000, "num_validation": 500, "num_test": 2_000, "image_size": 8, "precision": "float64",
    "foreground": ("0", "1", "2"),
}  # fmt: skip
_POSTS = _training(0.1, 0.1, "", epochs=50, batch_size=256, encoder="embedding", max_tokens=512)
_KEYWORDS = _training(0.03, 0.03, "", epochs=8, batch_size=50, encoder="embedding", precision="float64") | {
    "num_train": 500, "num_validation": 200, "num_test": 500, "max_tokens": 12,
}  # fmt: skip
_MOTIFS = _training(0.05, 0.05, "conv1d", epochs=16, batch_size=30, precision="float64") | {
    # the best of the rates 0.02, 0.05 and 0.1 on validation series, with seeds 100 to 102
    "window_length": 24, "num_segments": 5, "num_channels": 2, "num_classes": 3, "noise": 0.6, "distractors": 0.5,
    "num_train": 300, "num_validation": 100, "num_test": 300,
}  # fmt: skip
_CLOUDS = _training(0.02, 0.02, "mlp", epochs=12, batch_size=50, precision="float64") | {
    # the best of the rates 0.02, 0.05 and 0.1 on validation bags, with seed 100
    "num_segments": 12, "num_features": 10, "num_classes": 3, "num_train": 400, "num_validation": 150, "num_test": 300,
}  # fmt: skip
_SERIES = _training(0.02, 0.01, "conv1d", epochs=30, batch_size=64)
_BAGS = _training(0.01, 0.01, "mlp", epochs=40, batch_size=16)
_SCENES = {  # chosen on validation pictures, so that a run takes seconds
    "num_train": 150, "num_validation": 50, "num_test": 100, "max_objects": 1, "image_size": 56,
    "min_count": 1, "encoder": "smallcnn", "region_dim": 32, "attention_dim": 16, "embedding_dim": 32,
    "hidden_dim": 96, "start_state": "zero", "state_sees": "word", "epochs": 9, "switch_epoch": 6,
    "encoder_learning_rate": 6e-3, "decoder_learning_rate": 6e-3, "later_encoder_learning_rate": 1e-3,
    "later_decoder_learning_rate": 1e-3, "batch_size": 20, "credit": "rest", "precision": "float64",
}  # fmt: skip
_COCO = {  # the paper's, as far as its public scripts state them, where a notebook leaves a parameter at 0 or empty
    "num_validation": 5_000, "encoder": "features", "features": "vgg19", "epochs": 20, "switch_epoch": 10,
    "batch_size": 100, "decoder_learning_rate": 1e-3, "later_decoder_learning_rate": 1e-5, "state_sees": "region",
    "credit": "caption",
}  # fmt: skip

_ANNOTATORS = ("label", "rationale")
_NUMBERS = ("num_segments", "num_classes", "num_train", "num_validation", "num_test")
_MADE_SERIES = (*_NUMBERS, "num_channels", "noise", "distractors")
_MADE_BAGS = (*_NUMBERS, "num_features", "validation_share")
_FOLDER = "folder that holds train/<class>/ and test/<class>/ with pictures"
_POST_FOLDER = "folder that holds dataset.json and post_id_divisions.json"
_POST_FILE = "file with one JSON object per line, or of a folder with train.jsonl and test.jsonl"
_COCO_FOLDER = "folder that holds annotations/, train2014/ and val2014/"
_MOSAICS, _TEXT = "fcamlib.data.mosaics:mosaic_task", "fcamlib.data.text:text_task"
_CAPTIONS = "fcamlib.data.captions:caption_task"

_POST_FILES, _COCO_FILES = "fcamlib.data.posts:post_files", "fcamlib.data.coco:task_files"
_PICTURE_FILES = "fcamlib.data.pictures:folder_files"
_SERIES_TASK, _BAGS_TASK = "fcamlib.data.vectors:series_task", "fcamlib.data.vectors:bags_task"

SOURCES |= {
    "orthogonal": Source(
        tasks.Orthogonal, "fcamlib.data.mosaics:orthogonal_task", "the linear orthogonal task",
        without=("num_validation", "num_test"),
    ),
    "digits": Source(tasks.Mosaics, _MOSAICS, "8 x 8 digits that come with scikit-learn", _DIGITS),
    "cifar10": Source(
        tasks.Mosaics, _MOSAICS, "CIFAR-10, downloaded", _PICTURES | {"foreground": ("airplane", "automobile", "bird")}
    ),
    "cifar100": Source(
        tasks.Mosaics, _MOSAICS, "CIFAR-100, downloaded",
        _PICTURES | {"foreground": LIVING, "focus_network": "cifar100", "classification_network": "cifar100"},
    ),
    "folder": Source(tasks.Mosaics, _MOSAICS, "your own pictures", _PICTURES, _FOLDER, False, _PICTURE_FILES),
    "keywords": Source(tasks.Text, _TEXT, "generated posts", _KEYWORDS, without=_ANNOTATORS),
    "hatexplain": Source(tasks.Text, _TEXT, "HateXplain, downloaded", _POSTS, _POST_FOLDER, True, _POST_FILES),
    "text": Source(tasks.Text, _TEXT, "your own posts", _POSTS, _POST_FILE, files=_POST_FILES, without=_ANNOTATORS),
    "motifs": Source(tasks.Series, _SERIES_TASK, "generated time series", _MOTIFS),
    "series": Source(
        tasks.Series, _SERIES_TASK, "your own time series", _SERIES, "file of series (.npz)", without=_MADE_SERIES
    ),
    "clouds": Source(tasks.Bags, _BAGS_TASK, "generated bags", _CLOUDS, without=("repeat", "fold", "validation_share")),
    "bags": Source(tasks.Bags, _BAGS_TASK, "your own bags", _BAGS, "file of bags (.npz)", without=_MADE_BAGS),
    "scenes": Source(tasks.Scenes, _CAPTIONS, "generated pictures with captions", _SCENES),
    "coco": Source(tasks.Coco, _CAPTIONS, "COCO 2014, or data in its layout", _COCO, _COCO_FOLDER, True, _COCO_FILES),
}  # fmt: skip

_FOCUS: dict[str, Any] = {  # a sweep does not use validation or test data; the rates and epochs are the paper's
    "num_validation": 1, "num_test": 1, "epochs": 100, "soft_learning_rate": 0.004, "lvml_learning_rate": 0.004,
    "hard_learning_rate": 0.01,
}  # fmt: skip
SWEEPS: dict[str, dict[str, Any]] = {  # other defaults are the paper's
    "orthogonal": {"precision": "float64", "initial": "zero"},
    "digits": _FOCUS
    | {"epochs": 40, "soft_learning_rate": 0.02, "hard_learning_rate": 0.05, "lvml_learning_rate": 0.02},
    **dict.fromkeys(("cifar10", "cifar100", "folder"), _FOCUS),
}  # fmt: skip

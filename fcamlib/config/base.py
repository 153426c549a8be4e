"""What all configurations share: frozen models, names in the store, and values that arrive as text."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Paradigm = Literal["soft", "hard", "lvml", "logit_mixture"]
Schedule = Literal["soft", "hard", "lvml", "hybrid"]
TextSchedule = Literal["soft", "hard", "lvml", "hybrid", "logit_mixture"]  # the last: what the public script trains
Optimizer = Literal["sgd", "adam"]
Precision = Literal["float64", "float32", "tfloat32", "bfloat16"]
MemoryLayout = Literal["channels_last", "contiguous"]
Device = Literal["auto", "cpu", "cuda"]
SCHEDULES: tuple[Schedule, ...] = ("soft", "hard", "lvml", "hybrid")


class Frozen(BaseModel):
    """Base of all configurations: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class StoredConfig(Frozen):
    """A configuration whose result is kept in the store under its name.

    A class other than `RunConfig` has a field `kind: Literal["..."] = "..."`, by which the store knows whose
    config.json it reads, and is imported by `fcamlib.config`.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Folder of the result: readable, ending in the first 8 hex digits of `digest`."""

    def digest(self) -> str:
        """sha256 of the canonical JSON of what the result depends on."""
        content = self.portable().model_dump(mode="json")
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def portable(self) -> StoredConfig:
        """The same without what only one machine knows, such as where a folder lies."""
        return self


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
Numbers = Annotated[tuple[float, ...], BeforeValidator(_as_list), Field(min_length=1)]
Rates = Annotated[tuple[Annotated[float, Field(gt=0, le=100)], ...], BeforeValidator(_as_list)]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...], BeforeValidator(_as_list), Field(min_length=1)]
Schedules = Annotated[tuple[Schedule, ...], BeforeValidator(_as_names), Field(min_length=1)]
TextSchedules = Annotated[tuple[TextSchedule, ...], BeforeValidator(_as_names), Field(min_length=1)]

"""The configuration that a config.json of the store holds, and the function that computes its result."""

from __future__ import annotations

import json

from fcamlib.config.base import StoredConfig
from fcamlib.config.caption_runs import CaptionRunConfig
from fcamlib.config.course import CourseConfig
from fcamlib.config.cross_validation import CrossValidationConfig
from fcamlib.config.fixed_focus import FixedFocusConfig
from fcamlib.config.runs import RunConfig
from fcamlib.config.study import StudyConfig

COMPUTE: dict[type[StoredConfig], str] = {
    RunConfig: "fcamlib.running:run",
    CaptionRunConfig: "fcamlib.captioning.training:compute",
    FixedFocusConfig: "fcamlib.theory.sweep:compute",
    StudyConfig: "fcamlib.running:study",
    CrossValidationConfig: "fcamlib.running:cross_validation",
    CourseConfig: "fcamlib.course_training:compute",
}
KINDS = {kind.model_fields["kind"].default if "kind" in kind.model_fields else None: kind for kind in COMPUTE}


def read(content: bytes) -> StoredConfig:
    """The config in a config.json; `KeyError` for an unknown kind, `ValueError` for what is no config."""
    return KINDS[json.loads(content).get("kind")].model_validate_json(content)


def compute_of(config: StoredConfig) -> str:
    """module:function that computes the result."""
    return COMPUTE[type(config)]


def stored_class(content: bytes) -> type[StoredConfig] | None:  # alias, to be removed
    """The class of a config.json, None where it is unknown."""
    try:
        return type(read(content))
    except (KeyError, ValueError):
        return None

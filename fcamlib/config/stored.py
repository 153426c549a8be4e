"""Which configuration a config.json of the store holds."""

from __future__ import annotations

import json

from fcamlib.config.base import StoredConfig
from fcamlib.config.runs import RunConfig


def stored_class(content: bytes) -> type[StoredConfig] | None:
    """The class of a stored configuration by its field `kind`, `RunConfig` without one; None where it is unknown."""
    try:
        fields = json.loads(content)
    except ValueError:
        return None
    kind = fields.get("kind") if isinstance(fields, dict) else None
    if kind is None:
        return RunConfig
    known = {found.model_fields["kind"].default: found for found in _subclasses() if "kind" in found.model_fields}
    return known.get(kind)


def _subclasses() -> list[type[StoredConfig]]:
    found, waiting = [], [StoredConfig]
    while waiting:
        below = waiting.pop().__subclasses__()
        found += below
        waiting += below
    return found

"""Aliases of the store, to be removed."""

from __future__ import annotations

from collections.abc import Callable

from fcamlib import store
from fcamlib.config import CrossValidationConfig
from fcamlib.running import BAG_MEASURES as MEASURES
from fcamlib.store import Result, Row

__all__ = ["MEASURES", "cross_validate"]


def cross_validate(
    config: CrossValidationConfig, on_row: Callable[[Row, int], None] | None = None
) -> Result[CrossValidationConfig]:
    """`store.get`, with the number of all rows."""
    total = config.repeats * config.folds * len(config.methods)
    return store.get(config, lambda row: on_row(row, total) if on_row else None)

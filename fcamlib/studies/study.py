"""Aliases of the store, to be removed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from fcamlib import store
from fcamlib.config import StudyConfig
from fcamlib.store import Result, Row


def study(
    config: StudyConfig, on_row: Callable[[Row, int], None] | None = None, fresh: bool = False
) -> Result[StudyConfig]:
    """`store.get`, with the number of rows so far."""
    number = count(rows_done(config) + 1)
    return store.get(config, lambda row: on_row(row, next(number)) if on_row else None, fresh)


def rows_done(config: StudyConfig) -> int:
    """How many rows of an unfinished study are kept."""
    return len(store.kept_rows(store.partial_dir(config) / store.ROWS))

"""Aliases of the store, to be removed."""

from __future__ import annotations

from collections.abc import Callable

from fcamlib import store
from fcamlib.config import RunConfig
from fcamlib.store import Row, Run

run_all = store.get_all


def run(
    config: RunConfig,
    on_epoch: Callable[[Row], None] | None = None,
    fresh: bool = False,
    wait: bool = True,
) -> Run:
    """`store.get`."""
    return store.get(config, on_epoch, fresh, wait)

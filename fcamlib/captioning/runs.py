"""Captioning runs in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from fcamlib import store
from fcamlib.config.caption_runs import CaptionRunConfig
from fcamlib.store import Stored

if TYPE_CHECKING:
    from fcamlib.checkpoint import Row

CaptionRun = Stored[CaptionRunConfig]


def caption_run(
    config: CaptionRunConfig,
    on_epoch: Callable[[Row], None] | None = None,
    fresh: bool = False,
    recorded: bool = True,
) -> CaptionRun:
    """The run of `config` from the store, or computed and stored; `recorded`: whether a recorded run will do."""

    def computed() -> CaptionRun:
        from fcamlib.captioning.training import compute

        return store.write(config, *compute(config, on_epoch, store.writable(store.partial_dir(config))))

    with nullcontext() if recorded else store.recorded_passed_over():
        return store.find_or_compute(config, computed, fresh)


def caption_runs(configs: Iterable[CaptionRunConfig]) -> list[CaptionRun]:
    """The runs of several configs, in order."""
    return [caption_run(config) for config in configs]

"""Captioning runs in the store: phase after phase, each from the stored run of the phases before it.

Soft attention and the hybrid share their first phase, and with `caption_runs` it is trained once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fcamlib import store
from fcamlib.config.caption_runs import CaptionRunConfig
from fcamlib.store import Stored

if TYPE_CHECKING:
    from fcamlib.checkpoint import Row
    from fcamlib.data.captions import CaptionTask

WEIGHTS = "model.safetensors"
CaptionRun = Stored[CaptionRunConfig]


def caption_run(
    config: CaptionRunConfig, on_epoch: Callable[[Row], None] | None = None, fresh: bool = False
) -> CaptionRun:
    """The run of `config`: from the store, recorded ones first, or computed and stored.

    Its phases but the last are a run of their own, which is looked up or computed in the same way. An interrupted run
    goes on from its last checkpoint, to the same numbers.

    Parameters
    ----------
    config : CaptionRunConfig
    on_epoch : callable, optional
        Called with the history row of each epoch as it is done.
    fresh : bool
        Compute even where the store has the run.

    Raises
    ------
    DivergenceError
        Where the loss becomes NaN or infinite; the sentence names the step.
    """
    return _found(config, on_epoch, fresh, with_weights=False, tasks={})


def caption_runs(configs: Iterable[CaptionRunConfig]) -> list[CaptionRun]:
    """The runs of several configs, in order; runs on the same data make them once."""
    tasks: dict[str, CaptionTask] = {}
    return [_found(config, None, False, with_weights=False, tasks=tasks) for config in configs]


def _found(
    config: CaptionRunConfig,
    on_epoch: Callable[[Row], None] | None,
    fresh: bool,
    with_weights: bool,
    tasks: dict[str, CaptionTask],
) -> CaptionRun:
    if not fresh and (stored := _stored(config, with_weights)):
        return stored
    with store.locked(config):
        if not fresh and (stored := _stored(config, with_weights)):  # by a process that this one waited for
            return stored
        earlier = _found(config.prefix, on_epoch, fresh, True, tasks) if config.prefix else None
        from fcamlib.captioning.computing import compute

        return compute(config, earlier, on_epoch, tasks)


def _stored(config: CaptionRunConfig, with_weights: bool) -> CaptionRun | None:
    """The stored run; where its weights are needed, a recorded one does not do."""
    stored = store.find(config, report=False)
    if stored and with_weights and not (stored.folder / WEIGHTS).is_file():
        return None
    return stored

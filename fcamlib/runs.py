"""A run is a pure function of its config, kept in the store.

`run(config)` returns the stored run or computes it. Notebooks, the command line and the pipeline all ask for
runs this way, so that a figure never trains anything twice. Torch is imported only where something is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from fcamlib import store
from fcamlib.config import RunConfig
from fcamlib.store import Run, RunBusyError

if TYPE_CHECKING:
    from fcamlib.checkpoint import Row


def run(
    config: RunConfig,
    on_epoch: Callable[[Row], None] | None = None,
    fresh: bool = False,
    wait: bool = True,
) -> Run:
    """The run of `config`: from the store, recorded runs first, or computed and stored.

    An interrupted run resumes at its last checkpoint, to the same numbers. Two processes that ask for one run
    compute it once.

    Parameters
    ----------
    config : RunConfig
    on_epoch : callable, optional
        Called with the history row of each epoch as it is done.
    fresh : bool
        Compute even where the store has the run.
    wait : bool
        Whether to wait for another process that computes the run, or to raise `RunBusyError`.
    """

    def compute() -> Run:
        from fcamlib import computing

        return computing.compute(config, on_epoch)

    return store.find_or_compute(config, compute, fresh, wait)


def run_all(configs: Iterable[RunConfig]) -> list[Run]:
    """The runs of several configs, in order; processes that want the same ones share the work."""
    wanted = list(configs)
    done: dict[str, Run] = {}
    for wait in (False, True):  # first what no other process is at, then the rest
        for config in wanted:
            with suppress(RunBusyError):
                done[config.name] = done.get(config.name) or run(config, wait=wait)
    return [done[config.name] for config in wanted]

"""A run is a pure function of its config, kept in the store.

`run(config)` returns the stored run or computes it. Notebooks, the command line and the pipeline all ask for
runs this way, so that a figure never trains anything twice. Torch is imported only where something is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
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
    wanted: Sequence[RunConfig] = (),
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
    wanted : sequence of RunConfig
        Runs that will be asked for next. One that begins as this one does, as a hybrid begins as the soft run, is left
        a checkpoint where their ways part, and goes on from there to the numbers that it has by itself.
    """

    def compute() -> Run:
        from fcamlib import computing

        return computing.compute(config, on_epoch, wanted)

    return store.find_or_compute(config, compute, fresh, wait)


def run_all(configs: Iterable[RunConfig]) -> list[Run]:
    """The runs of several configs, in order; processes that want the same ones share the work.

    What several begin with is trained once. On a GPU those that differ in their seeds alone train together.
    """
    wanted = list(configs)
    run_together(wanted)
    done: dict[str, Run] = {}
    for wait in (False, True):  # first what no other process is at, then the rest
        for config in wanted:
            with suppress(RunBusyError):
                done[config.name] = done.get(config.name) or run(config, wait=wait, wanted=wanted)
    return [done[config.name] for config in wanted]


def run_together(configs: Sequence[RunConfig], fresh: bool = False) -> set[str]:
    """Compute, seeds together, what the store lacks and no other process is at, where a GPU makes that faster.

    A run of several that trained together has the numbers that it has alone to the rounding of sums, and says so in its
    provenance. Where another process or a CPU is to compute a run, or its loss diverges, it is left to `run`.

    Parameters
    ----------
    configs : sequence of RunConfig
    fresh : bool
        Compute even what the store has.

    Returns
    -------
    set of str
        Names of the runs that were computed.
    """
    computed: set[str] = set()
    for group in seed_groups(config for config in configs if fresh or not store.find(config, report=False)):
        from fcamlib import computing, progress

        if not computing.trains_on_gpu(group[0]):
            continue
        with ExitStack() as locks, progress.common_bar(group) as on_epoch:
            free = []
            for config in group:
                with suppress(RunBusyError):
                    locks.enter_context(store.locked(config, wait=False))
                    if fresh or not store.find(config):  # a process that has just ended may have stored it
                        free.append(config)
            if len(free) > 1:
                computed |= {found.config.name for found in computing.compute_together(free, on_epoch, configs)}
    return computed


def seed_groups(configs: Iterable[RunConfig]) -> list[list[RunConfig]]:
    """Configs that differ in their seeds alone, groups of two and more."""
    groups: dict[RunConfig, dict[int, RunConfig]] = {}
    for config in configs:
        groups.setdefault(config.model_copy(update={"seed": 0}), {})[config.seed] = config
    return [list(group.values()) for group in groups.values() if len(group) > 1]

"""A progress bar for training, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from fcamlib.config import Phase, RunConfig

if TYPE_CHECKING:
    from fcamlib.checkpoint import Row


def epochs_of(phase: Phase) -> int:
    """Epochs that a phase costs, with those of the learning rates that lose."""
    return (len(phase.learning_rates) - 1) * phase.compared_after + phase.epochs


def total_epochs(phases: tuple[Phase, ...]) -> int:
    """Epochs that a schedule costs, with those of the learning rates that lose."""
    return sum(map(epochs_of, phases))


def epochs_done(phases: tuple[Phase, ...], row: Row) -> int:
    """How many of `total_epochs` are behind when `row` is done, also where a run resumes or a candidate diverges."""
    earlier, phase = phases[: row["phase"]], phases[row["phase"]]
    epoch = row["epoch"] - sum(p.epochs for p in earlier)
    search = phase.compared_after
    searched = phase.learning_rates.index(row["learning_rate"]) if epoch <= search else len(phase.learning_rates) - 1
    return total_epochs(earlier) + searched * search + epoch


@contextmanager
def training_bar(config: RunConfig) -> Iterator[Callable[[Row], None] | None]:
    """A bar of the run's epochs on standard error; yields what `run` calls after each, None without a terminal."""
    with common_bar([config]) as on_epoch:
        yield on_epoch and partial(on_epoch, config)


@contextmanager
def common_bar(configs: Sequence[RunConfig]) -> Iterator[Callable[[RunConfig, Row], None] | None]:
    """One bar of the epochs of runs that train together; yields what is called after each, None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    for config in configs:
        console.print(config.name, highlight=False)
    done = dict.fromkeys((config.name for config in configs), 0)
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("loading data", total=sum(total_epochs(config.phases) for config in configs))

        def on_epoch(config: RunConfig, row: Row) -> None:
            accuracy = row.get("validation_accuracy", row["train_accuracy"])
            done[config.name] = epochs_done(config.phases, row)
            progress.update(
                bar,
                completed=sum(done.values()),
                description=f"{row['paradigm']} {row['learning_rate']:g} accuracy {accuracy:.3f}",
            )

        yield on_epoch

"""A progress bar for training, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fcamlib.checkpoint import Row
from fcamlib.config import Phase, RunConfig


def total_epochs(phases: tuple[Phase, ...]) -> int:
    """Epochs that a schedule costs, with those of the learning rates that lose."""
    total = 0
    for phase in phases:
        search = phase.search_epochs or phase.epochs
        total += search * (len(phase.learning_rates) - 1) + phase.epochs
    return total


@contextmanager
def training_bar(config: RunConfig) -> Iterator[Callable[[Row], None] | None]:
    """A bar of the run's epochs on standard error; yields what `run` calls after each, None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        bar = progress.add_task(config.name, total=total_epochs(config.phases))

        def on_epoch(row: Row) -> None:
            accuracy = row.get("validation_accuracy", row["train_accuracy"])
            progress.update(
                bar, advance=1, description=f"{row['paradigm']} lr {row['learning_rate']:g} accuracy {accuracy:.3f}"
            )

        yield on_epoch

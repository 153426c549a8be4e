"""`fcam sweep`: a fixed-focus sweep, computed or looked up; its options are the fields of `SweepGrid`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from fcamlib.config import Sweep, SweepGrid
from fcamlib.options import GroupedCommand, options


@click.command("sweep", cls=GroupedCommand, short_help="Train the classifier at fixed attention weights.")
@click.option("--fresh", is_flag=True, help="compute even where the store has the sweep")
@click.option("--json", "as_json", is_flag=True, help="print name, folder and the last epoch's measures as JSON")
@options(SweepGrid)
def sweep_command(fresh: bool, as_json: bool, **given_options: str | None) -> None:
    """Train the classification model at every fixed attention weight, paradigm and seed, all at once.

    Shows loss L and incentive I = -dL/dalpha after the last epoch. A sweep that was interrupted goes on from its last
    checkpoint.

    \b
    Examples:
      fcam sweep                               the paper's linear orthogonal task
      fcam sweep --dataset digits --seeds 0,1,2
      fcam sweep --dataset folder:PATH --foreground airplane,automobile,bird --epochs 40
    """
    given = {name: value for name, value in given_options.items() if value is not None}
    config = SweepGrid.of(given).config()
    from fcamlib import store
    from fcamlib.numerics import keep_freed_memory

    keep_freed_memory()
    with _bar(config) as on_row:
        finished = store.get(config, on_row, fresh)
    last = finished.history[finished.history["epoch"] == config.epochs]
    if as_json:
        content = {"name": config.name, "folder": str(finished.folder), "last": last.to_dict("records")}
        click.echo(json.dumps(content))
        return
    means = last.groupby(["paradigm", "alpha"], sort=False)[["loss", "incentive_exact"]].mean().reset_index()
    click.echo(means.rename(columns={"incentive_exact": "incentive"}).round(4).to_string(index=False))
    click.echo(f"\n{config.name}: means over {len(config.seeds)} seeds, in {finished.folder}")


@contextmanager
def _bar(config: Sweep) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar on standard error, on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task(config.name, total=config.epochs)
        yield lambda row: progress.update(bar, completed=row["epoch"])

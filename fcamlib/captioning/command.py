"""`fcam caption`: captioning runs, computed or looked up; its options are the fields of `CaptionExperiment`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fcamlib import store
from fcamlib.config import CaptionGrid, CaptionRunConfig, caption_experiment
from fcamlib.errors import DivergenceError, one_line
from fcamlib.options import ONE_RUN, GroupedCommand, options

if TYPE_CHECKING:
    from fcamlib.checkpoint import Row


@click.command("caption", cls=GroupedCommand, short_help="Train a captioning model with attention over regions.")
@click.option("--fresh", is_flag=True, help="compute even where the store has the run")
@click.option("--json", "as_json", is_flag=True, help="print each summary as one line of JSON")
@options(CaptionGrid, also=ONE_RUN)
def caption_command(fresh: bool, as_json: bool, **given_options: str | None) -> None:
    """Train a captioning model that attends to regions of a picture anew for every word, or show its stored run.

    Every paradigm has two phases: soft attention twice, hard attention twice, and the hybrid soft then hard, from the
    weights that soft attention has after its first phase. A run that was interrupted goes on from its last checkpoint.

    \b
    Examples:
      fcam caption --paradigm hybrid --seed 0            generated scenes
      fcam caption --paradigm soft,hard,hybrid --seed 0,1,2
      fcam caption --dataset coco:PATH --device cuda     MSCOCO 2014 in PATH
    """
    configs = caption_experiment({name: value for name, value in given_options.items() if value is not None}).configs()
    from fcamlib.numerics import keep_freed_memory

    keep_freed_memory()
    diverged = 0
    for config in configs:
        try:
            with _bar(config) as on_epoch:
                finished = store.get(config, on_epoch, fresh)
        except DivergenceError as error:
            if len(configs) == 1:
                raise
            diverged += 1
            click.echo(f"fcam: {config.name}: {one_line(error)}", err=True)
            continue
        if as_json:
            click.echo(json.dumps({"name": config.name, "folder": str(finished.folder), **finished.summary}))
            continue
        test = finished.summary["splits"]["test"]
        names = {"bleu1": "BLEU-1", "bleu4": "BLEU-4", "a_z": "a_z", "s_y": "s_y", "saif": "SAIF"}
        shown = ", ".join(f"{title} {test[name]:.3g}" for name, title in names.items() if name in test)
        click.echo(f"{config.name}: {shown} (n = {test['n']}), in {finished.folder}")
    if diverged:
        click.echo(f"fcam: {diverged} of {len(configs)} runs diverged; the others are stored.", err=True)
        click.get_current_context().exit(1)


@contextmanager
def _bar(config: CaptionRunConfig) -> Iterator[Callable[[Row], None] | None]:
    """A bar of the run's epochs on standard error, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    console.print(config.name, highlight=False)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("loading data", total=sum(phase.epochs for phase in config.phases))

        def on_epoch(row: Row) -> None:
            progress.update(bar, completed=row["epoch"], description=f"{row['paradigm']} loss {row['train_loss']:.3f}")

        yield on_epoch

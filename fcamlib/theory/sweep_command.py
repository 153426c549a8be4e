"""`fcam sweep`: a fixed-focus sweep, computed or looked up; its options are the fields of `FixedFocusExperiment`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from fcamlib.config.fixed_focus import FOCUS_DEFAULTS, FixedFocusConfig, FixedFocusExperiment, fixed_focus_experiment
from fcamlib.options import GroupedCommand, field_options

_TASK = (
    "dataset", "num_segments", "num_classes", "num_train", "foreground_variance", "background_variance",
    "num_backgrounds", "foreground", "background", "image_size",
)  # fmt: skip
_TRAINING = (
    "paradigms", "alphas", "seeds", "epochs", "soft_learning_rate", "hard_learning_rate", "lvml_learning_rate",
    "momentum", "batch_size", "classification_network", "initial",
)  # fmt: skip


def _group(name: str) -> str:
    return "Task" if name in _TASK else "Training" if name in _TRAINING else "Computation"


def focus_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for every field of `FixedFocusExperiment`; values stay text and are checked by it."""
    return field_options(FixedFocusExperiment, _group, _default)(command)


def _default(name: str, default: Any) -> str:
    """A default as people read it; that of the data sources where they have their own."""
    if default not in (0, "", ()):
        return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    by_source = {source: str(values[name]) for source, values in FOCUS_DEFAULTS.items() if name in values}
    if not by_source:
        return str(default) if name == "num_backgrounds" else ",".join(map(str, default)) if default else ""
    common = max(by_source.values(), key=list(by_source.values()).count)
    rest = [f"{value} for {source}" for source, value in by_source.items() if value != common]
    return ", ".join([*rest, f"else {common}"]) if rest else common


@click.command("sweep", cls=GroupedCommand, short_help="Train the classifier at fixed attention weights.")
@click.option("--fresh", is_flag=True, help="compute even where the store has the sweep")
@click.option("--json", "as_json", is_flag=True, help="print name, folder and the last epoch's measures as JSON")
@focus_options
def sweep_command(fresh: bool, as_json: bool, **options: str | None) -> None:
    """Train the classification model at every fixed attention weight, paradigm and seed, all at once.

    Shows loss L and incentive I = -dL/dalpha after the last epoch. A sweep that was interrupted goes on from its last
    checkpoint.

    \b
    Examples:
      fcam sweep                               the paper's linear orthogonal task
      fcam sweep --dataset digits --seeds 0,1,2
      fcam sweep --dataset folder:PATH --foreground airplane,automobile,bird --epochs 40
    """
    given = {name: value for name, value in options.items() if value is not None}
    config = fixed_focus_experiment(given).config()
    from fcamlib.numerics import keep_freed_memory
    from fcamlib.theory.sweep import sweep

    keep_freed_memory()
    with _bar(config) as on_epoch:
        finished = sweep(config, on_epoch, fresh)
    last = finished.frame[finished.frame["epoch"] == config.epochs]
    if as_json:
        content = {"name": config.name, "folder": str(finished.stored.folder), "last": last.to_dict("records")}
        click.echo(json.dumps(content))
        return
    means = last.groupby(["paradigm", "alpha"], sort=False)[["loss", "incentive_exact"]].mean().reset_index()
    click.echo(means.rename(columns={"incentive_exact": "incentive"}).round(4).to_string(index=False))
    click.echo(f"\n{config.name}: means over {len(config.seeds)} seeds, in {finished.stored.folder}")


@contextmanager
def _bar(config: FixedFocusConfig) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task(config.name, total=config.epochs)
        yield lambda epoch: progress.update(bar, completed=epoch)

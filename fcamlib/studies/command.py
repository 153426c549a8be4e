"""`fcam study`: many trainings in one table, computed or looked up; its options are the fields of `StudyExperiment`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from fcamlib.config import RECORDED_STUDIES, StudyConfig, StudyGrid, study_experiment
from fcamlib.options import GroupedCommand, options


@click.command("study", cls=GroupedCommand, short_help="Train every combination of several settings into one table.")
@click.argument("name", required=False, type=click.Choice(list(RECORDED_STUDIES)))
@click.option("--list", "list_only", is_flag=True, help="show how many trainings there are and what is done, and stop")
@click.option("--fresh", is_flag=True, help="compute even where the store has the study")
@click.option("--json", "as_json", is_flag=True, help="print name, folder and all rows as JSON")
@options(StudyGrid)
def study_command(name: str | None, list_only: bool, fresh: bool, as_json: bool, **given_options: str | None) -> None:
    """Train every combination of segments, networks, paradigms, switches, learning rates and seeds that is listed.

    The results are one table in one folder of the store, without weights. A study that was interrupted goes on where
    it stopped. NAME is a study that is kept with the source; options go before its settings.

    \b
    Examples:
      fcam study scale --list
      fcam study --num-segments 5,20,100 --seeds 0,1,2
      fcam study --focus-networks linear,mlp:1x32 --classification-networks mlp:1x8,mlp:2x64:layer
      fcam study --paradigms soft,hard,hybrid --soft-shares 0.25,0.5,0.75
      fcam study --paradigms soft,hybrid --each-learning-rate 0.01,0.03,0.1
    """
    given = {field: value for field, value in given_options.items() if value is not None}
    config = study_experiment({**RECORDED_STUDIES.get(name or "", {}), **given}).config()
    if list_only:
        click.echo(_state(config))
        return
    from fcamlib import store
    from fcamlib.numerics import keep_freed_memory
    from fcamlib.tables import METRICS, frame, means

    keep_freed_memory()
    with _bar(config) as on_row:
        found = store.get(config, on_row, fresh)
    if as_json:
        rows = json.loads(found.history.to_json(orient="records"))
        click.echo(json.dumps({"name": config.name, "folder": str(found.folder), "rows": rows}))
        return
    click.echo(means(frame([found]), measures=METRICS).to_string())
    click.echo(f"\n{config.name}: means and 95 % t-intervals over {len(config.seeds)} seeds, in {found.folder}")


def _state(config: StudyConfig) -> str:
    from fcamlib import store

    if stored := store.find(config):
        state = "recorded" if stored.is_recorded else "stored"
    else:
        state = f"{len(store.kept_rows(store.partial_dir(config) / store.ROWS))} done"
    return f"{config.name}  {len(config)} trainings, {state}"


@contextmanager
def _bar(config: StudyConfig) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar on standard error, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    disable = not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=disable) as progress:
        bar = progress.add_task(config.name, total=len(config))
        yield lambda row: progress.update(bar, advance=1, description=f"{row['paradigm']} s{row['seed']}")

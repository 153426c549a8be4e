"""Command line: `fcam run`, `grid`, `list`, `check`, `record`, `bench`; also `python -m fcamlib`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import yaml
from pydantic_core import PydanticUndefined

from fcamlib import __version__
from fcamlib.config import Experiment, RunConfig, experiment
from fcamlib.errors import UserError

ONE_RUN = {"paradigms": "paradigm", "seeds": "seed"}  # `fcam run` takes one of each


def experiment_options(single: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option for every field of `Experiment`; values arrive as text and are checked by it."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, field in reversed(Experiment.model_fields.items()):
            shown = ONE_RUN.get(name, name) if single else name
            default = field.default if field.default is not PydanticUndefined else None
            about = f"{field.description}" + (f"  [default: {_plain(default)}]" if default else "")
            if single and name in ONE_RUN:
                about = {"paradigms": "soft, hard, lvml or hybrid", "seeds": "seed of mosaics, weights and order"}[name]
                about += f"  [default: {'hybrid' if name == 'paradigms' else 0}]"
            command = click.option(f"--{shown.replace('_', '-')}", name, metavar="VALUE", help=about)(command)
        return command

    return decorate


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class Commands(click.Group):
    """A user's mistake ends with one sentence and status 2, an interruption with status 130."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            click.echo(f"fcam: {' '.join(str(error).split())}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("fcam: interrupted; the same command goes on from the last checkpoint.", err=True)
            ctx.exit(130)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="fcam")
def main() -> None:
    """Train and compare attention models: soft, hard, latent-variable and hybrid attention.

    \b
    Folders are moved with environment variables:
      FCAM_DATA     data sets
      FCAM_RESULTS  the run store
      FCAM_FIGURES  saved figures
    """
    logging.basicConfig(format="fcam: %(message)s", level=logging.WARNING, stream=sys.stderr)


@main.command("run")
@click.option("--config", "config_path", type=Path, metavar="FILE", help="a run's config.json, in place of options")
@click.option("--fresh", is_flag=True, help="compute even where the store has the run")
@click.option("--json", "as_json", is_flag=True, help="print the summary as JSON")
@experiment_options(single=True)
def run_command(config_path: Path | None, fresh: bool, as_json: bool, **options: str | None) -> None:
    """Train one model, or show its stored run.

    \b
    Example, your own pictures in PATH/train/<class>/ and PATH/test/<class>/:
      fcam run --dataset folder:PATH --foreground airplane,automobile,bird \\
               --num-segments 5 --paradigm hybrid --seed 0
    """
    given = {name: value for name, value in options.items() if value is not None}
    if config_path is not None:
        if given:
            first = next(iter(given))
            raise UserError(
                f"--config and --{ONE_RUN.get(first, first).replace('_', '-')} exclude each other: give one."
            )
        from fcamlib.store import load_config

        configs = [load_config(config_path)]
    else:
        for field, option in ONE_RUN.items():
            if "," in given.get(field, ""):
                raise UserError(
                    f"{option}={given[field]} is more than one: `fcam run` trains one, `fcam grid` several."
                )
        configs = experiment({"paradigms": "hybrid", **given}).configs()
    _train(configs, fresh, as_json)


@main.command("grid")
@click.argument("profile", type=Path, required=False)
@click.option("--list", "list_only", is_flag=True, help="show what would run and what is stored, and stop")
@click.option("--json", "as_json", is_flag=True, help="print the summaries as JSON")
@experiment_options(single=False)
def grid_command(profile: Path | None, list_only: bool, as_json: bool, **options: str | None) -> None:
    """Train every paradigm with every seed: options, over those of a PROFILE (a YAML file of parameters)."""
    configs = experiment(_profile(profile) | {k: v for k, v in options.items() if v is not None}).configs()
    if not list_only:
        _train(configs, False, as_json)
        return
    from fcamlib.store import find

    for config in configs:
        stored = find(config)
        click.echo(f"{config.name}  {'to do' if stored is None else 'recorded' if stored.is_recorded else 'stored'}")


def _profile(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"the profile '{path}' cannot be read as YAML ({' '.join(str(error).split())}).") from None
    if not isinstance(content, dict):
        raise UserError(f"the profile '{path}' is not a list of 'name: value' lines.")
    return content


def _train(configs: list[RunConfig], fresh: bool, as_json: bool) -> None:
    from fcamlib.numerics import keep_freed_memory
    from fcamlib.progress import training_bar
    from fcamlib.runs import run

    keep_freed_memory()
    for config in configs:
        with training_bar(config) as on_epoch:
            finished = run(config, on_epoch, fresh)
        if as_json:
            click.echo(json.dumps({"name": config.name, "folder": str(finished.folder), **finished.summary}))
            continue
        test = finished.summary["splits"]["test"]
        click.echo(
            f"{config.name}: test accuracy {test['accuracy']:.3f}, focus accuracy {test['focus_accuracy']:.3f}, "
            f"SAIF {test['saif']:.3f} (n = {test['n']}), in {finished.folder}"
        )


@main.command("list")
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
def list_command(as_json: bool) -> None:
    """List recorded and stored runs with their test measures."""
    from fcamlib.store import recorded_runs, stored_runs
    from fcamlib.tables import runs_table

    runs = recorded_runs() + stored_runs()
    if as_json:
        click.echo(json.dumps([{"folder": str(r.folder), **r.summary} for r in runs]))
    elif runs:
        click.echo(runs_table(runs).to_string(index=False))
    else:
        click.echo("No run is stored yet: `fcam run` trains one.")


@main.command("check")
def check_command() -> None:
    """Show environment, devices, folders, and which data sets are present and verified."""
    from fcamlib.checks import report

    click.echo(report())


@main.command("record")
@click.argument("names", nargs=-1, required=True)
def record_command(names: tuple[str, ...]) -> None:
    """Copy finished runs, without scores and weights, to results/recorded/ of the source checkout."""
    from fcamlib import paths, store

    target = paths.recorded_dir()
    if target is None:
        raise UserError("`fcam record` needs a source checkout: run it from an editable install of one.")
    runs = {run.folder.name: run for run in store.stored_runs()}
    for name in names:
        if name not in runs:
            raise UserError(f"'{name}' is not a stored run: `fcam list` shows their names.")
        click.echo(store.record(runs[name], target).folder)


if __name__ == "__main__":
    main()

"""Command line: `fcam run`, `grid`, `caption`, `crossval`, `study`, `sweep`, `list`, `check`, `record`, `rerun`,
`bench`.

Also `python -m fcamlib`.

What imports torch or pandas is imported by the command that needs it, so that `fcam --help` answers at once.
"""

from __future__ import annotations

import difflib
import errno
import io
import json
import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fcamlib import __version__
from fcamlib.config import Grid, RunConfig, experiment
from fcamlib.errors import DivergenceError, UserError, one_line, shown
from fcamlib.options import ONE_RUN, GroupedCommand
from fcamlib.options import options as parameter_options
from fcamlib.profiles import grids, profile_file

if TYPE_CHECKING:
    from fcamlib.store import Result


LAZY = {  # command -> module and name
    "caption": ("fcamlib.captioning.command", "caption_command"),
    "crossval": ("fcamlib.bags.command", "crossval_command"),
    "rerun": ("fcamlib.rerun", "rerun_command"),
    "study": ("fcamlib.studies.command", "study_command"),
    "sweep": ("fcamlib.theory.sweep_command", "sweep_command"),
}


class Commands(click.Group):
    """A user's mistake ends with one sentence and status 2, an interruption with status 130."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with its first sentence whole."""
        with formatter.section("Commands"):
            commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
            formatter.write_dl([(name, command.get_short_help_str(200)) for name, command in commands if command])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands."""
        return sorted([*super().list_commands(ctx), *LAZY])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by name; those of modules of their own are imported when they are asked for."""
        if cmd_name not in LAZY:
            return super().get_command(ctx, cmd_name)
        module, name = LAZY[cmd_name]
        return getattr(import_module(module), name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; characters that the terminal does not have are replaced."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            self._say("interrupted; what is stored stays, and the same command goes on from the last checkpoint.")
            ctx.exit(130)
        except UserError as error:
            self._say(one_line(error))
        except OSError as error:
            if error.errno == errno.EPIPE or error.filename is None:
                raise
            self._say(f"'{error.filename}' cannot be used ({error.strerror}).")
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and not _is_out_of_memory(error):
                raise
            why = f" ({shown(one_line(error))})" if str(error).strip() else ""
            self._say(f"memory ran out{why}: lower num_train, num_test, num_segments or batch_size.")
        ctx.exit(2)

    @staticmethod
    def _say(sentence: str) -> None:
        click.echo(f"fcam: {sentence}", err=True)


def _is_out_of_memory(error: RuntimeError) -> bool:
    return any(words in str(error) for words in ("out of memory", "can't allocate memory"))  # torch's, on CUDA and CPU


def _show_version(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    from fcamlib.paths import commit

    known = commit()
    click.echo(f"fcam, version {__version__}" + (f" (commit {known})" if known else ""))
    ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
              help="Show the version, in a source checkout with its commit, and exit.")  # fmt: skip
def main() -> None:
    """Train and compare attention models: soft, hard, latent-variable and hybrid attention.

    \b
    Examples:
      fcam run                           a hybrid on the embedded digits
      fcam run --dataset folder:PATH --foreground airplane,automobile,bird
                                         on your own pictures
      fcam grid --seeds 0,1,2            four paradigms, three seeds
      fcam COMMAND --help                all options of a command

    \b
    Folders are moved with environment variables:
      FCAM_DATA     data sets
      FCAM_RESULTS  the run store
      FCAM_FIGURES  saved figures
    """
    logging.basicConfig(format="fcam: %(message)s", level=logging.WARNING, stream=sys.stderr)
    if sys.stderr.isatty():
        logging.getLogger("fcamlib").setLevel(logging.INFO)


@main.command("run", cls=GroupedCommand, short_help="Train one model, or show its stored run.")
@click.option("--config", "config_paths", type=Path, multiple=True, metavar="FILE",
              help="a run's config.json, in place of the options; may be given several times")  # fmt: skip
@click.option("--fresh", is_flag=True, help="compute even where the store has the run")
@click.option("--json", "as_json", is_flag=True, help="print the summary as JSON")
@parameter_options(Grid, ONE_RUN, {"paradigms": "hybrid", "seeds": "0"})
def run_command(config_paths: tuple[Path, ...], fresh: bool, as_json: bool, **options: str | None) -> None:
    """Train one model, or show its stored run.

    Example, your own pictures in PATH/train/<class>/ and PATH/test/<class>/:

    \b
      fcam run --dataset folder:PATH --foreground airplane,automobile,bird \\
               --num-segments 5 --paradigm hybrid --seed 0

    Lists are written 0.05,0.02 or '[0.05, 0.02]'. Of several learning rates the best on validation data is kept. A run
    that was interrupted goes on from its last checkpoint.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if not config_paths:
        for field, option in ONE_RUN.items():
            if "," in given.get(field, ""):
                raise UserError(
                    f"{option}={given[field]} is more than one: `fcam run` trains one, `fcam grid` several."
                )
        _train(experiment({"paradigms": "hybrid", **given}, ONE_RUN).configs(), fresh, as_json)
        return
    for name in given:
        option = ONE_RUN.get(name, name).replace("_", "-")
        raise UserError(f"--config and --{option} exclude each other: give one.")
    from fcamlib.store import load_config

    _train([load_config(path) for path in config_paths], fresh, as_json)


@main.command("grid", cls=GroupedCommand, short_help="Train several paradigms and seeds.")
@click.argument("profile", required=False)
@click.option("--list", "list_only", is_flag=True, help="show what is stored, what would run and how long, and stop")
@click.option("--estimate", is_flag=True, help="the same, after a few training steps have been timed")
@click.option("--fresh", is_flag=True, help="compute even what the store has")
@click.option("--json", "as_json", is_flag=True, help="print each summary as one line of JSON")
@parameter_options(Grid)
def grid_command(
    profile: str | None, list_only: bool, estimate: bool, fresh: bool, as_json: bool, **options: str | None
) -> None:
    """Train every paradigm with every seed.

    PROFILE is a YAML file of parameters, or the name of one in notebooks/profiles, such as quick; options go before its
    values. A file of several documents, divided by ---, is as many grids, one after the other. --list goes by stored
    runs to tell how long the others will take on this machine, --estimate by a few training steps.

    \b
    Example:
      fcam grid --num-segments 9 --paradigms soft,hybrid --seeds 0,1,2 --learning-rates 0.1,0.05
    """
    given = {name: value for name, value in options.items() if value is not None}
    configs = [
        config
        for grid in (grids(profile_file(profile)) if profile else [{}])
        for config in experiment(grid | given).configs()
    ]
    if list_only or estimate:
        from fcamlib.grid_list import listing

        for line in listing(configs, estimate):
            click.echo(line)
    else:
        _train(configs, fresh, as_json)


def _train(configs: list[RunConfig], fresh: bool, as_json: bool) -> None:
    """Compute or look up the runs, in order; in a grid, one that diverges does not stop the others."""
    diverged = 0
    for config in configs:
        try:
            _show(config, _finished(config, fresh), as_json)
        except DivergenceError as error:
            if len(configs) == 1:
                raise
            diverged += 1
            click.echo(f"fcam: {config.name}: {one_line(error)}", err=True)
    if diverged:
        click.echo(f"fcam: {diverged} of {len(configs)} runs diverged; the others are stored.", err=True)
        click.get_current_context().exit(1)


def _finished(config: RunConfig, fresh: bool) -> Result:
    from fcamlib import store

    if not fresh and (stored := store.find(config, report=False)):  # answers without importing torch
        return stored
    from fcamlib.numerics import keep_freed_memory
    from fcamlib.progress import training_bar

    keep_freed_memory()
    with training_bar(config) as on_epoch:
        return store.get(config, on_epoch, fresh)


def _show(config: RunConfig, finished: Result, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"name": config.name, "folder": str(finished.folder), **finished.summary}))
        return
    test = finished.summary["splits"]["test"]
    names = {"accuracy": "test accuracy", "focus_accuracy": "focus accuracy", "saif": "SAIF"}
    shown = ", ".join(f"{name} {test[key]:.3f}" for key, name in names.items() if key in test)
    click.echo(f"{config.name}: {shown} (n = {test['n']}), in {finished.folder}")


@main.command("list", short_help="List finished runs with their test measures.")
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
def list_command(as_json: bool) -> None:
    """List recorded and stored runs with their test measures.

    A run that is both is listed once, as recorded. Damaged runs are named on standard error and left out.
    """
    from fcamlib.paths import recorded_dir
    from fcamlib.store import recorded_runs, stored_runs
    from fcamlib.tables import runs_table

    runs = {run.folder.name: run for run in stored_runs()} | {run.folder.name: run for run in recorded_runs()}
    ordered = [runs[name] for name in sorted(runs)]
    if as_json:
        click.echo(json.dumps([{"name": r.folder.name, "folder": str(r.folder), **r.summary} for r in ordered]))
    elif ordered:
        click.echo(runs_table(ordered).to_string(index=False))
    else:
        click.echo("No run is stored yet: `fcam run` trains one.")
    if not as_json and recorded_dir() is None:
        click.echo("Recorded runs come with a source checkout, and this copy was installed without one.", err=True)


@main.command("check", short_help="Show versions, devices, folders, data sets and runs.")
def check_command() -> None:
    """Show versions, devices, folders, which data sets are present and verified, and the state of the runs."""
    from fcamlib.checks import report

    click.echo(report())


@main.command("record", short_help="Keep finished runs with the source.")
@click.argument("names", nargs=-1, required=True)
def record_command(names: tuple[str, ...]) -> None:
    """Copy the finished runs NAMES, without scores and weights, to results/recorded/ of the source checkout."""
    from fcamlib import paths, store

    target = paths.recorded_dir()
    if target is None:
        raise UserError("`fcam record` needs a source checkout: run it from an editable install of one.")
    runs = {result.folder.name: result for result in store.stored_results()}
    for name in names:
        if name not in runs:
            near = difflib.get_close_matches(name, runs, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise UserError(f"'{name}' is not a stored run: {hint}`fcam list` shows their names.")
    for name in names:
        click.echo(store.record(runs[name], target).folder)


if __name__ == "__main__":
    main()

"""Command line: a command that trains only turns its parameters into configs; `training` does the rest for all.

Modules that import torch or pandas are imported only where they are used, so that `fcam --help` answers at once.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from functools import update_wrapper
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fcamlib import __version__, errors
from fcamlib import config as configs
from fcamlib.config import Config, Grid
from fcamlib.errors import UserError, one_line, shown
from fcamlib.terminal import ONE_RUN, Command, as_line_of_json, bar, in_words, options

if TYPE_CHECKING:
    from fcamlib.store import Result

Given = dict[str, Any]
Maker = Callable[..., Sequence[Config]]


class Commands(click.Group):
    """A user error ends with one sentence and status 2, an interruption with status 130."""

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        """Read the options before the command."""
        try:
            return super().make_context(*arguments, **settings)
        except click.NoSuchOption as error:
            click.echo(f"fcam: {error.format_message()} See `fcam --help`.", err=True)
            raise click.exceptions.Exit(2) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; characters that the terminal cannot show are replaced."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        status = 2
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            said = "interrupted; stored results are kept, and the same command resumes from the last checkpoint."
            status = 130
        except UserError as error:
            said = one_line(error)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else ctx.command_path
            said = f"{' '.join(error.format_message().split())} See `{path} --help`."
        except Exception as error:
            if errors.is_out_of_memory(error):
                why = f" ({shown(one_line(error))})" if str(error).strip() else ""
                said = f"memory ran out{why}: lower num_train, num_test, num_segments or batch_size."
            elif isinstance(error, OSError) and error.errno != errno.EPIPE:
                what = (
                    f"'{shown(error.filename)}' cannot be used" if error.filename else "the system refuses an operation"
                )
                said = f"{what} ({shown(error.strerror or one_line(error))})."
            else:
                raise
        click.echo(f"fcam: {said}", err=True)
        ctx.exit(status)


@click.group("fcam", cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="fcam")
def main() -> None:
    """Train and compare attention models: soft, hard, latent-variable and hybrid attention.

    An interrupted command resumes from its last checkpoint when it is given again.

    \b
    Examples:
      fcam run                           a hybrid on the embedded digits
      fcam run --dataset folder:PATH --foreground airplane,automobile,bird
                                         on your own pictures
      fcam grid --seeds 0,1,2            four paradigms, three seeds
      fcam COMMAND --help                all options of a command

    \b
    Environment variables for folders:
      FCAM_DATA     data sets
      FCAM_RESULTS  the run store
      FCAM_FIGURES  saved figures
    """
    logging.basicConfig(format="fcam: %(message)s", level=logging.WARNING, stream=sys.stderr)
    if sys.stderr.isatty():
        logging.getLogger("fcamlib").setLevel(logging.INFO)


FLAGS = {
    "--list list_only": "show what is stored and how long the rest would take, then stop",
    "--estimate estimate": "the same, but time a few training steps for the estimate",
    "--fresh fresh": "compute again even if the result is stored",
    "--live live": "ignore recorded results; use the store, or compute",
    "--json as_json": "print each result as one line of JSON",
}


def training(model: type[configs.Parameters], one: bool = False) -> Callable[[Maker], click.Command]:
    """A command that computes or looks up the configs returned by the decorated function."""
    known = options(model, one)

    def decorate(make: Maker) -> click.Command:
        def command(list_only: bool, estimate: bool, fresh: bool, live: bool, as_json: bool, **own: Any) -> None:
            given = {one.name: value for one in known if (value := own.pop(one.name)) is not None}
            wanted = make(given, **own)
            if as_json and (list_only or estimate):
                raise UserError("--json prints results, of which --list and --estimate have none: leave one out.")
            if not (list_only or estimate):
                return compute(wanted, fresh, as_json, not live)
            if estimate:
                errors.require_address_space()
            from fcamlib.estimate import listing

            click.echo("\n".join(listing(wanted, estimate, fresh, not live)))

        done = main.command(cls=Command)(update_wrapper(command, make))
        done.params += [click.Option(names.split(), is_flag=True, help=about) for names, about in FLAGS.items()]
        done.params += known
        return done

    return decorate


def compute(wanted: Sequence[Config], fresh: bool, as_json: bool, recorded: bool = True) -> None:
    """Compute or look up results in order and show each; if one of several diverges, the others still run."""
    from fcamlib import store

    diverged = 0
    for config in wanted:
        try:
            result = None if fresh else store.find(config, recorded, report=False)  # needs no torch
            if result is None:
                errors.require_address_space()
                from fcamlib.numerics import keep_freed_memory

                keep_freed_memory()
                with bar(config) as progress:
                    result = store.get(config, progress, fresh, recorded=recorded)
        except errors.DivergenceError as error:
            if len(wanted) == 1:
                raise
            diverged += 1
            click.echo(f"fcam: {config.name}: {one_line(error)}", err=True)
        else:
            click.echo(as_line_of_json(result) if as_json else in_words(result))
    if diverged:
        click.echo(f"fcam: {diverged} of {len(wanted)} runs diverged; the others are stored.", err=True)
        click.get_current_context().exit(1)


@training(Grid, one=True)
@click.option("--config", "files", type=Path, multiple=True, metavar="FILE",
              help="a result's config.json instead of options; may be repeated")  # fmt: skip
def run(given: Given, files: tuple[Path, ...]) -> Sequence[Config]:
    """Train one model, or show its stored run.

    Example for your own pictures in PATH/train/<class>/ and PATH/test/<class>/:

    \b
      fcam run --dataset folder:PATH --foreground airplane,automobile,bird \\
               --num-segments 5 --paradigm hybrid --seed 0

    Write lists as 0.05,0.02 or '[0.05, 0.02]'. If several learning rates are given, the best on validation data is
    used.
    """
    for name in given if files else ():
        raise UserError(f"--config and --{ONE_RUN.get(name, name).replace('_', '-')} exclude each other: give one.")
    found = [*map(config_file, files)] or Grid.of({"paradigms": "hybrid", **given}, ONE_RUN).configs()
    if not files and len(found) > 1:
        raise UserError("`fcam run` trains one model: give one paradigm and one seed, or use `fcam grid`.")
    return found


def config_file(path: Path) -> Config:
    """Read a config from a file."""
    from fcamlib.data.files import MOST_BYTES, opened

    try:
        with opened(path, MOST_BYTES) as file:
            return configs.read(file.read())
    except OSError as error:
        fault = f"the config '{shown(path)}' cannot be read ({error.strerror})"
        raise errors.StoreError(f"{fault}: give the config.json of a result.") from None
    except UserError as error:
        raise errors.StoreError(f"the config '{shown(path)}' is not valid: {error}") from None


@training(Grid)
@click.argument("profile", required=False)
def grid(given: Given, profile: str | None) -> Sequence[Config]:
    """Train every paradigm with every seed.

    PROFILE is a YAML file of parameters, or the name of one in notebooks/profiles, such as quick; options override its
    values. Each YAML document in the file (separated by ---) is a grid of its own; `command: study`, sweep or crossval
    in it makes it the parameters of that command instead.

    \b
    Example:
      fcam grid --num-segments 9 --paradigms soft,hybrid --seeds 0,1,2 --learning-rates 0.1,0.05
    """
    documents = configs.grids(configs.profile_file(profile)) if profile is not None else [{}]
    return [config for document in documents for config in configs.configs_of(document | given)]


@training(configs.StudyGrid)
@click.argument("name", required=False, metavar="[NAME]", type=click.Choice(list(configs.STUDIES)))
def study(given: Given, name: str | None) -> Sequence[Config]:
    """Train every combination of several settings into one table.

    The table is stored as one result, without weights. NAME is a study defined in the source; options override its
    settings.

    \b
    Examples:
      fcam study scale --list
      fcam study --focus-networks linear,mlp:1x32 --classification-networks mlp:1x8,mlp:2x64:layer
      fcam study --paradigms soft,hard,hybrid --soft-shares 0.25,0.5,0.75
    """
    return [configs.StudyGrid.of({**configs.STUDIES.get(name or "", {}), **given}).config()]


@training(configs.SweepGrid)
def sweep(given: Given) -> Sequence[Config]:
    """Train the classifier at fixed attention weights.

    Shows the loss L and the incentive I = -dL/dalpha after the last epoch.

    \b
    Examples:
      fcam sweep                               the paper's linear orthogonal task
      fcam sweep --dataset folder:PATH --foreground airplane,automobile,bird --epochs 40
    """
    return [configs.SweepGrid.of(given).config()]


@training(configs.CaptionGrid)
def caption(given: Given) -> Sequence[Config]:
    """Train a captioning model with attention over regions.

    Every paradigm has two phases: soft then soft, hard then hard, and for the hybrid soft then hard.

    \b
    Examples:
      fcam caption --paradigm hybrid --seed 0            generated scenes
      fcam caption --dataset coco:PATH --device cuda     MSCOCO 2014 in PATH
    """
    return configs.CaptionGrid.of(given).configs()


@training(configs.Folds)
def crossval(given: Given) -> Sequence[Config]:
    """Compare the paradigms on your own bags by cross-validation.

    The file holds features (N, D), bag (N,), label (bags,) and, optionally, fold (repeats, bags). If the library
    torchmil is installed (pip install 'fcamlib[mil]'), ABMIL and its gated form are compared too.

    \b
    Example:
      fcam crossval --dataset bags:mine.npz --methods soft,lvml,hybrid
    """
    return [configs.Folds.of(given).config()]


@main.command("list")
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
def list_results(names: tuple[str, ...], as_json: bool) -> None:
    """List finished results by kind, with their test measures.

    NAMES select results and may be quoted patterns such as 'cifar10-*'; without any, all are listed. A result that is
    both recorded and stored is listed once, as recorded. Damaged results are named on standard error.
    """
    from fcamlib import store
    from fcamlib.tables import results_table

    found: list[Result] = [*store.every(), *store.every(recorded=True)]
    by_name = {one.folder.name: one for one in found if any(fnmatch(one.folder.name, name) for name in names or "*")}
    once = sorted(by_name.values(), key=lambda one: (one.config.group, one.folder.name))
    if as_json:
        about = [{"name": one.folder.name, "group": one.config.group, "folder": str(one.folder)} for one in once]
        click.echo(json.dumps([entry | one.summary for entry, one in zip(about, once, strict=True)]))
        return
    groups = {group: list(results) for group, results in groupby(once, key=lambda one: one.config.group)}
    tables = [f"{group}\n{results_table(results).to_string(index=False)}" for group, results in groups.items()]
    nothing = "No result matches." if found else "No results are stored yet: `fcam run` trains a model."
    click.echo("\n\n".join(tables) or nothing)


@main.command()
def check() -> None:
    """Show versions, devices, folders, data sets and results."""
    errors.require_address_space()
    from fcamlib.checks import report

    click.echo(report())


@main.command(short_help="Keep finished results with the source.")
@click.argument("names", nargs=-1, required=True)
def record(names: tuple[str, ...]) -> None:
    """Copy the finished results NAMES, without scores and weights, to results/recorded/ of the source checkout."""
    from fcamlib import store

    stored: list[Result] = store.every()
    results = {result.folder.name: result for result in stored}
    for name in names:
        if name not in results:
            raise UserError(f"'{shown(name)}' is not a stored result: `fcam list` shows all names.")
    for name in names:
        click.echo(store.record(results[name]).folder)


@main.command()
@click.argument("names", nargs=-1, required=True)
def rerun(names: tuple[str, ...]) -> None:
    """Compute recorded results again and compare.

    Every number of the results NAMES is compared with the record. NAMES may be quoted patterns such as 'cifar10-*'.
    Data that a record names by folder or file are searched for in FCAM_DATA and its subfolders. An interrupted run
    resumes; a captioning run takes its first phase from the results folder if it is there. The exit status is 1 if a
    record is not reproduced. Example: FCAM_DATA=PATH fcam rerun 'hatexplain-*'
    """
    errors.require_address_space()
    from fcamlib.checks import rerun

    if not rerun(names):
        click.get_current_context().exit(1)

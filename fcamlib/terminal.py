"""The command line's options, made from parameter fields; its progress bar; results in words or as a line of JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_origin

import click
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from fcamlib.config import CaptionModel, Config, Parameters, Sweep, TaskParameters, Training, written

if TYPE_CHECKING:
    from fcamlib.store import Progress, Result, Row

GROUPS = ("Options", "Task", "Training", "Networks", "Computation")
METAVARS: dict[Any, str] = {int: "N", float: "X", bool: "true|false"}
BETWEEN_LINES = 120.0  # seconds between two lines about a computation in a log
ONE_RUN = {"paradigms": "paradigm", "seeds": "seed"}  # names of the options in `fcam run`, which takes one of each
MEASURES = {"accuracy": "test accuracy", "focus_accuracy": "focus accuracy", "saif": "SAIF"}
OF_CAPTIONS = {"bleu1": "BLEU-1", "bleu4": "BLEU-4", "a_z": "a_z", "s_y": "s_y", "saif": "SAIF"}


class Command(click.Command):
    """A command whose help lists its options by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group, ungrouped options first."""
        parameters = self.get_params(ctx)
        for group in GROUPS:
            own = (parameter for parameter in parameters if getattr(parameter, "group", GROUPS[0]) == group)
            if records := [record for parameter in own if (record := parameter.get_help_record(ctx))]:
                with formatter.section(group):
                    formatter.write_dl(records)


def group_of(model: type[Parameters], name: str) -> str:
    """The heading under which the help lists a parameter."""
    if name not in model.model_fields or name in ("num_segments", "dataset"):
        return "Task"
    if name.rstrip("s").endswith("network") or name == "encoder" or name in CaptionModel.model_fields:
        return "Networks"
    return "Computation" if name in Training.model_fields and name not in ("batch_size", "keep") else "Training"


def written_out(value: Any) -> str:
    """A default as a user would write it; empty if there is none."""
    if isinstance(value, bool):
        return str(value).lower()
    if value in (0, "", ()) or value is PydanticUndefined:
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def options(model: type[Parameters], one: bool) -> list[click.Option]:
    """The options for the parameters, as text; with `one`, they take a single paradigm and seed.

    If data sources differ, an option has the order, description and default of the first.
    """
    fields: dict[str, tuple[FieldInfo, dict[str, str]]] = {}  # by name; with the default of each source
    for dataset in written(model.sources()) if issubclass(model, TaskParameters) else ("",):
        kind = dataset.partition(":")[0]
        own = model.defaults(kind) if issubclass(model, TaskParameters) else {}
        for name, field in model.known(dataset).items():
            fields.setdefault(name, (field, {}))[1][kind] = written_out(own.get(name, field.default))
    return [option(model, name, *found, one) for name, found in fields.items()]


def option(model: type[Parameters], name: str, field: FieldInfo, defaults: dict[str, str], one: bool) -> click.Option:
    """The option for a parameter, with its default value in words."""
    about, _, default = (field.description or "").partition("; default ")
    source, value = next(((source, value) for source, value in defaults.items() if value), ("", ""))
    default = default or value + (f" for {source}" if len(set(defaults.values())) > 1 else "")
    annotation = field.annotation
    if name == "dataset" and issubclass(model, TaskParameters):
        about, default = f"one of {', '.join(written(model.sources()))}", model.usual
    kind = "A,B,..." if get_origin(annotation) is tuple else METAVARS.get(annotation)
    names = [name, ONE_RUN.get(name, name)]
    if one and name in ONE_RUN:
        names, kind, default = names[1:], {"seeds": "N"}.get(name), {"paradigms": "hybrid", "seeds": "0"}[name]
    flags = dict.fromkeys(f"--{each.replace('_', '-')}" for each in names)
    text = about + (f"  [default: {default}]" if default else "")
    found = click.Option([*flags, name], metavar=kind or "NAME", help=text)
    vars(found)["group"] = group_of(model, name)
    return found


@contextmanager
def bar(config: Config) -> Iterator[Progress]:
    """A progress bar of epochs or trainings on standard error; without a terminal, a line every few minutes."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def tell(row: Row) -> None:
            nonlocal last
            if time.monotonic() - last >= BETWEEN_LINES:
                last = time.monotonic()
                click.echo(f"{config.name}: {row.get('epoch', '')} {described(row)}", err=True)

        yield tell
        return
    click.echo(config.name, err=True)
    options: dict[str, Any] = {"length": config.steps, "show_pos": True, "file": sys.stderr, "width": 16}
    with click.progressbar(label="training", item_show_func=described, **options) as shown:
        # a resumed run begins at a later epoch
        yield lambda row: shown.update(max(1, row.get("epoch", 0) - shown.pos), row)


def described(row: Row | None) -> str:
    """A row in a few words, such as "soft 0.05 accuracy 0.931"."""
    known: dict[str, Any] = {name: value for name, value in (row or {}).items() if isinstance(value, str | float)}
    words = [f"{known[name]:g}" if name == "learning_rate" else known[name]
             for name in ("paradigm", "method", "learning_rate") if name in known]  # fmt: skip
    measures = ("validation_accuracy", "accuracy", "train_accuracy", "train_loss", "loss")
    words += [f"{name.rsplit('_', 1)[-1]} {known[name]:.3f}" for name in measures if name in known][:1]
    return " ".join(words)


def as_line_of_json(result: Result) -> str:
    """Name, folder and summary; for tables, the rows (of a sweep, those of the last epoch)."""
    content = {"name": result.folder.name, "folder": str(result.folder)}
    if "splits" in result.summary:
        return json.dumps(content | result.summary)
    rows, name = result.history, "rows"
    if isinstance(result.config, Sweep):
        rows, name = rows[rows["epoch"] == result.config.epochs], "last"
    return json.dumps(content | {name: rows.astype(object).where(rows.notna(), None).to_dict("records")})


def counts(test: Mapping[str, Any]) -> str:
    """Numbers of instances: accuracy and BLEU cover all, focus and SAIF those with a known foreground."""
    if "n_objects" in test:
        return f"n = {test['n']} pictures, {test['n_objects']} objects"
    known = test.get("n_foreground", test["n"])
    return f"n = {test['n']}" + (f", {known} with foreground" if known < test["n"] else "")


def in_words(result: Result) -> str:
    """The test measures of a run, or a table for results with many trainings."""
    config, where = result.config, f"in {result.folder}"
    if test := result.summary.get("splits", {}).get("test"):
        titles = OF_CAPTIONS if "bleu4" in test else MEASURES
        found = ", ".join(f"{title} {test[name]:.3f}" for name, title in titles.items() if name in test)
        return f"{config.name}: {found} ({counts(test)}), {where}"
    from fcamlib.tables import METRICS, TRUTHLESS, counted, frame, means

    if isinstance(config, Sweep):
        last = result.history[result.history["epoch"] == config.epochs]
        table = last.groupby(["paradigm", "alpha"], sort=False)[["loss", "incentive_exact"]].mean().reset_index()
        text = table.rename(columns={"incentive_exact": "incentive"}).round(4).to_string(index=False)
        return f"{text}\n\n{config.name}: means over {counted(len(config.seeds), 'seed')}, {where}"
    if seeds := getattr(config, "seeds", ()):
        text = means(frame([result]), measures=METRICS).to_string()
        beside = "95% confidence intervals" if len(seeds) >= 5 else "ranges"
        return f"{text}\n\n{config.name}: means and {beside} over {counted(len(seeds), 'seed')}, {where}"
    text = means(frame([result]), measures=TRUTHLESS, spread="sd").to_string()
    return f"{text}\n\n{config.name}: means and standard deviations over repeats, {where}"

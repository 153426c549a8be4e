"""The command line's options for the fields of `Experiment`, and a help text that groups them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_origin

import click

from fcamlib.config import SOURCE_DEFAULTS, Experiment

ONE_RUN = {"paradigms": "paradigm", "seeds": "seed"}  # what `fcam run` takes one of, and its name there
GROUPS = {
    "Task": (
        "dataset",
        "foreground",
        "background",
        "num_segments",
        "num_train",
        "num_validation",
        "num_test",
        "image_size",
        "paper_split",
    ),
    "Training": (
        "paradigms",
        "seeds",
        "epochs",
        "switch_epoch",
        "learning_rates",
        "hard_learning_rates",
        "search_epochs",
        "optimizer",
        "momentum",
        "batch_size",
        "keep",
    ),
    "Networks": ("focus_network", "classification_network"),
    "Computation": ("precision", "memory_layout", "threads", "device", "evaluate_every"),
}
_ONE_RUN_ABOUT = {
    "paradigms": ("soft, hard, lvml, or hybrid (soft, then hard)", "hybrid"),
    "seeds": ("draws mosaics, initial weights and batch order", "0"),
}
_FOREGROUND_DEFAULT = (
    "0,1,2 of digits; airplane,automobile,bird of cifar10; the animals and people of cifar100; needed for folder:PATH"
)


class GroupedOption(click.Option):
    """An option that is listed under the title `group` in its command's help."""

    def __init__(self, *args: Any, group: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help lists its options by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, options without one first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                sections.setdefault(getattr(parameter, "group", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def experiment_options(single: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option for every field of `Experiment`, for one run or for a grid; values stay text and are checked by it."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for group, name in reversed([(group, name) for group, names in GROUPS.items() for name in names]):
            shown = ONE_RUN.get(name, name) if single else name
            about, default = _ONE_RUN_ABOUT[name] if single and name in ONE_RUN else _described(name)
            kind = Experiment.model_fields[name].annotation
            metavar = (
                "NAME" if single and name == "paradigms" else "N" if single and name == "seeds" else _metavar(kind)
            )
            add = click.option(
                f"--{shown.replace('_', '-')}",
                name,
                cls=GroupedOption,
                group=group,
                metavar=metavar,
                help=f"{about}  [default: {default}]" if default else about,
            )
            command = add(command)
        return command

    return decorate


def _metavar(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "A,B,..."
    return {int: "N", float: "X", bool: "true|false"}.get(kind, "NAME")


def _described(name: str) -> tuple[str, str]:
    """Description and default of a field, its data sources' where they have their own."""
    field = Experiment.model_fields[name]
    about, _, default = (field.description or "").partition("; default ")
    if name == "foreground":
        default = _FOREGROUND_DEFAULT
    elif field.default or field.annotation is bool:
        default = _plain(field.default)
    elif all(name in defaults for defaults in SOURCE_DEFAULTS.values()):
        default = _by_source({source: _plain(defaults[name]) for source, defaults in SOURCE_DEFAULTS.items()})
    return about, default


def _by_source(values: dict[str, str]) -> str:
    """Defaults by data source in words, the commonest last: "8 for digits, else 32"."""
    shown = list(values.values())
    common = max(values.values(), key=shown.count)
    rest = [f"{value} for {source}" for source, value in values.items() if value != common]
    return ", ".join([*rest, f"else {common}"]) if rest else common


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

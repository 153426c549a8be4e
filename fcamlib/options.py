"""The command line's options for the fields of all experiments, and a help text that groups them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_origin

import click

from fcamlib.config import EXPERIMENTS, Frozen, TaskExperiment, all_datasets

ONE_RUN = {"paradigms": "paradigm", "seeds": "seed"}  # what `fcam run` takes one of, and its name there
_COMMON = {
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
    "Networks": ("encoder", "focus_network", "classification_network"),
    "Computation": ("precision", "memory_layout", "threads", "device", "evaluate_every"),
}
_TITLES = ("Task", "Task of text", "Task of time series", "Task of bags")  # of `EXPERIMENTS`, in order


def _groups() -> dict[str, tuple[str, ...]]:
    """Title -> fields: those of each domain that no domain before it has, then what all domains share."""
    placed = {name for names in _COMMON.values() for name in names}
    groups: dict[str, tuple[str, ...]] = {}
    for title, domain in zip(_TITLES, EXPERIMENTS, strict=True):
        if own := tuple(name for name in domain.model_fields if name not in placed):
            groups[title] = own
            placed |= set(own)
    return groups | _COMMON


GROUPS = _groups()
_ONE_RUN_ABOUT = {
    "paradigms": ("soft, hard, lvml, or hybrid (soft, then hard)", "hybrid"),
    "seeds": ("draws mosaics, initial weights and batch order", "0"),
}
_SHARED_ABOUT = {  # where the domains' own descriptions differ
    "num_segments": "segments of a mosaic, windows of a series, instances of the largest bag",
    "num_train": "training instances: mosaics, posts, series or bags",
    "num_validation": "validation instances, never drawn from test data",
    "num_test": "test instances",
    "batch_size": "instances per step",
    "encoder": "of text: embedding or transformer; of bags: mlp or none",
    "num_classes": "classes of series or bags",
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


def field_options(
    model: type[Frozen], group_of: Callable[[str], str], default_of: Callable[[str, Any], str]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option for every field of one model, in its group and with its default; values stay text."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, field in reversed(model.model_fields.items()):
            about, _, default = (field.description or "").partition("; default ")
            command = click.option(
                f"--{name.replace('_', '-')}",
                name,
                cls=GroupedOption,
                group=group_of(name),
                metavar=_metavar(field.annotation),
                help=f"{about}  [default: {default or default_of(name, field.default)}]".removesuffix("  [default: ]"),
            )(command)
        return command

    return decorate


def experiment_options(single: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option for every field of every experiment, for one run or for a grid; values stay text."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for group, name in reversed([(group, name) for group, names in GROUPS.items() for name in names]):
            shown = ONE_RUN.get(name, name) if single else name
            about, default = _ONE_RUN_ABOUT[name] if single and name in ONE_RUN else _described(name)
            kind = _owners(name)[0].model_fields[name].annotation
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


def _owners(name: str) -> list[type[TaskExperiment]]:
    """The experiments that have a field."""
    return [domain for domain in EXPERIMENTS if name in domain.model_fields]


def _described(name: str) -> tuple[str, str]:
    """Description and default of a field, its data sources' where they have their own."""
    owners = _owners(name)
    field = owners[0].model_fields[name]
    about, _, default = _SHARED_ABOUT.get(name, field.description or "").partition("; default ")
    by_source = {
        kind: _plain(values.get(name, field.default) or "all")  # 0: as many as there are
        for domain in owners
        for kind, values in domain.defaults.items()
        if name in values or (domain is owners[0] and field.default)
    }
    if len(set(by_source.values())) == 1 and field.default:
        by_source = {}
    if name == "dataset":
        return f"one of {', '.join(all_datasets())}", _plain(field.default)
    if name == "foreground":
        default = _FOREGROUND_DEFAULT
    elif (field.default or field.annotation is bool) and not by_source:
        default = _plain(field.default)
    elif by_source and not default:
        default = _by_source(by_source)
    return about, default


def _by_source(values: dict[str, str]) -> str:
    """Defaults by data source in words, the commonest last: "8 for digits, else 32"."""
    sources: dict[str, list[str]] = {}
    for source, value in values.items():
        sources.setdefault(value, []).append(source)
    common = max(sources, key=lambda value: len(sources[value]))
    rest = [f"{value} for {', '.join(names)}" for value, names in sources.items() if value != common]
    return "; ".join([*rest, f"else {common}"]) if rest else common


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

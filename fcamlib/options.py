"""The command line's options for parameters, and a help text that groups them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_origin

import click
from pydantic.fields import FieldInfo

from fcamlib.config import CaptionModel, TaskParameters, Training, written

ONE_RUN = {"paradigms": "paradigm", "seeds": "seed"}  # what `fcam run` takes one of, and its name there
GROUPS = ("Task", "Training", "Networks", "Computation")


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


def options(
    model: type[TaskParameters],
    called: Mapping[str, str] | None = None,
    usual: Mapping[str, str] | None = None,
    also: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option for every parameter of every data source; values stay text and are checked by `model`.

    `called` holds other names of options, `also` second names, `usual` other defaults.
    """
    fields: dict[str, FieldInfo] = {}
    for kind, source in model.sources().items():
        fields = {**model.known(f"{kind}:x" if source.path else kind), **fields}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        ordered = sorted(fields.items(), key=lambda item: GROUPS.index(_group(model, item[0])))
        for name, field in reversed(ordered):
            one = name in (called or {})
            about, _, default = (field.description or "").partition("; default ")
            default = (usual or {}).get(name) or default or _default(model, name, field)
            if name == "dataset":
                about, default = f"one of {', '.join(written(model.sources()))}", model.usual
            command = click.option(
                *([f"--{also[name]}"] if also and name in also else []),
                f"--{(called or {}).get(name, name).replace('_', '-')}",
                name,
                cls=GroupedOption,
                group=_group(model, name),
                metavar="NAME" if one and name == "paradigms" else "N" if one else _metavar(field.annotation),
                help=f"{about}  [default: {default}]" if default else about,
            )(command)
        return command

    return decorate


def _group(model: type[TaskParameters], name: str) -> str:
    if name not in model.model_fields or name == "num_segments":
        return "Task"
    if name.rstrip("s").endswith("network") or name == "encoder" or name in CaptionModel.model_fields:
        return "Networks"
    return "Computation" if name in Training.model_fields and name not in ("batch_size", "keep") else "Training"


def _metavar(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "A,B,..."
    return {int: "N", float: "X", bool: "true|false"}.get(kind, "NAME")


def _default(model: type[TaskParameters], name: str, field: FieldInfo) -> str:
    """The default, by data source where these have their own, the commonest last: "8 for digits; else 32"."""
    sources: dict[str, list[str]] = {}
    for kind in model.sources():
        if (value := _plain(model.defaults(kind).get(name, ""))) != "":
            sources.setdefault(value if len(value) < 40 else f"{value.count(',') + 1} names", []).append(kind)
    if not sources:
        return (
            ""
            if field.is_required() or (field.default in (0, "", ()) and field.annotation is not bool)
            else (_plain(field.default))
        )
    common = max(sources, key=lambda value: len(sources[value]))
    if len(sources) == 1:
        return common
    is_usual = len(sources[common]) > 1
    rest = [f"{value} for {', '.join(kinds)}" for value, kinds in sources.items() if not is_usual or value != common]
    return "; ".join([*rest, f"else {common}"] if is_usual else rest)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

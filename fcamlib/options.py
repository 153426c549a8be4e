"""Command-line options generated from parameter fields, and a help text that groups them."""

from __future__ import annotations

from typing import Any, get_origin

import click
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from fcamlib.config import CaptionModel, Parameters, TaskParameters, Training, written

GROUPS = ("Task", "Training", "Networks", "Computation")
METAVARS: dict[Any, str] = {int: "N", float: "X", bool: "true|false"}
ONE_RUN = {"paradigms": "paradigm", "seeds": "seed"}  # names of the options in `fcam run`, which takes one of each


class Command(click.Command):
    """A command whose help lists its options by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group, ungrouped options first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                sections.setdefault(getattr(parameter, "group", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def known_of(model: type[Parameters]) -> dict[str, dict[str, FieldInfo]]:
    """The parameters of each data source."""
    if not issubclass(model, TaskParameters):
        return {"": dict(model.model_fields)}
    return {kind: model.known(f"{kind}:x" if source.path else kind) for kind, source in model.sources().items()}


def group_of(model: type[Parameters], name: str) -> str:
    """The heading under which the help lists a parameter."""
    if name not in model.model_fields or name in ("num_segments", "dataset"):
        return "Task"
    if name.rstrip("s").endswith("network") or name == "encoder" or name in CaptionModel.model_fields:
        return "Networks"
    return "Computation" if name in Training.model_fields and name not in ("batch_size", "keep") else "Training"


def default_of(model: type[Parameters], name: str) -> str:
    """The default value; if data sources have their own, the first source's."""
    own = model.defaults if issubclass(model, TaskParameters) else lambda _: {}
    found = {kind: own(kind).get(name, known[name].default) for kind, known in known_of(model).items() if name in known}
    kind, value = next(((kind, value) for kind, value in found.items() if written_out(value)), ("", ""))
    return written_out(value) + (f" for {kind}" if value and len(set(found.values())) > 1 else "")


def written_out(value: Any) -> str:
    """A default as a user would write it; empty if there is none."""
    if isinstance(value, bool):
        return str(value).lower()
    if value in (0, "", ()) or value is PydanticUndefined:
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def option(model: type[Parameters], name: str, field: FieldInfo, one: bool) -> click.Option:
    """The option for a parameter, with a text value; with `one`, it takes a single paradigm or seed."""
    about, _, default = (field.description or "").partition("; default ")
    default, annotation = default or default_of(model, name), field.annotation
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

"""Errors that a user's value can cause: one clear sentence, shown without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


class UserError(ValueError):
    """A value that a user gave is wrong; the message says which, what is allowed and what to do."""

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: a notebook shows the sentence alone."""
        return [f"{type(self).__name__}: {self}"]


class DataError(UserError):
    """A data source is missing, incomplete or damaged."""


class DivergenceError(UserError):
    """The training loss became NaN or infinite; the message names the step."""


class StoreError(UserError):
    """The run store cannot be read or written."""


def one_line(error: BaseException) -> str:
    """The message of `error` on one line, for a log or a command line."""
    return " ".join(str(error).split())


def explain(error: ValidationError, model: type[BaseModel], called: Mapping[str, str] | None = None) -> str:
    """The first fault of a validation error as one sentence: field, value, what is allowed.

    Parameters
    ----------
    error : ValidationError
    model : type
        The configuration that was to be made.
    called : mapping, optional
        Names that the user knows fields by, where they differ.
    """
    fault = error.errors(include_url=False)[0]
    if fault["type"] == "value_error":  # written by a validator of `model`
        return fault["msg"].removeprefix("Value error, ") + "."
    if not fault["loc"]:
        return f"{_needed(fault)}."
    path = [part for part in fault["loc"] if isinstance(part, str)] or [str(fault["loc"][0])]
    owner, place = _owner(model, path)
    name = ".".join([*place[:-1], (called or {}).get(place[-1], place[-1])])
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(place[-1], owner.model_fields, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        return f"'{name}' is not a parameter: {hint}known are {', '.join(owner.model_fields)}."
    field = owner.model_fields.get(place[-1])
    about = field.description if field and field.description else ""
    if fault["type"] == "missing":
        return f"{name} is missing: give {about or 'it'}."
    value = repr(fault["input"])
    shown = value if len(value) <= 60 else value[:57] + "..."
    return f"{name}={shown} is not allowed: {_needed(fault)}" + (f" ({about})." if about else ".")


def _owner(model: type[BaseModel], path: list[str]) -> tuple[type[BaseModel], list[str]]:
    """The model, `model` or one nested in it, that holds the field at `path`, and the path without names of classes.

    Where a field can hold several models, pydantic names the one it took by a part of its own: the class's name.
    """
    place: list[str] = []
    nested: dict[str, type[BaseModel]] = {}
    for name in path:
        if name in nested:
            model = nested[name]
            continue
        if len(nested) == 1:
            (model,) = nested.values()
        place.append(name)
        nested = _models(model.model_fields[name].annotation) if name in model.model_fields else {}
    return model, place


def _models(annotation: Any) -> dict[str, type[BaseModel]]:
    """The models that an annotation can hold, by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation.__name__: annotation}
    return {name: model for part in get_args(annotation) for name, model in _models(part).items()}


def _needed(fault: Any) -> str:
    """What pydantic's fault asks for, in plain words."""
    context = fault.get("ctx", {})
    words = {
        "int": "give a whole number",
        "float": "give a number",
        "bool": "give true or false",
        "string": "give text",
        "tuple": "give a list, such as 1,2",
        "literal": f"choose {str(context.get('expected', '')).removeprefix(chr(39) * 2 + ', ')}",
        "too_short": f"give at least {context.get('min_length')} of them",
        "greater_than": f"give more than {context.get('gt')}",
        "greater_than_equal": f"give {context.get('ge')} or more",
        "less_than": f"give less than {context.get('lt')}",
        "less_than_equal": f"give {context.get('le')} or less",
        "finite_number": "give a finite number",
        "json_invalid": f"it is not JSON ({context.get('error')})",
        "model_type": "names with their values are needed",
    }
    kind = str(fault["type"])
    return words.get(kind) or words.get(kind.split("_", 1)[0]) or fault["msg"][0].lower() + fault["msg"][1:]


__all__ = ["DataError", "DivergenceError", "StoreError", "UserError", "explain", "one_line"]

"""Errors that a user's value can cause: one clear sentence, shown without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

LONGEST = 200  # characters of a value that a message repeats


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


def is_out_of_memory(error: Exception) -> bool:
    """Whether Python, torch or the loader of its libraries had too little memory."""
    words = ("out of memory", "allocate memory", "failed to map segment", "bad_alloc")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def one_line(error: BaseException) -> str:
    """The message of `error` on one line, for a log or a command line."""
    return " ".join(str(error).split())


def shown(value: Any, longest: int = LONGEST) -> str:
    """A value as a message repeats it: shortened, and without characters that cannot be printed."""
    try:
        text = str(value) if isinstance(value, str | Path) else repr(value)
    except ValueError:  # Python does not write numbers of more than 4,300 digits
        return "a number with thousands of digits"
    text = text if len(text) <= longest else text[: longest - 3] + "..."
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def unknown_name(name: str, known: Iterable[str]) -> str:
    """The sentence for a parameter that does not exist."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"'{shown(name)}' is not a parameter: {hint}known are {', '.join(known)}."


def explain(
    error: ValidationError, model: type[BaseModel], called: Mapping[str, str] | None = None, within: str = ""
) -> str:
    """The first fault of a validation error of `model` as one sentence: field, value, what is allowed.

    `called` holds the names that the user knows fields by, where they differ; `within` stands before every name.
    """
    fault = error.errors(include_url=False)[0]
    if fault["type"] == "value_error":  # written by a validator
        return fault["msg"].removeprefix("Value error, ").rstrip(".") + "."
    path = [part for part in fault["loc"] if isinstance(part, str)] or [str(part) for part in fault["loc"][:1]]
    if not path:
        return f"{_needed(fault)}."
    owner, field = model, None
    for part in path:
        owner = _model(field.annotation) if field else owner
        field = owner.model_fields.get(part)
    name = within + ".".join([*path[:-1], (called or {}).get(path[-1], path[-1])])
    if fault["type"] == "extra_forbidden":
        return unknown_name(name, owner.model_fields)
    about = field.description if field and field.description else ""
    if fault["type"] == "missing":
        return f"{name} is missing: give {about or 'it'}."
    value = fault["input"]
    value = shown(repr(value) if isinstance(value, str) else value, 60)
    return f"{name}={value} is not allowed: {_needed(fault)}" + (f" ({about})." if about else ".")


def _model(annotation: Any) -> type[BaseModel]:
    """The first model that an annotation can hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model(part)) is not BaseModel), BaseModel)


def _needed(fault: Any) -> str:
    """What pydantic's fault asks for, in plain words."""
    context = fault.get("ctx", {})
    words = {
        "int": "give a whole number",
        "float": "give a number",
        "bool": "give true or false",
        "string": "give text",
        "tuple": "give a list, such as 1,2",
        "literal": f"choose {context.get('expected')}",
        "too_short": f"give at least {context.get('min_length')} of them",
        "too_long": f"give at most {context.get('max_length')} of them",
        "greater_than": f"give more than {context.get('gt')}",
        "greater_than_equal": f"give {context.get('ge')} or more",
        "less_than": f"give less than {context.get('lt')}",
        "less_than_equal": f"give {context.get('le')} or less",
        "finite_number": "give a finite number",
        "multiple_of": f"give a multiple of {context.get('multiple_of')}",
        "json_invalid": f"it is not JSON ({context.get('error')})",
        "model_type": "names with their values are needed",
    }
    kind = str(fault["type"])
    return words.get(kind) or words.get(kind.split("_", 1)[0]) or fault["msg"][0].lower() + fault["msg"][1:]

"""Errors caused by a user's input: one clear sentence, shown without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

LONGEST = 200  # characters of a value that a message repeats
ADDRESS_SPACE = 4 * 2**30  # bytes that PyTorch and a small run need


class UserError(ValueError):
    """A user's value is invalid; the message names it and says what is allowed and what to do."""

    def _render_traceback_(self) -> list[str]:
        """IPython hook: a notebook shows only the sentence."""
        return [f"{type(self).__name__}: {self}"]


class DataError(UserError):
    """A data source is missing, incomplete or damaged."""


class DivergenceError(UserError):
    """The training loss became NaN or infinite; the message names the step."""


class StoreError(UserError):
    """The run store cannot be read or written."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether Python, torch or the loader of its libraries ran out of memory."""
    words = ("out of memory", "allocate memory", "failed to map segment", "bad_alloc")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def require_address_space() -> None:
    """Refuse a memory limit under which PyTorch's libraries would kill the process without a message."""
    with suppress(ImportError):  # Windows has no such limits
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if 0 <= limit < ADDRESS_SPACE:
            raise UserError(
                f"virtual memory is limited to {limit / 2**30:.1f} GiB (ulimit -v), but PyTorch needs "
                f"{ADDRESS_SPACE / 2**30:.0f}: raise the limit, or remove it."
            )


def one_line(error: BaseException) -> str:
    """The message of `error` on one line, for a log or a command line."""
    return " ".join(str(error).split())


def shown(value: Any, longest: int = LONGEST) -> str:
    """A value for use in a message: shortened, without unprintable characters."""
    try:
        text = str(value) if isinstance(value, str | Path) else repr(value)
    except ValueError:  # Python does not write numbers of more than 4,300 digits
        return "a number of thousands of digits"
    text = text if len(text) <= longest else text[: longest - 3] + "..."
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def unknown_name(name: str, known: Iterable[str]) -> str:
    """The message for a parameter that does not exist."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"'{shown(name)}' is not a parameter: " + (
        f"{hint}known are {', '.join(known)}." if known else "leave it out."
    )


NEEDED = {  # pydantic's error type, or its first word -> what to do
    "int": "give a whole number",
    "float": "give a number",
    "bool": "give true or false",
    "string": "give text",
    "string_too_long": "give at most {max_length} characters",
    "string_unicode": "give text that the locale can encode, such as under LC_ALL=C.UTF-8",
    "tuple": "give a list, such as 1,2",
    "literal": "choose {expected}",
    "too_short": "give at least {min_length} of them",
    "too_long": "give at most {max_length} of them",
    "greater_than": "give more than {gt:g}",
    "greater_than_equal": "give {ge} or more",
    "less_than": "give less than {lt:g}",
    "less_than_equal": "give {le} or less",
    "finite_number": "give a finite number",
    "multiple_of": "give a multiple of {multiple_of}",
    "json_invalid": "it is not JSON ({error})",
    "model_type": "names with their values are needed",
}


def explain(
    error: ValidationError, model: type[BaseModel], called: Mapping[str, str] | None = None, within: str = ""
) -> str:
    """The first error in a validation of `model` as one sentence: field, value, what is allowed.

    `called` maps fields to the names that users see, if these differ; `within` is a prefix for every name.
    """
    fault = error.errors(include_url=False)[0]
    kind, path = fault["type"], [part for part in fault["loc"] if isinstance(part, str)]
    if kind == "value_error":  # written by a validator
        return fault["msg"].removeprefix("Value error, ").rstrip(".") + "."
    needed = NEEDED.get(kind) or NEEDED.get(kind.split("_")[0]) or fault["msg"][0].lower() + fault["msg"][1:]
    needed = needed.format_map(fault.get("ctx", {})).replace("choose '', ", "choose ")
    if not path:
        return f"{needed}."
    name = within + ".".join([*path[:-1], (called or {}).get(path[-1], path[-1])])
    if kind == "extra_forbidden":
        return unknown_name(name, model.model_fields if len(path) == 1 else ())
    field = model.model_fields.get(path[0]) if len(path) == 1 else None
    about = field.description if field and field.description and kind not in ("literal_error", "choice") else ""
    if kind == "missing":
        return f"{name} is missing: add it" + (f" ({about})." if about else ".")
    value = fault["input"]
    value = shown(repr(value) if isinstance(value, str) else value, 60)
    return f"{name}={value} is not allowed: {needed}" + (f" ({about})." if about else ".")

"""Errors that a user's value can cause: one clear sentence, shown without a traceback."""

from __future__ import annotations



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


__all__ = ["DataError", "DivergenceError", "StoreError", "UserError", "one_line"]

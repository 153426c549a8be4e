"""A command line as papermill reads it."""

import shlex
from typing import Any

from papermill import cli


def read(command: str) -> tuple[str, dict[str, Any]]:
    """The notebook's path and the parameters given; nothing is executed."""
    program, *arguments = shlex.split(command)
    assert program == "papermill", f"another program: {command}"
    found = cli.papermill.make_context("papermill", arguments).params
    assert found.pop("output_path"), f"no file for the result: {command}"
    return found["notebook_path"], {name: cli._resolve_type(value) for name, value in found["parameters"]}

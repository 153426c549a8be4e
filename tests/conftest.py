"""A browser for the tests that need one, and papermill's own reading of a command line."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from papermill import cli
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH: install the package chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def _read(command: str) -> tuple[str, dict[str, Any]]:
    program, *arguments = shlex.split(command)
    assert program == "papermill", f"another program: {command}"
    found = cli.papermill.make_context("papermill", arguments).params
    assert found.pop("output_path"), f"no file for the result: {command}"
    return found["notebook_path"], {name: cli._resolve_type(value) for name, value in found["parameters"]}


@pytest.fixture(scope="session")
def papermill_reads() -> Callable[[str], tuple[str, dict[str, Any]]]:
    """Reads a command line as papermill does, without executing it: the notebook's path and the parameters given."""
    return _read

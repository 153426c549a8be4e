"""The box on each notebook page with a command to try: one a page, which papermill and the notebook take."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ledger
import nbformat
import papermill
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
BOX = re.compile(r":::\{admonition\} Try it\n:class: tip try-it\n\n```bash\n(.*)\n```\n\n(.+)\n:::", re.S)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_one_box_with_a_command_that_changes_known_parameters(
    path: Path, papermill_reads: Callable[[str], tuple[str, dict[str, Any]]]
) -> None:
    notebook = nbformat.read(path, as_version=4)
    boxes = [cell.source for cell in notebook.cells if cell.cell_type == "markdown" and "try-it" in cell.source]
    assert len(boxes) == 1
    box = BOX.fullmatch(boxes[0])
    assert box is not None, f"not written as on the other pages: {boxes[0]}"
    command, outcome = box.groups()
    target, given = papermill_reads(command)
    assert target == f"notebooks/{path.name}"
    known = papermill.inspect_notebook(path)
    assert given and given.keys() <= known.keys(), f"{given.keys() - known.keys()} unknown to {path.name}"
    usual = ledger.parameters_of(path)
    assert any(value != usual[name] for name, value in given.items()), "the command changes nothing"
    assert "{" not in command and len(outcome.split()) > 15

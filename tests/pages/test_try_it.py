"""What every notebook page has: its question, three takeaways, its cost, a command that changes it, and exercises."""

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
BOX = re.compile(r":::\{admonition\} Run this page\n:class: dropdown run-page\n\n.+?\n\n```bash\n(.*)\n```\n:::", re.S)
EXERCISE = re.compile(r"\*\*\d\.\*\* .+?\n\n:::\{admonition\} Solution\n:class: dropdown\n\n.+?\n:::", re.S)

each_page = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def prose(path: Path) -> tuple[str, str]:
    """The head of a page, before and after its first figure or table, and its last Markdown cell."""
    first, second, *_, last = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown"]
    return f"{first}\n\n{second}", last


@each_page
def test_a_page_begins_with_its_question_takeaways_and_cost_and_ends_with_exercises(path: Path) -> None:
    first, last = prose(path)
    parts = re.findall(r"^\*\*([\w ]+?)(?: for each .+?| with every .+?)?\.?\*\*", first, re.M)
    assert [part for part in parts if not part.startswith("Claim")] == ["Question", "What we learned", "Cost"]
    assert len(re.findall(r"^- ", first, re.M)) == 3
    assert "## Exercises\n" in last and len(EXERCISE.findall(last)) == len(re.findall(r"^\*\*\d\.\*\*", last, re.M)) > 0


@each_page
def test_the_command_of_a_page_changes_known_parameters(
    path: Path, papermill_reads: Callable[[str], tuple[str, dict[str, Any]]]
) -> None:
    box = BOX.search(prose(path)[0])
    assert box is not None, "no box that says how to run the page"
    target, given = papermill_reads(box[1])
    assert target == f"notebooks/{path.name}"
    known = papermill.inspect_notebook(path)
    assert given and given.keys() <= known.keys(), f"{given.keys() - known.keys()} unknown to {path.name}"
    usual = ledger.parameters_of(path)
    assert any(value != usual[name] for name, value in given.items()), "the command changes nothing"

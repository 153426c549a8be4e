"""Notebook pages and the map from the paper to them: question, takeaways, cost, command, exercises and figures."""

import importlib
import re
import shlex
from pathlib import Path

import ledger
import nbformat
import papermill
import papermill_command
import pytest
from click.testing import CliRunner

from fcamlib import paths
from fcamlib.cli import main

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
BOX = re.compile(r":::\{admonition\} Run this page\n:class: dropdown run-page\n\n.+?\n\n```bash\n(.*)\n```\n:::", re.S)
EXERCISE = re.compile(r"\*\*\d\.\*\* .+?\n\n:::\{admonition\} Solution\n:class: dropdown\n\n.+?\n:::", re.S)

each_page = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@each_page
def test_a_page_begins_with_its_question_takeaways_cost_and_command_and_ends_with_exercises(path: Path) -> None:
    texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    first, last = f"{texts[0]}\n\n{texts[1]}", texts[-1]  # before and after the first figure or table
    parts = re.findall(r"^\*\*([\w ]+?)(?: for each .+?| with every .+?)?\.?\*\*", first, re.M)
    assert [part for part in parts if not part.startswith("Claim")] == ["Question", "What we learned", "Cost"]
    assert len(re.findall(r"^- ", first, re.M)) == 3
    assert "## Exercises\n" in last and len(EXERCISE.findall(last)) == len(re.findall(r"^\*\*\d\.\*\*", last, re.M)) > 0
    box = BOX.search(first)
    assert box is not None, "no box that says how to run the page"
    target, given = papermill_command.read(box[1])
    known, usual = papermill.inspect_notebook(path), ledger.parameters_of(path)
    assert target == f"notebooks/{path.name}" and given.keys() <= known.keys(), "a parameter that the page has not"
    assert any(value != usual[name] for name, value in given.items()), "the command changes nothing"


TEXT = (ROOT / "book" / "map.md").read_text("utf-8")
BY_NAME = {path.stem: path for path in NOTEBOOKS}
FUNCTIONS = sorted(set(re.findall(r"`(fcamlib\.[\w.]+)`", TEXT)))
ENDINGS = ("svg", "png", "json")
COMMANDS = sorted(set(re.findall(r"`(fcam [^`]+)`", TEXT)))


def table_rows() -> list[dict[str, str]]:
    """The rows of all tables of the page, by column."""
    rows: list[dict[str, str]] = []
    header: list[str] = []
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
        if not cells:
            header = []
        elif not header:
            header = [cell.strip("| ") for cell in cells]
        elif not line.startswith("|---"):
            rows.append(dict(zip(header, (cell.strip("| ") for cell in cells), strict=True)))
    return rows


def test_every_notebook_is_on_the_map_and_no_other() -> None:
    assert set(re.findall(r"<notebooks/(\w+)>", TEXT)) == set(BY_NAME)


def test_every_figure_of_every_notebook_is_on_the_map_beside_its_notebook_and_drawn_when_the_book_is_built() -> None:
    mapped: dict[str, set[str]] = {name: set() for name in BY_NAME}
    for row in table_rows():
        if "figure files" in row:
            (name,) = re.findall(r"<notebooks/(\w+)>", row["notebook"])
            mapped[name] |= set(re.findall(r"`([\w-]+)`", row["figure files"]))
    shown = re.compile(r'plots\.show\(\w+, \\"([\w-]+)\\"')
    assert mapped == {name: set(shown.findall(path.read_text("utf-8"))) for name, path in BY_NAME.items()}
    files = {f"{figure}.{ending}" for figures in mapped.values() for figure in figures for ending in ENDINGS}
    missing = files - {path.name for path in (ROOT / "figures").iterdir()}
    assert not missing, f"run `make book` first: figures/ lacks {missing}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_can_be_imported(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)


def test_every_record_is_there() -> None:
    folders = [path.name for path in (paths.recorded_dir() or ROOT).iterdir()]
    named = {name for row in table_rows() for name in re.findall(r"`([\w-]+)`", row.get("record", ""))}
    assert len(named) > 8
    assert not [name for name in named if not any(folder.startswith(name) for folder in folders)]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_known(command: str) -> None:
    _, name, *arguments = shlex.split(command)
    asked = CliRunner().invoke(main, [name, "--help"])
    assert asked.exit_code == 0, asked.output
    options = [argument for argument in arguments if argument.startswith("--")]
    assert not [option for option in options if not re.search(rf"{option}\b", asked.output)]
    files = [argument for argument in arguments if argument.endswith(".yaml")]
    assert all((ROOT / file).is_file() for file in files)

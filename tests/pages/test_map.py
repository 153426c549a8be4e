"""The page that leads from the paper to the book names only what there is, and every notebook."""

import importlib
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from fcamlib import paths
from fcamlib.cli import main

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "book" / "map.md").read_text("utf-8")
NOTEBOOKS = {path.stem: path for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")}
FUNCTIONS = sorted(set(re.findall(r"`(fcamlib\.[\w.]+)`", TEXT)))
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


def figures_of(name: str) -> set[str]:
    """Files that a notebook saves figures to."""
    return set(re.findall(r'plots\.show\(\w+, \\"([\w-]+)\\"', NOTEBOOKS[name].read_text("utf-8")))


def test_every_notebook_is_on_the_map_and_no_other() -> None:
    assert set(re.findall(r"<notebooks/(\w+)>", TEXT)) == set(NOTEBOOKS)


def test_every_figure_of_every_notebook_is_on_the_map_beside_its_notebook() -> None:
    mapped: dict[str, set[str]] = {name: set() for name in NOTEBOOKS}
    for row in table_rows():
        if "figure files" in row:
            (name,) = re.findall(r"<notebooks/(\w+)>", row["notebook"])
            mapped[name] |= set(re.findall(r"`([\w-]+)`", row["figure files"]))
    assert mapped == {name: figures_of(name) for name in NOTEBOOKS}


def test_every_figure_file_is_there_when_the_book_is_built() -> None:
    names = {name for row in table_rows() for name in re.findall(r"`([\w-]+)`", row.get("figure files", ""))}
    missing = [
        name for name in names for end in ("svg", "png", "json") if not (ROOT / f"figures/{name}.{end}").is_file()
    ]
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

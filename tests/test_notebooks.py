"""Notebooks: in a state that can be compared, run with good and wrong parameters, and what their parameters become."""

import ast
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from nbformat import NotebookNode

from fcamlib.config import CaptionGrid, CostParameters, FlowParameters, Grid, Mosaics, Parameters, StudyGrid, SweepGrid
from fcamlib.errors import UserError
from fcamlib.notebook import effective, parameters

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
MAX_BYTES = 200_000
MAX_CELL_LINES = 15
NOTE = 'class="figure-note"'
# The smallest experiment that still trains all four paradigms.
SMALL_AS_TEXT = {
    "num_train": "64",
    "num_validation": "32",
    "epochs": "2",
    "learning_rates": "[0.05]",
    "paper_split": "false",
}
SMALL_AS_VALUES = {"num_test": 32, "momentum": 0.5, "paradigms": ["soft", "hard", "lvml", "hybrid"]}

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parameters_of(notebook: NotebookNode) -> dict[str, ast.expr]:
    """Name -> default, as written in the cell tagged `parameters`."""
    (cell,) = [cell for cell in code_cells(notebook) if "parameters" in cell.metadata.get("tags", [])]
    found = {}
    for statement in ast.parse(cell.source).body:
        assert isinstance(statement, ast.AnnAssign | ast.Assign), f"not a plain assignment: {ast.unparse(statement)}"
        target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
        assert isinstance(target, ast.Name) and statement.value is not None
        found[target.id] = statement.value
    return found


def papermill(path: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run papermill as a user does, from a foreign folder; again where a kernel finds its port taken."""
    command = [sys.executable, "-m", "papermill", str(path), "out.ipynb", "--no-progress-bar", *arguments]
    for _ in range(2):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
        if "Kernel died before replying" not in done.stderr:
            break
    return done


@each_notebook
def test_stored_outputs_are_of_one_run_and_text_that_can_be_compared(path: Path) -> None:
    notebook = read(path)
    cells = [cell for cell in code_cells(notebook) if cell.source.strip()]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for output in (output for cell in cells for output in cell.outputs):
        assert output.output_type != "error", f"stored error {output.get('ename')}"
        assert output.get("name") != "stderr", f"stored stderr: {output.get('text', '')[:200]}"
        assert not [kind for kind in output.get("data", {}) if kind.startswith(("image/", "application/"))]
    assert path.stat().st_size < MAX_BYTES and str(ROOT) not in path.read_text()
    assert notebook.metadata.kernelspec.name == "python3"
    assert "papermill" not in notebook.metadata and "widgets" not in notebook.metadata


def printed(notebook: NotebookNode) -> list[tuple[str, list[str]]]:
    """Source and text outputs of each cell, without what no two machines share, and without the lines under figures."""
    rules = ConfigParser(interpolation=None)
    rules.read(ROOT / "nbval.cfg", "utf-8")
    cells = []
    for cell in code_cells(notebook):
        kinds = [
            output.get("data", {"stdout": output.get("text")})
            for output in cell.outputs
            if output.get("name") != "stderr"
        ]
        texts = [
            kind[name]
            for kind in kinds
            if NOTE not in kind.get("text/html", "")
            for name in sorted(kind)
            if "image/" not in name
        ]
        for rule in rules.sections():
            texts = [re.sub(rules[rule]["regex"], rules[rule]["replace"], text) for text in texts]
        if "injected-parameters" not in cell.metadata.get("tags", []) and cell.source != "# how it was made":
            cells.append((cell.source, texts))
    return cells


@each_notebook
def test_the_book_prints_what_is_stored(path: Path) -> None:
    if not (built := ROOT / "book" / "notebooks" / path.name).is_file():
        pytest.fail(f"{built} is missing: run `make book` first")
    for (source, found), (stored_source, stored) in zip(printed(read(built)), printed(read(path)), strict=True):
        assert source == stored_source
        assert found == stored, f"`make notebooks` stores the output anew where that is meant, of: {source}"


@each_notebook
def test_parameters_are_literals_and_known_to_the_experiment(path: Path) -> None:
    given = {name: ast.literal_eval(default) for name, default in parameters_of(read(path)).items()}
    grids = (Grid, SweepGrid, FlowParameters, CostParameters, CaptionGrid, StudyGrid)
    fitting = [grid for grid in grids if _has(grid, given)]
    assert fitting, f"no parameters have all of {', '.join(given)}"


def _has(grid: type[Parameters], given: dict[str, object]) -> bool:
    try:
        known = [
            grid.known(source).keys() for source in (given.get("dataset"), *(["bags:a.npz"] if "fold" in given else []))
        ]
        return given.keys() <= set().union(*known)
    except UserError:  # another grid's data source
        return False


@each_notebook
def test_cells_are_short_and_define_nothing(path: Path) -> None:
    for cell in code_cells(read(path)):
        assert len(cell.source.splitlines()) <= MAX_CELL_LINES, f"long cell: {cell.source[:80]}"
        defined = [
            node.name
            for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        assert not defined or path.stem == "00_from_scratch", f"{defined} belong in fcamlib"


@each_notebook
def test_every_figure_has_an_alternative_text_and_a_caption(path: Path) -> None:
    for cell in code_cells(read(path)):
        if "plots." not in cell.source or cell.source.lstrip().startswith(("import", "from")):
            continue
        shown = cell.metadata.get("mystnb", {})
        assert len(shown.get("image", {}).get("alt", "")) > 20, f"no alt text: {cell.source}"
        assert shown.get("figure", {}).get("caption") and shown.get("figure", {}).get("name"), (
            f"no caption: {cell.source}"
        )


def test_runs_from_a_foreign_folder_with_parameters_as_text_yaml_and_file(tmp_path: Path) -> None:
    """The kernel takes every kind of parameter; the build of the book runs each notebook from a foreign folder."""
    path = next(path for path in NOTEBOOKS if path.stem.startswith("03_"))
    known = parameters_of(read(path))
    given = [part for name, value in SMALL_AS_TEXT.items() if name in known for part in ("-p", name, value)]
    for_file = {name: value for name, value in SMALL_AS_VALUES.items() if name in known}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(for_file))
    done = papermill(path, tmp_path, *given, "-y", "{seeds: [3]}", "-f", "more.yaml")
    assert done.returncode == 0, done.stderr[-3000:]
    assert {entry.name for entry in tmp_path.iterdir()} == {"more.yaml", "out.ipynb"}, "files in the caller's folder"


def namespace(injected: str = "", **names: Any) -> dict[str, Any]:
    """What `globals()` of a notebook holds: names, and the source of each cell that has run."""
    cells = ["", "seeds = [0]", f"# Parameters\n{injected}\n"] if injected else ["", "seeds = [0]"]
    return {"In": cells, "Out": {}, **names}


def test_fields_are_taken_listed_in_the_cell_or_not_and_other_names_left_alone() -> None:
    found: Grid = parameters(
        namespace('precision = "float32"', precision="float32", seeds="[3, 4]", num_segments="7", fig=1)
    )
    assert isinstance(found.task, Mosaics)
    assert (found.seeds, found.task.num_segments, found.precision) == ((3, 4), 7, "float32")


def test_the_table_of_parameters_shows_the_values_that_are_used() -> None:
    shown = effective(parameters(namespace(num_train=0, epochs=0, seeds="3,4")))["value"]
    expected = {"num_train": "2000", "epochs": "20", "switch_epoch": "10", "seeds": "3, 4", "foreground": "0, 1, 2"}
    assert shown[list(expected)].to_dict() == expected


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("num_segmets", 9, "'num_segmets' is not a parameter: did you mean 'num_segments'?"),
        ("num_segments", 1, "num_segments=1 is not allowed"),
        ("dataset", "imagenet", "dataset='imagenet' is unknown"),
    ],
)
def test_a_wrong_name_or_value_is_one_sentence_and_shown_without_a_traceback(name: str, value: Any, said: str) -> None:
    with pytest.raises(UserError) as error:
        parameters(namespace(f"{name} = {value!r}", **{name: value}))
    assert str(error.value).startswith(said) and str(error.value).endswith(".")
    assert error.value._render_traceback_() == [f"UserError: {error.value}"]

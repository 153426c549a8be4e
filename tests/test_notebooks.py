"""The committed notebooks: in a state that nbval can compare, and run by papermill with good and wrong parameters."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat import NotebookNode

from fcamlib.config import CaptionGrid, CostParameters, FlowParameters, Grid, Parameters, StudyGrid, SweepGrid
from fcamlib.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
MAX_BYTES = 200_000
MAX_CELL_LINES = 15
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


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS, "no notebook in notebooks/"


@each_notebook
def test_every_cell_has_been_executed_in_order_and_nothing_went_to_stderr(path: Path) -> None:
    cells = [cell for cell in code_cells(read(path)) if cell.source.strip()]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell.outputs:
            assert output.output_type != "error", f"stored error {output.get('ename')}"
            assert output.get("name") != "stderr", f"stored stderr: {output.get('text', '')[:200]}"


@each_notebook
def test_outputs_are_text_that_nbval_can_compare(path: Path) -> None:
    for cell in code_cells(read(path)):
        kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
        assert not {kind for kind in kinds if kind.startswith(("image/", "application/"))}, f"{kinds} in: {cell.source}"
    assert path.stat().st_size < MAX_BYTES


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
def test_no_trace_of_the_machine_that_ran_it(path: Path) -> None:
    notebook = read(path)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "papermill" not in notebook.metadata and "widgets" not in notebook.metadata
    assert str(ROOT) not in path.read_text()


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


def test_a_wrong_parameter_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """What papermill hands on; tests/test_notebook.py goes through the kinds of mistakes."""
    done = papermill(NOTEBOOKS[3], tmp_path, "-p", "num_segmets", "5")
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if line.startswith("UserError:")]
    assert errors, done.stderr[-3000:]
    assert "did you mean 'num_segments'?" in errors[-1] and errors[-1].endswith(".")

"""Execute one notebook with a profile's parameters and leave nothing of this machine in it.

Usage: execute_notebook.py NOTEBOOK OUTPUT PARAMETERS.yaml
       execute_notebook.py --refresh NOTEBOOK...

The second form executes committed notebooks with their own defaults and stores the outputs that nbval compares: text,
no pictures.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml
from nbformat import NotebookNode

KEPT_NOTEBOOK_METADATA = ("kernelspec", "language_info")
# What papermill and the kernel note down about time and place.
DROPPED_CELL_METADATA = ("papermill", "execution")


def without_provenance(notebook: NotebookNode) -> NotebookNode:
    """A copy whose metadata holds no absolute path and no time, so that equal results give equal files."""
    clean = nbformat.from_dict(notebook)
    clean.metadata = NotebookNode({key: clean.metadata[key] for key in KEPT_NOTEBOOK_METADATA if key in clean.metadata})
    for number, cell in enumerate(clean.cells):
        cell.id = f"cell-{number:03d}"
        for key in DROPPED_CELL_METADATA:
            cell.metadata.pop(key, None)
    return clean


def without_pictures(notebook: NotebookNode) -> NotebookNode:
    """A copy whose outputs hold text alone."""
    plain = nbformat.from_dict(notebook)
    for cell in plain.cells:
        for output in cell.get("outputs", []):
            for kind in [kind for kind in output.get("data", {}) if kind.startswith("image/")]:
                del output["data"][kind]
    return plain


def refresh(path: Path) -> None:
    """Run a committed notebook with its own defaults and put its text outputs in place of the old ones."""
    executed = papermill.execute_notebook(path, None, kernel_name="python3", cwd=path.parent, progress_bar=False)
    nbformat.write(without_pictures(without_provenance(executed)), path)


def fitting(parameters: dict[str, Any], source: Path) -> dict[str, Any]:
    """The profile's parameters for a notebook about runs on mosaics; the others run with their own defaults."""
    return parameters if "paper_split" in papermill.inspect_notebook(source) else {}


def execute(source: Path, target: Path, parameter_file: Path) -> None:
    """Run `source` with papermill, in an empty folder as a user may, and write the cleaned result to `target`."""
    parameters = fitting(yaml.safe_load(parameter_file.read_text(encoding="utf-8")) or {}, source)
    with tempfile.TemporaryDirectory() as elsewhere:
        executed = papermill.execute_notebook(
            source, None, parameters=parameters, kernel_name="python3", cwd=elsewhere, progress_bar=False
        )
        if left := sorted(path.name for path in Path(elsewhere).iterdir()):
            raise RuntimeError(f"{source.name} leaves {left[0]} in the folder that it is run from.")
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(without_provenance(executed), target)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--refresh"]:
        for name in sys.argv[2:]:
            refresh(Path(name))
    elif len(sys.argv) == 4:
        execute(*map(Path, sys.argv[1:]))
    else:
        sys.exit(__doc__)

"""Execute one notebook with a profile's parameters and leave nothing of this machine in it.

Usage: execute_notebook.py NOTEBOOK OUTPUT PARAMETERS.yaml
"""

from __future__ import annotations

import sys
from pathlib import Path

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


def execute(source: Path, target: Path, parameter_file: Path) -> None:
    """Run `source` in its own folder with papermill and write the cleaned result to `target`."""
    parameters = yaml.safe_load(parameter_file.read_text(encoding="utf-8")) or {}
    executed = papermill.execute_notebook(
        source, None, parameters=parameters, kernel_name="python3", cwd=source.parent, progress_bar=False
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(without_provenance(executed), target)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    execute(*map(Path, sys.argv[1:]))

"""Execute one notebook with a profile's parameters and leave nothing of this machine in it.

Usage: execute_notebook.py NOTEBOOK OUTPUT.ipynb PARAMETERS.yaml
       execute_notebook.py --refresh NOTEBOOK...

The first form dates the line under each figure that says how it was made, and writes how long the execution took, and
where, to OUTPUT.json. The second form executes committed notebooks with their own defaults and stores the outputs that
nbval compares: text, no pictures.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml
from nbformat import NotebookNode
from traitlets.config import Config

from fcamlib import paths
from fcamlib.provenance import cpu_name, how_made

FIGURE_NOTE = re.compile(r'<details class="figure-note" data-figure="([^"]+)">')


def clean(executed: NotebookNode) -> None:
    """Take out absolute paths and times, so that equal results give equal files."""
    kept = ("kernelspec", "language_info")
    executed.metadata = NotebookNode({key: executed.metadata[key] for key in kept if key in executed.metadata})
    for number, cell in enumerate(executed.cells):
        cell.id = f"cell-{number:03d}"
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)


def run(source: Path, folder: Path, parameters: dict[str, Any] | None = None) -> NotebookNode:
    """`source` executed by papermill in `folder`."""
    options: dict[str, Any] = {"kernel_name": "python3", "cwd": folder, "progress_bar": False}
    with tempfile.TemporaryDirectory(prefix="fcam-") as sockets:
        if sys.platform != "win32":  # over TCP, two kernels that start at once may be told to use one port
            options["config"] = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"})
        return papermill.execute_notebook(source, None, parameters, **options)


def refresh(path: Path) -> None:
    """Run a committed notebook with its own defaults and put its text outputs in place of the old ones."""
    executed = run(path, path.parent)
    clean(executed)
    for data in (output.get("data", {}) for cell in executed.cells for output in cell.get("outputs", [])):
        for kind in [kind for kind in data if kind.startswith("image/")]:
            del data[kind]
    nbformat.write(executed, path)


def notes(cell: NotebookNode) -> Iterator[NotebookNode]:
    """Cells for the lines under a cell's figures, taken out of it, since the book makes a figure of each output."""
    for output in list(cell.get("outputs", [])):
        if note := FIGURE_NOTE.match(output.get("data", {}).get("text/html", "")):
            record = json.loads((paths.figures_dir() / f"{note[1]}.json").read_text("utf-8"))
            output["data"]["text/html"] = how_made(record, note[1], dated=True)
            cell.outputs.remove(output)
            # A cell without source would be left out of the page.
            made = nbformat.v4.new_code_cell("# how it was made", id=f"{cell.id}-{note[1]}"[:64], outputs=[output])
            made.metadata["tags"], made.execution_count = ["remove-input"], cell.execution_count
            yield made


def execute(source: Path, target: Path, parameter_file: Path) -> None:
    """Run `source` in an empty folder as a user may; write the result to `target`, seconds and device beside it.

    A notebook about runs on mosaics takes the profile's parameters, the others run with their own defaults.
    """
    takes = "paper_split" in papermill.inspect_notebook(source)
    with tempfile.TemporaryDirectory() as elsewhere:
        executed = run(source, Path(elsewhere), yaml.safe_load(parameter_file.read_text("utf-8")) if takes else None)
        if left := sorted(path.name for path in Path(elsewhere).iterdir()):
            raise RuntimeError(f"{source.name} leaves {left[0]} in the folder that it is run from.")
    cost = {"seconds": round(executed.metadata.papermill.duration, 1), "device": cpu_name()}
    cost["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    clean(executed)
    executed.cells = [part for cell in executed.cells for part in (cell, *notes(cell))]
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(executed, target)
    target.with_suffix(".json").write_text(json.dumps(cost, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--refresh"]:
        for name in sys.argv[2:]:
            refresh(Path(name))
    elif len(sys.argv) == 4:
        execute(*map(Path, sys.argv[1:]))
    else:
        sys.exit(__doc__)

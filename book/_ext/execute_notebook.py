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
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml
from nbformat import NotebookNode

from fcamlib import paths, plots
from fcamlib.provenance import cpu_name

KEPT_NOTEBOOK_METADATA = ("kernelspec", "language_info")
# What papermill and the kernel note down about time and place.
FIGURE_NOTE = re.compile(r'<details class="figure-note" data-figure="([^"]+)">')
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


def with_dates(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """A copy in which the line under a figure also tells date and commit of what this execution computed."""
    dated = nbformat.from_dict(notebook)
    for output in (output for cell in dated.cells for output in cell.get("outputs", [])):
        if note := FIGURE_NOTE.match(output.get("data", {}).get("text/html", "")):
            record = json.loads((folder / f"{note[1]}.json").read_text("utf-8"))
            output["data"]["text/html"] = plots.how_made(record, note[1], dated=True)
    return dated


def refresh(path: Path) -> None:
    """Run a committed notebook with its own defaults and put its text outputs in place of the old ones."""
    executed = papermill.execute_notebook(path, None, kernel_name="python3", cwd=path.parent, progress_bar=False)
    nbformat.write(without_pictures(without_provenance(executed)), path)


def fitting(parameters: dict[str, Any], source: Path) -> dict[str, Any]:
    """The profile's parameters for a notebook about runs on mosaics; the others run with their own defaults."""
    return parameters if "paper_split" in papermill.inspect_notebook(source) else {}


def cost(executed: NotebookNode) -> dict[str, Any]:
    """How long the execution took, and on what; stored results that it read cost it nothing."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"seconds": round(executed.metadata.papermill.duration, 1), "device": cpu_name(), "date": today}


def execute(source: Path, target: Path, parameter_file: Path) -> None:
    """Run `source` with papermill, in an empty folder as a user may; write the result to `target`, its cost beside."""
    parameters = fitting(yaml.safe_load(parameter_file.read_text(encoding="utf-8")) or {}, source)
    with tempfile.TemporaryDirectory() as elsewhere:
        executed = papermill.execute_notebook(
            source, None, parameters=parameters, kernel_name="python3", cwd=elsewhere, progress_bar=False
        )
        if left := sorted(path.name for path in Path(elsewhere).iterdir()):
            raise RuntimeError(f"{source.name} leaves {left[0]} in the folder that it is run from.")
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(with_dates(without_provenance(executed), paths.figures_dir()), target)
    target.with_suffix(".json").write_text(json.dumps(cost(executed), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--refresh"]:
        for name in sys.argv[2:]:
            refresh(Path(name))
    elif len(sys.argv) == 4:
        execute(*map(Path, sys.argv[1:]))
    else:
        sys.exit(__doc__)

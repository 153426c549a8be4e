"""Execute notebooks with a profile's parameters and leave nothing of this machine in them.

Usage: execute_notebook.py PARAMETERS.yaml OUTPUT_FOLDER NOTEBOOK...
       execute_notebook.py --refresh NOTEBOOK...

The first form dates the line under each figure that says how it was made, and writes how long the execution took, and
where, to a .json beside each result. The second form executes committed notebooks with their own defaults and stores
the outputs that nbval compares: text, no pictures. All notebooks of a call are executed in one kernel, one after the
other, since a kernel starts for longer than most of them run; nbval executes each in a kernel of its own.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml
from jupyter_client import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbformat import NotebookNode

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


@contextmanager
def kernel() -> Iterator[AsyncKernelManager]:
    """A kernel, which starts with the first notebook."""
    with tempfile.TemporaryDirectory(prefix="fcam-") as sockets:
        # Over TCP, two kernels that start at once may be told to use one port.
        address = {} if sys.platform == "win32" else {"transport": "ipc", "ip": f"{sockets}/kernel"}
        manager = AsyncKernelManager(kernel_name="python3", **address)
        try:
            yield manager
        finally:
            run_sync(manager.shutdown_kernel)(now=True)


def run(
    source: Path, folder: str | Path, manager: AsyncKernelManager, parameters: dict[str, Any] | None = None
) -> NotebookNode:
    """`source` executed by papermill in `folder`, by a kernel that knows nothing of other notebooks afterwards."""
    options: dict[str, Any] = {"kernel_name": "python3", "cwd": folder, "progress_bar": False, "km": manager}
    executed = papermill.execute_notebook(source, None, parameters, **options)
    forget = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("get_ipython().reset()")], metadata=executed.metadata
    )
    papermill.execute_notebook(forget, None, **options)
    return executed


def refresh(sources: list[Path]) -> None:
    """Run committed notebooks with their own defaults and put their text outputs in place of the old ones."""
    with kernel() as manager:
        for path in sources:
            executed = run(path, path.parent, manager)
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


def execute(parameter_file: Path, target: Path, sources: list[Path]) -> None:
    """Run notebooks in an empty folder as a user may; write the results to `target`, seconds and device beside each.

    A notebook about runs on mosaics takes the profile's parameters, the others run with their own defaults.
    """
    profile = yaml.safe_load(parameter_file.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as elsewhere, kernel() as manager:
        for source in sources:
            print(f"Executing {source}.", flush=True)
            takes = "paper_split" in papermill.inspect_notebook(source)
            executed = run(source, elsewhere, manager, profile if takes else None)
            if left := sorted(path.name for path in Path(elsewhere).iterdir()):
                raise RuntimeError(f"{source.name} leaves {left[0]} in the folder that it is run from.")
            cost = {"seconds": round(executed.metadata.papermill.duration, 1), "device": cpu_name()}
            cost["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
            clean(executed)
            for cell in executed.cells:
                if "injected-parameters" in cell.metadata.get("tags", []):
                    cell.metadata["tags"].append("remove-input")
            executed.cells = [part for cell in executed.cells for part in (cell, *notes(cell))]
            nbformat.write(executed, target / source.name)
            (target / source.name).with_suffix(".json").write_text(json.dumps(cost, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    first, *others = sys.argv[1:]
    if first == "--refresh":
        refresh(list(map(Path, others)))
    else:
        execute(Path(first), Path(others[0]), list(map(Path, others[1:])))

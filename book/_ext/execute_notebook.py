"""Execute notebooks with a profile's parameters and leave nothing of this machine in them.

Usage: execute_notebook.py PARAMETERS.yaml OUTPUT_FOLDER NOTEBOOK...
       execute_notebook.py --refresh NOTEBOOK...

The first form dates the line under each figure and writes how long the execution took, and where, to a .json beside
each result. The second form stores in committed notebooks the outputs that nbval compares: text, no pictures. The
notebooks of a call share one kernel, which starts for longer than most of them run.
"""

import datetime
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
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

KEPT = ("kernelspec", "language_info")
FIGURE_NOTE = re.compile(r'<details class="figure-note" data-figure="([^"]+)">')


def clean(executed: NotebookNode) -> None:
    """Take out absolute paths and times, so that equal results give equal files."""
    executed.metadata = NotebookNode({k: v for k, v in executed.metadata.items() if k in KEPT})
    for number, cell in enumerate(executed.cells):
        cell.id = f"cell-{number:03d}"
        cell.metadata = NotebookNode({k: v for k, v in cell.metadata.items() if k not in ("papermill", "execution")})


@contextmanager
def kernel() -> Iterator[Callable[..., NotebookNode]]:
    """A function that executes a notebook in a folder; the one kernel forgets each notebook before the next."""
    with tempfile.TemporaryDirectory(prefix="fcam-") as sockets:
        # Over TCP, two kernels that start at once may be told to use one port.
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")

        def run(source: Path, folder: str | Path, parameters: dict[str, Any] | None = None) -> NotebookNode:
            options: dict[str, Any] = {"kernel_name": "python3", "cwd": folder, "progress_bar": False, "km": manager}
            executed = papermill.execute_notebook(source, None, parameters, **options)
            reset = nbformat.v4.new_code_cell("get_ipython().reset()")
            forget = nbformat.v4.new_notebook(cells=[reset], metadata=executed.metadata)
            papermill.execute_notebook(forget, None, **options)
            return executed

        try:
            yield run
        finally:
            run_sync(manager.shutdown_kernel)(now=True)


def refresh(sources: list[Path]) -> None:
    """Run committed notebooks with their own defaults and put their text outputs in place of the old ones."""
    with kernel() as run:
        for path in sources:
            executed = run(path, path.parent)
            clean(executed)
            for output in (output for cell in executed.cells for output in cell.get("outputs", []) if "data" in output):
                output.data = {kind: data for kind, data in output.data.items() if not kind.startswith("image/")}
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
    """Run notebooks in an empty folder; write the results to `target`, seconds and device beside each.

    A notebook about runs on mosaics takes the profile's parameters, the others run with their own defaults.
    """
    profile, today = yaml.safe_load(parameter_file.read_text("utf-8")), datetime.datetime.now(datetime.UTC).date()
    with tempfile.TemporaryDirectory() as elsewhere, kernel() as run:
        for source in sources:
            print(f"Executing {source}.", flush=True)
            executed = run(source, elsewhere, profile if "paper_split" in papermill.inspect_notebook(source) else None)
            cost = {"seconds": round(executed.metadata.papermill.duration, 1), "device": cpu_name(), "date": str(today)}
            clean(executed)
            for cell in executed.cells:
                if "injected-parameters" in cell.metadata.get("tags", []):
                    cell.metadata["tags"].append("remove-input")
            executed.cells = [part for cell in executed.cells for part in (cell, *notes(cell))]
            nbformat.write(executed, target / source.name)
            (target / source.name).with_suffix(".json").write_text(json.dumps(cost, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--refresh", *notebooks]:
            refresh(list(map(Path, notebooks)))
        case [parameters, folder, *notebooks]:
            execute(Path(parameters), Path(folder), list(map(Path, notebooks)))
        case _:
            sys.exit(__doc__)

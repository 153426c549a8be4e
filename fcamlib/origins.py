"""What a figure was drawn from, as `plots.save` keeps it beside the figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fcamlib.store import Stored


def figure_record(
    notebook: str, results: Mapping[str, Sequence[Stored[Any]]], rerun: str | None = None
) -> dict[str, object]:
    """Notebook, results, and where and when they were computed.

    Parameters
    ----------
    notebook : str
        Name of the notebook, without folder and ending.
    results : mapping
        Title of each data set or task -> the results that the figure shows of it.
    rerun : str, optional
        Command that computes the results anew; by default papermill's, for the notebook.

    Returns
    -------
    dict
        Fits into JSON. `computed` has one entry per title and place where results are kept: title, whether recorded,
        commits and dates of the computing.
    """
    every = [result for group in results.values() for result in group]
    return {
        "notebook": f"notebooks/{notebook}.ipynb",
        "runs": sorted({result.folder.name for result in every}),
        "commits": sorted({result.summary["provenance"]["commit"] for result in every}),
        "data": list(results),
        "computed": [entry for title, group in results.items() for entry in _computed(title, group)],
        "rerun": rerun or f"papermill notebooks/{notebook}.ipynb out.ipynb",
    }


def _computed(title: str, results: Sequence[Stored[Any]]) -> list[dict[str, object]]:
    """Where and when the results of one title were computed: an entry for recorded ones, one for the others."""
    entries: list[dict[str, object]] = []
    for recorded in (True, False):
        sources = [result.summary["provenance"] for result in results if result.is_recorded == recorded]
        if sources:
            entry: dict[str, object] = {"data": title, "recorded": recorded}
            entry |= {f"{name}s": sorted({source[name] for source in sources}) for name in ("commit", "date")}
            entries.append(entry)
    return entries

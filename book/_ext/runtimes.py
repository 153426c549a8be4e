"""Write how long each notebook and each group of recorded results took, and on what, for the page on running.

Usage: runtimes.py EXECUTED_NOTEBOOKS OUTPUT.md

Reads the .json that lies beside each executed notebook in the folder, and the summaries of the recorded results.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from fcamlib import store, tables
from fcamlib.config import CaptionRun, CrossValidation, Run, Study, Sweep
from fcamlib.store import Result

KINDS = (Run, CaptionRun, Sweep, CrossValidation, Study)


PREFIXES = {"captions": "captions of ", "fixed_focus": "fixed focus, ", "study": "study, "}


def title(result: Result[Any]) -> str:
    """One line on what was computed."""
    return PREFIXES.get(tables.kind(result), "") + tables.title(result)


def trainings(result: Result[Any]) -> int:
    """How many models one result stands for, candidates for a learning rate not counted."""
    match result.config:
        case Sweep() as config:
            return len(config.paradigms) * len(config.alphas) * len(config.seeds)
        case CrossValidation() as config:
            return config.repeats * config.folds * len(config.methods)
        case Study() as config:
            return config.steps
    return 1


def seconds(result: Result[Any]) -> float:
    """Seconds of training; a sweep that was never interrupted knows those of its one session."""
    source = result.summary["provenance"]
    return float(source.get("train_seconds") or source["last_session_seconds"])


def hardware(result: Result[Any]) -> str:
    """Device, instruction set and number of threads."""
    source, config = result.summary["provenance"], result.config
    threads = config.threads if isinstance(config, CrossValidation) else config.training.threads
    return f"{source['device']}, {source['cpu_capability']}, {threads} thread{'s' if threads > 1 else ''}"


def recorded_table() -> pd.DataFrame:
    """One row per task of recorded results: how many, and how long each and all took."""
    groups: dict[str, list[Result[Any]]] = {}
    for kind in KINDS:
        for result in store.every(kind, recorded=True):
            groups.setdefault(title(result), []).append(result)
    rows = {}
    for name, group in groups.items():
        took = [seconds(result) for result in group]
        rows[name] = {
            "results": len(group),
            "trainings": f"{sum(trainings(result) for result in group):,}",
            "each": duration(took[0]) if len(took) == 1 else f"{duration(min(took))} to {duration(max(took))}",
            "together": duration(sum(took)),
            "on": "; ".join(sorted({hardware(result) for result in group})),
            "date": ", ".join(sorted({result.summary["provenance"]["date"] for result in group})),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("recorded")


def notebooks_table(folder: Path) -> pd.DataFrame:
    """One row per notebook: how long its execution for this book took, and on what."""
    rows = {}
    for path in sorted(folder.glob("[0-9][0-9]_*.json")):
        took = json.loads(path.read_text("utf-8"))
        link = f"{{doc}}`{path.stem[:2]} <notebooks/{path.stem}>`"
        rows[link] = {"took": duration(took["seconds"]), "on": took["device"], "date": took["date"]}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("notebook")


def duration(value: float) -> str:
    """Seconds below two minutes, minutes below two hours, else hours."""
    if value < 120:
        return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def main(folder: Path, target: Path) -> None:
    """Write both tables, each with the sentence that says what is in it."""
    target.write_text(
        "**Notebooks**, as executed for this book, in one process each. What the store or the records hold already is\n"
        "read, not computed.\n\n" + tables.markdown(notebooks_table(folder)) + "\n"
        "**Recorded results**, computed once. Times are of training and evaluation, summed over epochs; on a machine\n"
        "with nothing else to do they are shorter.\n\n" + tables.markdown(recorded_table()),
        "utf-8",
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))

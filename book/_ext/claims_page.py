"""Write the ledger of claims: the page's tables, the same as JSON, and the picture of all verdicts.

Usage: claims_page.py EXECUTED_NOTEBOOKS OUTPUT_FOLDER
       claims_page.py --recorded FILE.json

The first form writes claims.md, claims.json, verdicts.svg and the line under it. The second writes what the recorded
results alone say, the file that the tests hold against them.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from ledger import Task, all_tasks, recorded_tasks

from fcamlib import paths, plots, store, tables
from fcamlib.claims import CLAIMS
from fcamlib.config import CrossValidation
from fcamlib.verdicts import Criterion, State, criterion_text, states

MARKS = {"supported": "✔ supported", "contradicted": "✘ **contradicted**", "inconclusive": "○ inconclusive"}
MARKS |= {"not tested": "· not tested"}


def anchor(task: Task) -> str:
    """The label of a task's section: letters, digits and hyphens."""
    return "task-" + re.sub(r"[^a-z0-9]+", "-", task.title.lower()).strip("-")


def measured(task: Task, claim: str) -> str:
    """What a verdict follows from, one line for each criterion, with its own mark."""
    criteria = task.criteria[claim]
    lines = [criterion_line(c, state) for c, state in zip(criteria, states(criteria), strict=True)]
    return task.summary or "<br>".join(lines) or "-"


def criterion_line(c: Criterion, state: State) -> str:
    """Mark, name, value, bound, and the seeds that would decide it."""
    value, bound, _, seeds = criterion_text(c, state)
    needs = (f", needs {bound}" if bound else "") + (f" ({seeds} seeds)" if seeds else "")
    return f"{MARKS[state][0] if c.is_judged else 'beside,'} {c.name}: {value}{needs}"


def seen_in(task: Task, claim: str) -> str:
    """The figure that shows a claim, or else the notebook that has its numbers."""
    figure = task.figure(claim)
    return f"{{numref}}`{figure}`" if figure else f"{{doc}}`notebooks/{task.notebook}`"


def claim_section(claim: str, tasks: Sequence[Task]) -> str:
    """A claim's heading, the number of tasks in each state, and a row a task."""
    shown = [task for task in tasks if claim in task.criteria]
    found = [str(task.verdict(claim)) for task in shown]
    counts = ", ".join(f"{state} on {found.count(state)}" for state in MARKS if state in found)
    rows = [
        {"data": f"[{task.title}](#{anchor(task)})", "verdict": MARKS[str(task.verdict(claim))],
         "measured": measured(task, claim), "seeds": task.seeds,
         "seen in": seen_in(task, claim)}
        for task in shown
    ]  # fmt: skip
    table = tables.markdown(pd.DataFrame(rows).set_index("data")) if rows else ""
    heading = f"(claim-{claim.lower()})=\n### {claim}: {CLAIMS[claim].statement}\n\n"
    return f"{heading}Of {len(shown)} tasks: {counts or 'none'}.\n\n:::{{div}} ledger\n{table}:::\n\n"


def task_section(task: Task) -> str:
    """A task's heading, what was run, where its numbers come from, and what runs it again."""
    seeds = f"{task.seeds} seed{'' if task.seeds == '1' else 's'}, n = {task.instances} each."
    origin = {
        "not run": "Not run.",
        "exact": "Solved, not trained: no seeds, no chance.",
        "live": f"{seeds} Computed when this book was built.",
    }
    said = origin.get(task.kept) or f"{seeds} {provenance(task)}"
    shown = f"Shown in {{doc}}`notebooks/{task.notebook}`."
    return f"({anchor(task)})=\n### {task.title}\n\n{said} {shown}\n\n```bash\n{task.command}\n```\n\n"


def provenance(task: Task) -> str:
    """When, where, from which commit and in how long the results of a task were computed."""
    sources = [result.summary["provenance"] for result in task.results]
    dates, commits, devices = (sorted({source[name] for source in sources}) for name in ("date", "commit", "device"))
    hours = sum(source.get("train_seconds") or source["last_session_seconds"] for source in sources) / 3600
    spent = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return f"Recorded {when} from commit {', '.join(commits)} on {' and '.join(devices)}: {spent} of training in all."


def page(tasks: Sequence[Task], results: Sequence[Any]) -> str:
    """The generated part of the page in Markdown."""
    judged = [(task, claim) for task in tasks for claim in task.criteria if task.criteria[claim]]
    intervals = sum(c.interval is not None and not c.is_exact for task, claim in judged for c in task.criteria[claim])
    parts = [f"These are {len(judged)} verdicts, from {intervals} intervals.\n\n## The claims\n\n"]
    parts += [claim_section(claim, tasks) for claim in CLAIMS]
    if results:
        table = tables.paired_table(results, pairs=tables.PAIRS[:2]).reset_index("comparison")
        parts += [
            "### H1 without a known foreground\n\n"
            "In the bags of the benchmarks nobody knows the deciding instance. What remains of H1 there is accuracy\n"
            "on the same folds, shown in {numref}`fig-bags-folds`:\n\n",
            tables.markdown(table[["comparison", "difference", "95 % interval", "verdict"]]),
            f"\n```bash\n{' '.join(['fcam rerun', *(result.folder.name for result in results)])}\n```\n",
        ]
    return "".join([*parts, "\n## The tasks, and how to run them again\n\n", *map(task_section, tasks)])


def rows(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """The ledger for programs: one row per claim and task, with every number that the verdict follows from."""
    return [
        {
            "claim": claim,
            "statement": CLAIMS[claim].statement,
            "task": task.title,
            "kept": task.kept,
            "verdict": task.verdict(claim),
            "criteria": [
                criterion_row(c, s) for c, s in zip(task.criteria[claim], states(task.criteria[claim]), strict=True)
            ],
            "results": [result.folder.name for result in task.results],
            "notebook": task.notebook,
            "figure": None if task.kept == "not run" else task.figure(claim),
            "command": task.command,
        }
        for claim in CLAIMS
        for task in tasks
        if claim in task.criteria
    ]


def criterion_row(c: Criterion, state: State) -> dict[str, Any]:
    """A criterion's numbers and state; below five seeds it has no interval."""
    return {
        "name": c.name,
        "values": [round(float(value), 9) for value in c.values],
        "bound": c.bound,
        "mean": round(float(c.values.mean()), 9) if len(c.values) else None,
        "interval": None if c.interval is None or not c.is_open else [round(limit, 9) for limit in c.interval],
        "state": state if c.is_judged else "beside",
        "untested": c.untested,
        "seeds_needed": c.seeds_needed if state == "inconclusive" else None,
    }


def main(folder: Path, target: Path) -> None:
    """Write the page's tables, their numbers and the picture."""
    tasks = all_tasks(folder)
    (target / "claims.md").write_text(page(tasks, store.every(CrossValidation, recorded=True)), "utf-8")
    write_rows(target / "claims.json", tasks)
    judged = [task for task in tasks if task.kept != "not run"]
    verdicts = [[task.verdict(claim) or "" for claim in CLAIMS] for task in judged]
    figure = plots.verdict_matrix(pd.DataFrame(verdicts, [task.title for task in judged], list(CLAIMS)))
    results = sorted({result.folder.name for task in tasks for result in task.results})
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    here = {"data": f"verdicts on {len(results)} results", "recorded": False}
    here |= {"commits": [paths.commit()], "dates": [today]}
    record = {"notebook": "book/_ext/claims_page.py", "computed": [here], "results": results, "rerun": "make book"}
    plots.save(figure, "verdicts", target, record)
    (target / "verdicts-note.md").write_text(plots.how_made(record, "verdicts", dated=True) + "\n", "utf-8")


def write_rows(path: Path, tasks: Sequence[Task]) -> None:
    """The ledger as a JSON file."""
    path.write_text(json.dumps(rows(tasks), indent=1, allow_nan=False) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--recorded"] and len(sys.argv) == 3:
        write_rows(Path(sys.argv[2]), recorded_tasks())
    elif len(sys.argv) == 3:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(__doc__)

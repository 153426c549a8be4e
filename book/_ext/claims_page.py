"""Write the ledger of claims: the page's tables, the same as JSON, and the picture of all verdicts.

Usage: claims_page.py EXECUTED_NOTEBOOKS OUTPUT_FOLDER
       claims_page.py --recorded FILE.json

The first form writes claims.md, claims.json, verdicts.svg and the line under it. The second writes what the recorded
results alone say, the file that the tests hold against them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import figure_notes
import pandas as pd
from ledger import STATEMENTS, Task, all_tasks, recorded_tasks, rerun_command

from fcamlib import plots, store, tables
from fcamlib.claims import Criterion
from fcamlib.config import CrossValidationConfig
from fcamlib.metrics import t_interval
from fcamlib.store import Stored

SHOWN = {"holds": "holds", "fails": "**fails**", "undecided": "*undecided*", "not run": "not run"}
COUNTED = {"holds": "holds on", "fails": "fails on", "undecided": "is undecided on"}
RERUN = "make book"
HYBRID_PAIRS = (("hybrid", "soft"), ("hybrid", "hard"))


def anchor(task: Task) -> str:
    """The label of a task's section: letters, digits and hyphens."""
    return "task-" + re.sub(r"[^a-z0-9]+", "-", task.title.lower()).strip("-")


def measured(task: Task, claim: str) -> str:
    """What a verdict follows from, one line for each criterion."""
    if claim in task.summaries:
        return task.summaries[claim]
    return "<br>".join(map(criterion_text, task.criteria[claim])) or "-"


def criterion_text(criterion: Criterion) -> str:
    """Name, mean, interval and bound."""
    return f"{criterion.name}: {tables.interval_text(criterion.values)}, needs > {criterion.bound:g}"


def claim_table(claim: str, tasks: Sequence[Task]) -> pd.DataFrame:
    """One row per task that has to do with a claim."""
    rows = [
        {
            "data": f"[{task.title}](#{anchor(task)})",
            "verdict": SHOWN[str(task.verdict(claim))],
            "measured": measured(task, claim),
            "seeds": task.seeds,
            "seen in": seen_in(task, claim),
        }
        for task in tasks
        if claim in task.criteria
    ]
    return pd.DataFrame(rows, columns=["data", "verdict", "measured", "seeds", "seen in"]).set_index("data")


def seen_in(task: Task, claim: str) -> str:
    """The figure that shows a claim on a task."""
    if task.kept == "not run":
        return "-"
    figure = task.figure(claim)
    return f"{{numref}}`{figure}`" if figure else "no figure"


def verdict_frame(tasks: Sequence[Task]) -> pd.DataFrame:
    """Verdicts for `plots.verdict_matrix`: one row per task that was judged, one column per claim, "" where none is."""
    judged = [task for task in tasks if task.kept != "not run"]
    rows = [[task.verdict(claim) or "" for claim in STATEMENTS] for task in judged]
    return pd.DataFrame(rows, index=[task.title for task in judged], columns=list(STATEMENTS))


def counted(claim: str, tasks: Sequence[Task]) -> str:
    """A sentence: on how many tasks a claim holds, fails, is undecided and was not run."""
    found = [task.verdict(claim) for task in tasks if claim in task.criteria]
    counts = {words: found.count(verdict) for verdict, words in COUNTED.items() if verdict in found}
    said = ", ".join(f"{words} {count}" for words, count in counts.items()) or "was not measured"
    missing = found.count("not run")
    return f"Of these tasks it {said}" + (f"; {missing} of the paper's own were not run." if missing else ".")


def claim_section(claim: str, tasks: Sequence[Task]) -> str:
    """A claim's heading, count and table."""
    statement = STATEMENTS[claim]
    return (
        f"(claim-{claim.lower()})=\n### {claim}: {statement}\n\n"
        f"{counted(claim, tasks)}\n\n:::{{div}} ledger\n{tables.markdown(claim_table(claim, tasks))}:::\n\n"
    )


def task_section(task: Task) -> str:
    """A task's heading, what was run, where its numbers come from, and what runs it again."""
    title = f"({anchor(task)})=\n### {task.title}\n\n"
    command = f"```bash\n{task.command}\n```\n"
    seen = f"{{doc}}`notebooks/{task.notebook}`"
    if task.kept == "not run":
        return f"{title}Not run; {seen} would show it.\n\n{command}\n"
    if task.kept == "exact":
        return f"{title}Solved, not trained: no seeds, no chance. Shown in {seen}.\n\n{command}\n"
    seeds = f"{task.seeds} seed{'' if task.seeds == '1' else 's'}"
    return f"{title}{seeds}, n = {task.instances} each. Shown in {seen}. {provenance(task)}\n\n{command}\n"


def provenance(task: Task) -> str:
    """When, where, from which commit and in how long the results of a task were computed."""
    sources = [result.summary["provenance"] for result in task.results]
    if task.kept == "live":
        return "Computed when this book was built."
    dates = sorted({source["date"] for source in sources})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    commits = ", ".join(sorted({source["commit"] for source in sources}))
    hours = sum(source.get("train_seconds") or source["last_session_seconds"] for source in sources) / 3600
    spent = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"
    devices = " and ".join(sorted({source["device"] for source in sources}))
    return f"Recorded {when} from commit {commits} on {devices}: {spent} of training in all."


def page(tasks: Sequence[Task], results: Sequence[Stored[CrossValidationConfig]]) -> str:
    """The generated part of the page in Markdown."""
    parts = ["## The claims\n\n", *(claim_section(claim, tasks) for claim in STATEMENTS)]
    if results:
        parts += [
            "### H1 without a known foreground\n\n"
            "In the bags of the benchmarks nobody knows the deciding instance. What remains of H1 there is accuracy\n"
            "on the same folds, shown in {numref}`fig-bags-folds`:\n\n",
            tables.markdown(benchmarks_table(results)),
            f"\n```bash\n{rerun_command(results)}\n```\n",
        ]
    return "".join([*parts, "\n## The tasks, and how to run them again\n\n", *map(task_section, tasks)])


def benchmarks_table(results: Sequence[Stored[CrossValidationConfig]]) -> pd.DataFrame:
    """The part of H1 that needs no foreground: accuracy of the hybrid less SA's and HA's on the same folds."""
    found = tables.paired_table(results, pairs=HYBRID_PAIRS).reset_index("comparison")
    return found[["comparison", "difference", "95 % interval", "verdict"]]


def rows(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """The ledger for programs: one row per claim and task, with every number that the verdict follows from."""
    return [
        {
            "claim": claim,
            "statement": STATEMENTS[claim],
            "task": task.title,
            "kept": task.kept,
            "verdict": task.verdict(claim),
            "criteria": [criterion_row(criterion) for criterion in task.criteria[claim]],
            "results": [result.folder.name for result in task.results],
            "notebook": task.notebook,
            "figure": None if task.kept == "not run" else task.figure(claim),
            "command": task.command,
        }
        for claim in STATEMENTS
        for task in tasks
        if claim in task.criteria
    ]


def criterion_row(criterion: Criterion) -> dict[str, Any]:
    """A criterion's numbers; an interval needs two values."""
    mean, low, high = map(float, t_interval(criterion.values))
    interval = [low, high] if len(criterion.values) > 1 else None
    return {
        "name": criterion.name,
        "values": [round(float(value), 9) for value in criterion.values],
        "bound": criterion.bound,
        "mean": mean,
        "interval": interval,
        "verdict": criterion.verdict(),
    }


def main(folder: Path, target: Path) -> None:
    """Write the page's tables, their numbers and the picture."""
    tasks = all_tasks(folder)
    (target / "claims.md").write_text(page(tasks, store.recorded(CrossValidationConfig)), "utf-8")
    write_rows(target / "claims.json", tasks)
    figure = plots.verdict_matrix(verdict_frame(tasks))
    results = sorted({result.folder.name for task in tasks for result in task.results})
    plots.save(figure, "verdicts", target, {"results": results, "rerun": RERUN})
    made = figure_notes.origins({"data": [f"verdicts on {len(results)} results"]}, figure_notes.here())
    (target / "verdicts-note.md").write_text(figure_notes.line("book/_ext/claims_page.py", "", made, RERUN), "utf-8")


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

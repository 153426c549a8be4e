"""Write the numbers that pages quote, the key figure, and what was spent, for the page on running.

Usage: findings.py EXECUTED_NOTEBOOKS
       findings.py README.md

The first form also draws the picture that explorer.md shows without JavaScript, the second writes README's table.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from ledger import LINEAR, TABLES, parameters_of

from benchmarks import report
from fcamlib import notebook, plots, store, tables
from fcamlib.claims import CLAIMS
from fcamlib.config import CaptionRun, FlowParameters, Run, SweepGrid
from fcamlib.provenance import figure_record
from fcamlib.theory import tables as theory_tables

TASKS = {key: tuple(names) for key, names in TABLES["shown"].items()}  # key -> name in tables, title of the results
DRAWN = ("digits", "cifar", "hatexplain", "clouds")
SAIF_COLUMNS = {"soft": "SAIF: SA", "hard": "HA", "lvml": "LVML", "hybrid": "hybrid"}
MARKS = "<!-- results: written by book/_ext/findings.py README.md -->\n", "<!-- end of results -->"
PREFIXES = {"captions": "captions of ", "fixed_focus": "fixed focus, ", "study": "study, "}


def shown_tasks() -> dict[str, list[Any]]:
    """Key of `TASKS` -> its recorded results, without controls."""
    every: list[Any] = [*store.every(Run, recorded=True), *store.every(CaptionRun, recorded=True)]
    recorded = tables.tasks(run for run in every if run.config.paradigm in SAIF_COLUMNS)
    return {key: recorded[title] for key, (_, title) in TASKS.items()}


def numbers(found: Mapping[str, list[Any]]) -> dict[str, Any]:
    """What prose quotes, as text by task, at the end of training; a gain is over the better of SA and HA in a seed."""
    quoted: dict[str, Any] = {name: {} for name in ("saif", "gain", "lead", "h1", "seeds", "sure")}
    for key, runs in found.items():
        evidence, criteria = tables.evidence(runs), tables.criteria(runs, ["H1", "D1"])
        means = {claim: [signed(c.values.mean()) for c in of_claim] for claim, of_claim in criteria.items()}
        quoted["saif"][key] = {paradigm: f"{values.mean():.2f}" for paradigm, values in evidence.saif.items()}
        quoted["gain"][key] = dict(zip(("saif", "accuracy"), means["H1"], strict=True))
        quoted["lead"][key], *_ = means.get("D1", [""])
        quoted["h1"][key], quoted["seeds"][key] = tables.verdict(criteria["H1"]), str(len(evidence.saif["hybrid"]))
        quoted["sure"][key] = {
            name: {part: f"{100 * values.mean():.0f}%" for part, values in evidence.shares(name).items()}
            for name in evidence.confidence
        }
    return quoted


def early_switch() -> dict[str, str]:
    """What the hybrid gains on HateXplain with the earliest switch tried, after 150 epochs at one learning rate."""
    found = [run for run in store.every(Run, recorded=True) if run.config.data.source == "hatexplain"]
    alike = [run for run in found if all(phase.learning_rates == (0.1,) for phase in run.config.phases)]
    rows = tables.rows_at([run for run in alike if len(run.config.phases) == 1 or run.config.steps == 150], 150)
    first = tables.seed_gains(rows).groupby("share", as_index=False).mean().iloc[0]
    return {"epoch": f"{150 * first['share']:.0f}"} | {name: signed(first[name]) for name in ("saif", "accuracy")}


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"{value:+.3f}".replace("-", "\u2212")


def agreement() -> str:
    """How far training at fixed focus is from the closed form, at most: the table of notebook 04."""
    sweep = store.get(notebook.parameters(parameters_of(Path("notebooks", f"{LINEAR}.ipynb")), SweepGrid).config())
    table = theory_tables.agreement_table(sweep.history, sweep.config.data.num_classes).drop(columns="n")
    return f"{max(float(text.split()[0]) for text in table.to_numpy().flat):.1f}%"


def results_table(found: Mapping[str, list[Any]]) -> pd.DataFrame:
    """A row per task: SAIF of each paradigm, and what the hybrid gains on the better of SA and HA."""
    quoted, rows = numbers(found), {}
    for key, (name, _) in TASKS.items():
        saif = {label: quoted["saif"][key].get(paradigm, "\u2013") for paradigm, label in SAIF_COLUMNS.items()}
        gains = {f"gain in {measure}": quoted["gain"][key][measure.lower()] for measure in ("SAIF", "accuracy")}
        rows[name] = {"seeds": quoted["seeds"][key]} | saif | gains | {"H1": quoted["h1"][key]}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("task")


def findings(folder: Path, found: Mapping[str, list[Any]]) -> str:
    """The key figure, from recorded results, with the table beside it."""
    grouped = {TASKS[key][0]: found[key] for key in DRAWN}
    record = figure_record("", grouped) | {"notebook": "book/_ext/findings.py", "rerun": "make book"}
    parts = [tables.summary_frame(runs, at="end").assign(dataset=name) for name, runs in grouped.items()]
    plots.save(plots.accuracy_saif_summary(pd.concat(parts)), "overview", folder, record)
    figure = TABLES["figure"].format(folder=folder.name, tasks="; ".join(TASKS[key][1] for key in DRAWN))
    return f"{figure}\n{plots.how_made(record, 'overview', dated=True)}\n\n{tables.markdown(results_table(found))}"


def update_readme(path: Path) -> None:
    """Put the table of results between its marks."""
    (before, _), (_, after) = (path.read_text("utf-8").split(mark) for mark in MARKS)
    table = tables.markdown(results_table(shown_tasks()))
    path.write_text(f"{before}{MARKS[0]}{table}{MARKS[1]}{after}", "utf-8")


def benchmarks() -> str:
    """The recorded benchmarks as tables, each with what was measured on which machine."""
    parts = []
    for name, heading in TABLES["benchmarks"].items():
        content = json.loads(Path("results", "recorded", "bench", f"{name}.json").read_text("utf-8"))
        source = content["provenance"]
        where = f"{source['device']}, torch {source['packages']['torch']}, commit {source['commit']}, {source['date']}"
        table = tables.markdown(report.table(content))
        parts.append(f"**{heading}.**\n\n{table}\n{content['how'].rstrip('.')}. Measured on: {where}.\n")
    return "\n".join(parts)


def recorded_table() -> pd.DataFrame:
    """One row per task of recorded results: how many, and how long each and all took."""
    rows, results = [], list[Any](store.every(recorded=True))
    for result in sorted(results, key=tables.kind):
        source, threads = result.summary["provenance"], getattr(result.config, "training", result.config).threads
        name = PREFIXES.get(tables.kind(result), "") + tables.title(result)
        took = float(source.get("train_seconds") or source["last_session_seconds"])
        on = f"{source['device']}, {source['cpu_capability']}, threads: {threads}"
        rows.append({"recorded": name, "took": took, "on": on, "date": source["date"]})
    return pd.DataFrame(rows).groupby("recorded", sort=False).agg(
        results=("took", "size"),
        each=("took", lambda took: " to ".join(dict.fromkeys((duration(took.min()), duration(took.max()))))),
        together=("took", lambda took: duration(took.sum())),
        on=("on", lambda places: "; ".join(sorted(set(places)))),
        date=("date", lambda dates: ", ".join(sorted(set(dates)))),
    )  # fmt: skip


def notebooks_table(folder: Path) -> pd.DataFrame:
    """One row per notebook: how long its execution for this book took, and on what."""
    rows = {}
    for path in sorted(folder.glob("[0-9][0-9]_*.json")):
        took = json.loads(path.read_text("utf-8"))
        link = f"{{doc}}`notebooks/{path.stem}`"
        rows[link] = {"took": duration(took["seconds"]), "on": took["device"], "date": took["date"]}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("notebook")


def duration(value: float) -> str:
    """Seconds below two minutes, minutes below two hours, else hours."""
    if value < 120:
        return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def main(folder: Path) -> None:
    """Write the numbers, the three parts of pages and the two pictures."""
    found, settings = shown_tasks(), FlowParameters()
    flow = theory_tables.flow_frame(settings.settings())
    *_, largest = theory_tables.flow_paths(flow).values()
    lead = float(CLAIMS["D1"].measure(largest)[0].values[0]) - 1
    quoted = numbers(found) | {"theory": {"apart": agreement(), "lead": f"{lead:.1%}"}, "early": early_switch()}
    parts = {"findings.md": findings(folder, found), "benchmark.md": benchmarks()}
    parts["numbers.json"] = json.dumps(quoted, indent=1, ensure_ascii=False) + "\n"
    parts["runtimes.md"] = tables.markdown(notebooks_table(folder))
    parts["runtimes-recorded.md"] = tables.markdown(recorded_table())
    for name, text in parts.items():
        (folder / name).write_text(text, "utf-8")
    record = figure_record("05_gradient_flow", {}) | {"parameters": settings.model_dump(mode="json")}
    plots.save(plots.flow_curves(flow), "gradient-flow", folder, record)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    (update_readme if sys.argv[1].endswith(".md") else main)(Path(sys.argv[1]))

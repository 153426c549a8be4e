"""Write the numbers that pages quote, the key figure, and what was spent, for the page on running.

Usage: findings.py EXECUTED_NOTEBOOKS
       findings.py README.md

The first form writes into the folder of the executed notebooks numbers.json, from which the extension `pages` fills
`{{ names }}` in pages, findings.md with the key figure, benchmark.md, runtimes.md, and the picture that explorer.md
shows without JavaScript. The second form puts the table of results between the two marks in README.md.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from ledger import LINEAR, parameters_of

from benchmarks import report
from fcamlib import notebook, paths, plots, store, tables
from fcamlib.claims import CLAIMS
from fcamlib.config import CaptionRun, FlowParameters, Run, SweepGrid
from fcamlib.provenance import figure_record
from fcamlib.theory import tables as theory_tables

RECORDED = paths.recorded_dir() or Path("results/recorded")
FIGURE = """```{{figure}} {folder}/overview.svg
:name: fig-key
:alt: One panel per data set; for SA, HA, LVML and hybrid a point for accuracy and one for SAIF with their intervals.
Accuracy and SAIF on test data: {tasks}. Bars are 95% intervals over n seeds; fewer than five seeds have none.
```
"""
# Key -> name in tables and figures, and title of the recorded results; a task on which nothing was learned is left out.
SCENES = "scenes, 600 pictures, state sees the word, 20 epochs"
HATE = "HateXplain (reduced copy), all posts"
TASKS = {
    "digits": ("Digits, m = 5", "digits, m = 5, 2,000 mosaics, 20 epochs"),
    "cifar": ("CIFAR-10 (JPEG copy), m = 5", "CIFAR-10 (JPEG copy), m = 5, 30,000 mosaics, 16 epochs"),
    "hatexplain": ("HateXplain, word embeddings",
                   f"{HATE}, embedding, 550 epochs, 500 epochs at 0.1, then 50 epochs at 0.008"),
    "transformer": ("HateXplain, transformer", f"{HATE}, transformer, 10 epochs"),
    "keywords": ("Generated text", "keywords, 500 posts, embedding, 8 epochs"),
    "motifs": ("Generated time series", "motifs, m = 5, 300 series, 16 epochs"),
    "clouds": ("Generated bags", "clouds, m up to 12, 400 bags, 12 epochs"),
    "scenes": ("Captions of generated scenes", f"{SCENES}, 10 epochs at 0.004/0.004, then 10 epochs at 0.002/0.002"),
}  # fmt: skip
DRAWN = ("digits", "cifar", "hatexplain", "clouds")
SAIF_COLUMNS = {"soft": "SAIF: SA", "hard": "HA", "lvml": "LVML", "hybrid": "hybrid"}
MARKS = "<!-- results: written by book/_ext/findings.py README.md -->\n", "<!-- end of results -->"
BENCHMARKS = {  # file in results/recorded/bench -> its heading
    "pictures": "Pictures, float32", "pictures_bfloat16": "Pictures, the library in bfloat16", "theory": "The theory",
    "text": "Text", "captions": "Captions",
}  # fmt: skip
PREFIXES = {"captions": "captions of ", "fixed_focus": "fixed focus, ", "study": "study, "}


def shown_tasks() -> dict[str, list[Any]]:
    """Key of `TASKS` -> its recorded results, of the seeds that every paradigm has."""
    recorded = tables.tasks([run for kind in (Run, CaptionRun) for run in store.every(kind, recorded=True)])
    found = {}
    for key, (_, title) in TASKS.items():
        runs, counts = recorded[title], Counter(run.config.seed for run in recorded[title])
        found[key] = [run for run in runs if counts[run.config.seed] == len(tables.paradigms(runs))]
    return found


def numbers(found: Mapping[str, list[Any]]) -> dict[str, Any]:
    """What prose quotes, as text, by task: SAIF, gain of the hybrid, early lead of SA on HA, seeds, and more.

    Measures are those at the end of training; a gain is over the better of SA and HA in the same seed.
    """
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
    figure = FIGURE.format(folder=folder.name, tasks="; ".join(TASKS[key][1] for key in DRAWN))
    return f"{figure}\n{plots.how_made(record, 'overview', dated=True)}\n\n{tables.markdown(results_table(found))}"


def update_readme(path: Path) -> None:
    """Put the table of results between its marks."""
    before, _, after = path.read_text("utf-8").partition(MARKS[0])
    table = tables.markdown(results_table(shown_tasks()))
    path.write_text(f"{before}{MARKS[0]}{table}{MARKS[1]}{after.partition(MARKS[1])[2]}", "utf-8")


def benchmarks() -> str:
    """The recorded benchmarks as tables, each with what was measured on which machine."""
    parts = []
    for name, heading in BENCHMARKS.items():
        content = json.loads((RECORDED / "bench" / f"{name}.json").read_text("utf-8"))
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
        rows.append({
            "recorded": PREFIXES.get(tables.kind(result), "") + tables.title(result),
            "took": float(source.get("train_seconds") or source["last_session_seconds"]),
            "on": f"{source['device']}, {source['cpu_capability']}, threads: {threads}",
            "date": source["date"],
        })  # fmt: skip
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
        link = f"{{doc}}`{path.stem[:2]} <notebooks/{path.stem}>`"
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

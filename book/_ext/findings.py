"""Write what was found, for the landing page, and what it cost, for the page on running.

Usage: findings.py EXECUTED_NOTEBOOKS

Reads profile.yaml, the .json beside each executed notebook, and stored and recorded results. Writes into the same
folder findings.md with the key figure, benchmark.md, runtimes.md, and the picture that explorer.md shows without
JavaScript.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from benchmarks import report
from fcamlib import paths, plots, store, tables
from fcamlib.config import Config, CrossValidation, FlowParameters, Grid, Mosaics, Run, Study, Sweep
from fcamlib.provenance import figure_record
from fcamlib.theory import tables as theory_tables

RECORDED = paths.recorded_dir() or Path("results/recorded")
FIGURE = """```{{figure}} {folder}/overview.svg
:name: fig-key
:alt: One panel per data set; for SA, HA, LVML and hybrid a point for accuracy and one for SAIF with their intervals.
Accuracy and SAIF on test mosaics: {tasks}. Bars are 95 % intervals over seeds; fewer than five seeds have none.
```
"""
BENCHMARKS = {  # file in results/recorded/bench -> its heading
    "pictures": "Pictures, float32",
    "pictures_bfloat16": "Pictures, the library in bfloat16",
    "theory": "The theory",
    "text": "Text",
    "captions": "Captions",
}
PREFIXES = {"captions": "captions of ", "fixed_focus": "fixed focus, ", "study": "study, "}
TIMES = """**Notebooks**, as executed for this book, in one process each. What the store or the records hold already is
read, not computed.

{notebooks}
**Recorded results**, computed once. Times are of training and evaluation, summed over epochs; on a machine
with nothing else to do they are shorter.

{recorded}"""


def sentence(title: str, runs: Sequence[Any]) -> str:
    """SAIF of each paradigm on one task, with the number of seeds and the verdict on the paper's main claim."""
    saif = tables.of_split(runs, "saif")
    said = ", ".join(f"{tables.label(name)} {values.mean():.2f}" for name, values in saif.items())
    seeds = len({run.config.seed for run in runs})
    found = tables.verdict(tables.criteria(runs, ["H1"])["H1"])
    count = "one seed" if seeds == 1 else f"{seeds} seeds"
    return f"- **{title}** ({count}): SAIF {said}. That the hybrid is at least as good as SA and HA: *{found}*.\n"


def findings(folder: Path) -> str:
    """One line a task of pictures, recorded or computed here, and the key figure."""
    given = yaml.safe_load((folder / "profile.yaml").read_text("utf-8")) or {}
    live = store.get_all(Grid.of(given).configs(), recorded=False)
    recorded = [run for run in store.every(Run, recorded=True) if isinstance(run.config.data, Mosaics)]
    grouped = tables.tasks(live) | tables.tasks(recorded)  # of a task that is both, the recorded runs
    record = figure_record("02_accuracy_and_saif", grouped, parameters=given)
    shown = tables.summary_frame([run for group in grouped.values() for run in group])
    plots.save(plots.accuracy_saif_summary(shown), "overview", folder, record)
    lines = "".join(sentence(title, group) for title, group in grouped.items())
    figure = FIGURE.format(folder=folder.name, tasks="; ".join(grouped))
    made = plots.how_made(record, "overview", dated=True)
    pages = "{doc}`notebooks/02_accuracy_and_saif` and {doc}`notebooks/03_focus_prediction_heatmaps`"
    return f"## What was found\n\n{lines}\n{figure}\n{made}\n\n{pages} show the numbers.\n"


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


def trainings(config: Config) -> int:
    """Number of models that one result stands for, without candidates for a learning rate."""
    match config:
        case Sweep():
            return len(config.paradigms) * len(config.alphas) * len(config.seeds)
        case CrossValidation():
            return config.repeats * config.folds * len(config.methods)
        case Study():
            return config.steps
    return 1


def recorded_table() -> pd.DataFrame:
    """One row per task of recorded results: how many, and how long each and all took."""
    groups: dict[str, list[Any]] = {}
    results: list[Any] = store.every(recorded=True)
    for result in results:
        groups.setdefault(PREFIXES.get(tables.kind(result), "") + tables.title(result), []).append(result)
    rows = {}
    for name, group in sorted(groups.items(), key=lambda item: tables.kind(item[1][0])):
        sources = [result.summary["provenance"] for result in group]
        took = [float(s.get("train_seconds") or s["last_session_seconds"]) for s in sources]
        threads = [getattr(result.config, "training", result.config).threads for result in group]
        places = {f"{s['device']}, {s['cpu_capability']}, {n} thread{'s' if n > 1 else ''}"
                  for s, n in zip(sources, threads, strict=True)}  # fmt: skip
        rows[name] = {
            "results": len(group),
            "trainings": f"{sum(trainings(result.config) for result in group):,}",
            "each": duration(took[0]) if len(took) == 1 else f"{duration(min(took))} to {duration(max(took))}",
            "together": duration(sum(took)),
            "on": "; ".join(sorted(places)),
            "date": ", ".join(sorted({source["date"] for source in sources})),
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


def main(folder: Path) -> None:
    """Write the three parts of pages and the two pictures."""
    (folder / "findings.md").write_text(findings(folder), "utf-8")
    (folder / "benchmark.md").write_text(benchmarks(), "utf-8")
    times = {"notebooks": tables.markdown(notebooks_table(folder)), "recorded": tables.markdown(recorded_table())}
    (folder / "runtimes.md").write_text(TIMES.format(**times), "utf-8")
    flow = FlowParameters()
    record = figure_record("05_gradient_flow", {}) | {"parameters": flow.model_dump(mode="json")}
    plots.save(plots.flow_curves(theory_tables.flow_frame(flow.settings())), "gradient-flow", folder, record)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))

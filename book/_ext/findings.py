"""Write what was found, from stored and recorded runs, for the landing page.

Usage: findings.py PARAMETERS.yaml OUTPUT_FOLDER

Writes findings.md, which intro.md includes, and the key figure beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import yaml

from fcamlib import plots, store, tables
from fcamlib.claims import CLAIMS
from fcamlib.config import experiment
from fcamlib.metrics import t_interval
from fcamlib.runs import run_all
from fcamlib.store import Run

FIGURE = """```{{figure}} {folder}/overview.svg
:name: fig-key
:alt: One panel per data set; for SA, HA, LVML and hybrid a point for accuracy and one for SAIF with their intervals.
Accuracy and SAIF on test mosaics: {tasks}. Bars are 95 % t-intervals over seeds; one seed has none.
```
"""


def sentence(title: str, runs: list[Run]) -> str:
    """What the hybrid did on one task, with the number of seeds and the verdict on the paper's main claim."""
    saif = {p: [r.summary["splits"]["test"]["saif"] for r in runs if r.config.paradigm == p] for p in tables.LABELS}
    means = {p: f"{t_interval(values)[0]:.2f}" for p, values in saif.items() if values}
    seeds = len({run.config.seed for run in runs})
    said = ", ".join(f"{tables.LABELS[p]} {mean}" for p, mean in means.items())
    verdict = tables.verdicts(runs)["H1"]
    count = "one seed" if seeds == 1 else f"{seeds} seeds"
    return f"- **{title}** ({count}): SAIF {said}. That the hybrid is at least as good as SA and HA: *{verdict}*.\n"


def claims_by_task(grouped: dict[str, list[Run]]) -> str:
    """A Markdown table of verdicts, one row per claim, one column per task."""
    names = pd.Index([f"**{claim.id}** {claim.statement}" for claim in CLAIMS.values()], name="claim")
    columns = {title: list(tables.verdicts(runs).values()) for title, runs in grouped.items()}
    return tables.markdown(pd.DataFrame(columns, index=names))


def main(parameters: Path, folder: Path) -> None:
    """Write findings.md and overview.svg into `folder`."""
    runs = run_all(experiment(yaml.safe_load(parameters.read_text("utf-8"))).configs())
    grouped = tables.tasks(runs) | tables.tasks(store.recorded_runs())
    every = [run for group in grouped.values() for run in group]
    figure = plots.accuracy_saif_summary(tables.summary_frame(grouped))
    plots.save(figure, "overview", folder, tables.figure_provenance(every, "02_accuracy_and_saif"))
    text = "## What was found\n\n"
    text += "".join(sentence(title, group) for title, group in grouped.items()) + "\n"
    text += FIGURE.format(folder=folder.name, tasks="; ".join(grouped)) + "\n"
    text += claims_by_task(grouped) + "\n"
    text += (
        "A claim *holds* when every 95 % interval over seeds lies above its bound, *fails* when one lies below, and\n"
        "is *undecided* otherwise; one seed decides nothing. {doc}`notebooks/02_accuracy_and_saif` and\n"
        "{doc}`notebooks/03_focus_prediction_heatmaps` show the numbers.\n"
    )
    (folder / "findings.md").write_text(text, "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))

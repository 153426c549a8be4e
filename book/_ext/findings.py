"""Write what was found, from stored and recorded runs, for the landing page.

Usage: findings.py PARAMETERS.yaml OUTPUT_FOLDER

Writes findings.md, which intro.md includes, the key figure beside it, benchmark.md, which running.md includes, and the
picture that explorer.md shows without JavaScript.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks import report
from fcamlib import paths, plots, store, tables
from fcamlib.config import FlowParameters, Grid, Mosaics
from fcamlib.provenance import figure_record
from fcamlib.theory import tables as theory_tables
from fcamlib.verdicts import verdict

FIGURE = """```{{figure}} {folder}/overview.svg
:name: fig-key
:alt: One panel per data set; for SA, HA, LVML and hybrid a point for accuracy and one for SAIF with their intervals.
Accuracy and SAIF on test mosaics: {tasks}. Bars are 95 % intervals over seeds; fewer than five seeds have none.
```
"""


def sentence(title: str, runs: Sequence[Any]) -> str:
    """What the hybrid did on one task, with the number of seeds and the verdict on the paper's main claim."""
    saif = tables.of_split(runs, "saif")
    said = ", ".join(f"{tables.label(name)} {values.mean():.2f}" for name, values in saif.items())
    seeds = len({run.config.seed for run in runs})
    count = "one seed" if seeds == 1 else f"{seeds} seeds"
    found = verdict(tables.criteria(runs, ["H1"])["H1"])
    return f"- **{title}** ({count}): SAIF {said}. That the hybrid is at least as good as SA and HA: *{found}*.\n"


BENCHMARKS = {  # file in results/recorded/bench -> its heading
    "pictures": "Pictures, float32",
    "pictures_bfloat16": "Pictures, the library in bfloat16",
    "theory": "The theory",
    "text": "Text",
    "captions": "Captions",
}


def benchmarks(folder: Path) -> str:
    """The recorded benchmarks as tables, each with what was measured on which machine."""
    parts = []
    for name, heading in BENCHMARKS.items():
        content = json.loads((folder / f"{name}.json").read_text("utf-8"))
        source = content["provenance"]
        where = f"{source['device']}, torch {source['packages']['torch']}, commit {source['commit']}, {source['date']}"
        table = tables.markdown(report.table(content))
        parts.append(f"**{heading}.**\n\n{table}\n{content['how'].rstrip('.')}. Measured on: {where}.\n")
    return "\n".join(parts)


def main(parameters: Path, folder: Path) -> None:
    """Write findings.md and overview.svg into `folder`."""
    given = yaml.safe_load(parameters.read_text("utf-8")) or {}
    runs = store.get_all(Grid.of(given).configs())
    grouped = tables.tasks(runs) | tables.tasks(
        run for run in store.recorded_runs() if isinstance(run.config.data, Mosaics)
    )
    every = [run for group in grouped.values() for run in group]
    figure = plots.accuracy_saif_summary(tables.summary_frame(every))
    record = figure_record("02_accuracy_and_saif", grouped, parameters=given)
    plots.save(figure, "overview", folder, record)
    text = "## What was found\n\n"
    text += "".join(sentence(title, group) for title, group in grouped.items()) + "\n"
    text += FIGURE.format(folder=folder.name, tasks="; ".join(grouped)) + "\n"
    text += plots.how_made(record, "overview", dated=True) + "\n\n"
    text += (
        "{doc}`notebooks/02_accuracy_and_saif` and {doc}`notebooks/03_focus_prediction_heatmaps` show the numbers.\n"
    )
    (folder / "findings.md").write_text(text, "utf-8")
    recorded = paths.recorded_dir()
    assert recorded is not None, "the book is built from a source checkout"
    (folder / "benchmark.md").write_text(benchmarks(recorded / "bench"), "utf-8")
    flow = FlowParameters()
    figure = plots.flow_curves(theory_tables.flow_frame(flow.settings()))
    record = figure_record("05_gradient_flow", {}) | {"parameters": flow.model_dump(mode="json")}
    plots.save(figure, "gradient-flow", folder, record)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))

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

import figure_notes
import pandas as pd
import yaml

from fcamlib import paths, plots, store, tables
from fcamlib.claims import verdict
from fcamlib.config import MosaicsConfig, experiment
from fcamlib.config.flow import FlowExperiment
from fcamlib.metrics import t_interval
from fcamlib.runs import run_all
from fcamlib.store import Run
from fcamlib.theory import tables as theory_tables

SHOWN_SHARE = 0.01  # of a step; shorter passes are summed up

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
    found = verdict(tables.criteria(runs, ["H1"])["H1"])
    count = "one seed" if seeds == 1 else f"{seeds} seeds"
    return f"- **{title}** ({count}): SAIF {said}. That the hybrid is at least as good as SA and HA: *{found}*.\n"


def quantity(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def benchmark(path: Path) -> str:
    """The recorded run of `fcam bench` as a table, with what was measured on which machine."""
    if not path.is_file():
        return "No run of `fcam bench` is recorded here.\n"
    content = json.loads(path.read_text("utf-8"))
    rows = [
        (
            ", ".join(
                [row["measure"], f"m = {row['num_segments']}", *filter(None, [tables.LABELS.get(row["paradigm"])])]
            ),
            *(f"{quantity(row[side]['median'])} {row['unit']}" for side in ("plain", "library")),
            f"{row['ratio']['median']:,.1f} ({row['ratio']['low']:,.1f} to {row['ratio']['high']:,.1f})",
            f"{row['target']:g}" if row["target"] else "",
        )
        for row in content["rows"]
    ]
    return shown(rows, content)


def shown(rows: Sequence[tuple[str, ...]], content: dict[str, Any]) -> str:
    """Rows of measure, plain, fcamlib, ratio and aim, with what was measured on which machine."""
    table = pd.DataFrame(rows, columns=["measure", "plain", "fcamlib", "ratio", "aim"]).set_index("measure")
    return measured(table, content)


def measured(table: pd.DataFrame, content: dict[str, Any]) -> str:
    """A table, what was measured and how, and on which machine."""
    source = content["provenance"]
    where = f"{source['device']}, torch {source['packages']['torch']}, commit {source['commit']}, {source['date']}"
    return f"{tables.markdown(table)}\n{content['how'].rstrip('.')}. Measured on: {where}.\n"


def bfloat16_benchmark(path: Path) -> str:
    """The recorded run of `fcam bench --precision bfloat16`; the plain procedure is that of `benchmark`."""
    if not path.is_file():
        return ""
    return (
        "\n**In bfloat16**, `fcam bench --precision bfloat16`: convolutions and dense layers of the library round to "
        "16 bits, which processors with AVX512-BF16 multiply faster; the plain procedure stays in float32.\n\n"
    ) + benchmark(path)


def theory_benchmark(path: Path) -> str:
    """The recorded run of `fcamlib.bench.theory`."""
    if not path.is_file():
        return ""
    content = json.loads(path.read_text("utf-8"))
    rows = []
    for row in content["rows"]:
        about = [row["measure"]]
        if "paradigm" in row:
            about += [f"m = {row['num_segments']}, C = {row['num_classes']:,}, t = {row['time']:,.0f}"]
            about += [tables.LABELS[row["paradigm"]]]
        seconds = [f"{quantity(row[f'{side}_seconds']['median'])} s" for side in ("plain", "library")]
        ratio = row["ratio"]
        spread = f"{ratio['median']:,.0f} ({ratio['low']:,.0f} to {ratio['high']:,.0f})"
        rows.append((", ".join(about), *seconds, spread, f"{row['aim']:,g}"))
    return "\n**The theory**, `python -m fcamlib.bench.theory`.\n\n" + shown(rows, content)


def text_benchmark(path: Path) -> str:
    """The recorded run of `fcamlib.bench.text`, against posts padded to the longest of all and of each batch."""
    if not path.is_file():
        return ""
    content = json.loads(path.read_text("utf-8"))
    rows = []
    for row in content["rows"]:
        for side, name, aim in (
            ("set", "padded to the longest post", "5"),
            ("batch", "padded to the batch's longest", ""),
        ):
            plain, library = row[side], row["library"]
            about = f"{tables.LABELS[row['paradigm']]}, {name}"
            rows.append((about, f"{plain:.1f} s", f"{library:.1f} s", f"{plain / library:.1f}", aim))
    return "\n**An epoch of text**, `python -m fcamlib.bench.text --dataset hatexplain`.\n\n" + shown(rows, content)


def layers_benchmark(path: Path) -> str:
    """The recorded run of `fcam bench --measure layers`: passes of a hundredth of the step and more."""
    if not path.is_file():
        return ""
    content = json.loads(path.read_text("utf-8"))
    rows = [
        (
            f"{row['layer']}, {row['pass']}",
            f"{quantity(row['ms']['median'])} ms ({quantity(row['ms']['low'])} to {quantity(row['ms']['high'])})",
            f"{quantity(row['floor_ms'])} ms ({row['bound']})",
            f"{row['fraction']:.2f}",
            row["why"],
        )
        for row in content["rows"]
        if _is_shown(row)
    ]
    table = pd.DataFrame(rows, columns=["layer", "time", "floor", "fraction", "why below half"]).set_index("layer")
    step = content["step_ms"]
    rest = [row for row in content["rows"] if not _is_shown(row)]
    return (
        "\n**A training step by layer**, `fcam bench --measure layers`.\n\n"
        f"A step takes {quantity(step['median'])} ms ({quantity(step['low'])} to {quantity(step['high'])}); the floors "
        f"of its layers are {quantity(content['floor_ms'])} ms together, {content['fraction']:.2f} of it. The "
        f"{len(rest)} passes not shown take {quantity(sum(r['ms']['median'] for r in rest))} ms together, each under "
        f"{100 * SHOWN_SHARE:g} % of the step, where starting an operation counts as much as its work; gathering "
        f"pictures, loss, update and measures take {quantity(content['rest_ms'])} ms.\n\n" + measured(table, content)
    )


def _is_shown(row: dict[str, Any]) -> bool:
    return bool(row["share"] >= (SHOWN_SHARE / 2 if row["why"] else SHOWN_SHARE))


def ensemble_benchmark(path: Path) -> str:
    """The recorded run of `fcam bench --measure ensemble`."""
    if not path.is_file():
        return ""
    content = json.loads(path.read_text("utf-8"))
    rows = [
        (
            f"{row['network']}, {row['precision']}, {row['members']} models, {tables.LABELS[row['paradigm']]}",
            *(f"{quantity(1e3 * row[side]['median'])} ms" for side in ("one_by_one", "together")),
            f"{row['ratio']['median']:.2f} ({row['ratio']['low']:.2f} to {row['ratio']['high']:.2f})",
        )
        for row in content["rows"]
    ]
    table = pd.DataFrame(rows, columns=["step of", "one by one", "together", "ratio"]).set_index("step of")
    return (
        "\n**Models that train together**, `fcam bench --measure ensemble`. Ratios below 1 are losses: on a CPU one "
        "model after the other is what the library does.\n\n" + measured(table, content)
    )


def captions_benchmark(path: Path) -> str:
    """The recorded run of `fcamlib.bench.captions`."""
    if not path.is_file():
        return ""
    content = json.loads(path.read_text("utf-8"))
    names = {
        "features": "features of VGG19",
        "greedy": "greedy captions",
        "soft": "training step, SA",
        "hard": "training step, HA",
        "keys": "training step, attention keys computed for each word",
    }
    rows = [
        (
            f"{names[row['measure']]}, {row['batch']} pictures",
            f"{quantity(row['seconds']['median'])} s "
            f"({quantity(row['seconds']['low'])} to {quantity(row['seconds']['high'])})",
            quantity(row["pictures_per_second"]),
            f"{quantity(row['peak_mib'])} MiB",
        )
        for row in content["rows"]
    ]
    table = pd.DataFrame(rows, columns=["measure", "time", "pictures a second", "peak memory"]).set_index("measure")
    return "\n**Captions**, `python -m fcamlib.bench.captions`.\n\n" + measured(table, content)


def main(parameters: Path, folder: Path) -> None:
    """Write findings.md and overview.svg into `folder`."""
    runs = run_all(experiment(yaml.safe_load(parameters.read_text("utf-8"))).configs())
    grouped = tables.tasks(runs) | tables.tasks(
        run for run in store.recorded_runs() if isinstance(run.config.data, MosaicsConfig)
    )
    every = [run for group in grouped.values() for run in group]
    figure = plots.accuracy_saif_summary(tables.summary_frame(every))
    plots.save(figure, "overview", folder, tables.figure_provenance(every, "02_accuracy_and_saif"))
    text = "## What was found\n\n"
    text += "".join(sentence(title, group) for title, group in grouped.items()) + "\n"
    text += FIGURE.format(folder=folder.name, tasks="; ".join(grouped)) + "\n"
    text += figure_notes.note_of(folder / "overview.json", yaml.safe_load(parameters.read_text("utf-8"))) + "\n"
    text += (
        "{doc}`notebooks/02_accuracy_and_saif` and {doc}`notebooks/03_focus_prediction_heatmaps` show the numbers.\n"
    )
    (folder / "findings.md").write_text(text, "utf-8")
    recorded = paths.recorded_dir()
    assert recorded is not None, "the book is built from a source checkout"
    bench = recorded / "bench"
    benchmarks = (
        benchmark(bench / "cpu.json")
        + bfloat16_benchmark(bench / "cpu_bfloat16.json")
        + layers_benchmark(bench / "layers.json")
        + ensemble_benchmark(bench / "ensemble.json")
        + theory_benchmark(bench / "theory.json")
        + text_benchmark(bench / "text.json")
        + captions_benchmark(bench / "captions.json")
    )
    (folder / "benchmark.md").write_text(benchmarks, "utf-8")
    flow = FlowExperiment()
    figure = plots.flow_curves(theory_tables.flow_frame(flow.settings()))
    plots.save(figure, "gradient-flow", folder, theory_tables.provenance("05_gradient_flow", flow))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))

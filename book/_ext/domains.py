"""Write which claim holds on which task, from the runs of executed notebooks and the recorded ones.

Usage: domains.py EXECUTED_NOTEBOOKS OUTPUT.md

Takes the parameters of each executed notebook in the folder, so that its runs are found in the store.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd

from fcamlib import fold_tables, notebook, store, tables, theory_tables
from fcamlib.claims import CLAIMS, Verdict, verdict
from fcamlib.config import (
    SCHEDULES,
    BagsConfig,
    CrossValidationConfig,
    FixedFocusConfig,
    FixedFocusExperiment,
    MosaicsConfig,
    OrthogonalConfig,
    SeriesConfig,
    TextConfig,
)
from fcamlib.config.flow import FlowExperiment
from fcamlib.runs import run_all
from fcamlib.store import Run, Stored
from fcamlib.sweep import Sweep, sweep
from fcamlib.theory_claims import NEEDED, incentive_criteria, path_criteria

# The paper's claims in the order of the table: how the models move, where they end, the hybrid, and the explanation.
STATEMENTS = {
    "D1": CLAIMS["D1"].statement,
    "D2": CLAIMS["D2"].statement,
    "D3": CLAIMS["D3"].statement,
    "D4": "the classification model converges faster under LVML than under SA and HA",
    "S1": CLAIMS["S1"].statement,
    "S2": CLAIMS["S2"].statement,
    "S3": CLAIMS["S3"].statement,
    "H1": CLAIMS["H1"].statement,
    "I1": "SA's incentive to focus falls with the attention on the foreground",
    "I2": "HA's incentive rises with it",
    "I3": "LVML's incentive is above HA's at little attention and above SA's at much",
}
# Notebooks that compute runs -> what they change in their parameters, one entry for each set of runs.
RUNS: dict[str, list[dict[str, Any]]] = {
    "02_accuracy_and_saif": [{}],
    "07_text": [{"encoder": "embedding"}, {"encoder": "transformer", "evaluate_every": 4}],
    "08_time_series": [{}],
    "09_bags": [{}],
}
SWEEPS = ("04_fixed_focus_linear", "06_fixed_focus_images")
FLOW, BAGS = "05_gradient_flow", "09_bags"
NOTEBOOK_OF: dict[type, str] = {
    MosaicsConfig: "02_accuracy_and_saif",
    TextConfig: "07_text",
    SeriesConfig: "08_time_series",
    BagsConfig: BAGS,
}
HYBRID_PAIRS = (("hybrid", "soft"), ("hybrid", "hard"))


@dataclass(frozen=True)
class Task:
    """What one row of the tables is about: a task with the claims that could be measured on it."""

    name: str
    settings: str
    notebook: str
    kept: str
    seeds: str
    instances: str
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def cell(self, claim: str) -> str:
        """The verdict on a claim as the table shows it; "-" where it was not or cannot be measured."""
        found = self.verdicts.get(claim, "not run")
        return {"holds": "holds", "fails": "**fails**", "undecided": "*undecided*", "not run": "-"}[found]


def parameters_of(path: Path) -> dict[str, Any]:
    """What an executed notebook was run with: its own parameters, and those that papermill put in their place."""
    found: dict[str, Any] = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if {"parameters", "injected-parameters"} & set(cell.metadata.get("tags", [])):
            for statement in ast.parse(cell.source).body:
                match statement:
                    case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                        found[name] = ast.literal_eval(value)
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        found[name] = ast.literal_eval(value)
    return found


def run_tasks(folder: Path) -> list[Task]:
    """The tasks on which models were trained: those of the notebooks, then the recorded ones."""
    live: list[Run] = []
    for name, variants in RUNS.items():
        experiment = notebook.parameters(parameters_of(folder / f"{name}.ipynb"))
        for changes in variants:
            live += run_all(experiment.model_copy(update=changes).configs())
    grouped: dict[str, list[Run]] = {}
    for run in live:  # in the notebooks' order, which `tables.tasks` does not keep
        grouped.setdefault(tables.task_title(run), []).append(run)
    grouped = {title: tables.tasks(group)[title] for title, group in grouped.items()}
    kept = [run for run in store.recorded_runs() if run.config.paradigm in SCHEDULES]
    grouped |= {title: group for title, group in tables.tasks(kept).items() if title not in grouped}
    return [run_task(title, group) for title, group in grouped.items()]


def run_task(title: str, runs: Sequence[Run]) -> Task:
    """Verdicts on the runs of one task, over the seeds that all paradigms have."""
    config, name = runs[0].config, str(runs[0].summary["title"])
    if isinstance(config.data, TextConfig):  # the only domain with two encoders
        name += f", {config.model.encoder}"
    seeds = set.intersection(*({r.config.seed for r in runs if r.config.paradigm == p} for p in tables.paradigms(runs)))
    test = runs[0].summary["splits"]["test"]["n"]
    return Task(
        name=name,
        settings=title.removeprefix(str(runs[0].summary["title"])).removeprefix(", "),
        notebook=NOTEBOOK_OF[type(config.data)],
        kept="recorded" if all(run.is_recorded for run in runs) else "live",
        seeds=str(len(seeds)),
        instances=f"{test:,} test",
        verdicts=tables.verdicts(runs) if seeds else {},
    )


def sweep_tasks(folder: Path) -> list[Task]:
    """The fixed-focus sweeps: those of the notebooks, then the recorded ones."""
    live = [
        sweep(notebook.parameters(parameters_of(folder / f"{name}.ipynb"), FixedFocusExperiment).config())
        for name in SWEEPS
    ]
    names = {found.config.name for found in live}
    kept = [Sweep(stored) for stored in store.recorded(FixedFocusConfig) if stored.config.name not in names]
    return [sweep_task(found) for found in (*live, *kept)]


def sweep_task(found: Sweep) -> Task:
    """Verdicts on the incentives at the end of a sweep."""
    title, data = str(found.stored.summary["title"]), found.config.data
    incentives = theory_tables.last_incentives(found.frame)
    return Task(
        name=f"{title}, fixed focus",
        settings=theory_tables.sweep_title(found).removeprefix(title).removeprefix(", "),
        notebook=SWEEPS[0] if isinstance(data, OrthogonalConfig) else SWEEPS[1],
        kept="recorded" if found.is_recorded else "live",
        seeds=str(len(found.config.seeds)),
        instances=f"{data.num_train:,} training",
        verdicts={c: verdict(incentive_criteria(c, incentives)) for c in NEEDED if c.startswith("I")},
    )


def flow_tasks(folder: Path) -> list[Task]:
    """The gradient flow of each setting."""
    settings = notebook.parameters(parameters_of(folder / f"{FLOW}.ipynb"), FlowExperiment).settings()
    paths = theory_tables.flow_paths(theory_tables.flow_frame(settings))
    return [
        Task(
            name="gradient flow, " + ", ".join(setting.split(", ")[:2]),
            settings=setting,
            notebook=FLOW,
            kept="live",
            seeds="exact",
            instances="-",
            verdicts={c: verdict(path_criteria(c, found)) for c in NEEDED if c.startswith("D")},
        )
        for setting, found in paths.items()
    ]


def fold_tasks(results: Sequence[Stored[CrossValidationConfig]]) -> list[Task]:
    """The recorded cross-validations; without a known foreground no claim can be measured there."""
    tasks = []
    for title, history in fold_tables.by_data_set(results).items():
        one = history[(history["repeat"] == history["repeat"].iloc[0]) & (history["method"] == "soft")]
        repeats, folds = history["repeat"].nunique(), history["fold"].nunique()
        settings = f"{repeats} cross-validations of {folds} folds"
        tasks.append(Task(title, settings, BAGS, "recorded", str(repeats), f"{one['n'].sum():,} bags"))
    return tasks


def claims_table(tasks: Sequence[Task]) -> pd.DataFrame:
    """One row per claim: what it states, and on how many tasks it holds, fails and is undecided."""
    rows = {}
    for claim, statement in STATEMENTS.items():
        found = [task.verdicts.get(claim) for task in tasks]
        rows[f"**{claim}**"] = {"statement": statement} | {v: found.count(v) for v in ("holds", "fails", "undecided")}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("claim")


def verdict_table(tasks: Sequence[Task]) -> pd.DataFrame:
    """One row per task, one column per claim that was measured on any of them."""
    claims = [claim for claim in STATEMENTS if any(task.cell(claim) != "-" for task in tasks)]
    rows = [[task.cell(claim) for claim in claims] for task in tasks]
    return pd.DataFrame(rows, index=pd.Index(row_names(tasks), name="task"), columns=claims)


def tasks_table(tasks: Sequence[Task]) -> pd.DataFrame:
    """One row per task: what was run, and the notebook that shows it."""
    rows = [
        (t.settings, t.seeds, t.instances, t.kept, f"{{doc}}`{t.notebook[:2]} <notebooks/{t.notebook}>`") for t in tasks
    ]
    columns = ["settings", "seeds", "n", "kept", "notebook"]
    return pd.DataFrame(rows, index=pd.Index(row_names(tasks), name="task"), columns=columns)


def row_names(tasks: Sequence[Task]) -> list[str]:
    """The tasks' names, with the settings where two tasks share a name."""
    names = [task.name for task in tasks]
    return [f"{t.name} ({t.settings})" if names.count(t.name) > 1 else t.name for t in tasks]


def benchmarks_table(results: Sequence[Stored[CrossValidationConfig]]) -> pd.DataFrame:
    """The part of H1 that needs no foreground: accuracy of the hybrid less SA's and HA's on the same folds."""
    parts = []
    for title, history in fold_tables.by_data_set(results).items():
        found = fold_tables.paired_table(history, pairs=HYBRID_PAIRS).reset_index()
        parts.append(found.assign(data=title).set_index("data"))
    return pd.concat(parts)[["comparison", "difference", "95 % interval", "verdict"]]


def page(trained: Sequence[Task], explained: Sequence[Task], results: Sequence[Stored[CrossValidationConfig]]) -> str:
    """The tables in Markdown, with the sentences that say what is in them.

    `trained` are tasks on which whole models were trained, `explained` those of the paper's explanation.
    """
    tasks = [*trained, *explained]
    parts = (
        "## The claims\n",
        "The last columns count the tasks below.\n",
        tables.markdown(claims_table(tasks)),
        "## The verdicts\n",
        'One row per task, one column per claim; "-" where the claim cannot be measured on the task, or was not.\n'
        "First the tasks on which focus and classification models were trained:\n",
        tables.markdown(verdict_table(trained)),
        "Then the paper's explanation, in the equations of the linear model and in training at a fixed focus:\n",
        tables.markdown(verdict_table(explained)),
        "## What was run\n",
        "*Live* is what the notebook computes when the book is built, *recorded* what was computed once and is kept\n"
        "with the source. The column n counts what the verdict was measured on.\n",
        tables.markdown(tasks_table(tasks)),
    )
    text = "\n".join(parts)
    if results:
        text += (
            "\nIn the bags of the benchmarks nobody knows the deciding instance. What remains of H1 there is accuracy\n"
            "on the same folds:\n\n" + tables.markdown(benchmarks_table(results))
        )
    return text


def main(folder: Path, target: Path) -> None:
    """Write the page's tables."""
    results = store.recorded(CrossValidationConfig)
    trained, explained = run_tasks(folder) + fold_tasks(results), flow_tasks(folder) + sweep_tasks(folder)
    target.write_text(page(trained, explained, results), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))

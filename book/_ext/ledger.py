"""Write the ledger of claims: the page's tables, the same as JSON, and the picture of all verdicts.

Usage: ledger.py EXECUTED_NOTEBOOKS
       ledger.py FILE.json

The first form takes the parameters of each executed notebook, so that its runs are found, and what is recorded, and
writes claims.md, claims.json, verdicts.svg and the line under it into the same folder. The second writes what the
recorded results alone say, the file that the tests hold against them.
"""

from __future__ import annotations

import ast
import datetime
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd

from fcamlib import claims, notebook, paths, plots, store, tables
from fcamlib import config as configs
from fcamlib.claims import CLAIMS, Evidence
from fcamlib.groups import ORDER
from fcamlib.theory import tables as theory_tables
from fcamlib.verdicts import Criterion, State, criterion_text, states, verdict

Result = Any
PICTURES, TEXT, SERIES, BAGS = "02_accuracy_and_saif", "07_text", "08_time_series", "09_bags"
LINEAR, FLOW, FIXED, CAPTIONS = "04_fixed_focus_linear", "05_gradient_flow", "06_fixed_focus_images", "10_captions"
NOTEBOOK_OF: dict[Any, str] = {
    configs.Mosaics: PICTURES,
    configs.Text: TEXT,
    configs.Series: SERIES,
    configs.Bags: BAGS,
}
# Notebooks that compute runs -> their data source, and what they change, one entry for each set of runs.
RUNS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    PICTURES: ("digits", [{}]),
    TEXT: ("keywords", [{"encoder": "embedding"}, {"encoder": "transformer", "evaluate_every": 4}]),
    SERIES: ("motifs", [{}]),
    BAGS: ("clouds", [{}]),
}
# Recorded study -> notebook, what tells its combinations apart, how these are called, the figure.
STUDY_PAGES: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    "scale": ("12_hybrid_at_scale", ("num_segments",), "numbers of segments", "fig-scale"),
    "capacities": ("13_architecture_ablation", ("focus", "classifier"), "pairs of networks", "fig-capacities"),
    "switches": ("13_architecture_ablation", ("soft_share",), "switch points", "fig-switches"),
}
# Where claims are seen: notebook -> first letter of the claim -> figure, of the page's own task and of others recorded.
OWN = {
    PICTURES: {"D": "fig-learning-curves", "S": "fig-heatmaps", "H": "fig-saif-over-tau"},
    TEXT: {"S": "fig-text-heatmaps-{encoder}"},
    SERIES: {"D": "fig-series-curves", "S": "fig-series-heatmaps", "H": "fig-series-curves"},
    BAGS: {"D": "fig-bags-curves", "S": "fig-bags-heatmaps", "H": "fig-bags-curves"},
    LINEAR: {"I": "fig-incentive-linear"},
    FLOW: {"D": "fig-gradient-flow"},
    FIXED: {"I": "fig-incentive-pictures"},
}
RECORDED = {
    PICTURES: {letter: f"{name}-recorded" for letter, name in OWN[PICTURES].items()},
    TEXT: {"S": "fig-text-heatmaps-recorded", "D": "fig-text-learning-curves-recorded-{encoder}",
           "H": "fig-text-saif-over-tau-recorded-{encoder}"},
    FIXED: {"I": "fig-incentive-recorded"},
    CAPTIONS: {"H": "fig-captions-learning-curves"},
}  # fmt: skip
ON_RUNS = [name for name, claim in CLAIMS.items() if Evidence in claim.measured]
# What the paper was tested on: title, notebook, command and claims.
PAPER_TASKS: tuple[tuple[str, str, str, Sequence[str]], ...] = (
    *((f"CIFAR-10, m = {m}", PICTURES, "fcam grid profiles/cifar10_gpu.yaml", ON_RUNS) for m in (5, 10, 20)),
    ("CIFAR-100, m = 20", PICTURES,
     "fcam grid --dataset cifar100 --num-segments 20 --num-train 50000 --epochs 150 --seeds 0,1,2,3,4", ON_RUNS),
    ("MSCOCO 2014", CAPTIONS, "fcam caption --dataset coco --paradigm soft,hard,hybrid --seed 0,1,2", ["H1"]),
    *((f"{title}, fixed focus", FIXED, f"fcam sweep --dataset {source} --epochs 100", ["I1", "I2", "I3"])
      for title, source in (("CIFAR-10", "cifar10"), ("CIFAR-100", "cifar100"))),
)  # fmt: skip
MARKS = {"supported": "✔ supported", "contradicted": "✘ **contradicted**", "inconclusive": "○ inconclusive"}
MARKS |= {"not tested": "· not tested"}


@dataclass(frozen=True)
class Task:
    """A task with the claims that could be measured on it, or that wait for it.

    `kept` is live, recorded, exact or not run; `criteria` maps a claim to what its verdict follows from, `figures` the
    first letter of a claim to the figure that shows it; `summary` says in words what is too long to list.
    """

    title: str
    notebook: str
    kept: str
    command: str
    criteria: dict[str, list[Criterion]]
    seeds: str = "0"
    instances: str = "-"
    results: tuple[Result, ...] = ()
    figures: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    def verdict(self, claim: str) -> str:
        """The verdict on a claim; empty where the claim has nothing to do with the task."""
        return str(verdict(self.criteria[claim])) if claim in self.criteria else ""


# --- the tasks --------------------------------------------------------------------------------------------------------


def parameters_of(path: Path) -> dict[str, Any]:
    """The parameters of an executed notebook: its own, and those that papermill put in their place."""
    values: dict[str, Any] = {}
    for tag in ("parameters", "injected-parameters"):
        for cell in nbformat.read(path, as_version=4).cells:
            for statement in ast.parse(cell.source).body if tag in cell.metadata.get("tags", []) else ():
                assert isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
                name = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
                values[ast.unparse(name)] = ast.literal_eval(statement.value)
    return values


def all_tasks(folder: Path) -> list[Task]:
    """Every task of the book: the recorded ones, and those of executed notebooks in `folder` that are not recorded."""
    live: list[Result] = []
    for name, (_, variants) in RUNS.items():
        grid = notebook.parameters(parameters_of(folder / f"{name}.ipynb"))
        live += store.get_all(
            [config for new in variants for config in grid.model_copy(update=new).configs()], recorded=False
        )
    recorded = recorded_tasks()
    known = {task.title for task in recorded}
    grids = [
        notebook.parameters(parameters_of(folder / f"{name}.ipynb"), configs.SweepGrid) for name in (LINEAR, FIXED)
    ]
    settings = notebook.parameters(parameters_of(folder / f"{FLOW}.ipynb"), configs.FlowParameters).settings()
    judged = [task for task in run_tasks(live) if task.title not in known] + recorded
    judged += sweep_tasks([store.get(grid.config()) for grid in grids]) + flow_tasks(settings)
    return sorted(judged, key=lambda task: task.kept != "live") + missing_tasks(judged)


def recorded_tasks() -> list[Task]:
    """The tasks whose results are kept with the source."""
    runs = [run for run in store.every(configs.Run, recorded=True) if run.config.paradigm in ORDER]
    captions = store.every(configs.CaptionRun, recorded=True)
    return [
        *run_tasks(runs),
        *run_tasks(captions),
        *study_tasks(),
        *sweep_tasks(store.every(configs.Sweep, recorded=True)),
    ]


def of_results(title: str, results: Sequence[Result], book: str, instances: str, **given: Any) -> Task:
    """A task on which results were computed, with the command that computes them again, of many those of one seed."""
    is_recorded = all(result.is_recorded for result in results)
    config = results[0].config
    again = [r for r in results if len(results) <= 24 or r.config.seed == config.seed]
    rerun = (" " if len(again) == 1 else " \\\n    ").join(["fcam rerun", *(r.folder.name for r in again)])
    own = {
        "kept": "recorded" if is_recorded else "live",
        "seeds": str(len(getattr(config, "seeds", ()))),
        "command": rerun if is_recorded else f"papermill notebooks/{book}.ipynb out.ipynb",
        "figures": (RECORDED if is_recorded else OWN).get(book, {}),
    }
    return Task(title, book, instances=instances, results=tuple(results), **(own | given))


def run_tasks(runs: Sequence[Result]) -> list[Task]:
    """The tasks on which models were trained, in the order of the domains."""
    made = []
    most = tables.recorded(runs)[0] if runs and isinstance(runs[0].config.data, configs.Mosaics) else ""
    for title, group in tables.tasks(runs).items():
        if group[0].is_recorded and len(tables.paradigms(group)) == 1:  # nothing to compare it with
            continue
        config, test = group[0].config, group[0].summary["splits"]["test"]
        is_caption = isinstance(config, configs.CaptionRun)
        book = CAPTIONS if is_caption else NOTEBOOK_OF[type(config.data)]
        seeds = shared_seeds(group)
        criteria = {claim: found for claim, found in (tables.criteria(group) if seeds else {}).items() if found}
        instances = f"{test['n_objects']:,} objects" if is_caption else f"{test['n']:,} test"
        figures = (RECORDED if group[0].is_recorded else OWN).get(book, {})
        if group[0].is_recorded and config.name in own_names():
            figures = OWN[book]
        elif group[0].is_recorded and book == PICTURES and title != most:
            figures = {}
        figures = {
            letter: name.format(encoder=getattr(config.model, "encoder", "")) for letter, name in figures.items()
        }
        made.append(of_results(title, group, book, instances, seeds=str(seeds), criteria=criteria, figures=figures))
    return sorted(made, key=lambda task: task.notebook)


def own_names() -> set[str]:
    """Names of the runs that the notebooks compute with their default parameters."""
    wanted = [{"dataset": source, **changes} for source, variants in RUNS.values() for changes in variants]
    return {config.name for given in wanted for config in configs.Grid.of(given).configs()}


def shared_seeds(runs: Iterable[Result]) -> int:
    """The number of seeds that every paradigm has."""
    by_paradigm = groupby(sorted(runs, key=lambda r: r.config.paradigm), key=lambda r: r.config.paradigm)
    return len(set.intersection(*({run.config.seed for run in group} for _, group in by_paradigm)))


def study_tasks() -> list[Task]:
    """The recorded studies of the hybrid: H1 on all combinations together, and on how many it is supported."""
    made = []
    for name, (book, by, called, figure) in STUDY_PAGES.items():
        found = store.find(configs.StudyGrid.of(configs.STUDIES[name]).config())
        if found is None or not found.is_recorded:
            continue
        gains = claims.hybrid_gains(found.history, by)
        counts = pd.Series([verdict(criteria) for criteria in gains.values()]).value_counts()
        words = ", ".join(f"{state} for {number}" for state, number in counts.items())
        made.append(
            of_results(
                f"{tables.title(found)}, study of {called}", [found], book,
                f"{int(found.history['num_test'].iloc[0]):,} test", figures={"H": figure},
                criteria={"H1": [c for criteria in gains.values() for c in criteria]},
                summary=f"of {len(gains)} {called}: {words}",
            )
        )  # fmt: skip
    return made


def sweep_tasks(sweeps: Iterable[Result]) -> list[Task]:
    """The fixed-focus sweeps, judged by the incentives at their end."""
    return [
        of_results(
            f"{tables.title(found)}, fixed focus", [found],
            LINEAR if isinstance(found.config.data, configs.Orthogonal) else FIXED,
            f"{found.config.data.num_train:,} training",
            criteria=claims.measure(CLAIMS, theory_tables.incentives(found.history)),
        )
        for found in sweeps
    ]  # fmt: skip


def flow_tasks(settings: Sequence[tuple[int, int, float]]) -> list[Task]:
    """The gradient flow of each setting, which is exact."""
    command = f"papermill notebooks/{FLOW}.ipynb out.ipynb"
    paths_of = theory_tables.flow_paths(theory_tables.flow_frame(settings))
    return [
        Task(f"gradient flow, {setting}", FLOW, "exact", command, claims.measure(CLAIMS, found), "exact",
             figures=OWN[FLOW])
        for setting, found in paths_of.items()
    ]  # fmt: skip


def missing_tasks(judged: Sequence[Task]) -> list[Task]:
    """The paper's own tasks that nothing was run on, with the command that would."""
    return [
        Task(title, book, "not run", command, {claim: [] for claim in names})
        for title, book, command, names in PAPER_TASKS
        if not any(task.title.startswith(title) for task in judged)
    ]


# --- the page ---------------------------------------------------------------------------------------------------------


def anchor(task: Task) -> str:
    """The label of a task's section: letters, digits and hyphens."""
    return "task-" + re.sub(r"[^a-z0-9]+", "-", task.title.lower()).strip("-")


def criterion_line(c: Criterion, state: State) -> str:
    """Mark, name, value, bound, and the seeds that would decide it."""
    value, bound, _, seeds = criterion_text(c, state)
    needs = (f", needs {bound}" if bound else "") + (f" ({seeds} seeds)" if seeds else "")
    return f"{MARKS[state][0] if c.is_judged else 'beside,'} {c.name}: {value}{needs}"


def row(task: Task, claim: str) -> dict[str, str]:
    """A claim on one task: verdict, a line for each criterion, seeds, and the figure or notebook that shows it."""
    criteria, figure = task.criteria[claim], task.figures.get(claim[0])
    lines = "<br>".join(criterion_line(c, state) for c, state in zip(criteria, states(criteria), strict=True))
    shown = f"{{numref}}`{figure}`" if figure else f"{{doc}}`notebooks/{task.notebook}`"
    found = {"data": f"[{task.title}](#{anchor(task)})", "verdict": MARKS[task.verdict(claim)]}
    return found | {"measured": task.summary or lines or "-", "seeds": task.seeds, "seen in": shown}


def claim_section(claim: str, tasks: Sequence[Task]) -> str:
    """A claim's heading, the number of tasks in each state, and a row a task."""
    shown = [task for task in tasks if claim in task.criteria]
    found = [task.verdict(claim) for task in shown]
    counts = ", ".join(f"{state} on {found.count(state)}" for state in MARKS if state in found)
    table = tables.markdown(pd.DataFrame([row(task, claim) for task in shown]).set_index("data")) if shown else ""
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
    is_all = all(result.folder.name in task.command for result in task.results)
    more = "" if is_all else " The command runs one seed again; claims.json names the others."
    where = f"from commit {', '.join(commits)} on {' and '.join(devices)}"
    return f"Recorded {when} {where}: {spent} of training in all.{more}"


def page(tasks: Sequence[Task], results: Sequence[Any]) -> str:
    """The generated part of the page in Markdown."""
    judged = [found for task in tasks for found in task.criteria.values() if found]
    intervals = sum(c.interval is not None and not c.is_exact for found in judged for c in found)
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
            "criteria": [criterion_row(c, s) for c, s in zip(found, states(found), strict=True)],
            "results": [result.folder.name for result in task.results],
            "notebook": task.notebook,
            "figure": task.figures.get(claim[0]),
            "command": task.command,
        }
        for claim in CLAIMS
        for task in tasks
        if (found := task.criteria.get(claim)) is not None
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


def write_rows(path: Path, tasks: Sequence[Task]) -> None:
    """The ledger as a JSON file."""
    path.write_text(json.dumps(rows(tasks), indent=1, allow_nan=False) + "\n", "utf-8")


def main(folder: Path) -> None:
    """Write the page's tables, their numbers and the picture."""
    tasks = all_tasks(folder)
    (folder / "claims.md").write_text(page(tasks, store.every(configs.CrossValidation, recorded=True)), "utf-8")
    write_rows(folder / "claims.json", tasks)
    judged = [task for task in tasks if task.kept != "not run"]
    verdicts = [[task.verdict(claim) for claim in CLAIMS] for task in judged]
    figure = plots.verdict_matrix(pd.DataFrame(verdicts, [task.title for task in judged], list(CLAIMS)))
    results = sorted({result.folder.name for task in tasks for result in task.results})
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    here = {"data": f"verdicts on {len(results)} results", "recorded": False}
    here |= {"commits": [paths.commit()], "dates": [today]}
    record = {"notebook": "book/_ext/ledger.py", "computed": [here], "results": results, "rerun": "make book"}
    plots.save(figure, "verdicts", folder, record)
    (folder / "verdicts-note.md").write_text(plots.how_made(record, "verdicts", dated=True) + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1])
    if target.suffix == ".json":
        write_rows(target, recorded_tasks())
    else:
        main(target)

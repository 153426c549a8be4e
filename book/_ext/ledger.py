"""Write the claims page: a mark for each claim on each task, the numbers behind each mark, and the same as JSON.

Usage: ledger.py EXECUTED_NOTEBOOKS
       ledger.py FILE.json

The first form finds the runs of the executed notebooks by their parameters and writes claims.md and claims.json beside
them. The second writes what the recorded results alone say, which the tests compare.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment

from fcamlib import claims, notebook, store, tables
from fcamlib import config as configs
from fcamlib.claims import CLAIMS
from fcamlib.groups import ORDER, Result
from fcamlib.plots.look import parameters_of
from fcamlib.theory import tables as theory_tables
from fcamlib.verdicts import Criterion, State, criterion_text, states, verdict

TEMPLATE = Path(__file__).with_name("claims.jinja")
TABLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("tasks.yaml").read_text("utf-8"))
LINEAR, FLOW, FIXED = "04_fixed_focus_linear", "05_gradient_flow", "06_fixed_focus_images"
PICTURES, CAPTIONS, SCALE = "02_accuracy_and_saif", "10_captions", "12_hybrid_at_scale"
# Kind of data -> the notebook that trains on it, and what it changes, one entry for each set of runs.
NOTEBOOKS: dict[Any, tuple[str, list[dict[str, Any]]]] = {
    configs.Mosaics: (PICTURES, [{}]),
    configs.Text: ("07_text", [{"encoder": "embedding"}, {"encoder": "transformer", "evaluate_every": 4}]),
    configs.Series: ("08_time_series", [{}]),
    configs.Bags: ("09_bags", [{}]),
}
NEEDLESS = r" \((reduced|Eff)[^)]+\), all \w+|, \S+ mosaics|, \w+, \d+ epochs(?=, \d+ epochs at )| epochs(?= at )"
MARKS: dict[str, str] = {"supported": "✔", "contradicted": "✘", "inconclusive": "○", "not tested": "·"}


@dataclass(frozen=True)
class Task:
    """A task with what the verdict on each claim follows from; `summary` says in words what is too long to list."""

    title: str
    notebook: str
    kept: str  # live, recorded, exact or not run
    command: str
    criteria: dict[str, list[Criterion]]
    seeds: str = "0"
    instances: str = "-"
    results: tuple[Result, ...] = ()
    summary: str = ""

    def verdict(self, claim: str) -> str:
        """The verdict on a claim; empty where the claim does not apply to the task."""
        return str(verdict(self.criteria[claim])) if claim in self.criteria else ""


def all_tasks(folder: Path) -> list[Task]:
    """Every task of the book: recorded ones, those of the executed notebooks in `folder`, and the paper's own."""

    def given(name: str, kind: Any = configs.Grid) -> Any:
        return notebook.parameters(parameters_of(folder / f"{name}.ipynb"), kind)

    grids = [given(name).model_copy(update=new) for name, variants in NOTEBOOKS.values() for new in variants]
    live = store.get_all([config for grid in grids for config in grid.configs()], recorded=False)
    recorded = recorded_tasks()
    known = {task.title for task in recorded}
    sweeps = [store.get(given(name, configs.SweepGrid).config()) for name in (LINEAR, FIXED)]
    judged = [task for task in run_tasks(live) if task.title not in known] + recorded
    judged += [*sweep_tasks(sweeps), *flow_tasks(given(FLOW, configs.FlowParameters).settings())]
    missing = [
        Task(title, book, "not run", command, {claim: [] for claim in names})
        for title, book, command, names in TABLES["paper"]
        if not any({*title.split(", ")} <= {*task.title.split(", ")} and {*names} & {*task.criteria} for task in judged)
    ]
    judged = [task for task in judged if task.criteria]  # a control may have only some paradigms
    return sorted(judged, key=lambda task: task.kept != "live") + missing


def recorded_tasks() -> list[Task]:
    """The tasks whose results are kept with the source."""
    runs = [run for run in store.every(configs.Run, recorded=True) if run.config.paradigm in ORDER]
    captions, sweeps = (store.every(kind, recorded=True) for kind in (configs.CaptionRun, configs.Sweep))
    return [*run_tasks(runs), *run_tasks(captions), *study_tasks(), *sweep_tasks(sweeps)]


def of_results(title: str, results: Sequence[Result], book: str, instances: str, **given: Any) -> Task:
    """A task on which results were computed, with the command that computes them again, of many those of one seed."""
    is_recorded, config = all(result.is_recorded for result in results), results[0].config
    again = [r for r in results if len(results) <= 24 or r.config.seed == config.seed]
    rerun = (" " if len(again) == 1 else " \\\n    ").join(["fcam rerun", *(r.folder.name for r in again)])
    command = rerun if is_recorded else f"papermill notebooks/{book}.ipynb out.ipynb"
    given = {"seeds": str(len(getattr(config, "seeds", ()))), "instances": instances, "results": tuple(results)} | given
    return Task(title, book, "recorded" if is_recorded else "live", command, **given)


def run_tasks(runs: Sequence[Result]) -> list[Task]:
    """The tasks on which models were trained, in the order of the notebooks."""
    made, groups = [], tables.tasks(runs)
    judged = tables.judged(groups)
    for title, group in groups.items():
        names, config, test = tables.paradigms(group), group[0].config, group[0].summary["splits"]["test"]
        is_caption, is_large = isinstance(config, configs.CaptionRun), getattr(config.data, "num_segments", 0) > 5
        book = CAPTIONS if is_caption else NOTEBOOKS[type(config.data)][0]
        book = SCALE if book == PICTURES and is_large and group[0].is_recorded else book
        shared = sum(count == len(names) for count in Counter(run.config.seed for run in group).values())
        if group[0].is_recorded and (len(names) == 1 or shared < 2):  # nothing to compare it with, or no verdict
            continue
        criteria = {claim: found for claim, found in judged[title].items() if found}
        instances = f"{test['n_objects']:,} objects" if is_caption else f"{test['n']:,} test"
        made.append(of_results(title, group, book, instances, seeds=str(shared), criteria=criteria))
    return sorted(made, key=lambda task: task.notebook)


def study_tasks() -> Iterator[Task]:
    """The recorded studies of the hybrid: H1 on all combinations together, and on how many it is supported."""
    for name, (book, by, called) in TABLES["studies"].items():
        found = store.get(configs.StudyGrid.of(configs.STUDIES[name]).config())
        gains = claims.hybrid_gains(found.history, by)
        counts = Counter(str(verdict(criteria)) for criteria in gains.values())
        summary = f"of {len(gains)} {called}: " + ", ".join(f"{state} for {n}" for state, n in counts.most_common())
        title, instances = f"{tables.title(found)}, study of {called}", f"{found.history['num_test'].iloc[0]:,} test"
        criteria = {"H1": [c for criteria in gains.values() for c in criteria]}
        yield of_results(title, [found], book, instances, criteria=criteria, summary=summary)


def sweep_tasks(sweeps: Iterable[Result]) -> Iterator[Task]:
    """The fixed-focus sweeps, judged by the incentives at their end."""
    for found in sweeps:
        book = LINEAR if isinstance(found.config.data, configs.Orthogonal) else FIXED
        criteria = claims.measure(CLAIMS, theory_tables.incentives(found.history))
        title, instances = f"{tables.title(found)}, fixed focus", f"{found.config.data.num_train:,} training"
        yield of_results(title, [found], book, instances, criteria=criteria)


def flow_tasks(settings: Sequence[tuple[int, int, float]]) -> Iterator[Task]:
    """The gradient flow of each setting, which is exact."""
    command = f"papermill notebooks/{FLOW}.ipynb out.ipynb"
    for setting, found in theory_tables.flow_paths(theory_tables.flow_frame(settings)).items():
        yield Task(f"gradient flow, {setting}", FLOW, "exact", command, claims.measure(CLAIMS, found), "exact")


def short_names(titles: Sequence[str]) -> dict[str, str]:
    """The leading parts of each title that tell it from the others, in fewer words."""
    split = {title: re.sub(NEEDLESS, "", title).split(", ") for title in titles}
    names = {}
    for parts in split.values():
        if parts[-1].startswith(("study of", "fixed focus")):
            parts.insert(1, parts.pop())
    for title, parts in split.items():
        alone = (n for n in range(1, len(parts)) if sum(other[:n] == parts[:n] for other in split.values()) == 1)
        names[title] = ", ".join(parts[: next(alone, len(parts))])
    return names


def page(tasks: Sequence[Task], folds: Sequence[Result]) -> str:
    """The generated part of the page: claims with their numbers, a mark for each on each task, tasks with commands."""
    found = [criteria for task in tasks for criteria in task.criteria.values() if criteria]
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(
        tasks=tasks, claims=CLAIMS, marks=MARKS, names=short_names([task.title for task in tasks]), folds=folds,
        fold_table=tables.paired_table(folds, pairs=tables.PAIRS[:2]).reset_index() if folds else None,
        num_verdicts=len(found),
        num_intervals=sum(c.interval is not None and not c.is_exact for criteria in found for c in criteria),
        tallies={claim: Counter(task.verdict(claim) for task in tasks) for claim in CLAIMS},
        states=states, criterion_text=criterion_text,
        slug=lambda name: re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"),
    )  # fmt: skip


def rows(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """One row per claim and task for programs, with every number that the verdict follows from."""
    return [
        {
            "claim": claim, "statement": CLAIMS[claim].statement, "task": task.title, "kept": task.kept,
            "verdict": task.verdict(claim),
            "criteria": [criterion_row(c, state) for c, state in zip(criteria, states(criteria), strict=True)],
            "results": [result.folder.name for result in task.results],
            "notebook": task.notebook, "command": task.command,
        }
        for claim in CLAIMS for task in tasks for criteria in [task.criteria.get(claim)] if criteria is not None
    ]  # fmt: skip


def criterion_row(c: Criterion, state: State) -> dict[str, Any]:
    """A criterion's numbers and state; below five seeds it has no interval."""
    limits = c.interval if c.is_open else None
    return {
        "name": c.name, "values": c.values.round(9).tolist(), "bound": c.bound,
        "mean": round(float(c.values.mean()), 9) if len(c.values) else None,
        "interval": None if limits is None else [round(limit, 9) for limit in limits],
        "state": state if c.is_judged else "shown only", "untested": c.untested,
        "seeds_needed": c.seeds_needed if state == "inconclusive" else None,
    }  # fmt: skip


def main(target: Path) -> None:
    """Write a JSON file of the recorded results, or the page's part and the JSON of all into a folder."""
    is_file = target.suffix == ".json"
    tasks = recorded_tasks() if is_file else all_tasks(target)
    text = json.dumps(rows(tasks), indent=1, allow_nan=False) + "\n"
    (target if is_file else target / "claims.json").write_text(text, "utf-8")
    if not is_file:
        (target / "claims.md").write_text(page(tasks, store.every(configs.CrossValidation, recorded=True)), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))

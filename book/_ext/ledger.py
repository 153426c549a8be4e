"""The ledger of claims: each claim of the paper on each task, with the numbers that it is judged by.

Takes the parameters of each executed notebook, so that its runs are found, and what is kept with the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from fcamlib import claims, notebook, store, tables
from fcamlib.claims import CLAIMS, Evidence
from fcamlib.config import (
    STUDIES,
    Bags,
    CaptionRun,
    FlowParameters,
    Mosaics,
    Orthogonal,
    Series,
    StudyGrid,
    Sweep,
    SweepGrid,
    Text,
)
from fcamlib.theory import tables as theory_tables
from fcamlib.verdicts import Criterion, State, verdict

Result = Any
# Notebooks that compute runs -> what they change in their parameters, one entry for each set of runs.
RUNS: dict[str, list[dict[str, Any]]] = {
    "02_accuracy_and_saif": [{}],
    "07_text": [{"encoder": "embedding"}, {"encoder": "transformer", "evaluate_every": 4}],
    "08_time_series": [{}],
    "09_bags": [{}],
}
SWEEPS, FLOW, CAPTIONS = ("04_fixed_focus_linear", "06_fixed_focus_images"), "05_gradient_flow", "10_captions"
NOTEBOOK_OF: dict[Any, str] = dict(zip((Mosaics, Text, Series, Bags), RUNS, strict=True))
# Recorded study -> notebook, what tells its combinations apart, how these are called, the figure.
FIGURES: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    "scale": ("12_hybrid_at_scale", ("num_segments",), "numbers of segments", "fig-scale"),
    "capacities": ("13_architecture_ablation", ("focus", "classifier"), "pairs of networks", "fig-capacities"),
    "switches": ("13_architecture_ablation", ("soft_share",), "switch points", "fig-switches"),
}
# Where claims are seen: notebook -> first letter of the claim -> figure, of live tasks and of recorded ones.
_TEXT = {"S": "fig-text-heatmaps-recorded", "D": "fig-text-learning-curves-recorded-{encoder}"}
LIVE = {
    "02_accuracy_and_saif": {"D": "fig-learning-curves", "S": "fig-heatmaps", "H": "fig-saif-over-tau"},
    "07_text": {"S": "fig-text-heatmaps-{encoder}"},
    "08_time_series": {"D": "fig-series-curves", "S": "fig-series-heatmaps", "H": "fig-series-curves"},
    "09_bags": {"D": "fig-bags-curves", "S": "fig-bags-heatmaps", "H": "fig-bags-curves"},
    "04_fixed_focus_linear": {"I": "fig-incentive-linear"},
    "05_gradient_flow": {"D": "fig-gradient-flow"},
    "06_fixed_focus_images": {"I": "fig-incentive-pictures"},
}
RECORDED = {
    "02_accuracy_and_saif": {c: f"{name}-recorded" for c, name in LIVE["02_accuracy_and_saif"].items()},
    "06_fixed_focus_images": {"I": "fig-incentive-recorded"},
    "07_text": {**_TEXT, "H": "fig-text-saif-over-tau-recorded-{encoder}"},
    "10_captions": {"H": "fig-captions-learning-curves"},
}


@dataclass(frozen=True)
class Task:
    """A task with the claims that could be measured on it, or that wait for it.

    `kept` is live, recorded, exact or not run; `criteria` maps a claim to what its verdict follows from, `figures` the
    first letter of a claim to the figure that shows it; `summary` says in words what is too long to list.
    """

    title: str
    notebook: str
    kept: str
    seeds: str
    instances: str
    command: str
    criteria: dict[str, list[Criterion]] = field(default_factory=dict)
    results: tuple[Result, ...] = ()
    figures: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    def verdict(self, claim: str) -> State | None:
        """The verdict on a claim; None where the claim has nothing to do with the task."""
        return verdict(self.criteria[claim]) if claim in self.criteria else None

    def figure(self, claim: str) -> str | None:
        """Name of the figure that shows a claim, None where none does."""
        return self.figures.get(claim[0])


def parameters_of(path: Path) -> dict[str, Any]:
    """What an executed notebook was run with: its own parameters, and those that papermill put in their place."""
    values: dict[str, Any] = {}
    for tag in ("parameters", "injected-parameters"):
        for cell in nbformat.read(path, as_version=4).cells:
            for statement in ast.parse(cell.source).body if tag in cell.metadata.get("tags", []) else ():
                match statement:
                    case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                        values[name] = ast.literal_eval(value)
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        values[name] = ast.literal_eval(value)
    return values


def of_results(title: str, results: Sequence[Result], book: str, instances: str, **given: Any) -> Task:
    """A task on which results were computed, with the command that computes them again."""
    is_recorded = all(result.is_recorded for result in results)
    config = results[0].config
    names = [result.folder.name for result in results]
    rerun = f"fcam rerun {names[0]}" if len(names) == 1 else " \\\n    ".join(["fcam rerun", *names])
    encoder = getattr(getattr(config, "model", None), "encoder", "")
    shown = (RECORDED if is_recorded else LIVE).get(book, {})
    own = {
        "kept": "recorded" if is_recorded else "live",
        "seeds": str(len(getattr(config, "seeds", ()))),
        "command": rerun if is_recorded else f"papermill notebooks/{book}.ipynb out.ipynb",
        "figures": {letter: name.format(encoder=encoder) for letter, name in shown.items()},
    }
    return Task(title, book, instances=instances, results=tuple(results), **(own | given))


def all_tasks(folder: Path) -> list[Task]:
    """Every task of the book: those whose executed notebooks lie in `folder`, and the recorded ones."""
    live: list[Result] = []
    for name, variants in RUNS.items():
        experiment = notebook.parameters(parameters_of(folder / f"{name}.ipynb"))
        for changes in variants:
            live += store.get_all(experiment.model_copy(update=changes).configs())
    swept = [
        store.get(notebook.parameters(parameters_of(folder / f"{name}.ipynb"), SweepGrid).config()) for name in SWEEPS
    ]
    settings = notebook.parameters(parameters_of(folder / f"{FLOW}.ipynb"), FlowParameters).settings()
    judged = [*run_tasks(live), *recorded_tasks(live), *sweep_tasks(swept), *flow_tasks(settings)]
    return [*judged, *missing_tasks(judged)]


def recorded_tasks(live: Sequence[Result] = ()) -> list[Task]:
    """The tasks whose results are kept with the source, but for those that are live too."""
    shown = set(tables.tasks(live))
    runs = [run for run in store.recorded_runs() if run.config.paradigm in tables.ORDER]
    kept = [task for task in run_tasks(runs) if task.title not in shown]
    captions = [
        of_results(title, group, CAPTIONS, f"{group[0].summary['splits']['test']['n_objects']:,} objects",
                   seeds=shared_seeds(group), criteria=tables.criteria(group))
        for title, group in tables.tasks(store.every(CaptionRun, recorded=True)).items()
    ]  # fmt: skip
    return [*kept, *captions, *study_tasks(), *sweep_tasks(store.every(Sweep, recorded=True))]


def shared_seeds(runs: Iterable[Result]) -> str:
    """The number of seeds that every paradigm has."""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.config.paradigm, set()).add(run.config.seed)
    return str(len(set.intersection(*seeds.values())))


def run_tasks(runs: Sequence[Result]) -> list[Task]:
    """The tasks on which models were trained, in the order of the domains."""
    made = []
    most = tables.recorded(runs)[0] if runs and isinstance(runs[0].config.data, Mosaics) else ""
    for title, group in tables.tasks(runs).items():
        measured = tables.criteria(group) if shared_seeds(group) != "0" else {}
        book = NOTEBOOK_OF[type(group[0].config.data)]
        other = (
            {"figures": {"H": "fig-key"}} if group[0].is_recorded and book == next(iter(RUNS)) and title != most else {}
        )
        criteria = {claim: found for claim, found in measured.items() if found}
        instances = f"{group[0].summary['splits']['test']['n']:,} test"
        made.append(of_results(title, group, book, instances, seeds=shared_seeds(group), criteria=criteria, **other))
    return sorted(made, key=lambda task: task.notebook)


def study_tasks() -> list[Task]:
    """The recorded studies of the hybrid: H1 on all combinations together, and on how many it is supported.

    As everywhere, the claim is supported with all of its criteria and contradicted with any, of every combination.
    """
    made = []
    for name, (book, by, called, figure) in FIGURES.items():
        found = store.find(StudyGrid.of(STUDIES[name]).config())
        if found is None or not found.is_recorded:
            continue
        gains = claims.hybrid_gains(found.history, by)
        counts = tables.gain_frame(found.history, by)["verdict"].value_counts()
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
            f"{tables.title(found)}, fixed focus", [found], SWEEPS[not isinstance(found.config.data, Orthogonal)],
            f"{found.config.data.num_train:,} training",
            criteria=claims.measure(CLAIMS, theory_tables.incentives(found.history)),
        )
        for found in sweeps
    ]  # fmt: skip


def flow_tasks(settings: Sequence[tuple[int, int, float]]) -> list[Task]:
    """The gradient flow of each setting, which is exact."""
    command = f"papermill notebooks/{FLOW}.ipynb out.ipynb"
    return [
        Task(f"gradient flow, {setting}", FLOW, "exact", "exact", "-", command, claims.measure(CLAIMS, found),
             figures=LIVE[FLOW])
        for setting, found in theory_tables.flow_paths(theory_tables.flow_frame(settings)).items()
    ]  # fmt: skip


ON_RUNS = [name for name, claim in CLAIMS.items() if Evidence in claim.measured]
# What the paper was tested on: title, notebook, command and claims.
PAPER_TASKS: tuple[tuple[str, str, str, Sequence[str]], ...] = (
    *((f"CIFAR-10, m = {m}", next(iter(RUNS)), "fcam grid profiles/cifar10_gpu.yaml", ON_RUNS) for m in (5, 10, 20)),
    ("CIFAR-100, m = 20", next(iter(RUNS)),
     "fcam grid --dataset cifar100 --num-segments 20 --num-train 50000 --epochs 150 --seeds 0,1,2,3,4", ON_RUNS),
    ("MSCOCO 2014", CAPTIONS, "fcam caption --dataset coco --paradigm soft,hard,hybrid --seed 0,1,2", ["H1"]),
    *((f"{title}, fixed focus", SWEEPS[1], f"fcam sweep --dataset {source} --epochs 100", ["I1", "I2", "I3"])
      for title, source in (("CIFAR-10", "cifar10"), ("CIFAR-100", "cifar100"))),
)  # fmt: skip


def missing_tasks(judged: Sequence[Task]) -> list[Task]:
    """The paper's own tasks that nothing was run on, with the command that would."""
    return [
        Task(title, book, "not run", "0", "-", command, {claim: [] for claim in claims})
        for title, book, command, claims in PAPER_TASKS
        if not any(task.title.startswith(title) for task in judged)
    ]

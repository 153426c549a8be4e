"""The ledger of claims: each claim of the paper on each task, with the numbers that it is judged by.

Takes the parameters of each executed notebook, so that its runs are found, and what is kept with the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import notebook_files

from fcamlib import claims, notebook, store, tables
from fcamlib.claims import CLAIMS, Criterion, Incentives, Verdict, verdict
from fcamlib.config import (
    RECORDED_STUDIES,
    SCHEDULES,
    BagsConfig,
    CaptionRunConfig,
    FixedFocusConfig,
    FixedFocusExperiment,
    MosaicsConfig,
    OrthogonalConfig,
    RunConfig,
    SeriesConfig,
    TextConfig,
    study_experiment,
)
from fcamlib.config.flow import FlowExperiment
from fcamlib.runs import run_all
from fcamlib.store import Stored
from fcamlib.theory import tables as theory_tables
from fcamlib.theory.sweep import Sweep, sweep

STATEMENTS = {name: claim.statement for name, claim in CLAIMS.items()}
ON_RUNS = ("D1", "D2", "D3", "S1", "S2", "S3", "H1")
# Notebooks that compute runs -> what they change in their parameters, one entry for each set of runs.
RUNS: dict[str, list[dict[str, Any]]] = {
    "02_accuracy_and_saif": [{}],
    "07_text": [{"encoder": "embedding"}, {"encoder": "transformer", "evaluate_every": 4}],
    "08_time_series": [{}],
    "09_bags": [{}],
}
SWEEPS = ("04_fixed_focus_linear", "06_fixed_focus_images")
FLOW, BAGS, CAPTIONS = "05_gradient_flow", "09_bags", "10_captions"
NOTEBOOK_OF: dict[type, str] = {
    MosaicsConfig: "02_accuracy_and_saif",
    TextConfig: "07_text",
    SeriesConfig: "08_time_series",
    BagsConfig: BAGS,
}
# Where a claim is seen: notebook -> first letter of the claim -> figure. Recorded runs on pictures have their own. Of
# the rest the notebook has tables alone.
FIGURES = {
    "02_accuracy_and_saif": {"D": "fig-learning-curves", "S": "fig-heatmaps", "H": "fig-saif-over-tau"},
    "08_time_series": {"D": "fig-series-curves", "S": "fig-series-heatmaps", "H": "fig-series-curves"},
    "09_bags": {"D": "fig-bags-curves", "S": "fig-bags-heatmaps", "H": "fig-bags-curves"},
    "10_captions": {"H": "fig-captions-learning-curves"},
    "04_fixed_focus_linear": {"I": "fig-incentive-linear"},
    "06_fixed_focus_images": {"I": "fig-incentive-pictures"},
    "05_gradient_flow": {"D": "fig-gradient-flow"},
    "12_hybrid_at_scale": {"H": "fig-scale"},
    "13_architecture_ablation": {"H": "fig-capacities"},
}
RECORDED_FIGURES = {
    "02_accuracy_and_saif": {
        "D": "fig-learning-curves-recorded", "S": "fig-heatmaps-recorded", "H": "fig-saif-over-tau-recorded",
    },
    "06_fixed_focus_images": {"I": "fig-incentive-recorded"},
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A task with the claims that could be measured on it, or that wait for it.

    Parameters
    ----------
    name, settings : str
        What the task is, and the sizes that tell it from others of the name.
    notebook : str
        The notebook that shows it.
    kept : str
        live, recorded, exact or not run.
    seeds, instances : str
        What the numbers are over, as the table shows it.
    command : str
        What runs it again.
    criteria : claim -> list of Criterion
        What the verdicts follow from; of a claim that is not measured, nothing.
    results : tuple of Stored
        Where the numbers come from.
    figures : claim -> name
        Where the claim is seen, in place of the notebook's usual figure; None where no figure shows it.
    summaries : claim -> str
        What was measured, in words, where the criteria are too many to list.
    """

    name: str
    settings: str
    notebook: str
    kept: str
    seeds: str
    instances: str
    command: str
    criteria: dict[str, list[Criterion]] = field(default_factory=dict)
    results: tuple[Stored[Any], ...] = ()
    figures: dict[str, str | None] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name and settings."""
        return f"{self.name}, {self.settings}" if self.settings else self.name

    def verdict(self, claim: str) -> Verdict | None:
        """The verdict on a claim; None where the claim has nothing to do with the task."""
        return verdict(self.criteria[claim]) if claim in self.criteria else None

    def figure(self, claim: str) -> str | None:
        """Name of the figure that shows a claim, None where none does."""
        usual = FIGURES.get(self.notebook, {})
        if self.kept == "recorded":
            usual = RECORDED_FIGURES.get(self.notebook, usual)
        return self.figures[claim] if claim in self.figures else usual.get(claim[0])


def parameters_of(path: Path) -> dict[str, Any]:
    """What an executed notebook was run with: its own parameters, and those that papermill put in their place."""
    executed = nbformat.read(path, as_version=4)
    return notebook_files.default_parameters(executed) | notebook_files.given_parameters(executed)


def papermill_command(name: str) -> str:
    """What executes a notebook again with its own parameters."""
    return f"papermill notebooks/{name}.ipynb out.ipynb"


def rerun_command(results: Iterable[Stored[Any]]) -> str:
    """What computes recorded results anew and compares."""
    names = [result.folder.name for result in results]
    return f"fcam rerun {names[0]}" if len(names) == 1 else " \\\n    ".join(["fcam rerun", *names])


def all_tasks(folder: Path) -> list[Task]:
    """Every task of the book: those whose executed notebooks lie in `folder`, and the recorded ones."""
    judged = [*run_tasks(folder), *caption_tasks(), *study_tasks(), *sweep_tasks(folder), *flow_tasks(folder)]
    return [*judged, *missing_tasks(judged)]


def recorded_tasks() -> list[Task]:
    """The tasks whose results are kept with the source."""
    runs = tables.tasks([run for run in store.recorded_runs() if run.config.paradigm in SCHEDULES])
    sweeps = [sweep_task(Sweep(stored)) for stored in store.recorded(FixedFocusConfig)]
    return [*(run_task(title, group) for title, group in runs.items()), *caption_tasks(), *study_tasks(), *sweeps]


def run_tasks(folder: Path) -> list[Task]:
    """The tasks on which models were trained: those of the notebooks, then the recorded ones."""
    live: list[Stored[Any]] = []
    for name, variants in RUNS.items():
        experiment = notebook.parameters(parameters_of(folder / f"{name}.ipynb"))
        for changes in variants:
            live += run_all(experiment.model_copy(update=changes).configs())
    grouped: dict[str, list[Stored[Any]]] = {}
    for run in live:  # in the notebooks' order, which `tables.tasks` does not keep
        grouped.setdefault(tables.title(run), []).append(run)
    grouped = {title: tables.tasks(group)[title] for title, group in grouped.items()}
    kept = [run for run in store.recorded_runs() if run.config.paradigm in SCHEDULES]
    grouped |= {title: group for title, group in tables.tasks(kept).items() if title not in grouped}
    return [run_task(title, group) for title, group in grouped.items()]


def run_task(title: str, runs: Sequence[Stored[Any]]) -> Task:
    """Criteria on the runs of one task, over the seeds that all paradigms have."""
    config, name = runs[0].config, str(runs[0].summary["title"])
    seeds = set.intersection(*({r.config.seed for r in runs if r.config.paradigm == p} for p in tables.paradigms(runs)))
    is_recorded, book = all(run.is_recorded for run in runs), NOTEBOOK_OF[type(config.data)]
    return Task(
        name=name,
        settings=title.removeprefix(str(runs[0].summary["title"])).removeprefix(", "),
        notebook=book,
        kept="recorded" if is_recorded else "live",
        seeds=str(len(seeds)),
        instances=f"{runs[0].summary['splits']['test']['n']:,} test",
        command=rerun_command(runs) if is_recorded else papermill_command(book),
        criteria={claim: found for claim, found in tables.criteria(runs).items() if found} if seeds else {},
        results=tuple(runs),
        figures=figures_of_runs(title, runs[0].config, is_recorded),
    )


def figures_of_runs(title: str, config: RunConfig, is_recorded: bool) -> dict[str, str | None]:
    """Where claims on runs are seen whose notebook shows some tasks in figures and others in tables alone."""
    shown: dict[str, str] = {}
    if isinstance(config.data, TextConfig):
        encoder = config.model.encoder
        if is_recorded:
            shown = {
                "S": "fig-text-heatmaps-recorded",
                "D": f"fig-text-learning-curves-recorded-{encoder}",
                "H": f"fig-text-saif-over-tau-recorded-{encoder}",
            }
        else:
            curves = {"D": "fig-text-learning-curves", "H": "fig-text-learning-curves"}
            shown = {"S": f"fig-text-heatmaps-{encoder}"} | (curves if encoder == "embedding" else {})
    elif is_recorded and title != most_runs():
        shown["H"] = "fig-key"  # on the landing page; the notebook's figures are of the task with most runs
    else:
        return {}
    return {claim: shown.get(claim[0]) for claim in ON_RUNS}


def most_runs() -> str:
    """Title of the recorded task on mosaics with most runs, which the notebooks' figures show."""
    groups = tables.tasks([run for run in store.recorded_runs() if isinstance(run.config.data, MosaicsConfig)])
    return max(groups, key=lambda title: len(groups[title]), default="")


def caption_tasks() -> list[Task]:
    """The recorded captions."""
    return [
        Task(
            name=str(runs[0].summary["title"]),
            settings=title.removeprefix(str(runs[0].summary["title"])).removeprefix(", "),
            notebook=CAPTIONS,
            kept="recorded",
            seeds=str(len({run.config.seed for run in runs})),
            instances=f"{runs[0].summary['splits']['test']['n_objects']:,} objects",
            command=rerun_command(runs),
            criteria=tables.criteria(runs),
            results=tuple(runs),
        )
        for title, runs in tables.tasks(store.recorded(CaptionRunConfig)).items()
    ]


# Recorded study -> notebook, what tells its combinations apart, and how one of them is called.
STUDIES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "scale": ("12_hybrid_at_scale", ("num_segments",), "numbers of segments"),
    "capacities": ("13_architecture_ablation", ("focus", "classifier"), "pairs of networks"),
    "switches": ("13_architecture_ablation", ("soft_share",), "switch points"),
}


def study_tasks() -> list[Task]:
    """The recorded studies in which SA, HA and hybrid were trained: H1 on all combinations together, and how many hold.

    As everywhere, the claim holds with all of its criteria and fails with any, here those of every combination.
    """
    made = []
    for name, (book, by, called) in STUDIES.items():
        found = store.find(study_experiment(RECORDED_STUDIES[name]).config())
        if found is None or not found.is_recorded:
            continue
        counts = claims.gain_frame(found.history, by)["verdict"].value_counts()
        criteria = claims.gain_criteria(found.history, by)
        words = ", ".join(f"{verdict} for {counts.get(verdict, 0)}" for verdict in ("holds", "undecided", "fails"))
        made.append(
            Task(
                name=f"{found.summary['title']}, study of {called}",
                settings=tables.title(found).removeprefix(f"{found.summary['title']}, "),
                notebook=book,
                kept="recorded",
                seeds=str(len(found.config.seeds)),
                instances=f"{int(found.history['num_test'].iloc[0]):,} test",
                command=f"fcam rerun {found.folder.name}",
                criteria={"H1": criteria},
                results=(found,),
                figures={"H1": "fig-switches"} if name == "switches" else {},
                summaries={"H1": f"of {counts.sum()} {called}: {words}"},
            )
        )
    return made


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
    """Criteria on the incentives at the end of a sweep."""
    title, data = str(found.stored.summary["title"]), found.config.data
    incentives = theory_tables.last_incentives(found.frame)
    book = SWEEPS[0] if isinstance(data, OrthogonalConfig) else SWEEPS[1]
    return Task(
        name=f"{title}, fixed focus",
        settings=tables.title(found.stored).removeprefix(title).removeprefix(", "),
        notebook=book,
        kept="recorded" if found.is_recorded else "live",
        seeds=str(len(found.config.seeds)),
        instances=f"{data.num_train:,} training",
        command=rerun_command([found.stored]) if found.is_recorded else papermill_command(book),
        criteria=claims.measure(CLAIMS, Incentives(incentives)),
        results=(found.stored,),
    )


def flow_tasks(folder: Path) -> list[Task]:
    """The gradient flow of each setting."""
    settings = notebook.parameters(parameters_of(folder / f"{FLOW}.ipynb"), FlowExperiment).settings()
    paths = theory_tables.flow_paths(theory_tables.flow_frame(settings))
    return [
        Task(
            name="gradient flow",
            settings=setting,
            notebook=FLOW,
            kept="exact",
            seeds="exact",
            instances="-",
            command=papermill_command(FLOW),
            criteria=claims.measure(CLAIMS, found),
        )
        for setting, found in paths.items()
    ]


# What the paper was tested on beyond the tasks above: its title, notebook, command and claims.
PAPER_TASKS = (
    *(
        (f"CIFAR-10, m = {m}", "02_accuracy_and_saif", "fcam grid profiles/cifar10_gpu.yaml", ON_RUNS)
        for m in (5, 10, 20)
    ),
    (
        "CIFAR-100, m = 20",
        "02_accuracy_and_saif",
        "fcam grid --dataset cifar100 --num-segments 20 --num-train 50000 --epochs 150 --seeds 0,1,2,3,4",
        ON_RUNS,
    ),
    ("MSCOCO 2014", CAPTIONS, "fcam caption --dataset coco --paradigm soft,hard,hybrid --seed 0,1,2", ("H1",)),
    *(
        (f"{title}, fixed focus", SWEEPS[1], f"fcam sweep --dataset {source} --epochs 100", ("I1", "I2", "I3"))
        for title, source in (("CIFAR-10", "cifar10"), ("CIFAR-100", "cifar100"))
    ),
)


def missing_tasks(judged: Sequence[Task]) -> list[Task]:
    """The paper's own tasks that nothing was run on, with the command that would."""
    return [
        Task(title, "", book, "not run", "0", "-", command, criteria={claim: [] for claim in claims})
        for title, book, command, claims in PAPER_TASKS
        if not any(task.title.startswith(title) for task in judged)
    ]

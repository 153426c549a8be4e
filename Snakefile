# Runs -> notebooks -> book. `make book` calls it on this machine; with a profile of Snakemake's own, this is
#   snakemake --profile profiles/local
#   snakemake --profile profiles/slurm --config profile=paper       on a cluster, one job for each run
# `--config profile=` names a file of parameters, one of notebooks/profiles or any path; the target `runs` trains alone.
# What the store holds already is not computed again, nor are recorded runs that no notebook computes.

import os
import sys
from pathlib import Path

import yaml

from fcamlib.config import Mosaics, configs_of, grid_of, grids, profile_file
from fcamlib.paths import recorded_dir, results_dir

PROFILE = str(config.get("profile", "quick"))
GRIDS = grids(profile_file(PROFILE))
# Notebooks have one set of parameters: the first grid of pictures, or the quick profile's where there is none.
PLAIN = (grid for grid in [*GRIDS, *grids(profile_file("quick"))] if "command" not in grid)
SHOWN = next(grid for grid in PLAIN if isinstance(grid_of(grid).task, Mosaics))
LIVE = {run.name: run for run in grid_of(SHOWN).configs()}
WANTED = {run.name: run for grid in GRIDS for run in configs_of(grid)}
RUNS = WANTED | LIVE
RESULTS, RECORDED = results_dir(), recorded_dir()
CONFIGS = Path(".snakemake/configs")
BUILT = "book/notebooks/"
NOTEBOOKS = sorted(path.stem for path in Path("notebooks").glob("[0-9][0-9]_*.ipynb"))
EXECUTED = [f"{BUILT}{name}.ipynb" for name in NOTEBOOKS]
ON_RUNS = ["01_problem_and_model", "02_accuracy_and_saif", "03_focus_prediction_heatmaps"]  # of the profile
OTHERS = [name for name in NOTEBOOKS if name not in ON_RUNS]
KERNELS = min(os.cpu_count() or 1, len(OTHERS))  # that share the notebooks, since each starts for seconds
TURN = 2 * KERNELS  # dealt there and back, so that the long ones, which lie together, are shared
DEALT = [OTHERS[number::TURN] + OTHERS[TURN - 1 - number :: TURN] for number in range(KERNELS)]
DEALT[-1] += ON_RUNS
PARAMETERS = f"{BUILT}profile.yaml"
INTERACTIVE = "course-data course-plane-data course-plane-note course-gallery-note train-data train-note".split()
SCRIPTS = {  # book/_ext/<script>.py -> what it reads and what it writes
    "interactive": (["book/train.csv"], [f"{name}.md" for name in INTERACTIVE]),
    "findings": (
        [PARAMETERS, *EXECUTED, "benchmarks/report.py", "book/_ext/tasks.yaml"],
        ["numbers.json", "findings.md", "benchmark.md", "runtimes.md", "runtimes-recorded.md"],
    ),
    "ledger": ([*EXECUTED, "book/_ext/claims.jinja", "book/_ext/tasks.yaml"], ["claims.md", "claims.json"]),
}
PARTS = [f"{BUILT}{name}" for _, names in SCRIPTS.values() for name in names]
PLACES = ("*.*", "api/*.md", "_parts/*.md", "_ext/*.*", "_static/*")
SOURCES = [str(path) for place in PLACES for path in Path("book").glob(place)]
KEPT = sorted(str(path) for kept in ("*/SHA256SUMS", "bench/*.json") for path in RECORDED.glob(kept))
LIBRARY = sorted(str(path) for path in Path("fcamlib").rglob("*.py"))


def checksums(name):
    """The file that says a run is complete: the recorded run's, but for what the notebooks compute here."""
    recorded = RECORDED / name / "SHA256SUMS"
    return str(recorded if name not in LIVE and recorded.exists() else RESULTS / name / "SHA256SUMS")


def config_file(name):
    """The run's config, written down for the command line that computes it; the name holds the config's hash."""
    path = CONFIGS / f"{name}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.uname().nodename}.{os.getpid()}")  # every job of a cluster reads this file
        beside.write_text(RUNS[name].model_dump_json())
        beside.replace(path)
    return path

# A job trains one run. On the embedded data, where a process starts about as long as a run takes, it trains ten.
TO_TRAIN = [name for name in RUNS if checksums(name).startswith(str(RESULTS / name))]
BATCH = int(config.get("runs_per_job", 10 if PROFILE == "quick" else 1))

localrules: all, runs, profile, book

rule all:
    input:
        "book/_build/html/index.html",
        [checksums(name) for name in RUNS],

# Every run of the profile, and neither notebooks nor book.
rule runs:
    input: [checksums(name) for name in WANTED]

# Changes only when the parameters do, so that another profile executes the notebooks again.
rule profile:
    message: "parameters of the notebooks"
    input: profile_file(PROFILE)
    output: PARAMETERS
    priority: 3
    params: text=yaml.safe_dump(SHOWN, sort_keys=False)
    shell: "printf %s {params.text:q} > {output:q}"

for number, start in enumerate(range(0, len(TO_TRAIN), BATCH)):
    rule:
        name: f"runs_{number}"
        message: f"runs {TO_TRAIN[start]} to {TO_TRAIN[start : start + BATCH][-1]}"
        output:
            # Updated, not made anew: where a job is tried again, Snakemake would remove those of its finished runs.
            [update(checksums(name)) for name in TO_TRAIN[start : start + BATCH]],
        params:
            configs=[f"--config {config_file(name)}" for name in TO_TRAIN[start : start + BATCH]],
            python=sys.executable,
            folders=[RESULTS / name for name in TO_TRAIN[start : start + BATCH]],
        priority: 2  # runs, then notebooks, then what fits beside them: no core waits
        threads: 1
        # Snakemake makes the folder of an output beforehand; to the store an empty one would be a damaged run.
        shell: "rmdir {params.folders:q} 2> /dev/null || true; {params.python:q} -m fcamlib run --live {params.configs}"

for number in range(KERNELS):
    rule:
        name: f"notebooks_{number}"
        message: f"notebooks {', '.join(sorted(name[:2] for name in DEALT[number]))}"
        input:
            notebooks=[f"notebooks/{name}.ipynb" for name in DEALT[number]],
            parameters=PARAMETERS,
            script="book/_ext/execute_notebook.py",
            runs=[checksums(name) for name in LIVE if DEALT[number][-1] in ON_RUNS],
            recorded=KEPT,
            library=LIBRARY,
        output:
            [f"{BUILT}{name}.{ending}" for name in DEALT[number] for ending in ("ipynb", "json")],
        params: python=sys.executable
        priority: 1
        threads: 1
        resources: mem_mb=8000, runtime=240, gpu=0
        shell: "{params.python:q} {input.script:q} {input.parameters:q} book/notebooks {input.notebooks:q}"

for script, (needed, written) in SCRIPTS.items():
    rule:
        name: script
        message: f"page parts of {script}"
        input:
            needed,
            script=f"book/_ext/{script}.py",
            recorded=KEPT,
            library=LIBRARY,
        output: [BUILT + name for name in written]
        params: python=sys.executable
        threads: 1
        resources: mem_mb=4000, runtime=60, gpu=0
        shell: "PYTHONPATH=. {params.python:q} {input.script:q} book/notebooks"

# Always from nothing: an incremental build hides warnings and keeps numbers of earlier runs.
rule book:
    message: "pages of the book"
    input: EXECUTED, PARTS, SOURCES, LIBRARY, "CHANGELOG.md"
    output: "book/_build/html/index.html"
    params: jupyter_book=Path(sys.executable).with_name("jupyter-book")
    shell: "rm -rf book/_build && {params.jupyter_book:q} build -W -n --keep-going book"

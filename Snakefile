# Runs -> notebooks -> book. `make book` calls it on this machine; with a profile of Snakemake's own, this is
#   snakemake --profile profiles/local
#   snakemake --profile profiles/slurm --config profile=paper       on a cluster, one job for each run
# `--config profile=` names a file of parameters, one of notebooks/profiles or any path; the target `runs` trains alone.
# What the store or the recorded runs already hold is not computed again.

import os
import sys
from pathlib import Path

import yaml

from fcamlib.config import Mosaics, Grid
from fcamlib.paths import recorded_dir, results_dir
from fcamlib.cli import grids, profile_file

PROFILE = str(config.get("profile", "quick"))
PARAMETERS = profile_file(PROFILE)
GRIDS = grids(PARAMETERS)
# Notebooks have one set of parameters: the first grid of pictures, or the quick profile's where there is none.
SHOWN = next((grid for grid in GRIDS if isinstance(Grid.of(grid).task, Mosaics)), None)
SHOWN = SHOWN if SHOWN is not None else grids(profile_file("quick"))[0]


def runs_of(grid):
    """The runs of a grid by name."""
    return {run.name: run for run in Grid.of(grid).configs()}


WANTED = {name: run for grid in GRIDS for name, run in runs_of(grid).items()}
RUNS = WANTED | runs_of(SHOWN)
RESULTS = results_dir()
CONFIGS = Path(".snakemake/configs")
NOTEBOOKS = sorted(path.stem for path in Path("notebooks").glob("[0-9][0-9]_*.ipynb"))
PAGES = sorted(str(path) for folder in ("book", "book/api") for path in Path(folder).glob("*.md")) + ["CHANGELOG.md"]
RECORDED = sorted(str(path) for kept in ("*/SHA256SUMS", "bench/*.json") for path in recorded_dir().glob(kept))
LIBRARY = sorted(str(path) for path in Path("fcamlib").rglob("*.py"))


def checksums(name):
    """The file that says a run is complete: the recorded run's where there is one, else the store's."""
    recorded = recorded_dir() / name / "SHA256SUMS"
    return recorded if recorded.exists() else RESULTS / name / "SHA256SUMS"


def config_file(name):
    """The run's config, written down for the command line that computes it; the name holds the config's hash."""
    path = CONFIGS / f"{name}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.uname().nodename}.{os.getpid()}")  # every job of a cluster reads this file
        beside.write_text(RUNS[name].model_dump_json())
        beside.replace(path)
    return path


# A job trains one run. On the embedded data, where a process starts about as long as a run takes, it trains four.
MISSING = [name for name in RUNS if not (recorded_dir() / name / "SHA256SUMS").exists()]
BATCH = int(config.get("runs_per_job", 4 if PROFILE == "quick" else 1))
BATCHES = [MISSING[start : start + BATCH] for start in range(0, len(MISSING), BATCH)]


wildcard_constraints:
    notebook="|".join(NOTEBOOKS),


localrules:
    all,
    runs,
    profile,
    book,


rule all:
    input:
        "book/_build/html/index.html",
        [str(checksums(name)) for name in RUNS],


# Every run of the profile, and neither notebooks nor book.
rule runs:
    input:
        [str(checksums(name)) for name in WANTED],


# Changes only when the parameters do, so that another profile executes the notebooks again.
rule profile:
    message:
        "parameters of the notebooks"
    input:
        PARAMETERS,
    output:
        "book/notebooks/profile.yaml",
    params:
        text=yaml.safe_dump(SHOWN, sort_keys=False),
    shell:
        "printf %s {params.text:q} > {output:q}"


for number, names in enumerate(BATCHES):

    rule:
        name:
            f"runs_{number}"
        message:
            f"runs {', '.join(names)}"
        output:
            # Updated, not made anew: where a job is tried again, Snakemake would remove those of its finished runs.
            [update(str(RESULTS / name / "SHA256SUMS")) for name in names],
        params:
            configs=[f"--config {config_file(name)}" for name in names],
            python=sys.executable,
            folders=[RESULTS / name for name in names],
        threads: 1
        # Snakemake makes the folder of an output beforehand; to the store an empty one would be a damaged run.
        shell:
            "rmdir {params.folders:q} 2> /dev/null || true; {params.python:q} -m fcamlib run {params.configs}"


rule findings:
    message:
        "findings and benchmarks"
    input:
        parameters="book/notebooks/profile.yaml",
        script="book/_ext/findings.py",
        form="benchmarks/report.py",
        notebook="notebooks/02_accuracy_and_saif.ipynb",
        runs=[str(checksums(name)) for name in runs_of(SHOWN)],
        recorded=RECORDED,
        library=LIBRARY,
    output:
        "book/notebooks/findings.md",
        "book/notebooks/benchmark.md",
    params:
        python=sys.executable,
        folder=subpath(output[0], parent=True),
    shell:
        "PYTHONPATH=. {params.python:q} {input.script:q} {input.parameters:q} {params.folder:q}"


rule notebook:
    message:
        "notebook {wildcards.notebook}"
    input:
        notebook="notebooks/{notebook}.ipynb",
        parameters="book/notebooks/profile.yaml",
        script="book/_ext/execute_notebook.py",
        runs=[str(checksums(name)) for name in runs_of(SHOWN)],
        recorded=RECORDED,
        library=LIBRARY,
    output:
        notebook="book/notebooks/{notebook}.ipynb",
        cost="book/notebooks/{notebook}.json",
    params:
        python=sys.executable,
    threads: 1
    # Two kernels that start at once may be told to use one port; then one of them dies.
    retries: 1
    shell:
        "{params.python:q} {input.script:q} {input.notebook:q} {output.notebook:q} {input.parameters:q}"


# After all notebooks, so that it finds their runs and computes none.
rule claims:
    message:
        "claims"
    input:
        notebooks=expand("book/notebooks/{notebook}.ipynb", notebook=NOTEBOOKS),
        scripts=["book/_ext/claims_page.py", "book/_ext/ledger.py"],
        recorded=RECORDED,
        library=LIBRARY,
    output:
        "book/notebooks/claims.md",
        "book/notebooks/claims.json",
        "book/notebooks/verdicts.svg",
        "book/notebooks/verdicts-note.md",
    params:
        python=sys.executable,
        folder=subpath(output[0], parent=True),
    shell:
        "{params.python:q} {input.scripts[0]:q} {params.folder:q} {params.folder:q}"


rule course:
    message:
        "watch it learn"
    input:
        script="book/_ext/course.py",
        library=LIBRARY,
    output:
        "book/notebooks/course-data.md",
        "book/notebooks/course-note.md",
    params:
        python=sys.executable,
        folder=subpath(output[0], parent=True),
    threads: 1
    shell:
        "{params.python:q} {input.script:q} {params.folder:q}"


rule runtimes:
    message:
        "run times"
    input:
        costs=expand("book/notebooks/{notebook}.json", notebook=NOTEBOOKS),
        script="book/_ext/runtimes.py",
        recorded=RECORDED,
        library=LIBRARY,
    output:
        "book/notebooks/runtimes.md",
    params:
        python=sys.executable,
        folder=subpath(output[0], parent=True),
    shell:
        "{params.python:q} {input.script:q} {params.folder:q} {output:q}"


# Always from nothing: an incremental build hides warnings and keeps numbers of earlier runs.
rule book:
    message:
        "pages of the book"
    input:
        expand("book/notebooks/{notebook}.ipynb", notebook=NOTEBOOKS),
        "book/notebooks/findings.md",
        "book/notebooks/benchmark.md",
        "book/notebooks/runtimes.md",
        rules.claims.output,
        rules.course.output,
        PAGES,
        "book/_config.yml",
        "book/_toc.yml",
        "book/_ext/offline_site.py",
        "book/_ext/api_reference.py",
        "book/_ext/finished_pages.py",
        LIBRARY,
        sorted(str(path) for path in Path("book/_static").iterdir()),
        "book/references.bib",
    output:
        "book/_build/html/index.html",
    params:
        jupyter_book=Path(sys.executable).with_name("jupyter-book"),
    shell:
        "rm -rf book/_build && {params.jupyter_book:q} build -W -n --keep-going book"

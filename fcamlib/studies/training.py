"""The trainings of a study, one after the other, each row kept as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from fcamlib import store
from fcamlib.computing import build_model, require_same_data, task
from fcamlib.config import Phase, RunConfig
from fcamlib.config.study import StudyConfig
from fcamlib.data.sdc import SDCTask
from fcamlib.errors import DivergenceError, one_line
from fcamlib.numerics import Numerics
from fcamlib.provenance import provenance
from fcamlib.row_log import Row, append_row, read_rows
from fcamlib.store import Stored
from fcamlib.studies.study import ROWS
from fcamlib.training import fit

MEASURES = ("test_accuracy", "test_focus_accuracy", "test_saif", "test_loss", "validation_accuracy")


def compute(config: StudyConfig, on_row: Callable[[Row, int], None]) -> Stored[StudyConfig]:
    """Train what an interrupted study lacks and store the table."""
    for data in config.tasks:
        require_same_data(data)
    numerics, folder = Numerics.of(config.training), store.writable(store.partial_dir(config))
    rows = {row["run"]: row for row in read_rows(folder / ROWS)}
    drawn: tuple[Any, SDCTask] | None = None
    order = list(config.runs())
    for run in order:
        if run.name in rows:
            continue
        if drawn is None or drawn[0] != (run.data, run.seed):
            drawn = (run.data, run.seed), task(run.data, run.seed).to(numerics.device)
        rows[run.name] = row = _row(run, drawn[1], folder / f"{run.name}.safetensors")
        append_row(folder / ROWS, row)
        on_row(row, len(rows))
    history = pd.DataFrame([rows[run.name] for run in order])
    versions = provenance(numerics) | {"train_seconds": round(float(history["seconds"].sum()), 1)}
    title = drawn[1].title if drawn else task(order[0].data, order[0].seed).title
    return store.write(config, history, {"title": title, "provenance": versions}, {})


def _row(run: RunConfig, data: SDCTask, checkpoint: Path) -> Row:
    began, model = time.perf_counter(), build_model(run, data)
    first, last, failure = _planned(run.phases[0]), _planned(run.phases[-1]), ""
    try:
        history = fit(model, data, run.phases, run.training, run.seed, checkpoint).history
        first, last = history[0], history[-1]
    except DivergenceError as error:
        failure = one_line(error)
    checkpoint.unlink(missing_ok=True)
    epochs = sum(phase.epochs for phase in run.phases)
    soft = sum(phase.epochs for phase in run.phases if phase.paradigm == "soft")
    return {
        "num_segments": data.splits["train"].num_segments,
        "focus": run.model.focus,
        "classifier": run.model.classifier,
        "paradigm": run.paradigm,
        "soft_share": None if run.paradigm == "lvml" else soft / epochs,
        "learning_rate": first["learning_rate"],
        "last_learning_rate": last["learning_rate"],
        "seed": run.seed,
        **{name.removeprefix("test_"): last.get(name) for name in MEASURES},
        "num_test": len(data.splits["test"]),
        "focus_parameters": _size(model.focus_model),
        "classifier_parameters": _size(model.classification_model),
        "seconds": round(time.perf_counter() - began, 2),
        "failure": failure,
        "run": run.name,
    }


def _planned(phase: Phase) -> Row:
    """What is known of a training that diverged: its learning rate, where there was but one."""
    return {"learning_rate": phase.learning_rates[0] if len(phase.learning_rates) == 1 else None}


def _size(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())

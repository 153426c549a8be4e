"""The training of a course: a run's, looked at after each epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fcamlib import metrics
from fcamlib.checkpoint import Row
from fcamlib.computing import build_model, require_same_data, shown_segments, task
from fcamlib.config import CourseConfig
from fcamlib.course import CELLS, EXAMPLES
from fcamlib.data.sdc import SDCData
from fcamlib.evaluation import Scores, evaluate, evaluating, outputs
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance
from fcamlib.store import npz_bytes
from fcamlib.training import fit


@dataclass(frozen=True)
class Look:
    """What a model does with the test data at one epoch: a row of the history, and attention on the examples."""

    row: Row
    alpha: np.ndarray  # (n, M)
    prob: np.ndarray  # (n, K)


@dataclass
class Watcher:
    """Looks at the model after each epoch of each candidate learning rate; which of them counts is known later."""

    test: SDCData
    few: SDCData
    numerics: Numerics
    looks: dict[tuple[int, float], Look] = field(default_factory=dict)

    def look(self, model: FCAM, row: Row) -> None:
        """Measure `model` as it predicts in the phase of `row`."""
        paradigm = row["paradigm"]
        scores = evaluate(model, self.test, [paradigm], self.numerics)[paradigm]
        with evaluating(model), self.numerics.autocasting():
            passes = [output.log_alpha.exp() for _, output in outputs(model, self.few, [paradigm], self.numerics)]
        alpha, prob = torch.cat(passes).cpu().numpy(), scores.prob[: len(self.few)]
        self.looks[row["epoch"], row["learning_rate"]] = Look(_row(row, scores), alpha, prob)

    def of(self, history: Sequence[Row]) -> list[Look]:
        """The looks at the epochs of a run's history, those before training in front."""
        before = self.looks[0, 0.0]
        return [before, *(self.looks[row["epoch"], row["learning_rate"]] for row in history)]


def _row(row: Row, scores: Scores) -> Row:
    cells = metrics.focus_prediction_histogram(scores.a_z, scores.s_y).ravel().tolist()
    return {
        **{name: row[name] for name in ("epoch", "phase", "paradigm", "learning_rate")},
        **scores.summary(),
        "a_z": float(scores.a_z.mean()),
        "s_y": float(scores.s_y.mean()),
        **dict(zip(CELLS, cells, strict=True)),
    }


def compute(
    config: CourseConfig, on_epoch: Callable[[Row], None], scratch: Path
) -> tuple[pd.DataFrame, dict[str, Any], dict[str, bytes]]:
    """Train the run's model, look at it before training and after each epoch, and store what was seen."""
    began, run = time.perf_counter(), config.run
    numerics = Numerics.of(run.training)
    require_same_data(run.data)
    data = task(run.data, run.seed).to(numerics.device)
    model, test = build_model(run, data), data.splits["test"]
    few = test.take(torch.arange(max(1, config.num_examples), device=test.label.device))
    watcher = Watcher(test, few, numerics)
    with reproducible(run.training.threads, numerics.tf32):
        start = {"epoch": 0, "phase": 0, "paradigm": run.phases[0].paradigm, "learning_rate": 0.0}
        watcher.look(model, start)
    result = fit(model, data, run.phases, run.training, run.seed, on_epoch=on_epoch, on_model=watcher.look)
    looks = watcher.of(result.history)
    seconds = round(time.perf_counter() - began, 1)
    summary = {
        "title": data.title,
        "class_names": list(data.class_names),
        "run": run.name,
        "n": len(test),
        "provenance": provenance(numerics) | {"train_seconds": seconds},
    }
    files = {EXAMPLES: npz_bytes(_examples(few, looks))} if config.num_examples else {}
    return pd.DataFrame([look.row for look in looks]), summary, files


def _examples(few: SDCData, looks: Sequence[Look]) -> dict[str, np.ndarray]:
    return {
        "segments": shown_segments(few),
        "label": few.label.cpu().numpy(),
        "foreground": few.foreground.cpu().numpy(),
        "alpha": np.stack([look.alpha for look in looks]),
        "prob": np.stack([look.prob for look in looks]),
    }

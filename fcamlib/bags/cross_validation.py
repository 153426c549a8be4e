"""Repeated cross-validation on a user's bags: the four paradigms and, where torchmil is installed, ABMIL.

A finished fold is kept as it goes, so that an interrupted cross-validation goes on where it stopped. The result is one
folder of the store, whose history has a row for each repeat, fold and method.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pandas as pd

from fcamlib import store
from fcamlib.bags.metrics import bag_measures
from fcamlib.bags.mil_reference import abmil
from fcamlib.computing import build_model, require_same_data
from fcamlib.config import (
    REFERENCES,
    BagsConfig,
    CrossValidationConfig,
    ModelConfig,
    Phase,
    RunConfig,
    TrainingConfig,
    short_source,
)
from fcamlib.data.bags import bags_task
from fcamlib.data.sdc import SDCTask
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance
from fcamlib.row_log import Row, append_row, read_rows
from fcamlib.store import Stored
from fcamlib.training import fit

MODEL = ModelConfig(encoder="mlp", focus="mlp", classifier="linear")
MEASURES = ("accuracy", "auc", "calibration_error", "loss", "attention_entropy")


def cross_validate(
    config: CrossValidationConfig, on_row: Callable[[Row, int], None] | None = None
) -> Stored[CrossValidationConfig]:
    """The cross-validation of `config`: from the store, or computed and stored.

    Parameters
    ----------
    config : CrossValidationConfig
    on_row : callable, optional
        Called with each row as it is done, and the number of all rows.
    """
    return store.find_or_compute(config, lambda: _compute(config, on_row or (lambda row, total: None)))


def _compute(config: CrossValidationConfig, on_row: Callable[[Row, int], None]) -> Stored[CrossValidationConfig]:
    require_same_data(_data(config, 0, 0))
    kept = store.writable(store.partial_dir(config)) / "rows.jsonl"
    rows = read_rows(kept)
    done = {(row["repeat"], row["fold"], row["method"]) for row in rows}
    total = config.repeats * config.folds * len(config.methods)
    for repeat in range(config.repeats):
        for fold in range(config.folds):
            missing = [method for method in config.methods if (repeat, fold, method) not in done]
            task = bags_task(_data(config, repeat, fold), seed=0) if missing else None
            for method in missing:
                assert task is not None
                rows.append(_fold(config, task, repeat, fold, method))
                append_row(kept, rows[-1])
                on_row(rows[-1], total)
    history = pd.DataFrame(rows).sort_values(["repeat", "fold", "method"], ignore_index=True)
    versions = provenance(Numerics.of(_training(config)))
    if set(REFERENCES) & set(config.methods):
        from importlib.metadata import version

        versions["packages"] |= {"torchmil": version("torchmil")}
    summary = {"title": short_source(config.source), "provenance": versions | {"train_seconds": _seconds(history)}}
    return store.write(config, history, summary, {})


def _seconds(history: pd.DataFrame) -> float:
    return round(float(history["seconds"].sum()), 1)


def _data(config: CrossValidationConfig, repeat: int, fold: int) -> BagsConfig:
    return BagsConfig(
        source=config.source,
        fingerprint=config.fingerprint,
        repeat=repeat,
        fold=fold,
        validation_share=config.validation_share,
    )


def _training(config: CrossValidationConfig) -> TrainingConfig:
    return TrainingConfig(
        batch_size=config.batch_size, memory_layout="contiguous", threads=config.threads, device="cpu", keep="best"
    )


def _phases(config: CrossValidationConfig, method: str) -> tuple[Phase, ...]:
    """The schedule of a method: ABMIL trains with the loss of soft attention."""
    common: dict[str, Any] = {"learning_rates": config.learning_rates, "optimizer": "adam"}
    if method == "hybrid":
        half = config.epochs // 2
        return (
            Phase(paradigm="soft", epochs=half, **common),
            Phase(paradigm="hard", epochs=config.epochs - half, **common),
        )
    paradigm = "soft" if method in REFERENCES else method
    return (Phase.model_validate({"paradigm": paradigm, "epochs": config.epochs, **common}),)


def _fold(config: CrossValidationConfig, task: SDCTask, repeat: int, fold: int, method: str) -> Row:
    """Train one method on one fold and measure it on the test fold; all methods share seed and order of bags."""
    began, seed, training = time.perf_counter(), repeat * config.folds + fold, _training(config)
    phases = _phases(config, method)
    model = _model(method, task, phases, training, seed)
    result = fit(model, task, phases, training, seed)
    aggregation, numerics = phases[-1].paradigm, Numerics.of(training)
    with reproducible(config.threads):
        validation = evaluate(model, task.splits["validation"], [aggregation], numerics)[aggregation]
        test = evaluate(model, task.splits["test"], [aggregation], numerics)[aggregation]
    measures = test.summary() | bag_measures(test, task.splits["test"])
    return {
        "repeat": repeat,
        "fold": fold,
        "method": method,
        "n": len(task.splits["test"]),
        **{name: measures[name] for name in MEASURES},
        "validation_accuracy": float(validation.prediction_hit.mean()),
        "learning_rate": result.history[-1]["learning_rate"],
        "seconds": round(time.perf_counter() - began, 2),
    }


def _model(method: str, task: SDCTask, phases: tuple[Phase, ...], training: TrainingConfig, seed: int) -> FCAM:
    if method in REFERENCES:
        return abmil(task, method == "gated-abmil", seed)[0]
    any_data = BagsConfig(source="bags:any")
    return build_model(RunConfig(data=any_data, model=MODEL, phases=phases, training=training, seed=seed), task)

"""From a config to its result: data, model, training and stored measures; studies; trajectories.

`run`, `study` and `fcamlib.crossval.cross_validation` compute results for `store.get`. Each takes a config, a function
that is called with every measured row, and the folder from which an interrupted computation resumes; it returns the
history, the summary and further files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors

from fcamlib import metrics, store
from fcamlib.config import SOURCES, Run, Study, Task, Text, source_path
from fcamlib.data.sdc import SPLITS, SDCData, SDCTask
from fcamlib.errors import DataError, DivergenceError, one_line
from fcamlib.evaluation import Scores, agreement, bag_measures, evaluate, evaluating, outputs
from fcamlib.fcam import FCAM
from fcamlib.networks import build_encoder, classification_network, focus_network
from fcamlib.numerics import Numerics, reproducible
from fcamlib.paradigms import PAPER
from fcamlib.provenance import provenance
from fcamlib.store import Progress, Result, Row, npz_bytes
from fcamlib.training import fit

NUM_EXAMPLES = 8  # test instances whose attention is kept for galleries
MAX_EXAMPLE_SEGMENTS = 100  # longer instances are not kept as examples
EXAMPLE_BYTES = 2**17  # limit on the segments of all examples, since recorded runs are kept with the source
WEIGHTS = "model.safetensors"
KEPT_SCORES = ("a_z", "s_y", "focus_hit", "prediction_hit", "has_foreground")
STUDY_MEASURES = ("test_accuracy", "test_focus_accuracy", "test_saif", "test_loss", "validation_accuracy")

Computed = tuple[pd.DataFrame, dict[str, Any], dict[str, bytes]]  # history, summary, further files


def data(task: Task, seed: int) -> SDCTask:
    """The data described by a config, loaded or generated with `seed`."""
    module, function = SOURCES[task.kind].loader.split(":")
    return getattr(import_module(module), function)(task, seed)


def require_same_data(task: Task) -> None:
    """Refuse a user's data if they are not the data for which the config was made."""
    if task.fingerprint and (found := task.current_fingerprint()) and found != task.fingerprint:
        fault = f"the content of '{source_path(task.source)}' is not that for which the config was made"
        remedy = "give the same data, or start from options to make a new config"
        raise DataError(f"dataset='{task.source}': {fault}: {remedy}.")


def build_model(config: Run, task: SDCTask) -> FCAM:
    """The model of a run with its initial weights, on the run's device and in its format."""
    generator, numerics = torch.Generator().manual_seed(config.seed), Numerics.of(config.training)
    shape, encoder, names = task.bank.segment_shape, None, config.model
    if names.encoder:
        encoder, shape = build_encoder(names.encoder, task, generator, numerics.dtype)
    focus = focus_network(names.focus, shape, generator, numerics.dtype)
    classifier = classification_network(names.classifier, shape, len(task.class_names), generator, numerics.dtype)
    model = FCAM(focus, classifier, encoder)
    numerics.place(model)
    return model


def prepared(config: Run) -> tuple[FCAM, SDCTask]:
    """The model of a run before training, and its data."""
    require_same_data(config.data)
    task = data(config.data, config.seed).to(Numerics.of(config.training).device)
    return build_model(config, task), task


def trained_model(result: Result[Run]) -> tuple[FCAM, SDCTask]:
    """Trained model and data of a run in the results folder; recorded runs have no weights."""
    model, task = prepared(result.config)
    model.load_state_dict(load_file(result.folder / WEIGHTS))
    return model, task


# --- a run ------------------------------------------------------------------------------------------------------------


def run(config: Run, progress: Progress, scratch: Path) -> Computed:
    """Train and evaluate the model of a run.

    The history has one row per epoch, at the selected learning rate. `scores.npz` holds measures per instance,
    `examples.npz` a few test instances with their attention.
    """
    began, numerics = time.perf_counter(), Numerics.of(config.training)
    model, task = prepared(config)
    checkpoint = scratch / store.CHECKPOINT
    fitted = fit(model, task, config.phases, config.training, config.seed, checkpoint, lambda _, row: progress(row))
    history, test = pd.DataFrame(fitted.history), task.splits["test"]
    with reproducible(config.training.threads, numerics.tf32):
        aggregations = tuple(dict.fromkeys((*PAPER, config.aggregation)))
        scores = {split: evaluate(model, task.splits[split], aggregations, numerics) for split in SPLITS}
        for split, name in product(SPLITS, aggregations):
            if not np.isfinite(scores[split][name].loss).all():
                fault = f"after training the {name} loss is NaN or infinite on {split} data"
                raise DivergenceError(f"{fault}: choose a smaller learning rate.")
        own = {split: scores[split][config.aggregation] for split in SPLITS}
        examples, agreed = _examples(model, test, config, own["test"]), {}
        if isinstance(config.data, Text):
            agreed = {"agreement": agreement(model, test, config.aggregation, numerics=numerics)}
    measures = {split: split_summary(own[split], task.splits[split]) for split in SPLITS}
    if (known := own["test"].has_foreground).any():
        measures["test"]["saif_curve"] = metrics.saif_curve(own["test"].a_z[known], own["test"].s_y[known]).tolist()
    seconds = {
        "train_seconds": round(float(history["seconds"].sum()), 1),
        "last_session_seconds": round(time.perf_counter() - began, 1),
    }
    summary = {
        "title": task.title,
        "class_names": list(task.class_names),
        "paradigm": config.paradigm,
        "splits": measures,
        "aggregations": {split: {name: scores[split][name].summary() for name in scores[split]} for split in SPLITS},
        **agreed,
        "selection": fitted.selection,
        "provenance": provenance(numerics) | seconds,
    }
    kept = {f"{split}_{name}": getattr(own[split], name) for split in SPLITS for name in KEPT_SCORES}
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    files = {"scores.npz": npz_bytes(kept), "examples.npz": npz_bytes(examples), WEIGHTS: to_safetensors(weights)}
    return history, summary, files


def split_summary(scores: Scores, split: SDCData) -> dict[str, Any]:
    """Measures of a split; focus measures cover the instances whose foreground is known, if there are any."""
    known = scores.has_foreground
    measures: dict[str, Any] = {**scores.summary(), "n": len(known), "n_foreground": int(known.sum())}
    if known.any():
        measures["histogram"] = metrics.focus_prediction_histogram(scores.a_z[known], scores.s_y[known]).tolist()
    confidence = metrics.focus_prediction_histogram(scores.max_attention, scores.prob.max(axis=1))
    measures["confidence"] = confidence.tolist()  # percent per [largest attention, largest class probability]
    if not split.bank.pictures:
        measures |= bag_measures(scores, split)
    return measures


def _examples(model: FCAM, test: SDCData, config: Run, scores: Scores) -> dict[str, np.ndarray]:
    """The first few test instances with their attention, if they are small enough; no text, which may be private."""
    if test.num_segments > MAX_EXAMPLE_SEGMENTS or test.bank.words:
        return {}
    number = min(NUM_EXAMPLES, len(test), EXAMPLE_BYTES // (test.num_segments * test.bank.values[0].nbytes))
    if number == 0:
        return {}
    few = test.take(torch.arange(number, device=test.label.device))
    return {
        "segments": shown_segments(few),
        "alpha": _attention(model, few, config.aggregation, Numerics.of(config.training)),
        "label": few.label.cpu().numpy(),
        "foreground": few.foreground.cpu().numpy(),
        "prediction": scores.prediction[:number],
        "s_y": scores.s_y[:number].astype(np.float32),
    }


def _attention(model: FCAM, few: SDCData, paradigm: str, numerics: Numerics) -> np.ndarray:
    """Attention weights of a model on a few instances, (E, M)."""
    with evaluating(model), numerics.autocasting():
        alpha = torch.cat([output.log_alpha.exp() for _, output in outputs(model, few, [paradigm], numerics)])
    return alpha.float().cpu().numpy()


def shown_segments(few: SDCData) -> np.ndarray:
    """Segments for figures: pictures as uint8 in 0..255, grey ones without a channel axis."""
    bank = few.bank
    values = bank.values[few.segments.long()].cpu()  # (E, M, ...)
    if not bank.pictures:
        return values.numpy()
    pixels = ((values * bank.scale + bank.shift + 1) * 127.5).round().to(torch.uint8)
    return (pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).numpy()


# --- many trainings in one table --------------------------------------------------------------------------------------


def study(config: Study, progress: Progress, scratch: Path) -> Computed:
    """Train every run of a study; the history has one row per run, and weights are not kept.

    `epochs` are those of all phases, `soft_share` the share with soft attention (SA 1, HA 0, none for LVML);
    `learning_rate` and `last_learning_rate` are the selected rates of the first and the last phase; `focus_parameters`
    and `classifier_parameters` count trained weights. Measures are taken after training; if the loss diverged there are
    none, and `failure` says why. `run` names the run that gives the same numbers.
    """
    for task in config.tasks:
        require_same_data(task)
    numerics, runs = Numerics.of(config.training), list(config.runs())
    drawn = lru_cache(maxsize=1)(lambda task, seed: data(task, seed).to(numerics.device))
    trainings = (
        ({"run": one.name}, lambda path, one=one: _study_row(one, drawn(one.data, one.seed), path)) for one in runs
    )
    history = table(trainings, progress, scratch)
    versions = provenance(numerics) | {"train_seconds": round(float(history["seconds"].sum()), 1)}
    return history, {"title": drawn(runs[-1].data, runs[-1].seed).title, "provenance": versions}, {}


def table(trainings: Iterable[tuple[Row, Callable[[Path], Row]]], progress: Progress, scratch: Path) -> pd.DataFrame:
    """One row per training, saved as soon as it is finished; saved rows are not computed again.

    `trainings` yields the columns that identify a training, and a function that trains and measures, with a checkpoint
    in the given file, which no other training reads.
    """
    kept, rows = store.kept_rows(scratch), []
    for number, (key, train) in enumerate(trainings):
        row = next((row for row in kept if key.items() <= row.items()), None)
        if row is None:
            checkpoint = scratch / f"{number}-{store.CHECKPOINT}"
            row = train(checkpoint)
            store.keep_row(scratch, row)
            checkpoint.unlink(missing_ok=True)
            progress(row)
        rows.append(row)
    return pd.DataFrame(rows)


def _study_row(config: Run, task: SDCTask, checkpoint: Path) -> Row:
    """Train and measure one run of a study; if it diverged, the row has the reason instead of measures."""
    began, model = time.perf_counter(), build_model(config, task)
    rates = [phase.learning_rates for phase in (config.phases[0], config.phases[-1])]
    history: list[Row] = [{"learning_rate": own[0] if len(own) == 1 else None} for own in rates]  # if it diverges
    failure = ""
    try:
        history = fit(model, task, config.phases, config.training, config.seed, checkpoint).history
    except DivergenceError as error:
        failure = one_line(error)
    epochs = sum(phase.epochs for phase in config.phases)
    soft = sum(phase.epochs for phase in config.phases if phase.paradigm == "soft")
    return {
        "num_segments": getattr(config.data, "num_segments", None),
        "focus": config.model.focus,
        "classifier": config.model.classifier,
        "paradigm": config.paradigm,
        "epochs": epochs,
        "soft_share": None if config.paradigm == "lvml" else soft / epochs,
        "learning_rate": history[0]["learning_rate"],
        "last_learning_rate": history[-1]["learning_rate"],
        "seed": config.seed,
        **{name.removeprefix("test_"): history[-1].get(name) for name in STUDY_MEASURES},
        "num_test": len(task.splits["test"]),
        "focus_parameters": sum(weight.numel() for weight in model.focus_model.parameters()),
        "classifier_parameters": sum(weight.numel() for weight in model.classification_model.parameters()),
        "seconds": round(time.perf_counter() - began, 2),
        "failure": failure,
        "run": config.name,
    }


# --- a run, epoch by epoch --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trajectory:
    """Measures of a model on test data before training (epoch 0) and after each epoch.

    `history` has one row per epoch: `epoch`, `phase`, `paradigm`, `learning_rate`, a run's test measures, and the mean
    `s_y`. `histograms` (E, A, S) are percent of instances per bin of a_z and s_y. `examples` holds `segments`, `label`
    and `foreground` of the test instances, and for each epoch their `alpha` (E, n, M) and `prob` (E, n, K).
    """

    config: Run
    summary: dict[str, Any]
    history: pd.DataFrame
    histograms: np.ndarray
    examples: dict[str, np.ndarray]


def trajectory(config: Run) -> Trajectory:
    """Train the model of a run, to the same numbers, and measure it after every epoch."""
    if config.training.keep != "last":
        raise DataError("keep='best' can end a phase with the weights of an earlier epoch: give keep='last'.")
    numerics = Numerics.of(config.training)
    model, task = prepared(config)
    test = task.splits["test"]
    seen: dict[tuple[int, float], tuple[Row, np.ndarray, np.ndarray, np.ndarray]] = {}

    def watch(model: FCAM, row: Row) -> None:  # of every candidate learning rate; the selected one is known later
        scores = evaluate(model, test, [row["paradigm"]], numerics)[row["paradigm"]]
        kept = {name: row[name] for name in ("epoch", "phase", "paradigm", "learning_rate")}
        kept |= scores.summary() | {"s_y": float(scores.s_y.mean())}
        cells = metrics.focus_prediction_histogram(scores.a_z, scores.s_y)
        alpha = _attention(model, test, row["paradigm"], numerics)
        seen[row["epoch"], row["learning_rate"]] = kept, cells, alpha, scores.prob

    with reproducible(config.training.threads, numerics.tf32):
        watch(model, {"epoch": 0, "phase": 0, "paradigm": config.phases[0].paradigm, "learning_rate": 0.0})
    history = fit(model, task, config.phases, config.training, config.seed, on_epoch=watch).history
    epochs = [(0, 0.0), *((row["epoch"], row["learning_rate"]) for row in history)]
    rows, cells, alpha, prob = zip(*(seen[epoch] for epoch in epochs), strict=True)
    summary = {"title": task.title, "class_names": list(task.class_names), "n": len(test)}
    summary["provenance"] = provenance(numerics)
    truth = {"segments": shown_segments(test), "label": test.label, "foreground": test.foreground}
    examples = {name: np.asarray(value) for name, value in truth.items()}
    examples |= {"alpha": np.stack(alpha), "prob": np.stack(prob)}
    return Trajectory(config, summary, pd.DataFrame(list(rows)), np.stack(cells), examples)

"""From a config to a stored run: its data, its model, its training and what is kept of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors

from fcamlib import metrics, store
from fcamlib.checkpoint import Row
from fcamlib.config import BagsConfig, MosaicsConfig, RunConfig, SeriesConfig, TaskConfig, TextConfig, source_path
from fcamlib.data.sdc import SPLITS, SDCData, SDCTask
from fcamlib.errors import DataError
from fcamlib.evaluation import Scores, evaluate, evaluating, outputs
from fcamlib.fcam import FCAM, PARADIGMS
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance
from fcamlib.store import Run, npz_bytes
from fcamlib.training import FitResult, fit

NUM_EXAMPLES = 8  # test instances whose attention is kept for galleries
MAX_EXAMPLE_SEGMENTS = 100  # of longer instances no example is kept
EXAMPLE_BYTES = 2**18  # that the segments of all examples may take, since runs are kept with the source


def task(data: TaskConfig, seed: int) -> SDCTask:
    """The data that a config describes, drawn with `seed`; the module of its domain is imported when it is needed."""
    if isinstance(data, MosaicsConfig):
        from fcamlib.data.mosaics import mosaic_task

        return mosaic_task(data, seed)
    if isinstance(data, TextConfig):
        from fcamlib.data.text import text_task

        return text_task(data, seed)
    if isinstance(data, SeriesConfig):
        from fcamlib.data.series import series_task

        return series_task(data, seed)
    if isinstance(data, BagsConfig):
        from fcamlib.data.bags import bags_task

        return bags_task(data, seed)
    raise TypeError(f"no module makes data of a {type(data).__name__}")


def build_model(config: RunConfig, data: SDCTask) -> FCAM:
    """The run's model with its initial weights, on its device and in its format."""
    generator, numerics = torch.Generator().manual_seed(config.seed), Numerics.of(config.training)
    shape, num_classes, encoder = data.bank.segment_shape, len(data.class_names), None
    if config.model.encoder:
        from fcamlib.encoders import build_encoder

        encoder, shape = build_encoder(config.model.encoder, data, generator, numerics.dtype)
    focus_model = focus_network(config.model.focus, shape, generator, numerics.dtype)
    classifier = classification_network(config.model.classifier, shape, num_classes, generator, numerics.dtype)
    model = FCAM(focus_model, classifier, encoder)
    numerics.place(model)
    return model


def trained_model(finished: Run) -> tuple[FCAM, SDCTask]:
    """Model and task of a run of this machine (recorded runs have no weights)."""
    data = task(finished.config.data, finished.config.seed).to(Numerics.of(finished.config.training).device)
    model = build_model(finished.config, data)
    model.load_state_dict(load_file(finished.folder / "model.safetensors"))
    return model, data


def compute(config: RunConfig, on_epoch: Callable[[Row], None] | None = None) -> Run:
    """Train and evaluate the model of a config and store the run; a run that was interrupted resumes."""
    began = time.perf_counter()
    require_same_data(config.data)
    data = task(config.data, config.seed).to(Numerics.of(config.training).device)
    model = build_model(config, data)
    checkpoint = store.writable(store.partial_dir(config)) / store.CHECKPOINT
    result = fit(model, data, config.phases, config.training, config.seed, checkpoint, on_epoch)
    return _stored(config, model, data, result, began)


def _stored(config: RunConfig, model: FCAM, data: SDCTask, result: FitResult, began: float) -> Run:
    """Evaluate a trained model and store the run."""
    numerics = Numerics.of(config.training)
    with reproducible(config.training.threads):
        aggregations = tuple(dict.fromkeys((*PARADIGMS, config.aggregation)))
        scores = {split: evaluate(model, data.splits[split], aggregations, numerics) for split in SPLITS}
        examples = _examples(model, data, config, numerics, scores["test"][config.aggregation])
        agreement = _agreement(model, data, config, numerics)
    history = pd.DataFrame(result.history)
    summary = {
        "title": data.title,
        "class_names": list(data.class_names),
        "paradigm": config.paradigm,
        "splits": {split: _split_summary(scores[split][config.aggregation], data.splits[split]) for split in SPLITS},
        "aggregations": {s: {p: scores[s][p].summary() for p in scores[s]} for s in SPLITS},
        **agreement,
        "selection": result.selection,
        "provenance": provenance(numerics)
        | {
            "train_seconds": round(float(history["seconds"].sum()), 1),
            "last_session_seconds": round(time.perf_counter() - began, 1),
        },
    }
    kept = {f"{split}_{name}": getattr(scores[split][config.aggregation], name) for split in SPLITS for name in _KEPT}
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    files = {
        "scores.npz": npz_bytes(kept),
        "examples.npz": npz_bytes(examples),
        "model.safetensors": to_safetensors(weights),
    }
    return store.write(config, history, summary, files)


def _agreement(model: FCAM, data: SDCTask, config: RunConfig, numerics: Numerics) -> dict[str, Any]:
    """How well attention agrees with human rationales on test posts: of text alone."""
    if not isinstance(config.data, TextConfig):
        return {}
    from fcamlib.rationales import agreement

    return {"agreement": agreement(model, data.splits["test"], config.aggregation, numerics=numerics)}


def require_same_data(data: TaskConfig) -> None:
    """Refuse a user's data that are not those that the config, and so the run's name, was made for."""
    if data.fingerprint and (found := data.current_fingerprint()) and found != data.fingerprint:
        path = source_path(data.source)
        what = f"the files in '{path}' are not those" if path.is_dir() else f"the file '{path}' is not the one"
        raise DataError(
            f"dataset='{data.source}': {what} that the config was made for: "
            "give the same data, or make a new config from options."
        )


_KEPT = ("a_z", "s_y", "focus_hit", "prediction_hit", "has_foreground")


def _split_summary(scores: Scores, data: SDCData) -> dict[str, Any]:
    """Measures of a split; those of the focus over the instances whose foreground is known, where there are any."""
    known = scores.has_foreground
    measures: dict[str, Any] = {**scores.summary(), "n": len(known), "n_foreground": int(known.sum())}
    if known.any():
        a_z, s_y = scores.a_z[known], scores.s_y[known]
        measures["histogram"] = metrics.focus_prediction_histogram(a_z, s_y).tolist()
        measures["saif_curve"] = metrics.saif_curve(a_z, s_y).tolist()
    confidence = metrics.focus_prediction_histogram(scores.max_attention, scores.prob.max(axis=1))
    measures["confidence"] = confidence.tolist()  # percent per [largest attention, largest class probability]
    if not data.bank.pictures:
        from fcamlib.bags.metrics import bag_measures  # imports scikit-learn's metrics, so only where needed

        measures |= bag_measures(scores, data)
    return measures


def _examples(
    model: FCAM, task: SDCTask, config: RunConfig, numerics: Numerics, scores: Scores
) -> dict[str, np.ndarray]:
    """The first test instances with their segments and attention weights, as many as are small enough to keep.

    None of text, which may be private.
    """
    test = task.splits["test"]
    if test.num_segments > MAX_EXAMPLE_SEGMENTS or test.bank.words:
        return {}

    def first(number: int) -> SDCData:
        return test.take(torch.arange(number, device=test.label.device))

    number = min(NUM_EXAMPLES, len(test), EXAMPLE_BYTES // shown_segments(first(1)).nbytes)
    if number == 0:
        return {}
    few = first(number)
    with evaluating(model), numerics.autocasting():
        _, output = next(outputs(model, few, [config.aggregation], numerics))
    return {
        "segments": shown_segments(few),
        "alpha": output.log_alpha.exp().float().cpu().numpy(),
        "label": few.label.cpu().numpy(),
        "foreground": few.foreground.cpu().numpy(),
        "prediction": scores.prediction[:number],
        "s_y": scores.s_y[:number].astype(np.float32),
    }


def shown_segments(few: SDCData) -> np.ndarray:
    """Segments as figures show them: pictures as uint8 in 0..255, grey ones without a channel axis."""
    bank = few.bank
    values = bank.values[few.segments.long()].cpu()  # (E, M, ...)
    if not bank.pictures:
        return values.numpy()
    pixels = ((values * bank.scale + bank.shift + 1) * 127.5).round().to(torch.uint8)
    return (pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).numpy()

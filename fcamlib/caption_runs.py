"""Captioning runs in the store: phase after phase, each from the stored run of the phases before it.

Soft attention and the hybrid share their first phase, and with `caption_runs` it is trained once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors

from fcamlib import metrics, store
from fcamlib.caption_evaluation import CaptionEvaluator, CaptionScores, category_names
from fcamlib.caption_metrics import bleu_settings, caption_histogram, cider
from fcamlib.caption_training import CaptionTrainer, numerics_of
from fcamlib.captioning import Captioner
from fcamlib.checkpoint import Row
from fcamlib.config.caption_runs import CaptionRunConfig
from fcamlib.data.captions import CaptionTask, caption_task
from fcamlib.numerics import Numerics, reproducible
from fcamlib.runs import _npz, provenance
from fcamlib.store import Stored

NUM_EXAMPLES = 6  # test pictures whose attention is kept for figures
WEIGHTS = "model.safetensors"
CaptionRun = Stored[CaptionRunConfig]


def caption_run(
    config: CaptionRunConfig, on_epoch: Callable[[Row], None] | None = None, fresh: bool = False
) -> CaptionRun:
    """The run of `config`: from the store, recorded ones first, or computed and stored.

    Its phases but the last are a run of their own, which is looked up or computed in the same way. An interrupted run
    goes on from its last checkpoint, to the same numbers.

    Parameters
    ----------
    config : CaptionRunConfig
    on_epoch : callable, optional
        Called with the history row of each epoch as it is done.
    fresh : bool
        Compute even where the store has the run.

    Raises
    ------
    DivergenceError
        Where the loss becomes NaN or infinite; the sentence names the step.
    """
    return _found(config, on_epoch, fresh, with_weights=False, tasks={})


def caption_runs(configs: Iterable[CaptionRunConfig]) -> list[CaptionRun]:
    """The runs of several configs, in order; runs on the same data make them once."""
    tasks: dict[str, CaptionTask] = {}
    return [_found(config, None, False, with_weights=False, tasks=tasks) for config in configs]


def trained_captioner(finished: CaptionRun) -> tuple[Captioner, CaptionTask]:
    """Model and task of a run of this machine (recorded runs have no weights)."""
    task = caption_task(finished.config.data, finished.config.seed)
    model = _model(finished.config, task, numerics_of(finished.config.training))
    model.load_state_dict(load_file(finished.folder / WEIGHTS))
    return model, task


def _found(
    config: CaptionRunConfig,
    on_epoch: Callable[[Row], None] | None,
    fresh: bool,
    with_weights: bool,
    tasks: dict[str, CaptionTask],
) -> CaptionRun:
    if not fresh and (stored := _stored(config, with_weights)):
        return stored
    with store.locked(config):
        if not fresh and (stored := _stored(config, with_weights)):  # by a process that this one waited for
            return stored
        return _computed(config, on_epoch, fresh, tasks)


def _stored(config: CaptionRunConfig, with_weights: bool) -> CaptionRun | None:
    """The stored run; where its weights are needed, a recorded one does not do."""
    stored = store.find(config, report=False)
    if stored and with_weights and not (stored.folder / WEIGHTS).is_file():
        return None
    return stored


def _computed(
    config: CaptionRunConfig, on_epoch: Callable[[Row], None] | None, fresh: bool, tasks: dict[str, CaptionTask]
) -> CaptionRun:
    numerics = numerics_of(config.training)
    earlier = _found(config.prefix, on_epoch, fresh, True, tasks) if config.prefix else None
    began = time.perf_counter()
    key = f"{config.data.model_dump_json()} {config.seed}"
    task = tasks[key] = tasks.get(key) or caption_task(config.data, config.seed, numerics.device)
    model = _model(config, task, numerics)
    if earlier:
        model.load_state_dict(load_file(earlier.folder / WEIGHTS))
    trainer = CaptionTrainer(config, model, task)
    checkpoint = store.writable(store.partial_dir(config)) / store.CHECKPOINT
    history = pd.DataFrame(trainer.train(checkpoint, on_epoch))
    if earlier:
        history = pd.concat([earlier.history, history], ignore_index=True)
    with reproducible(config.training.threads):
        evaluator = trainer.evaluators["test"]
        scores = {split: own.evaluate(model, config.phases[-1].paradigm) for split, own in trainer.evaluators.items()}
        examples = _examples(model, task, config, evaluator, numerics)
    summary = {
        "title": task.title,
        "paradigm": config.paradigm,
        "bleu": bleu_settings(),
        "num_words": len(task.vocabulary),
        "categories": list(task.categories),
        "splits": {split: _split_summary(own, task, split) for split, own in scores.items()},
        "provenance": provenance(numerics)
        | {
            "train_seconds": round(float(history["seconds"].sum()), 1),
            "last_session_seconds": round(time.perf_counter() - began, 1),
        },
    }
    objects = scores["test"].objects
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    files = {"scores.npz": _npz(vars(objects)), "examples.npz": _npz(examples), WEIGHTS: to_safetensors(weights)}
    return store.write(config, history, summary, files)


def _model(config: CaptionRunConfig, task: CaptionTask, numerics: Numerics) -> Captioner:
    """The model with its initial weights."""
    generator = torch.Generator().manual_seed(config.seed)
    shape = task.splits["train"].pictures.segment_shape
    model = Captioner(config.model, shape, len(task.vocabulary), generator)
    numerics.place(model)
    return model


def _split_summary(scores: CaptionScores, task: CaptionTask, split: str) -> dict[str, Any]:
    """Measures of a split; those of objects where there are any."""
    references, objects = task.splits[split].references, scores.objects
    measures: dict[str, Any] = {**scores.summary(references), "n": len(references), "n_objects": len(objects.a_z)}
    if (found := cider(scores.captions, references)) is not None:
        measures["cider"] = found
    if len(objects.a_z):
        measures["histogram"] = caption_histogram(objects.a_z, objects.s_y).tolist()
        measures["saif_curve"] = metrics.saif_curve(objects.a_z, objects.s_y).tolist()
    return measures


def _examples(
    model: Captioner, task: CaptionTask, config: CaptionRunConfig, evaluator: CaptionEvaluator, numerics: Numerics
) -> dict[str, np.ndarray]:
    """Greedy captions of the first test pictures with the attention of each word, and generated pictures themselves."""
    data = task.splits["test"]
    with torch.inference_mode(), numerics.autocasting():
        model.eval()
        rows, found = next(evaluator.greedy(model, config.phases[-1].paradigm, NUM_EXAMPLES))
    names = category_names(task)[found.tokens.cpu()].bool()  # (E, T, C)
    boxes = [data.objects[row].box.numpy() for row in rows.tolist()]
    most = max(map(len, boxes))
    kept = {
        "word": np.array([[task.vocabulary[token] for token in own] for own in found.tokens.tolist()]),
        "alpha": found.alpha.float().cpu().numpy(),
        "real": found.real.cpu().numpy(),
        "names_category": names.any(dim=2).numpy(),
        "box": np.stack([np.pad(own, ((0, most - len(own)), (0, 0)), constant_values=np.nan) for own in boxes]),
        "image_id": data.image_ids[rows].numpy(),
    }
    if config.data.source == "scenes":  # photographs are their owners', and features are no pictures
        pixels = data.pictures.rows(rows, torch.float64).permute(0, 2, 3, 1)
        kept["picture"] = ((pixels + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).numpy()
    return kept

"""From the config of a captioning run to its stored result: data, model, training and what is kept."""

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
from fcamlib.captioning.evaluation import CaptionEvaluator, CaptionScores, category_names
from fcamlib.captioning.metrics import bleu_settings, caption_histogram, cider
from fcamlib.captioning.model import Captioner
from fcamlib.captioning.runs import WEIGHTS, CaptionRun
from fcamlib.captioning.training import CaptionTrainer, numerics_of
from fcamlib.checkpoint import Row
from fcamlib.config.caption_runs import CaptionRunConfig
from fcamlib.data.captions import CaptionTask, caption_task
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance
from fcamlib.store import npz_bytes

NUM_EXAMPLES = 6  # test pictures whose attention is kept for figures


def compute(
    config: CaptionRunConfig,
    earlier: CaptionRun | None,
    on_epoch: Callable[[Row], None] | None,
    tasks: dict[str, CaptionTask],
) -> CaptionRun:
    """Train the last phase of a run from the stored run of the phases before it, evaluate, and store all.

    `tasks` holds the data that other runs have made already, and is added to.
    """
    numerics = numerics_of(config.training)
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
    files = {
        "scores.npz": npz_bytes(vars(objects)),
        "examples.npz": npz_bytes(examples),
        WEIGHTS: to_safetensors(weights),
    }
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


def trained_captioner(finished: CaptionRun) -> tuple[Captioner, CaptionTask]:
    """Model and task of a run of this machine (recorded runs have no weights)."""
    task = caption_task(finished.config.data, finished.config.seed)
    model = _model(finished.config, task, numerics_of(finished.config.training))
    model.load_state_dict(load_file(finished.folder / WEIGHTS))
    return model, task

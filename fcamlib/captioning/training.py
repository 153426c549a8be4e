"""Training of a captioning model, phase by phase, and its stored result."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from fcamlib import metrics
from fcamlib.captioning import decoding
from fcamlib.captioning import evaluation as measuring
from fcamlib.captioning.evaluation import CaptionEvaluator, CaptionScores, pictures_at, trimmed
from fcamlib.captioning.model import Captioner, Context
from fcamlib.checkpoint import Row, load, save, seconds_between
from fcamlib.config import CaptionRun, CaptionTraining, Training
from fcamlib.data.captions import CaptionTask, caption_task
from fcamlib.errors import DivergenceError
from fcamlib.evaluation import evaluating
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance
from fcamlib.running import require_same_data
from fcamlib.store import CHECKPOINT, get, npz_bytes

EPOCH_MEASURES = ("loss", "bleu1", "bleu4", "a_z", "s_y", "saif", "focus_accuracy", "mentioned", "phrase_a_z")
NUM_EXAMPLES = 6  # test pictures whose attention is kept for figures
WEIGHTS = "model.safetensors"
cached_task = lru_cache(maxsize=1)(caption_task)  # runs on the same data are consecutive


def numerics_of(config: CaptionTraining) -> Numerics:
    """Device and format of a captioning run on this machine."""
    return Numerics.of(Training(precision=config.precision, device=config.device, memory_layout="contiguous"))


def compute(
    config: CaptionRun, progress: Callable[[Row], None] | None, scratch: Path
) -> tuple[pd.DataFrame, dict[str, Any], dict[str, bytes]]:
    """Train the last phase of a run, starting from the stored run of the earlier phases, and evaluate.

    Soft attention and the hybrid share their first phase, which is trained once. If the loss changes, the weights
    before the change are also evaluated with the new phase's context ("switch"), to separate the effect of using one
    region from the effect of training.
    """
    numerics, began = numerics_of(config.training), time.perf_counter()
    require_same_data(config.data)
    task = cached_task(config.data, config.seed, numerics.device)
    model = new_model(config, task)
    earlier = get(config.prefix, progress, recorded=False) if config.prefix else None  # recorded runs have no weights
    if earlier:
        model.load_state_dict(load_file(earlier.folder / WEIGHTS))
    trainer, switch = CaptionTrainer(config, model, task), {}
    with reproducible(config.training.threads, numerics.tf32):
        if earlier and earlier.config.phases[-1].paradigm != config.phases[-1].paradigm:
            switch = {"switch": {split: found.summary() for split, found in trainer.evaluate().items()}}
        history = pd.DataFrame(trainer.train(scratch / CHECKPOINT, progress))
        scores = trainer.scores or trainer.evaluate()
        examples = _examples(trainer)
    if earlier:
        history = pd.concat([earlier.history, history], ignore_index=True)
    seconds = {
        "train_seconds": round(float(history["seconds"].sum()), 1),
        "last_session_seconds": round(time.perf_counter() - began, 1),
    }
    summary = {
        "title": task.title,
        "paradigm": config.paradigm,
        "bleu": measuring.bleu_settings(),
        "num_words": len(task.vocabulary),
        "categories": list(task.categories),
        "splits": {split: _split_summary(own) for split, own in scores.items()},
        **switch,
        "provenance": provenance(numerics) | seconds,
    }
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    objects = {str(name): column.to_numpy() for name, column in scores["test"].objects.items()}
    files = {"scores.npz": npz_bytes(objects), "examples.npz": npz_bytes(examples), WEIGHTS: to_safetensors(weights)}
    return history, summary, files


def new_model(config: CaptionRun, task: CaptionTask) -> Captioner:
    """The model of a run with its initial weights."""
    generator = torch.Generator().manual_seed(config.seed)
    model = Captioner(config.model, task.splits["train"].pictures.segment_shape, len(task.vocabulary), generator)
    numerics_of(config.training).place(model)
    return model


class CaptionTrainer:
    """The last phase of a run: trains `model` in place from its current weights."""

    def __init__(self, config: CaptionRun, model: Captioner, task: CaptionTask) -> None:
        self.config, self.model, self.data = config, model, task.splits["train"]
        self.phase, self.number = config.phases[-1], len(config.phases) - 1
        self.numerics = numerics_of(config.training)
        self.evaluators = {
            split: CaptionEvaluator(task, split, config.training.max_words, self.numerics)
            for split in ("validation", "test")
        }
        rates = (self.phase.encoder_learning_rate, self.phase.decoder_learning_rate)
        groups = zip(model.parameter_groups(), rates, strict=True)
        self.optimizer = torch.optim.Adam(
            [{"params": own, "lr": rate} for own, rate in groups if own],
            fused=isinstance(model.encoder, nn.Identity),  # see `read`
        )
        length = self.data.tokens.shape[1] - 1
        self.baseline = torch.full((length,), torch.nan, device=self.numerics.device, dtype=self.numerics.dtype)
        self.rows = list[Row]()  # one per epoch of the phase
        self.scores: dict[str, CaptionScores] = {}  # of the last epoch that was measured

    def evaluate(self) -> dict[str, CaptionScores]:
        """Validation and test scores with the phase's test-time context."""
        return {split: own.evaluate(self.model, self.phase.paradigm) for split, own in self.evaluators.items()}

    def train(self, checkpoint: Path | None = None, progress: Callable[[Row], None] | None = None) -> list[Row]:
        """Train to the end of the phase, resuming from `checkpoint` if it exists; return one row per epoch."""
        interval, saved = seconds_between(), time.monotonic()
        before = sum(phase.epochs for phase in self.config.phases[:-1])
        if checkpoint:
            load(checkpoint, self._restore)
        for epoch in range(len(self.rows), self.phase.epochs):
            began = time.perf_counter()
            row: Row = {"epoch": before + epoch + 1, "phase": self.number, "paradigm": self.phase.paradigm}
            row["train_loss"] = self._epoch(epoch)
            if epoch + 1 == self.phase.epochs or (epoch + 1) % self.config.training.evaluate_every == 0:
                self.scores = self.evaluate()
                for split, scores in self.scores.items():
                    found = scores.summary()
                    row |= {f"{split}_{name}": found[name] for name in EPOCH_MEASURES if name in found}
            row["seconds"] = round(time.perf_counter() - began, 3)
            self.rows.append(row)
            if progress:
                progress(row)
            if checkpoint and time.monotonic() - saved > interval:
                save(checkpoint, self._state())
                saved = time.monotonic()
        return self.rows

    def _epoch(self, epoch: int) -> float:
        """Train on every caption once; return mean cross-entropy per word, with drawn regions under hard attention."""
        training = self.config.training
        draws = np.random.default_rng([self.config.seed, self.number, epoch])
        order = torch.from_numpy(draws.permutation(len(self.data.tokens)))
        self.model.train()
        total, words, batches = 0.0, 0, order.split(training.batch_size)
        for step, index in enumerate(batches, start=1):
            with self.numerics.autocasting():
                loss, entropy, number = self._loss(index, draws)
            if not bool(torch.isfinite(loss)):
                rates = f"{self.phase.encoder_learning_rate:g} and {self.phase.decoder_learning_rate:g}"
                raise DivergenceError(
                    f"the {self.phase.paradigm} loss became NaN or infinite at step {epoch * len(batches) + step} of "
                    f"phase {self.number + 1} (epoch {epoch + 1}) with learning rates {rates}: choose smaller ones."
                )
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
            nn.utils.clip_grad_norm_(weights, training.gradient_clip)
            self.optimizer.step()
            total, words = total + float(entropy) * number, words + number
        return total / words

    def _loss(self, index: Int[Tensor, " B"], draws: np.random.Generator) -> tuple[Tensor, Tensor, int]:
        """The loss of the captions at `index`, their cross-entropy per word, and their number of words."""
        training, device = self.config.training, self.numerics.device
        tokens = trimmed(self.data.tokens[index]).to(device)
        # One draw per word of the longest caption, so that a caption's draws do not depend on the rest of its batch.
        shape = (len(index), self.data.tokens.shape[1] - 1)
        quantiles, guesses = (
            torch.from_numpy(draws.random(shape))[:, : tokens.shape[1] - 1].to(device) for _ in range(2)
        )
        given = guesses < training.teacher_forcing if training.teacher_forcing < 1.0 else None
        rows, place = torch.unique(self.data.picture[index], return_inverse=True)
        regions, real = self.model.regions(pictures_at(self.data, rows, self.numerics)), decoding.real_words(tokens)
        context: Context = "drawn" if self.phase.paradigm == "hard" else "soft"
        found = decoding.read(self.model, regions, place.to(device), tokens, context, quantiles, given)
        loss = entropy = decoding.cross_entropy(found.words, real)
        if found.places is not None:
            reward = decoding.rewards(found.words, training.credit)
            average, momentum = self.baseline[: real.shape[1]], training.baseline_momentum
            before, average[:] = decoding.next_baseline(average, reward, real, momentum)
            loss = decoding.reinforce_loss(found.words, found.places, reward, before, real)
            if training.entropy_weight:
                loss = loss - training.entropy_weight * decoding.entropy_bonus(found.log_alpha, real)
        return loss, entropy.detach(), int(real.sum())

    def _state(self) -> dict[str, Any]:
        """The state between two epochs."""
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return parts | {"rows": self.rows, "baseline": self.baseline}

    def _restore(self, state: dict[str, Any]) -> None:
        rows, baseline = state["rows"], state["baseline"].to(self.numerics.device)  # before anything is changed
        copy.deepcopy(self.model).load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.model.load_state_dict(state["model"])
        self.rows, self.baseline = rows, baseline


def _split_summary(scores: CaptionScores) -> dict[str, Any]:
    """Measures of a split, including objects and phrases if there are any."""
    objects = scores.objects
    measures: dict[str, Any] = {**scores.summary(), "n": len(scores.captions), "n_objects": len(objects)}
    if (found := measuring.cider(scores.captions, scores.references)) is not None:
        measures["cider"] = found
    if len(scores.phrases):
        measures["n_phrases"] = len(scores.phrases)
    if len(objects):
        a_z, s_y = objects["a_z"].to_numpy(), objects["s_y"].to_numpy()
        measures["histogram"] = measuring.caption_histogram(a_z, s_y).tolist()
        measures["saif_curve"] = metrics.saif_curve(a_z, s_y).tolist()
    return measures


def _examples(trainer: CaptionTrainer) -> dict[str, np.ndarray]:
    """Greedy captions of the first test pictures with the attention at each word, and the pictures if generated."""
    evaluator = trainer.evaluators["test"]
    data = evaluator.data
    with evaluating(trainer.model), trainer.numerics.autocasting():
        rows, found = next(evaluator.greedy(trainer.model, trainer.phase.paradigm, NUM_EXAMPLES))
    is_generated = trainer.config.data.source == "scenes"  # photographs and their boxes are not ours to distribute
    boxes = [data.objects[row].box.numpy() if is_generated else np.zeros((0, 4)) for row in rows.tolist()]
    most = max(map(len, boxes))
    kept = {
        "word": np.array([[evaluator.vocabulary[token] for token in own] for own in found.tokens.tolist()]),
        "alpha": found.alpha.float().cpu().numpy(),
        "real": found.real.cpu().numpy(),
        "names_category": evaluator.names[found.tokens].any(dim=2).cpu().numpy(),
        "box": np.stack([np.pad(own, ((0, most - len(own)), (0, 0)), constant_values=np.nan) for own in boxes]),
        "image_id": data.image_ids[rows].numpy(),
    }
    if is_generated:
        kept["picture"] = data.pictures.values[rows].numpy()
    return kept

"""Training of a captioning model: one phase with one loss, resumed from its checkpoint to the same numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fcamlib.captioning.evaluation import CaptionEvaluator, pictures_at, trimmed
from fcamlib.captioning.losses import (
    cross_entropy,
    entropy_bonus,
    next_baseline,
    place_log_prob,
    real_words,
    reinforce_loss,
    rewards,
    word_log_prob,
)
from fcamlib.captioning.model import Captioner
from fcamlib.checkpoint import Row, read_state, seconds_between, write_state
from fcamlib.config import TrainingConfig
from fcamlib.config.caption_runs import CaptionRunConfig, CaptionTrainingConfig
from fcamlib.data.captions import CaptionTask
from fcamlib.errors import DivergenceError
from fcamlib.numerics import Numerics, reproducible

CHECKPOINT_SECONDS = 20.0  # at least this long between checkpoints
EPOCH_MEASURES = ("loss", "bleu1", "bleu4", "a_z", "s_y", "saif", "focus_accuracy", "mentioned")


def numerics_of(config: CaptionTrainingConfig) -> Numerics:
    """Device and format of a captioning run on this machine."""
    return Numerics.of(TrainingConfig(precision=config.precision, device=config.device, memory_layout="contiguous"))


class CaptionTrainer:
    """The last phase of a run in training.

    Parameters
    ----------
    config : CaptionRunConfig
    model : Captioner
        Weights at the beginning of the phase; trained in place.
    task : CaptionTask
    """

    def __init__(self, config: CaptionRunConfig, model: Captioner, task: CaptionTask) -> None:
        self.config, self.model, self.data = config, model, task.splits["train"]
        self.phase, self.number = config.phases[-1], len(config.phases) - 1
        self.numerics = numerics_of(config.training)
        self.evaluators = {
            split: CaptionEvaluator(task, split, config.training.max_words, self.numerics)
            for split in ("validation", "test")
        }
        groups = [
            {"params": model.encoder_parameters(), "lr": self.phase.encoder_learning_rate},
            {"params": model.decoder_parameters(), "lr": self.phase.decoder_learning_rate},
        ]
        self.optimizer = torch.optim.Adam([group for group in groups if group["params"]])
        self.weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        length = self.data.tokens.shape[1] - 1
        self.baseline = torch.full((length,), torch.nan, device=self.numerics.device, dtype=self.numerics.dtype)
        self.epoch, self.rows = 0, list[Row]()

    def train(self, checkpoint: Path | None, on_epoch: Callable[[Row], None] | None) -> list[Row]:
        """Train to the phase's end, from the state in `checkpoint` if there is one; the history, a row per epoch."""
        interval, saved = seconds_between(CHECKPOINT_SECONDS), time.monotonic()
        with reproducible(self.config.training.threads, self.numerics.tf32):
            if checkpoint and checkpoint.exists():
                self._resume(checkpoint)
            while self.epoch < self.phase.epochs:
                row = self._one_epoch()
                if on_epoch:
                    on_epoch(row)
                if checkpoint and time.monotonic() - saved > interval:
                    self._save(checkpoint)
                    saved = time.monotonic()
        return self.rows

    def _one_epoch(self) -> Row:
        began = time.perf_counter()
        loss = self._pass()
        self.epoch += 1
        row: Row = {
            "epoch": self.epoch + sum(phase.epochs for phase in self.config.phases[:-1]),
            "phase": self.number,
            "paradigm": self.phase.paradigm,
            "train_loss": loss,
        }
        if self.epoch == self.phase.epochs or self.epoch % self.config.training.evaluate_every == 0:
            for split, evaluator in self.evaluators.items():
                measures = evaluator.evaluate(self.model, self.phase.paradigm).summary(evaluator.data.references)
                row |= {f"{split}_{name}": measures[name] for name in EPOCH_MEASURES if name in measures}
        row["seconds"] = round(time.perf_counter() - began, 3)
        self.rows.append(row)
        return row

    def _pass(self) -> float:
        """One pass over the training captions; mean cross-entropy per word, with drawn regions under hard attention."""
        training, device = self.config.training, self.numerics.device
        draws = np.random.default_rng([self.config.seed, self.number, self.epoch])
        order = torch.from_numpy(draws.permutation(len(self.data.tokens)))
        self.model.train()
        total, words, batches = 0.0, 0, order.split(training.batch_size)
        for step, index in enumerate(batches):
            tokens = trimmed(self.data.tokens[index])
            # Of the longest caption's length, so that a caption's draws do not depend on who shares its batch.
            shape = (len(index), self.data.tokens.shape[1] - 1)
            quantiles, guesses = (torch.from_numpy(draws.random(shape))[:, : tokens.shape[1] - 1] for _ in range(2))
            rows, place = torch.unique(self.data.picture[index], return_inverse=True)
            pictures, tokens = pictures_at(self.data, rows, self.numerics), tokens.to(device)
            with self.numerics.autocasting():
                loss, entropy = self._loss(
                    pictures,
                    place.to(device),
                    tokens,
                    quantiles.to(device),
                    guesses.to(device) < training.teacher_forcing,
                )
            number = int(real_words(tokens).sum())
            if not bool(torch.isfinite(loss)):
                raise DivergenceError(self._divergence(self.epoch * len(batches) + step + 1))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.weights, training.gradient_clip)
            self.optimizer.step()
            total, words = total + float(entropy) * number, words + number
        return total / words

    def _loss(
        self, pictures: Tensor, place: Tensor, tokens: Tensor, quantiles: Tensor, given: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The loss to be minimised, and the cross-entropy per word that it stands for."""
        training, real = self.config.training, real_words(tokens)
        regions = self.model.regions(pictures).take(place)
        forced = None if training.teacher_forcing == 1.0 else given
        if self.phase.paradigm == "soft":
            output = self.model(regions, tokens, "soft", given=forced)
            loss = cross_entropy(word_log_prob(output.log_prob, tokens, real), real)
            return loss, loss.detach()
        output = self.model(regions, tokens, "drawn", quantiles, forced)
        words = word_log_prob(output.log_prob, tokens, real)
        reward = rewards(words, training.credit)
        baseline = self._baseline(reward, real)
        loss = reinforce_loss(words, place_log_prob(output, real), reward, baseline, real)
        if training.entropy_weight:
            loss = loss - training.entropy_weight * entropy_bonus(output.log_alpha, real)
        return loss, cross_entropy(words.detach(), real)

    def _baseline(self, reward: Tensor, real: Tensor) -> Tensor:
        """The moving average of the batches before, then brought up to date; a place's first batch sets its own."""
        length = reward.shape[1]
        batch = next_baseline(torch.zeros_like(reward[0]), reward, real, 0.0)
        before = torch.where(self.baseline[:length].isnan(), batch, self.baseline[:length])
        after = next_baseline(before, reward, real, self.config.training.baseline_momentum)
        self.baseline[:length] = torch.where(real.any(dim=0), after, self.baseline[:length])
        return before

    def _divergence(self, step: int) -> str:
        return (
            f"the {self.phase.paradigm} loss became NaN or infinite at step {step} of phase {self.number + 1} (epoch "
            f"{self.epoch + 1}) with learning rates {self.phase.encoder_learning_rate:g} and "
            f"{self.phase.decoder_learning_rate:g}: choose smaller ones."
        )

    def _save(self, path: Path) -> None:
        """Write the state between two epochs."""
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{index}/{slot}": value for slot, value in slots.items()}
        write_state(path, {"epoch": self.epoch, "rows": self.rows}, {**tensors, "baseline": self.baseline})

    def _resume(self, path: Path) -> None:
        """Put the state in `path` into the trainer; a damaged file is reported and left alone."""
        if (found := read_state(path)) is None:
            return
        content, tensors = found
        self.epoch, self.rows = content["epoch"], content["rows"]
        self.baseline = tensors.pop("baseline").to(self.numerics.device)
        slots: dict[int, dict[str, Any]] = {}
        for name in [name for name in tensors if name.startswith("optimizer/")]:
            _, index, slot = name.split("/")
            slots.setdefault(int(index), {})[slot] = tensors.pop(name)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self.model.load_state_dict({name.removeprefix("model/"): value for name, value in tensors.items()})

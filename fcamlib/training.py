"""Training: phases of one loss each, learning rates chosen on validation, checkpoints that resume bit for bit."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fcamlib.checkpoint import Candidate, FitState, Row, State, load_checkpoint, save_checkpoint, validation_score
from fcamlib.config import Phase, TrainingConfig
from fcamlib.data.sdc import SDCTask, distinct
from fcamlib.errors import DivergenceError
from fcamlib.evaluation import BatchScores, batch_scores, evaluate
from fcamlib.fcam import FCAM
from fcamlib.metrics import SAIF_THRESHOLD
from fcamlib.numerics import Numerics, reproducible

log = logging.getLogger(__name__)
CHECKPOINT_SECONDS = 20.0  # at least this long between checkpoints


@dataclass(frozen=True)
class FitResult:
    """History, one row per epoch of the chosen learning rates, and the report of their selection."""

    history: list[Row]
    selection: list[Row]


def fit(
    model: FCAM,
    task: SDCTask,
    phases: tuple[Phase, ...],
    config: TrainingConfig,
    seed: int,
    checkpoint: Path | None = None,
    on_epoch: Callable[[Row], None] | None = None,
) -> FitResult:
    """Train `model` in place through `phases`.

    In each phase every candidate learning rate starts from the same weights with a fresh optimiser and trains for
    `search_epochs`; the one with the best validation accuracy (ties: lower validation loss) goes on to the end of
    the phase. A candidate whose loss becomes NaN or infinite loses. Test data are measured, never used.

    Parameters
    ----------
    model : FCAM
        Initial weights in, trained weights out; on the device and in the format of `config`.
    task : SDCTask
        On the same device.
    phases : tuple of Phase
    config : TrainingConfig
    seed : int
        Draws the order of batches, alike for every candidate.
    checkpoint : path, optional
        File that is rewritten as training goes, and continued from if it exists.
    on_epoch : callable, optional
        Called with the row of each finished epoch.

    Raises
    ------
    DivergenceError
        When no candidate of a phase keeps a finite loss; the sentence names phase, epoch and step.
    """
    trainer = _Trainer(model, task, phases, config, seed, on_epoch)
    state = load_checkpoint(checkpoint, trainer.candidate) if checkpoint and checkpoint.exists() else None
    state = state or FitState(start=_copied(model))
    saved = time.monotonic()
    with reproducible(config.threads):
        while state.phase < len(phases):
            trainer.advance(state)
            if checkpoint and (time.monotonic() - saved > CHECKPOINT_SECONDS):
                save_checkpoint(checkpoint, state)
                saved = time.monotonic()
    model.load_state_dict(state.start)
    return FitResult(state.history, state.selection)


class _Trainer:
    """The steps of a fit; all that changes lies in the `FitState`."""

    def __init__(
        self,
        model: FCAM,
        task: SDCTask,
        phases: tuple[Phase, ...],
        config: TrainingConfig,
        seed: int,
        on_epoch: Callable[[Row], None] | None,
    ) -> None:
        self.model, self.task, self.phases, self.config, self.seed = model, task, phases, config, seed
        self.numerics = Numerics.of(config)
        self.on_epoch = on_epoch or (lambda row: None)

    def advance(self, state: FitState) -> None:
        """Do one epoch, or one change of candidate or phase."""
        phase = self.phases[state.phase]
        if state.number == len(phase.learning_rates):
            return self._finish(state, phase)
        if state.current is None:
            state.current = self.candidate(state.phase, phase.learning_rates[state.number])
            state.current.model.load_state_dict(state.start)
        candidate = state.current
        if not candidate.failure and candidate.epoch < (phase.search_epochs or phase.epochs):
            return self._epoch(state, candidate, phase)
        if len(phase.learning_rates) > 1:
            state.selection.append(self._report(state.phase, candidate))
        if state.winner is None or candidate.score(self.config.keep) > state.winner.score(self.config.keep):
            state.winner = candidate
        state.current, state.number = None, state.number + 1
        return None

    def _finish(self, state: FitState, phase: Phase) -> None:
        winner = state.winner
        assert winner is not None
        if winner.failure:
            raise DivergenceError(winner.failure)
        if winner.epoch < phase.epochs:
            return self._epoch(state, winner, phase)
        for row in state.selection:
            if row["phase"] == state.phase:
                row["chosen"] = row["learning_rate"] == winner.learning_rate
        state.start = winner.best if self.config.keep == "best" and winner.best else _copied(winner.model)
        state.history += winner.history
        state.phase, state.number, state.winner = state.phase + 1, 0, None
        return None

    def candidate(self, number: int, learning_rate: float) -> Candidate:
        """A candidate for phase `number` with a fresh optimiser, its weights still to be set."""
        phase, model = self.phases[number], copy.deepcopy(self.model)
        if phase.optimizer == "adam":
            optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=phase.momentum)
        return Candidate(model, optimizer, learning_rate)

    def _epoch(self, state: FitState, candidate: Candidate, phase: Phase) -> None:
        began = time.perf_counter()
        train = self._pass(candidate, phase.paradigm, state.phase)
        candidate.epoch += 1
        row: Row = {
            "epoch": candidate.epoch + sum(p.epochs for p in self.phases[: state.phase]),
            "phase": state.phase,
            "paradigm": phase.paradigm,
            "learning_rate": candidate.learning_rate,
            **{f"train_{key}": value for key, value in train.items()},
        }
        last = candidate.epoch in (phase.search_epochs, phase.epochs)
        if not candidate.failure and (last or candidate.epoch % self.config.evaluate_every == 0):
            row |= self._measures(candidate, phase.paradigm, state.phase)
        row["seconds"] = round(time.perf_counter() - began, 3)
        candidate.history.append(row)
        self.on_epoch(row)

    def _pass(self, candidate: Candidate, paradigm: str, phase: int) -> dict[str, float]:
        """One pass over the training data; nothing is read back from the device before its end."""
        data = self.task.splits["train"]
        order = self._order(len(data), phase, candidate.epoch).to(data.label.device)
        candidate.model.train()
        losses, meter = [], _Meter(data.label.device)
        for index in order.split(self.config.batch_size):
            batch = data.take(index)
            rows, places = distinct(batch.segments)
            segments = batch.bank.rows(rows, self.numerics.dtype, self.numerics.channels_last)
            with self.numerics.autocasting():
                output = candidate.model(segments, places, paradigm, batch.mask)
            loss = output.loss(paradigm, batch.label)
            candidate.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            candidate.optimizer.step()
            losses.append(loss.detach())
            with torch.no_grad():
                meter.add(batch_scores(output, batch, paradigm))
        finite = torch.isfinite(torch.stack(losses)).cpu()
        if not bool(finite.all()):
            step = candidate.epoch * len(losses) + int((~finite).nonzero()[0]) + 1
            candidate.failure = self._divergence(candidate, paradigm, phase, f"at step {step}")
        return meter.means()

    def _order(self, num_instances: int, phase: int, epoch: int) -> Tensor:
        """The order of instances in one epoch, a function of seed, phase and epoch alone."""
        draws = np.random.default_rng([self.seed, phase, epoch])
        return torch.from_numpy(draws.permutation(num_instances))

    def _measures(self, candidate: Candidate, paradigm: str, phase: int) -> Row:
        row: Row = {}
        for split in ("validation", "test"):
            scores = evaluate(candidate.model, self.task.splits[split], [paradigm], self.numerics)[paradigm]
            if not np.isfinite(scores.loss).all():
                candidate.failure = self._divergence(candidate, paradigm, phase, f"on {split} data")
                return row
            summary = scores.summary()
            row |= {f"{split}_{key}": summary[key] for key in ("loss", "accuracy", "focus_accuracy", "saif")}
        if self.config.keep == "best" and validation_score(row) > candidate.best_score:
            candidate.best, candidate.best_score = _copied(candidate.model), validation_score(row)
        return row

    def _divergence(self, candidate: Candidate, paradigm: str, phase: int, where: str) -> str:
        return (
            f"the {paradigm} loss became NaN or infinite {where} (phase {phase + 1} of {len(self.phases)}, epoch "
            f"{candidate.epoch + 1}) with learning rate {candidate.learning_rate:g}: choose a smaller one."
        )

    def _report(self, phase: int, candidate: Candidate) -> Row:
        accuracy, negative_loss = candidate.score(self.config.keep)
        return {
            "phase": phase,
            "learning_rate": candidate.learning_rate,
            "epochs": candidate.epoch,
            "validation_accuracy": None if candidate.failure else accuracy,
            "validation_loss": None if candidate.failure else -negative_loss,
            "failure": candidate.failure,
            "chosen": False,
        }


class _Meter:
    """Running means of an epoch's scores, kept on the device."""

    def __init__(self, device: torch.device) -> None:
        self.total = torch.zeros(4, dtype=torch.float64, device=device)
        self.count = 0

    def add(self, scores: BatchScores) -> None:
        strong = (scores.a_z > SAIF_THRESHOLD) & (scores.s_y > SAIF_THRESHOLD)
        columns = (scores.loss, scores.prediction_hit, scores.focus_hit, strong)
        self.total += torch.stack([column.double().sum() for column in columns])
        self.count += len(scores.loss)

    def means(self) -> dict[str, float]:
        values = (self.total / self.count).tolist()
        return dict(zip(("loss", "accuracy", "focus_accuracy", "saif"), values, strict=True))


def _copied(model: nn.Module) -> State:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


"""Training in phases of one loss each, with learning rates selected on validation data and exact resumption."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from fcamlib import checkpoint as checkpoints
from fcamlib.checkpoint import Row
from fcamlib.chunked import batch_output
from fcamlib.config import Phase, Training
from fcamlib.data.sdc import SDCData, SDCTask
from fcamlib.errors import DivergenceError
from fcamlib.evaluation import EVALUATION_MEASURES, Meter, batch_scores, evaluate
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics, reproducible

NO_SCORE = (-1.0, 0.0)  # below every validation score
OnEpoch = Callable[[FCAM, Row], None]


@dataclass
class Candidate:
    """A model during a phase, trained with one candidate learning rate."""

    model: FCAM
    optimizer: torch.optim.Optimizer
    learning_rate: float
    epoch: int = 0  # epochs done in this phase
    history: list[Row] = field(default_factory=list)
    failure: str = ""  # why it stopped, if the loss diverged
    search_score: tuple[float, float] = NO_SCORE  # by which candidates are compared
    best_score: tuple[float, float] = NO_SCORE  # of the best validation epoch
    best: dict[str, Tensor] | None = None  # its weights, if the run keeps those


@dataclass
class FitState:
    """State of a fit between two epochs: the content of a checkpoint."""

    start: dict[str, Tensor]  # weights at the beginning of the phase
    phase: int = 0
    candidates: list[Candidate] = field(default_factory=list)  # of the phase, in the order of its learning rates
    history: list[Row] = field(default_factory=list)  # of the finished phases, one row per epoch at the selected rate
    selection: list[Row] = field(default_factory=list)  # one row per compared learning rate


def fit(
    model: FCAM,
    task: SDCTask,
    phases: tuple[Phase, ...],
    config: Training,
    seed: int,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> FitState:
    """Train `model` in place through `phases`.

    In each phase every candidate learning rate starts from the same weights with a fresh optimiser and trains for
    `search_epochs`; the one with the best validation accuracy (ties: lower validation loss) continues to the end of
    the phase. A candidate is dropped if its loss becomes NaN or infinite; if none is left, `DivergenceError` names
    phase, epoch and step. Test data are evaluated but never influence training.

    Model and task are on the device and in the format given by `config`. `seed` draws the batch order, which all
    candidates share. The file `checkpoint` is rewritten during training, which resumes from it if it exists. After each
    epoch of every candidate whose loss is finite, `on_epoch` is called with the model, which it must not change, and
    the epoch's row.
    """
    trainer = _Trainer(model, task, phases, config, seed, checkpoint, on_epoch)
    state = trainer.state
    with reproducible(config.threads, trainer.numerics.tf32):
        for phase in phases[state.phase :]:
            for candidate in trainer.candidates(phase):
                trainer.train(candidate, phase, until=phase.compared_after)
            alive = [candidate for candidate in state.candidates if not candidate.failure]
            for best in sorted(alive, key=lambda candidate: candidate.search_score, reverse=True):
                if trainer.train(best, phase, until=phase.epochs):  # if it diverges, the next best continues
                    break
            else:
                raise DivergenceError(state.candidates[0].failure)
            trainer.end_phase(best)
    model.load_state_dict(state.start)
    return state


@dataclass
class _Trainer:
    """The steps of a fit; all mutable state is in the `FitState`."""

    model: FCAM
    task: SDCTask
    phases: tuple[Phase, ...]
    config: Training
    seed: int
    checkpoint: Path | None
    on_epoch: OnEpoch | None

    def __post_init__(self) -> None:
        self.numerics = Numerics.of(self.config)
        self.interval, self.saved = checkpoints.seconds_between(), time.monotonic()
        found = checkpoints.load(self.checkpoint, self._restored) if self.checkpoint else None
        self.state: FitState = found or FitState(start=_copied(self.model))

    def candidates(self, phase: Phase) -> Iterator[Candidate]:
        """The candidates of the phase, one per learning rate, each with the initial weights of the phase."""
        yield from list(self.state.candidates)
        for learning_rate in phase.learning_rates[len(self.state.candidates) :]:
            self.state.candidates.append(self._new(phase, learning_rate))
            yield self.state.candidates[-1]

    def train(self, candidate: Candidate, phase: Phase, until: int) -> bool:
        """Train a candidate up to epoch `until` of its phase; return whether its loss is finite."""
        while candidate.epoch < until and not candidate.failure:
            row = self._epoch(candidate, phase)
            candidate.history.append(row)
            if self.on_epoch and not candidate.failure:
                self.on_epoch(candidate.model, row)
            self._save()
        return not candidate.failure

    def end_phase(self, winner: Candidate) -> None:
        """Keep the winner's weights and history, and report the comparison."""
        state = self.state
        if len(state.candidates) > 1:
            state.selection += [_report(state.phase, candidate, candidate is winner) for candidate in state.candidates]
        state.start = winner.best if self.config.keep == "best" and winner.best else _copied(winner.model)
        state.history += winner.history
        state.phase, state.candidates = state.phase + 1, []
        self._save()

    def _epoch(self, candidate: Candidate, phase: Phase) -> Row:
        """Train for one epoch and return its row, with measures on validation and test data if they are due."""
        began, train = time.perf_counter(), self.task.splits["train"]
        draws = np.random.default_rng([self.seed, self.state.phase, candidate.epoch])
        order = torch.from_numpy(draws.permutation(len(train))).to(train.label.device)
        measures, bad_step = training_pass(
            candidate.model, candidate.optimizer, train, order, phase.paradigm, self.numerics, self.config.batch_size
        )
        if bad_step:
            number = candidate.epoch * math.ceil(len(train) / self.config.batch_size) + bad_step
            candidate.failure = self._divergence(candidate, phase, f"at step {number}")
        candidate.epoch += 1
        row: Row = {
            "epoch": candidate.epoch + sum(p.epochs for p in self.phases[: self.state.phase]),
            "phase": self.state.phase,
            "paradigm": phase.paradigm,
            "learning_rate": candidate.learning_rate,
            **{f"train_{key}": value for key, value in measures.items()},
        }
        if phase.is_measured(candidate.epoch, self.config.evaluate_every) and not candidate.failure:
            row |= self._measures(candidate, phase)
        row["seconds"] = round(time.perf_counter() - began, 3)
        return row

    def _measures(self, candidate: Candidate, phase: Phase) -> Row:
        """Measures on validation and test data; validation selects the weights and learning rates to keep."""
        row: Row = {}
        for split in ("validation", "test"):
            scores = evaluate(candidate.model, self.task.splits[split], [phase.paradigm], self.numerics)
            if np.isfinite(scores[phase.paradigm].loss).all():
                summary = scores[phase.paradigm].summary()
                row |= {f"{split}_{key}": summary[key] for key in EVALUATION_MEASURES if key in summary}
            elif split == "validation":  # test data never decide
                candidate.failure = self._divergence(candidate, phase, "on validation data")
                return row
        score = (row["validation_accuracy"], -row["validation_loss"])
        if self.config.keep == "best" and score > candidate.best_score:
            candidate.best, candidate.best_score = _copied(candidate.model), score
        if candidate.epoch <= phase.compared_after:
            candidate.search_score = candidate.best_score if self.config.keep == "best" else score
        return row

    def _divergence(self, candidate: Candidate, phase: Phase, where: str) -> str:
        return (
            f"the {phase.paradigm} loss became NaN or infinite {where} (phase {self.state.phase + 1} of "
            f"{len(self.phases)}, epoch {len(candidate.history) + 1}) with learning rate "
            f"{candidate.learning_rate:g}: choose a smaller one."
        )

    def _new(self, phase: Phase, learning_rate: float) -> Candidate:
        """A candidate with the phase's initial weights and a fresh optimiser."""
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.state.start)
        if phase.optimizer == "sgd":
            optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), learning_rate, phase.momentum)
        else:
            optimizer = torch.optim.Adam(model.parameters(), learning_rate)
        return Candidate(model, optimizer, learning_rate)

    def _save(self) -> None:
        """Write a checkpoint if the last one is old enough."""
        if self.checkpoint is None or time.monotonic() - self.saved <= self.interval:
            return
        candidates = [
            vars(candidate) | {"model": candidate.model.state_dict(), "optimizer": candidate.optimizer.state_dict()}
            for candidate in self.state.candidates
        ]
        checkpoints.save(self.checkpoint, vars(self.state) | {"candidates": candidates})
        self.saved = time.monotonic()

    def _restored(self, content: checkpoints.State) -> FitState:
        """The state stored in a checkpoint."""
        stored = content.pop("candidates")
        self.state = FitState(**content)
        copy.deepcopy(self.model).load_state_dict(self.state.start)  # fails if it belongs to another model
        for parts in stored:
            fresh = self._new(self.phases[self.state.phase], parts["learning_rate"])
            fresh.model.load_state_dict(parts.pop("model"))
            fresh.optimizer.load_state_dict(parts.pop("optimizer"))
            self.state.candidates.append(replace(fresh, **parts))
        return self.state


def _report(phase: int, candidate: Candidate, chosen: bool) -> Row:
    """A candidate's row in the selection report."""
    accuracy, negative_loss = candidate.search_score
    is_compared = candidate.search_score > NO_SCORE
    return {
        "phase": phase,
        "learning_rate": candidate.learning_rate,
        "epochs": candidate.epoch,
        "validation_accuracy": accuracy if is_compared else None,
        "validation_loss": -negative_loss if is_compared else None,
        "failure": candidate.failure,
        "chosen": chosen,
    }


def training_pass(
    model: FCAM,
    optimizer: torch.optim.Optimizer,
    data: SDCData,
    order: Int[Tensor, " n"],
    paradigm: str,
    numerics: Numerics,
    batch_size: int,
) -> tuple[dict[str, float], int]:
    """One pass over the training data, in place; nothing is read back from the device before it ends.

    Returns the means of the measures, each batch measured before its step, and the number, from 1, of the first step
    whose loss was NaN or infinite (0 if none was).
    """
    model.train()
    losses, meter = [], Meter(data.label.device)
    for index in order.split(batch_size):
        batch = data.take(index).trimmed()
        output = batch_output(model, batch, paradigm, numerics)
        loss = output.loss(paradigm, batch.label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        with torch.no_grad():
            meter.add(batch_scores(output, batch, paradigm))
    bad = torch.isfinite(torch.stack(losses)).logical_not().nonzero().flatten().tolist()
    return meter.means(), bad[0] + 1 if bad else 0


def _copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}

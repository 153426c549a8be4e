"""Training: phases of one loss each, learning rates chosen on validation, checkpoints that resume bit for bit."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fcamlib.checkpoint import (
    NO_SCORE,
    Candidate,
    FitState,
    Row,
    State,
    load_checkpoint,
    save_checkpoint,
    seconds_between,
    validation_score,
)
from fcamlib.chunked import batch_output
from fcamlib.config import Phase, TrainingConfig
from fcamlib.data.sdc import SDCTask
from fcamlib.ensemble_training import TrainingMember, can_train_together, pass_together
from fcamlib.errors import DivergenceError
from fcamlib.evaluation import batch_scores, evaluate
from fcamlib.fcam import FCAM
from fcamlib.meter import EVALUATION_MEASURES, Meter, PassResult
from fcamlib.numerics import Numerics, reproducible

log = logging.getLogger(__name__)
CHECKPOINT_SECONDS = 20.0  # at least this long between checkpoints, where the user does not say otherwise


@dataclass(frozen=True)
class FitResult:
    """History, one row per epoch of the chosen learning rates, the report of their selection, and how many fits trained
    together, which is one where each did by itself."""

    history: list[Row]
    selection: list[Row]
    together: int = 1


@dataclass(frozen=True)
class Fit:
    """A model to train, with what `fit` takes for it alone.

    `on_state` is called with the state of the fit at its start and after each epoch, and must not change it.
    """

    model: FCAM
    task: SDCTask
    seed: int
    checkpoint: Path | None = None
    on_epoch: Callable[[Row], None] | None = None
    on_model: Callable[[FCAM, Row], None] | None = None
    on_state: Callable[[FitState], None] | None = None


def fit(
    model: FCAM,
    task: SDCTask,
    phases: tuple[Phase, ...],
    config: TrainingConfig,
    seed: int,
    checkpoint: Path | None = None,
    on_epoch: Callable[[Row], None] | None = None,
    on_model: Callable[[FCAM, Row], None] | None = None,
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
    on_model : callable, optional
        Called with the model in training and the row of each finished epoch, those of every candidate; it may look at
        the model and must not change it.

    Raises
    ------
    DivergenceError
        When no candidate of a phase keeps a finite loss; the sentence names phase, epoch and step.
    """
    (result,) = fit_together([Fit(model, task, seed, checkpoint, on_epoch, on_model)], phases, config)
    if isinstance(result, DivergenceError):
        raise result
    return result


def fit_together(
    fits: Sequence[Fit], phases: tuple[Phase, ...], config: TrainingConfig
) -> list[FitResult | DivergenceError]:
    """Train several models, such as those of several seeds, epoch by epoch; the passes of all at once where they can.

    Parameters
    ----------
    fits : sequence of Fit
        Models of one architecture, tasks of equal sizes.
    phases, config
        As `fit` takes them.

    Returns
    -------
    list
        For each fit what `fit` would return or raise. One that diverges does not stop the others.
    """
    trainers = [_Trainer(one, phases, config) for one in fits]
    results: dict[int, FitResult | DivergenceError] = {}
    with reproducible(config.threads, trainers[0].numerics.tf32):
        waiting = {place: trainer.passes() for place, trainer in enumerate(trainers)}
        answers: dict[int, Answer] = {}
        while waiting:
            wanted: dict[int, Pass] = {}
            for place, passes in list(waiting.items()):
                try:
                    wanted[place] = passes.send(answers[place]) if place in answers else next(passes)
                except (StopIteration, DivergenceError) as end:
                    results[place] = trainers[place].result() if isinstance(end, StopIteration) else end
                    del waiting[place]
            answers = dict(zip(wanted, _answers(list(wanted.values()), trainers[0].numerics, config), strict=True))
    return [results[place] for place in range(len(fits))]


@dataclass(frozen=True)
class Pass:
    """A pass over the training data that a fit wants, of one candidate or of several."""

    members: list[TrainingMember]
    phase: Phase


Answer = tuple[list[PassResult], float, int]  # of each member; the seconds that one took; fits that shared the pass
Passes = Generator[Pass, Answer, None]


def _answers(wanted: list[Pass], numerics: Numerics, config: TrainingConfig) -> list[Answer]:
    """Do the passes: those of one paradigm at once where their members can train together."""
    answers: dict[int, Answer] = {}
    for phase in dict.fromkeys(one.phase for one in wanted):
        places = [place for place, one in enumerate(wanted) if one.phase == phase]
        members = [member for place in places for member in wanted[place].members]
        at_once = can_train_together(
            members[0].model, members[0].data, len(members), phase, numerics, config.batch_size
        )
        for group in [places] if at_once else [[place] for place in places]:
            members = [member for place in group for member in wanted[place].members]
            began = time.perf_counter()
            if len(members) > 1:
                found = pass_together(members, phase.paradigm, numerics, config.batch_size)
            else:
                found = [training_pass(members[0], phase.paradigm, numerics, config.batch_size)]
            seconds, left = (time.perf_counter() - began) / len(members), iter(found)
            for place in group:
                answers[place] = [next(left) for _ in wanted[place].members], seconds, len(group)
    return [answers[place] for place in range(len(wanted))]


class _Trainer:
    """The steps of a fit; all that changes lies in the `FitState`."""

    def __init__(self, fit: Fit, phases: tuple[Phase, ...], config: TrainingConfig) -> None:
        self.fit, self.model, self.task, self.phases, self.config = fit, fit.model, fit.task, phases, config
        self.numerics, self.together = Numerics.of(config), 1
        self.on_epoch = fit.on_epoch or (lambda row: None)
        self.on_model = fit.on_model or (lambda model, row: None)
        self.on_state = fit.on_state or (lambda state: None)
        found = load_checkpoint(fit.checkpoint, self.candidate) if fit.checkpoint and fit.checkpoint.exists() else None
        self.state = found or FitState(start=_copied(fit.model))

    def result(self) -> FitResult:
        """What came of it, with the trained weights in the model."""
        self.model.load_state_dict(self.state.start)
        return FitResult(self.state.history, self.state.selection, self.together)

    def passes(self) -> Passes:
        """Train to the end: ask for each pass over the training data, take its results, and keep a checkpoint."""
        interval, saved = seconds_between(CHECKPOINT_SECONDS), time.monotonic()
        self.on_state(self.state)
        while self.state.phase < len(self.phases):
            yield from self.advance(self.state)
            self.on_state(self.state)
            if self.fit.checkpoint and (time.monotonic() - saved > interval):
                save_checkpoint(self.fit.checkpoint, self.state)
                saved = time.monotonic()

    def advance(self, state: FitState) -> Passes:
        """Do one epoch, of one candidate or of all that train together, or one change of candidate or phase."""
        phase, candidates = self.phases[state.phase], state.candidates
        search = phase.compared_after
        searching = [c for c in candidates if not c.failure and c.epoch < search]
        missing = phase.learning_rates[len(candidates) :]
        data, number = self.task.splits["train"], len(phase.learning_rates)
        together = can_train_together(self.model, data, number, phase, self.numerics, self.config.batch_size)
        if missing and (together or not searching):
            for learning_rate in missing if together else missing[:1]:
                candidates.append(self.candidate(state.phase, learning_rate))
                candidates[-1].model.load_state_dict(state.start)
        elif searching:
            least = min(candidate.epoch for candidate in searching)
            yield from self._epoch(state, [c for c in searching if c.epoch == least], phase)
        else:
            yield from self._go_on(state, phase)

    def _go_on(self, state: FitState, phase: Phase) -> Passes:
        """Train the best candidate to the end of the phase; where its loss diverges the next best takes over."""
        alive = [candidate for candidate in state.candidates if not candidate.failure]
        if not alive:
            raise DivergenceError(state.candidates[0].failure)
        winner = max(alive, key=lambda candidate: candidate.search_score)
        if winner.epoch < phase.epochs:
            yield from self._epoch(state, [winner], phase)
            return
        if len(state.candidates) > 1:
            state.selection += [self._report(state.phase, c, c is winner) for c in state.candidates]
        state.start = winner.best if self.config.keep == "best" and winner.best else _copied(winner.model)
        state.history += winner.history
        state.phase, state.candidates = state.phase + 1, []

    def candidate(self, number: int, learning_rate: float) -> Candidate:
        """A candidate for phase `number` with a fresh optimiser, its weights still to be set."""
        phase, model = self.phases[number], copy.deepcopy(self.model)
        if phase.optimizer == "adam":
            optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=phase.momentum)
        return Candidate(model, optimizer, learning_rate)

    def _epoch(self, state: FitState, group: list[Candidate], phase: Phase) -> Passes:
        """One epoch of candidates that have done equally many; of one, unless they train together."""
        data = self.task.splits["train"]
        order = self._order(len(data), state.phase, group[0].epoch).to(data.label.device)
        results, trained, fits = yield Pass([TrainingMember(c.model, c.optimizer, data, order) for c in group], phase)
        self.together = max(self.together, fits)
        for candidate, result in zip(group, results, strict=True):
            began = time.perf_counter()
            if result.bad_step:
                number = candidate.epoch * self.steps_per_epoch + result.bad_step
                candidate.failure = self._divergence(candidate, phase.paradigm, state.phase, f"at step {number}")
            candidate.epoch += 1
            row = self._measured(state, candidate, phase, result)
            row["seconds"] = round(trained + time.perf_counter() - began, 3)
            candidate.history.append(row)
            if not candidate.failure:
                self.on_model(candidate.model, row)
            self.on_epoch(row)

    def _measured(self, state: FitState, candidate: Candidate, phase: Phase, result: PassResult) -> Row:
        """The row of an epoch; where it is due, with measures on validation and test data."""
        row: Row = {
            "epoch": candidate.epoch + sum(p.epochs for p in self.phases[: state.phase]),
            "phase": state.phase,
            "paradigm": phase.paradigm,
            "learning_rate": candidate.learning_rate,
            **{f"train_{key}": value for key, value in result.measures.items()},
        }
        due = phase.is_measured(candidate.epoch, self.config.evaluate_every)
        if due and not candidate.failure:
            row |= self._measures(candidate, phase.paradigm, state.phase)
        if due and not candidate.failure:
            self._judge(candidate, row, phase.compared_after)
        return row

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a pass over the training data."""
        return math.ceil(len(self.task.splits["train"]) / self.config.batch_size)

    def _order(self, num_instances: int, phase: int, epoch: int) -> Tensor:
        """The order of instances in one epoch, a function of seed, phase and epoch alone."""
        draws = np.random.default_rng([self.fit.seed, phase, epoch])
        return torch.from_numpy(draws.permutation(num_instances))

    def _measures(self, candidate: Candidate, paradigm: str, phase: int) -> Row:
        row: Row = {}
        for split in ("validation", "test"):
            scores = evaluate(candidate.model, self.task.splits[split], [paradigm], self.numerics)[paradigm]
            if np.isfinite(scores.loss).all():
                summary = scores.summary()
                row |= {f"{split}_{key}": summary[key] for key in EVALUATION_MEASURES if key in summary}
            elif split == "validation":  # test data never decide
                candidate.failure = self._divergence(candidate, paradigm, phase, "on validation data")
                return row
        return row

    def _judge(self, candidate: Candidate, row: Row, search: int) -> None:
        """Keep the score that learning rates are compared by, and the weights of the best epoch so far."""
        score = validation_score(row)
        if self.config.keep == "best" and score > candidate.best_score:
            candidate.best, candidate.best_score = _copied(candidate.model), score
        if candidate.epoch <= search:
            candidate.search_score = candidate.best_score if self.config.keep == "best" else score

    def _divergence(self, candidate: Candidate, paradigm: str, phase: int, where: str) -> str:
        return (
            f"the {paradigm} loss became NaN or infinite {where} (phase {phase + 1} of {len(self.phases)}, epoch "
            f"{len(candidate.history) + 1}) with learning rate {candidate.learning_rate:g}: choose a smaller one."
        )

    def _report(self, phase: int, candidate: Candidate, chosen: bool) -> Row:
        accuracy, negative_loss = candidate.search_score
        compared = candidate.search_score > NO_SCORE
        return {
            "phase": phase,
            "learning_rate": candidate.learning_rate,
            "epochs": candidate.epoch,
            "validation_accuracy": accuracy if compared else None,
            "validation_loss": -negative_loss if compared else None,
            "failure": candidate.failure,
            "chosen": chosen,
        }


def training_pass(member: TrainingMember, paradigm: str, numerics: Numerics, batch_size: int) -> PassResult:
    """One pass of a model over its training data, in place; nothing is read back from the device before its end."""
    member.model.train()
    losses, meter = [], Meter(member.data.label.device)
    for index in member.order.split(batch_size):
        batch = member.data.take(index).trimmed()
        output = batch_output(member.model, batch, paradigm, numerics)
        loss = output.loss(paradigm, batch.label)
        member.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        member.optimizer.step()
        losses.append(loss.detach())
        with torch.no_grad():
            meter.add(batch_scores(output, batch, paradigm))
    return PassResult.of(meter, losses)


def _copied(model: nn.Module) -> State:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}

"""How long runs will take: from the epochs of stored runs, or from training steps that have been timed.

Only training and evaluation count, not the start of a process. Nothing here imports torch or measures anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fcamlib.config import Phase, RunConfig
from fcamlib.progress import epochs_of
from fcamlib.store import Result


@dataclass(frozen=True)
class Timing:
    """What a phase of training is made of, in seconds.

    Parameters
    ----------
    step : float
        A training step of one model.
    evaluation : float
        A pass over validation and test data.
    together : float, optional
        A training step of all learning rates at once, where they train together.
    """

    step: float
    evaluation: float
    together: float | None = None


def phase_seconds(phase: Phase, num_train: int, batch_size: int, evaluate_every: int, timing: Timing) -> float:
    """Seconds of a phase: the compared learning rates to the end of the search, then the best of them alone."""
    steps, rates = math.ceil(num_train / batch_size), len(phase.learning_rates)
    search = phase.compared_after
    due = [epoch for epoch in range(1, phase.epochs + 1) if phase.is_measured(epoch, evaluate_every)]
    searched = sum(epoch <= search for epoch in due)
    searching = search * steps * (rates * timing.step if timing.together is None else timing.together)
    alone = (phase.epochs - search) * steps * timing.step
    return searching + alone + (rates * searched + len(due) - searched) * timing.evaluation


def kind(config: RunConfig, phase: Phase) -> str:
    """What the seconds of an epoch depend on, but for the number of training instances, which they grow with."""
    portable = config.portable  # a folder of pictures may lie elsewhere
    parts = (
        portable.data.model_dump(mode="json", exclude={"num_train"}),
        config.model.model_dump(mode="json"),
        config.training.model_dump(mode="json", exclude={"keep"}),
        (phase.paradigm, phase.optimizer, len(phase.learning_rates)),
    )
    return json.dumps(parts, sort_keys=True)


def num_train_of(config: RunConfig) -> int:
    """Training instances that a config asks for; 0 where a user's own file decides."""
    return getattr(config.data, "num_train", 0)


@dataclass(frozen=True)
class Pace:
    """Seconds of an epoch as a run had them, and its number of training instances; 0 where its file says how many."""

    seconds: float
    num_train: int

    def of(self, num_train: int) -> float:
        """Seconds of an epoch with `num_train` instances."""
        return self.seconds * num_train / self.num_train if self.num_train else self.seconds


def paces(runs: Iterable[Result], device_of: Callable[[RunConfig], str]) -> dict[str, list[Pace]]:
    """What the runs say of each kind of epoch, those alone that were computed on what this machine would use."""
    found: dict[str, list[Pace]] = {}
    for run in runs:
        if run.summary["provenance"]["device"] != device_of(run.config):
            continue
        seconds = run.history.groupby("phase")["seconds"].mean()
        for number, phase in enumerate(run.config.phases):
            pace = Pace(float(seconds[number]), num_train_of(run.config))
            found.setdefault(kind(run.config, phase), []).append(pace)
    return found


def seconds_like_stored(config: RunConfig, known: Mapping[str, Sequence[Pace]]) -> float | None:
    """Seconds that training takes at the pace of stored runs, their median; None where no run tells."""
    total = 0.0
    for phase in config.phases:
        if not (told := known.get(kind(config, phase))):
            return None
        total += epochs_of(phase) * median(pace.of(num_train_of(config)) for pace in told)
    return total


def duration(seconds: float) -> str:
    """Seconds in hours and minutes: "3 h 5 min", "12 min", "under 1 min"."""
    if seconds < 60:
        return "under 1 min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join([f"{hours:,} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0))


def counted(number: int, what: str = "run") -> str:
    """A number with its noun."""
    return f"{number} {what}" + ("" if number == 1 else "s")

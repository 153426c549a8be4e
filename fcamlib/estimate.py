"""How long configs will take: at the pace of stored results, or of a few training steps that are timed now.

Only training and evaluation count, not the start of a process. Torch is imported where steps are timed alone.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from statistics import median
from typing import Any, NamedTuple

from fcamlib import paths, store
from fcamlib.config import CaptionRun, Config, CrossValidation, Phase, Run, Study
from fcamlib.errors import DataError, UserError
from fcamlib.provenance import device_name, slow_bfloat16
from fcamlib.store import Result

NUM_STEPS = 3  # timed after one that is not; their median counts
TIMED = f"{NUM_STEPS} training steps and one evaluation of each kind of run were timed just now"
LIKE_STORED = (
    "stored runs on the same hardware with the same data, networks and losses were taken as a measure, scaled by their "
    "training instances"
)


def listing(configs: Sequence[Config], timed: bool) -> Iterator[str]:
    """A line for each config, with its time where it is not stored; then the total, and how it was estimated.

    `timed` says whether to time training steps, rather than to go by stored results.
    """
    found = {config.name: store.find(config) for config in configs}
    missing = [config for config in configs if found[config.name] is None]
    known = paces([*store.every(), *store.every(recorded=True)]) if missing and not timed else {}
    told = {one.name: _told(one, timed_seconds if timed else partial(seconds_like_stored, known)) for one in missing}
    seconds = {name: value for name, value in told.items() if isinstance(value, float)}
    for config in configs:
        stored, taking = found[config.name], seconds.get(config.name)
        state = _state(config) if stored is None else "recorded" if stored.is_recorded else "stored"
        yield f"{config.name}  {state}" + (f"  {duration(taking)}" if taking is not None else "")
    trained = [config.training for config in missing if isinstance(config, Run | CaptionRun | Study)]
    if seconds:
        whole = counted(len(missing)) if len(seconds) == len(missing) else f"{len(seconds)} of {counted(len(missing))}"
        devices = ", ".join(sorted({device_name(training) for training in trained}))
        yield (
            f"In all {duration(sum(seconds.values()))} of training for {whole} not stored, one after the other, on "
            f"{devices}: {TIMED if timed else LIKE_STORED}."
        )
    for fault, number in Counter(value for value in told.values() if isinstance(value, str)).items():
        yield f"{counted(number)} cannot be timed: {fault}"
    yield from sorted({sentence for training in trained if (sentence := slow_bfloat16(training))})


def _state(config: Config) -> str:
    """How far a config is that is not stored."""
    rows = len(store.kept_rows(store.partial_dir(config) / store.ROWS))
    if isinstance(config, Study | CrossValidation):
        return f"{'begun' if rows else 'to do'}, {rows} of {config.steps} trainings"
    return "begun" if config.name in store.unfinished() else "to do"


def _told(config: Config, estimator: Callable[[Any], float | str]) -> float | str:
    """Seconds of all trainings of a config, or why they are not known."""
    if not isinstance(config, Run | CaptionRun | Study):
        return "only trainings on pictures, posts, series and bags have an estimate."
    parts = [estimator(run) for run in (config.runs() if isinstance(config, Study) else [config])]
    return next((part for part in parts if isinstance(part, str)), "") or math.fsum(map(float, parts))


def duration(seconds: float) -> str:
    """Seconds in hours and minutes: "3 h 5 min", "12 min", "under 1 min"."""
    if seconds < 60:
        return "under 1 min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join([f"{hours:,} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0))


def counted(number: int, what: str = "run") -> str:
    """A number with its noun."""
    return f"{number} {what}" + ("" if number == 1 else "s")


# --- at the pace of stored results ------------------------------------------------------------------------------------


def paces(results: Iterable[Result]) -> dict[str, list[float]]:
    """Seconds of an epoch per training instance, by kind of epoch, of results computed on what would be used here."""
    found: dict[str, list[float]] = {}
    for result in results:
        config = result.config
        if isinstance(config, Run | CaptionRun) and _device(result) == device_name(config.training):
            seconds = result.history.groupby("phase")["seconds"].mean()
            for number, phase in enumerate(config.phases):
                found.setdefault(_kind(config, phase), []).append(float(seconds[number]) / _num_train(config))
    return found


def seconds_like_stored(known: Mapping[str, Sequence[float]], config: Run | CaptionRun) -> float | str:
    """Seconds that training takes at the median pace of stored results, or that no result tells."""
    told = [(phase, known.get(_kind(config, phase))) for phase in config.phases]
    if not all(pace for _, pace in told):
        here = device_name(config.training)
        return f"no stored run on this hardware ({here}) is like them; --estimate trains a few steps and times them."
    return math.fsum(phase.steps * median(pace) * _num_train(config) for phase, pace in told if pace)


def _device(result: Result) -> str:
    return result.summary["provenance"]["device"]


def _kind(config: Run | CaptionRun, phase: Any) -> str:
    """What the seconds of an epoch depend on, but for the number of training instances, which they grow with."""
    parts = (
        config.portable.data.model_dump(mode="json", exclude={"num_train"}),  # a folder may lie elsewhere
        config.model.model_dump(mode="json"),
        config.training.model_dump(mode="json", exclude={"keep"}),
        (phase.paradigm, getattr(phase, "optimizer", ""), len(getattr(phase, "learning_rates", "1"))),
    )
    return json.dumps(parts, sort_keys=True)


def _num_train(config: Run | CaptionRun) -> int:
    return getattr(config.data, "num_train", 0) or 1  # a user's own file says how many


# --- at the pace of steps that are timed ------------------------------------------------------------------------------


class Timing(NamedTuple):
    """Seconds of a training step, and of a pass over validation and test data."""

    step: float
    evaluation: float


def timed_seconds(config: Run | CaptionRun) -> float | str:
    """Seconds that training takes at the pace of a few steps, or why it cannot be timed; each kind is timed once."""
    if isinstance(config, CaptionRun):
        return "captioning runs are not timed; --list goes by stored ones."
    found = _timings(config.model_copy(update={"seed": 0}))
    if isinstance(found, str):
        return found
    size, every = config.training.batch_size, config.training.evaluate_every
    return math.fsum(
        phase_seconds(phase, found[0], size, every, timing)
        for phase, timing in zip(config.phases, found[1], strict=True)
    )


def phase_seconds(phase: Phase, num_train: int, batch_size: int, evaluate_every: int, timing: Timing) -> float:
    """Seconds of a phase: the compared learning rates to the end of the search, then the best of them alone."""
    due = [epoch for epoch in range(1, phase.epochs + 1) if phase.is_measured(epoch, evaluate_every)]
    searched = sum(epoch <= phase.compared_after for epoch in due)
    evaluations = len(phase.learning_rates) * searched + len(due) - searched
    return phase.steps * math.ceil(num_train / batch_size) * timing.step + evaluations * timing.evaluation


@lru_cache
def _timings(config: Run) -> tuple[int, list[Timing]] | str:
    """Number of training instances and a timing for each phase, or the fault of data or device."""
    from fcamlib import running
    from fcamlib.data.pictures import CIFAR, cifar_state
    from fcamlib.numerics import Numerics, reproducible

    source = config.data.source
    try:
        if source in CIFAR and cifar_state(source) == "absent":
            raise DataError(f"dataset='{source}' is not in '{paths.data_dir()}' yet: the first run downloads it.")
        numerics = Numerics.of(config.training)
        running.require_same_data(config.data)
        data = running.data(config.data, config.seed).to(numerics.device)
        model = running.build_model(config, data)
    except UserError as error:
        return str(error)
    with reproducible(config.training.threads, numerics.tf32):
        timings = [_timing(model, data, phase, numerics, config.training.batch_size) for phase in config.phases]
    return len(data.splits["train"]), timings


def _timing(model: Any, data: Any, phase: Phase, numerics: Any, batch_size: int) -> Timing:
    """Time steps and an evaluation with a copy of the model."""
    import torch

    from fcamlib.evaluation import evaluate
    from fcamlib.training import training_pass

    train, trained = data.splits["train"], copy.deepcopy(model)
    order = torch.arange(min(batch_size, len(train)), device=train.label.device)
    optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[phase.optimizer](trained.parameters(), lr=1e-3)

    def evaluation() -> None:
        for split in ("validation", "test"):
            evaluate(trained, data.splits[split], [phase.paradigm], numerics)

    step = _seconds(lambda: training_pass(trained, optimizer, train, order, phase.paradigm, numerics, batch_size))
    return Timing(step, _seconds(evaluation, repeats=1))


def _seconds(call: Callable[[], object], repeats: int = NUM_STEPS) -> float:
    """Median seconds of a call; where it is repeated, after one that is not counted."""
    taken = []
    for _ in range(repeats + (repeats > 1)):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return median(taken[-repeats:])

"""Estimates of run time, from stored results or from a few training steps timed on the spot.

They cover training and evaluation, but not the start of a process.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from statistics import median
from typing import Any

from fcamlib import paths, store
from fcamlib.config import CaptionRun, Config, CrossValidation, Run, Study
from fcamlib.errors import DataError, UserError
from fcamlib.provenance import device_name, slow_bfloat16
from fcamlib.store import Result

HELD_OUT = ("validation", "test")
NUM_STEPS = 3  # timed after one warm-up step; the median is used
TIMED = f"{NUM_STEPS} training steps and one evaluation of each kind of run were timed just now"
LIKE_STORED = "estimated from stored runs of the same kind on the same hardware, scaled by their training instances"
Pace = Callable[[Any, int], float]  # a run and the number of a phase -> seconds of an epoch; UserError where unknown


def listing(configs: Sequence[Config], timed: bool, fresh: bool = False, recorded: bool = True) -> Iterator[str]:
    """One line per config, with a time if it would run; then the total, from stored results or `timed` steps."""
    found = {config.name: None if fresh else store.find(config, recorded, report=False) for config in configs}
    missing = [config for config in configs if found[config.name] is None]
    pace = timed_pace if timed or not missing else stored_pace([*store.every(), *store.every(recorded=True)])
    seconds: dict[str, float] = {}
    unknown, shared = Counter[str](), set[str]()
    for config in missing:
        try:
            seconds[config.name] = training_seconds(config, pace, shared)
        except UserError as error:
            unknown[str(error)] += 1
    for config in configs:
        stored = found[config.name]
        state = _state(config) if stored is None else "recorded" if stored.is_recorded else "stored"
        yield f"{config.name}  {state}" + (f"  {duration(seconds[config.name])}" if config.name in seconds else "")
    trained = [config.training for config in missing if isinstance(config, Run | CaptionRun | Study)]
    if seconds:
        whole = f"{len(seconds)} of {len(missing)}" if unknown else str(len(missing))
        devices = ", ".join(sorted({device_name(training) for training in trained}))
        total = f"In total {duration(sum(seconds.values()))} of training for {whole} run(s) not stored"
        yield f"{total}, one after the other, on {devices}: {TIMED if timed else LIKE_STORED}."
    yield from (f"{number} run(s) cannot be timed: {why}" for why, number in unknown.items())
    yield from sorted({sentence for training in trained if (sentence := slow_bfloat16(training))})


def _state(config: Config) -> str:
    """The progress of a config that is not stored."""
    if isinstance(config, Study | CrossValidation):
        rows = len(store.kept_rows(store.partial_dir(config)))
        return f"{'begun' if rows else 'to do'}, {rows} of {config.steps} trainings"
    return "begun" if config.name in store.unfinished() else "to do"


def training_seconds(config: Config, pace: Pace, shared: set[str]) -> float:
    """Seconds for all epochs of a config, of a study for its missing runs; `UserError` says why they are not known.

    First phases that several captioning runs share count once: `shared` has the names of those already counted.
    """
    if not isinstance(config, Run | CaptionRun | Study):
        raise UserError("there are estimates only for training on pictures, posts, series and bags.")
    runs: Iterable[Any] = [config]
    if isinstance(config, Study):
        done = {row["run"] for row in store.kept_rows(store.partial_dir(config))}
        runs = (run for run in config.runs() if run.name not in done)
    start, first = 0, getattr(config, "prefix", None)
    if first and (first.name in shared or store.find(first, recorded=False, report=False)):
        start = len(first.phases)
    total = math.fsum(run.phases[n].steps * pace(run, n) for run in runs for n in range(start, len(run.phases)))
    shared.update({first.name} if first else ())
    return total


def duration(seconds: float) -> str:
    """Seconds in words: "under 1 min", "12 min", "3.1 h"."""
    minutes = round(seconds / 60)
    return "under 1 min" if seconds < 60 else f"{minutes} min" if minutes < 60 else f"{minutes / 60:,.1f} h"


def stored_pace(results: Iterable[Result]) -> Pace:
    """The median pace of results computed on the hardware that would be used here, scaled by training instances."""
    known: dict[str, list[float]] = {}
    for result in results:
        config = result.config
        if not isinstance(config, Run | CaptionRun):
            continue
        if result.summary["provenance"]["device"] == device_name(config.training):
            seconds = result.history.groupby("phase")["seconds"].mean()
            for number in range(len(config.phases)):
                known.setdefault(_kind(config, number), []).append(float(seconds[number]) / _num_train(config))

    def pace(run: Run | CaptionRun, number: int) -> float:
        if found := known.get(_kind(run, number)):
            return median(found) * _num_train(run)
        advice = "; --estimate trains a few steps and times them" if isinstance(run, Run) else ""
        raise UserError(f"no similar run is stored for this hardware ({device_name(run.training)}){advice}.")

    return pace


def _kind(config: Run | CaptionRun, number: int) -> str:
    """Everything, except the number of training instances, on which the time of an epoch depends."""
    phase: Any = config.phases[number]
    parts = (
        config.portable.data.model_dump(mode="json", exclude={"num_train"}),  # a folder may have moved
        config.model.model_dump(mode="json"),
        config.training.model_dump(mode="json", exclude={"keep"}),
        (phase.paradigm, getattr(phase, "optimizer", ""), len(getattr(phase, "learning_rates", "1"))),
    )
    return json.dumps(parts, sort_keys=True)


def _num_train(config: Run | CaptionRun) -> int:
    return getattr(config.data, "num_train", 0) or 1  # 0: the number is in a user's own file


def timed_pace(config: Run | CaptionRun, number: int) -> float:
    """The pace of a few steps and an evaluation, timed once for each kind of run."""
    if isinstance(config, CaptionRun):
        raise UserError("captioning runs are not timed; --list estimates from stored ones.")
    if config.data.source.startswith("cifar"):
        from fcamlib.data.pictures import cifar_state

        if cifar_state(config.data.source) == "absent":
            where = f"dataset='{config.data.source}' is not in '{paths.data_dir()}' yet"
            raise DataError(f"{where}: the first run downloads it.")
    num_train, timings = _timings(config.model_copy(update={"seed": 0}))
    step, evaluation = timings[number]
    return math.ceil(num_train / config.training.batch_size) * step + evaluation / config.training.evaluate_every


@lru_cache
def _timings(config: Run) -> tuple[int, list[tuple[float, float]]]:
    """Number of training instances, and for each phase the seconds of a step and of an evaluation."""
    import torch

    from fcamlib import running
    from fcamlib.evaluation import evaluate
    from fcamlib.numerics import Numerics, reproducible
    from fcamlib.training import training_pass

    numerics, size = Numerics.of(config.training), config.training.batch_size
    model, task = running.prepared(config)
    train = task.splits["train"]
    order = torch.arange(min(size, len(train)), device=train.label.device)
    timings = []
    with reproducible(config.training.threads, numerics.tf32):
        for phase in config.phases:
            trained, paradigm = copy.deepcopy(model), phase.paradigm
            kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[phase.optimizer]
            optimizer = kind(trained.parameters(), lr=1e-3)
            step = _seconds(partial(training_pass, trained, optimizer, train, order, paradigm, numerics, size))
            held_out = [partial(evaluate, trained, task.splits[name], [paradigm], numerics) for name in HELD_OUT]
            evaluation = sum(_seconds(one, repeats=1) for one in held_out)
            timings.append((step, evaluation))
    return len(train), timings


def _seconds(call: Callable[[], object], repeats: int = NUM_STEPS) -> float:
    """Median seconds of a call; repeated calls follow one that is not counted."""
    taken = []
    for _ in range(repeats + (repeats > 1)):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return median(taken[-repeats:])

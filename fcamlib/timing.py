"""Training steps timed on this machine: what `fcam grid --estimate` reckons with."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from statistics import median

import torch

from fcamlib import paths
from fcamlib.config import Phase, RunConfig
from fcamlib.data.pictures import CIFAR, cifar_state
from fcamlib.data.sdc import SDCTask
from fcamlib.errors import DataError, UserError
from fcamlib.estimate import Timing, phase_seconds
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics, keep_freed_memory, reproducible
from fcamlib.running import build_model, require_same_data
from fcamlib.running import data as task
from fcamlib.training import training_pass

NUM_STEPS = 3  # timed after one that is not; their median counts


class Stopwatch:
    """Seconds that runs take at the pace of a few training steps, each kind of run timed once."""

    def __init__(self) -> None:
        self.timings: dict[
            RunConfig, list[tuple[Timing, int]]
        ] = {}  # by `_without_seed`: each phase, training instances
        self.faults: dict[RunConfig, str] = {}  # why a kind of run cannot be timed
        keep_freed_memory()

    def seconds(self, config: RunConfig) -> float | None:
        """Seconds that training takes; None, and a fault, where its data are missing or its device is."""
        like = _without_seed(config)
        if like not in self.timings and like not in self.faults:
            try:
                self.timings[like] = _timings(config)
            except UserError as error:
                self.faults[like] = str(error)
        if like in self.faults:
            return None
        training = config.training
        return sum(
            phase_seconds(phase, num_train, training.batch_size, training.evaluate_every, timing)
            for phase, (timing, num_train) in zip(config.phases, self.timings[like], strict=True)
        )

    def fault(self, config: RunConfig) -> str:
        """Why the run cannot be timed; empty where it can."""
        return self.faults.get(_without_seed(config), "")


def _without_seed(config: RunConfig) -> RunConfig:
    return config.model_copy(update={"seed": 0})


def _timings(config: RunConfig) -> list[tuple[Timing, int]]:
    """What each phase of a run is made of, and the number of training instances."""
    numerics = Numerics.of(config.training)
    _require_present(config)
    require_same_data(config.data)
    data = task(config.data, config.seed).to(numerics.device)
    model = build_model(config, data)
    with reproducible(config.training.threads, numerics.tf32):
        timings = [_timing(model, data, phase, numerics, config.training.batch_size) for phase in config.phases]
    return [(timing, len(data.splits["train"])) for timing in timings]


def _require_present(config: RunConfig) -> None:
    """Refuse a data set that would be downloaded: an estimate costs seconds."""
    for name in CIFAR:
        if config.data.source == name and cifar_state(name) == "absent":
            raise DataError(f"dataset='{name}' is not in '{paths.data_dir()}' yet: the first run downloads it.")


def _timing(model: FCAM, data: SDCTask, phase: Phase, numerics: Numerics, batch_size: int) -> Timing:
    """Time steps and an evaluation with copies of the model."""
    train = data.splits["train"]
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:batch_size].to(train.label.device)
    trained = copy.deepcopy(model)
    optimizer = (torch.optim.Adam if phase.optimizer == "adam" else torch.optim.SGD)(
        trained.parameters(), lr=phase.learning_rates[0]
    )

    def evaluation() -> None:
        for split in ("validation", "test"):
            evaluate(trained, data.splits[split], [phase.paradigm], numerics)

    return Timing(
        step=_seconds(lambda: training_pass(trained, optimizer, train, order, phase.paradigm, numerics, batch_size)),
        evaluation=_seconds(evaluation, repeats=1),
    )


def _seconds(call: Callable[[], object], repeats: int = NUM_STEPS) -> float:
    """Median seconds of a call; where it is repeated, after one that is not counted."""
    taken = []
    for _ in range(repeats + (repeats > 1)):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return median(taken[-repeats:])

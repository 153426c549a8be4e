"""The two sides of `fcam bench`, each in a process of its own: the plain procedure and this library.

Both see the same random pictures in the shape of CIFAR, the same mosaics and the same networks. A side answers
requests one at a time, so that the two can be measured in turn and neither keeps the other's memory.
"""

from __future__ import annotations

import resource
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from multiprocessing.connection import Connection
from typing import cast
from unittest.mock import patch

import numpy as np
import torch

from fcamlib.bench import plain
from fcamlib.bench.settings import BenchSettings
from fcamlib.computing import build_model
from fcamlib.config import ModelConfig, MosaicsConfig, Paradigm, Phase, RunConfig, TrainingConfig
from fcamlib.data import mosaics
from fcamlib.data.pictures import Pictures
from fcamlib.data.sdc import SDCData, SDCTask
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.heap import keep_freed_memory
from fcamlib.numerics import Numerics, reproducible
from fcamlib.training import fit

LEARNING_RATE = 0.01


class Side(ABC):
    """What both sides share: pictures, mosaics and initial weights."""

    def __init__(self, settings: BenchSettings) -> None:
        self.settings = settings
        self.device = torch.device(settings.device)
        self.pictures = random_pictures(settings.num_pictures, settings.seed)

    def clock(self) -> float:
        """Seconds, once the device has done what it was asked for."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.process_time() if self.settings.clock == "cpu" else time.perf_counter()

    def config(self, num_segments: int, num_train: int, num_test: int, paradigm: str = "soft") -> RunConfig:
        """The run that is measured: the paper's networks and optimiser, one epoch."""
        settings = self.settings
        data = MosaicsConfig(
            source="random", foreground=("0", "1", "2"), num_segments=num_segments,
            num_train=num_train, num_validation=1, num_test=num_test, image_size=32,
        )  # fmt: skip
        phase = Phase(paradigm=cast(Paradigm, paradigm), epochs=settings.epochs, learning_rates=(LEARNING_RATE,))
        training = TrainingConfig.model_validate(
            {name: getattr(settings, name) for name in ("batch_size", "threads", "device", "precision")}
        )
        model = ModelConfig(focus="cifar10", classifier="cifar10")
        return RunConfig(data=data, model=model, phases=(phase,), training=training, seed=settings.seed)

    def task(self, config: RunConfig) -> SDCTask:
        """The library's own mosaics, drawn from the random pictures instead of a source's."""
        assert isinstance(config.data, MosaicsConfig)
        with patch.object(mosaics, "load_pictures", lambda source, image_size: self.pictures):
            return mosaics.mosaic_task(config.data, config.seed)

    def training_task(self, num_segments: int, paradigm: str) -> tuple[RunConfig, SDCTask]:
        """The mosaics of a few steps out of a whole epoch's; next to none to evaluate on."""
        config = self.config(num_segments, self.settings.num_train, 1, paradigm)
        task = self.task(config)
        few = torch.arange(self.settings.steps * self.settings.batch_size)
        return config, replace(task, splits=task.splits | {"train": task.splits["train"].take(few)})

    def ready(self) -> bool:
        """Whether imports are done and pictures made."""
        return len(self.pictures.label) == self.settings.num_pictures

    @abstractmethod
    def set_up(self, num_segments: int) -> dict[str, float]:
        """Seconds from pictures to data that a training loop can take, and the memory they need."""

    @abstractmethod
    def train(self, num_segments: int, paradigm: str) -> float:
        """Seconds of a training step."""

    @abstractmethod
    def evaluate(self, num_segments: int, paradigm: str) -> float:
        """Seconds of an evaluation on the training mosaics."""


class PlainSide(Side):
    """The plain procedure. Its draw of indices is not counted."""

    def set_up(self, num_segments: int) -> dict[str, float]:
        """Float pictures once, then mosaics one by one; extrapolated from a few of them in proportion."""
        settings = self.settings
        config = self.config(num_segments, settings.setup_mosaics, 1)
        data = self.task(config).splits["train"]
        began = self.clock()
        pictures = plain.float_pictures(data.bank)
        fixed, base = self.clock() - began, peak_memory()
        began = self.clock()
        dataset = plain.MosaicDataset(plain.materialised(pictures, data.segments), data)
        seconds, grown = self.clock() - began, peak_memory() - base
        times = settings.num_mosaics / settings.setup_mosaics
        size = sum(tensor.nbytes for tensor in (dataset.mosaics, dataset.label, dataset.place))
        return {"seconds": fixed + times * seconds, "data": times * size, "peak": base + times * grown}

    def train(self, num_segments: int, paradigm: str) -> float:
        """A step: batch, forward, backward, update, second forward."""
        config, task = self.training_task(num_segments, paradigm)
        loader = self._loader(task.splits["train"])
        model = self._model(config, task)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
        began = self.clock()
        losses = plain.train_epoch(model, loader, optimizer, paradigm)
        return (self.clock() - began) / len(losses)

    def evaluate(self, num_segments: int, paradigm: str) -> float:
        """Every segment of every mosaic, extrapolated from a few mosaics in proportion."""
        settings = self.settings
        config = self.config(num_segments, settings.num_train, 1)
        task = self.task(config)
        loader = self._loader(task.splits["train"].take(torch.arange(settings.evaluation_mosaics)))
        model = self._model(config, task)
        began = self.clock()
        plain.evaluate(model, loader, paradigm)
        return (self.clock() - began) * settings.num_train / settings.evaluation_mosaics

    @cached_property
    def _float_pictures(self) -> torch.Tensor:
        return plain.float_pictures(self.task(self.config(2, 1, 1)).bank)

    def _loader(self, data: SDCData) -> torch.utils.data.DataLoader[plain.Batch]:
        mosaics = plain.materialised(self._float_pictures, data.segments)
        order = np.random.default_rng(self.settings.seed).permutation(len(data)).tolist()
        return plain.batches(plain.MosaicDataset(mosaics, data), self.settings.batch_size, order)

    def _model(self, config: RunConfig, task: SDCTask) -> plain.PlainFCAM:
        return plain_copy(build_model(config, task), len(task.class_names)).to(self.device)


class LibrarySide(Side):
    """This library, set up as its command line sets it up."""

    def __init__(self, settings: BenchSettings) -> None:
        keep_freed_memory()
        super().__init__(settings)

    def set_up(self, num_segments: int) -> dict[str, float]:
        """All mosaics, nothing extrapolated."""
        config = self.config(num_segments, self.settings.num_train, self.settings.num_test)
        began = self.clock()
        task = self.task(config)
        seconds = self.clock() - began
        size = task.bank.values.nbytes
        for split in task.splits.values():
            size += split.segments.nbytes + split.label.nbytes + split.foreground.nbytes
        return {"seconds": seconds, "data": size, "peak": peak_memory()}

    def train(self, num_segments: int, paradigm: str) -> float:
        """A step of `fit`, its share of everything that `fit` does around the steps included."""
        config, task = self.training_task(num_segments, paradigm)
        model, task = build_model(config, task), task.to(self.device)
        began = self.clock()
        fit(model, task, config.phases, config.training, config.seed)
        return (self.clock() - began) / (self.settings.steps * self.settings.epochs)

    def evaluate(self, num_segments: int, paradigm: str) -> float:
        """Every distinct picture once, nothing extrapolated."""
        config = self.config(num_segments, self.settings.num_train, 1)
        task, numerics = self.task(config).to(self.device), Numerics.of(config.training)
        model = build_model(config, task)
        with reproducible(self.settings.threads, numerics.tf32):
            began = self.clock()
            evaluate(model, task.splits["train"], [paradigm], numerics)
            return self.clock() - began


SIDES: dict[str, type[Side]] = {"plain": PlainSide, "library": LibrarySide}


def random_pictures(number: int, seed: int) -> Pictures:
    """Random pictures of CIFAR's shape, five sixths of them for training, ten classes of equal size."""
    values = np.random.default_rng(seed).integers(0, 256, size=(number, 32, 32, 3), dtype=np.uint8)
    names = tuple(str(name) for name in range(10))
    return Pictures(values, np.arange(number, dtype=np.int64) % 10, number * 5 // 6, names)


def plain_copy(model: FCAM, num_classes: int) -> plain.PlainFCAM:
    """The plain model with the same weights."""
    dtype = next(model.parameters()).dtype
    copy = plain.PlainFCAM(num_classes).to(next(model.parameters()).device, dtype)
    with torch.no_grad():
        for ours, theirs in zip(model.parameters(), copy.parameters(), strict=True):
            theirs.copy_(ours)
    return copy


def peak_memory() -> int:
    """Largest resident size of this process so far, in bytes."""
    try:
        # The kernel's rusage figure starts at the parent's size in a child process; this one does not.
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def serve(name: str, settings: BenchSettings, connection: Connection) -> None:
    """Answer requests (method, arguments) of the other end, which ends this process when it wants no more."""
    torch.set_num_threads(settings.threads)
    side = SIDES[name](settings)
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):  # the other end is gone, or the user interrupts both
        while True:
            method, arguments = connection.recv()
            connection.send(getattr(side, method)(*arguments))

"""Mosaics of CIFAR's size: set-up, memory, training and evaluation beside the procedure of `benchmarks.plain`.

Both sides see the same random pictures, mosaics and initial weights. Times are taken in turn in one process, peak
memory in a fresh process for each side, since a process's peak never falls. Long measures are taken on a stated part
and scaled up where they are proportional to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import torch

from benchmarks import plain
from benchmarks.report import Row, in_fresh_process, in_turn, peak_memory, report, row, seconds, table
from fcamlib.config import Model, Mosaics, Phase, Run, Training
from fcamlib.data import mosaics
from fcamlib.data.pictures import Pictures
from fcamlib.data.sdc import SDCTask
from fcamlib.errors import UserError
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics, reproducible
from fcamlib.paradigms import PAPER
from fcamlib.running import build_model
from fcamlib.training import fit

__all__ = ["benchmark", "table"]
RATE = 0.01


@dataclass(frozen=True)
class Sizes:
    """What is measured; the defaults are the paper's CIFAR-10 sizes.

    `steps` training steps are scaled up to an epoch; the plain evaluation and set-up from `some` mosaics.
    """

    num_pictures: int = 60_000
    num_train: int = 30_000
    segments: tuple[int, ...] = (5, 20)
    batch_size: int = 256
    steps: int = 3
    some: int = 512
    threads: int = 1
    device: str = "cpu"
    precision: str = "float32"

    def config(self, m: int, paradigm: str, num_train: int) -> Run:
        """The run that is measured: the paper's networks and optimiser, one epoch."""
        data = Mosaics(
            source="random", foreground=("0", "1", "2"), num_segments=m,
            num_train=num_train, num_validation=1, num_test=1, image_size=32,
        )  # fmt: skip
        names = ("batch_size", "threads", "device", "precision")
        training = Training.model_validate({name: getattr(self, name) for name in names})
        phases = (Phase(paradigm=paradigm, epochs=1, learning_rates=(RATE,)),)
        model = Model(focus="cifar10", classifier="cifar10")
        return Run(data=data, model=model, phases=phases, training=training, seed=0)

    def task(self, config: Run) -> SDCTask:
        """The library's mosaics, drawn from random pictures of ten classes."""
        values = np.random.default_rng(0).integers(0, 256, size=(self.num_pictures, 32, 32, 3), dtype=np.uint8)
        label = np.arange(self.num_pictures, dtype=np.int64) % 10
        pictures = Pictures(values, label, self.num_pictures * 5 // 6, tuple(map(str, range(10))))
        with patch.object(mosaics, "load_pictures", lambda source, image_size: pictures):
            return mosaics.mosaic_task(cast(Mosaics, config.data), config.seed)


QUICK = Sizes(num_pictures=6_000, num_train=2_000, segments=(5,), batch_size=64, steps=2, some=64)


def benchmark(
    repeats: int, threads: int, device: str, precision: str, quick: bool = False, sizes: Sizes | None = None
) -> dict[str, Any]:
    """Every row, for `benchmarks.report`."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda is not available here: choose --device cpu.")
    sizes = replace(sizes or (QUICK if quick else Sizes()), threads=threads, device=device, precision=precision)
    rows = []
    with reproducible(threads):
        for m in sizes.segments:
            rows += [*set_up_rows(sizes, m, repeats), *timed_rows(sizes, m, repeats)]
    how = (
        f"{sizes.num_pictures:,} random pictures of 3 x 32 x 32, {sizes.num_train:,} mosaics, the paper's CIFAR-10 "
        f"networks, batches of {sizes.batch_size}, {precision} (plain: float32), device: {device}, threads: {threads}, "
        f"wall time; median of {repeats} taken in turn (least to greatest). Training: an epoch, from {sizes.steps} "
        f"steps. Plain evaluation, set-up and memory: from {sizes.some:,} mosaics, fcamlib's for all."
    )
    what = "time and memory of fcamlib beside the plain procedure; ratios are plain over fcamlib"
    return report(what, how, Numerics.of(sizes.config(2, "soft", 1).training), rows)


def set_up_rows(sizes: Sizes, m: int, repeats: int) -> list[Row]:
    """Seconds from pictures to data that a training loop takes, and the peak of memory."""
    sides = (plain_set_up, library_set_up)
    found = [in_fresh_process(side, sizes, m) for _ in range(repeats) for side in sides]
    time, memory = ([f[i] for f in found] for i in (0, 1))
    return [
        row(f"set-up, m = {m}", "s", time[1::2], time[::2], 100.0),
        row(f"peak memory, m = {m}", "MB", memory[1::2], memory[::2], 20.0 if m >= 20 else None),
    ]


def plain_set_up(sizes: Sizes, m: int) -> tuple[float, float]:
    """Float pictures once, then mosaics one by one; scaled up from a few of them."""
    data, times = sizes.task(sizes.config(m, "soft", sizes.some)).splits["train"], sizes.num_train / sizes.some
    began = perf_counter()
    pictures, base = plain.float_pictures(data.bank), peak_memory()
    ready = perf_counter()
    plain.materialised(pictures, data.segments)
    return ready - began + times * (perf_counter() - ready), base + times * (peak_memory() - base)


def library_set_up(sizes: Sizes, m: int) -> tuple[float, float]:
    """All mosaics; the draw of the random pictures is not counted."""
    without = seconds(lambda: sizes.task(sizes.config(2, "soft", 1)))
    elapsed = seconds(lambda: sizes.task(sizes.config(m, "soft", sizes.num_train)))
    return max(elapsed - without, 1e-4), peak_memory()


def timed_rows(sizes: Sizes, m: int, repeats: int) -> list[Row]:
    """A training epoch and an evaluation on the training mosaics, under each loss."""
    rows = []
    for paradigm in PAPER:
        for name, measure, aim in (("training", epoch, 4.0), ("evaluation", scores, 20.0 if m >= 20 else None)):
            slowly, quickly = (partial(measure, sizes, m, paradigm, plainly) for plainly in (True, False))
            slow, fast = in_turn(slowly, quickly, repeats)
            rows.append(row(f"{name}, m = {m}, {paradigm}", "s", fast, slow, aim))
    return rows


def epoch(sizes: Sizes, m: int, paradigm: str, plainly: bool) -> float:
    """Seconds of an epoch, from a few steps; plainly: batch, forward, backward, update, second forward pass."""
    config = sizes.config(m, paradigm, sizes.steps * sizes.batch_size)
    task = sizes.task(config).to(torch.device(sizes.device))
    model = build_model(config, task)
    if plainly:
        copy, loader = _plain(sizes, model, task)
        optimizer = torch.optim.SGD(copy.parameters(), lr=RATE, momentum=0.9)
        elapsed = _timed(sizes, lambda: plain.train_epoch(copy, loader, optimizer, paradigm))
    else:
        elapsed = _timed(sizes, lambda: fit(model, task, config.phases, config.training, config.seed))
    return elapsed / sizes.steps * math.ceil(sizes.num_train / sizes.batch_size)


def scores(sizes: Sizes, m: int, paradigm: str, plainly: bool) -> float:
    """Seconds of an evaluation of every distinct picture once; plainly: of all segments, from a few mosaics."""
    config = sizes.config(m, paradigm, sizes.some if plainly else sizes.num_train)
    task, numerics = sizes.task(config).to(torch.device(sizes.device)), Numerics.of(config.training)
    model = build_model(config, task)
    if plainly:
        copy, loader = _plain(sizes, model, task)
        return _timed(sizes, lambda: plain.evaluate(copy, loader, paradigm)) * sizes.num_train / sizes.some
    return _timed(sizes, lambda: evaluate(model, task.splits["train"], [paradigm], numerics))


def _plain(sizes: Sizes, model: FCAM, task: SDCTask) -> tuple[plain.PlainFCAM, Iterable[plain.Batch]]:
    """The plain model and its batches."""
    data = task.splits["train"]
    dataset = plain.MosaicDataset(plain.materialised(plain.float_pictures(data.bank), data.segments), data)
    return plain.copy_of(model, len(task.class_names)), plain.batches(dataset, sizes.batch_size)


def _timed(sizes: Sizes, call: Callable[[], Any]) -> float:
    """Seconds of a call, with what it left to the device."""
    began = perf_counter()
    call()
    if sizes.device == "cuda":
        torch.cuda.synchronize()
    return perf_counter() - began

"""Mosaics of CIFAR's size: set-up, memory, training and evaluation beside the straightforward way to train on them.

The plain side restates in this project's words and code what the paper's public scripts do for CIFAR-10. The library
does the same mathematics another way, so losses, gradients and scores of both can be compared.

| step                    | plain side                                   | in the library                             |
|-------------------------|----------------------------------------------|--------------------------------------------|
| mosaics                 | float tensors, built one by one and stacked  | rows of indices into the pictures          |
| batches                 | Dataset and DataLoader, channels first       | gathered from the pictures, channels last  |
| focus and classes       | one call for each place of the mosaic        | one call for the batch's distinct pictures |
| convolution             | ReLU, then pooling                           | pooling, then ReLU                         |
| weighted sum            | a product and a sum for each place           | one embedding bag                          |
| loss of a step          | a second forward pass after the step         | read from the one pass                     |
| measures on a data set  | every segment of every mosaic                | every distinct picture once                |

Both sides see the same random pictures, mosaics and initial weights. Peak memory is taken in a fresh process for each
side, since a process's peak never falls. Long measures are taken on a stated part and scaled up in proportion.
"""

import math
from collections.abc import Iterable
from functools import partial
from itertools import product
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.report import compared, in_fresh_process, peak_memory, row, seconds
from fcamlib.config import Grid, Run
from fcamlib.data import mosaics as library
from fcamlib.data.pictures import Pictures
from fcamlib.data.sdc import Bank, SDCData, SDCTask
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics, reproducible
from fcamlib.paradigms import PAPER
from fcamlib.running import build_model
from fcamlib.training import fit

NUM_PICTURES = 60_000
SIZES = {False: (30_000, 256, (5, 20)), True: (2_000, 64, (5,))}  # quick -> mosaics, batch size, segments
STEPS = 3  # of training, scaled up to an epoch
SOME = 512  # mosaics, from which the plain evaluation and set-up are scaled up
Batches = Iterable[tuple[Tensor, ...]]  # mosaics (B, M, 3, 32, 32), labels (B,), places of the foreground (B,)


def benchmark(repeats: int, threads: int, device: str, precision: str, quick: bool) -> dict[str, Any]:
    """Every row."""
    (num_mosaics, batch_size, segments), rows = SIZES[quick], []
    given = {"dataset": "cifar10", "paradigms": PAPER, "num_train": num_mosaics, "num_validation": 1, "num_test": 1}
    given |= {"seeds": 0, "epochs": 1, "batch_size": batch_size, "threads": threads}
    for m in segments:
        runs = Grid.of(given | {"num_segments": m, "device": device, "precision": precision}).configs()
        aim = 20.0 if m >= 20 else None
        found = [in_fresh_process(side, runs[0]) for _ in range(repeats) for side in (plain_set_up, set_up)]
        time, memory = zip(*found, strict=True)
        rows.append(row(f"set-up, m = {m}", "s", time[1::2], time[::2], 100.0))
        rows.append(row(f"peak memory, m = {m}", "MB", memory[1::2], memory[::2], aim))
        for run, (name, wanted) in product(runs, (("training", 4.0), ("evaluation", aim))):
            with reproducible(threads):
                measure = partial(measured, run, name == "training")
                rows.append(compared(f"{name}, m = {m}, {run.paradigm}", measure, repeats, wanted))
    how = (
        f"{NUM_PICTURES:,} random pictures of 3 x 32 x 32, {num_mosaics:,} mosaics, the paper's CIFAR-10 networks, "
        f"batches of {batch_size}, {precision} (plain: float32), device: {device}, taken in turn; training: "
        f"an epoch, from {STEPS} steps; plain evaluation, set-up and memory: from {SOME:,} mosaics, fcamlib's for all"
    )
    return {"what": "time and memory of fcamlib beside the plain procedure", "how": how, "rows": rows}


def task(run: Run, **changed: int) -> SDCTask:
    """The run's mosaics, with other sizes, of random pictures of ten classes."""
    values = np.random.default_rng(0).integers(0, 256, size=(NUM_PICTURES, 32, 32, 3), dtype=np.uint8)
    label, names = np.arange(NUM_PICTURES, dtype=np.int64) % 10, (*run.data.foreground, *"abcdefg")
    pictures = Pictures(values, label, NUM_PICTURES * 5 // 6, names)
    with patch.object(library, "load_pictures", lambda *given: pictures):
        return library.mosaic_task(run.data.model_copy(update=changed), run.seed)


def plain_set_up(run: Run) -> tuple[float, float]:
    """Seconds and peak MB of float pictures once, then mosaics one by one, scaled up from a few of them."""
    data, times = task(run, num_train=SOME).splits["train"], run.data.num_train / SOME
    began = perf_counter()
    pictures, ready, base = float_pictures(data.bank), perf_counter(), peak_memory()
    materialised(pictures, data.segments)
    return ready - began + times * (perf_counter() - ready), base + times * (peak_memory() - base)


def set_up(run: Run) -> tuple[float, float]:
    """Seconds and peak MB of all mosaics in the library; the draw of the random pictures is not counted."""
    without = seconds(partial(task, run, num_segments=2, num_train=1))
    return max(seconds(partial(task, run)) - without, 1e-4), peak_memory()


def measured(run: Run, is_training: bool, is_plain: bool) -> float:
    """Seconds of an epoch of training, from a few steps, or of an evaluation, the plain one from a few mosaics."""
    size, total, numerics = run.training.batch_size, run.data.num_train, Numerics.of(run.training)
    count = STEPS * size if is_training else SOME if is_plain else total
    posed = task(run, num_train=count).to(numerics.device)
    model, data = build_model(run, posed), posed.splits["train"]
    if is_plain:
        copy, loader = PlainFCAM(model), batches(data, size)
        optimizer = torch.optim.SGD(copy.parameters(), lr=run.phases[0].learning_rates[0], momentum=0.9)
        training, evaluation = partial(plain_epoch, copy, loader, optimizer), partial(plain_scores, copy, loader)
        took = seconds(lambda: (training if is_training else evaluation)(run.paradigm))
    elif is_training:
        took = seconds(lambda: fit(model, posed, run.phases, run.training, run.seed))
    else:
        took = seconds(lambda: evaluate(model, data, [run.paradigm], numerics))
    return took * (math.ceil(total / size) / STEPS if is_training else total / count)


class PlainFCAM(nn.Module):
    """The paper's networks for CIFAR-10, called place by place, with the weights of the library's model."""

    def __init__(self, model: FCAM) -> None:
        super().__init__()
        self.focus_model = nn.Sequential(
            nn.Conv2d(3, 32, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, bias=False), nn.ReLU(), nn.Flatten(),
            nn.Linear(1024, 512, bias=False), nn.ReLU(), nn.Linear(512, 64, bias=False), nn.ReLU(),
            nn.Linear(64, 10, bias=False), nn.ReLU(), nn.Linear(10, 1, bias=False),
        )  # fmt: skip
        *_, last = model.parameters()  # the bias of the class logits
        self.classification_model = nn.Sequential(
            nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10), nn.ReLU(),
            nn.Linear(10, len(last)),
        )  # fmt: skip
        self.to(last.device, last.dtype)
        with torch.no_grad():
            for theirs, ours in zip(model.parameters(), self.parameters(), strict=True):
                ours.copy_(theirs)

    def forward(
        self, mosaics: Float[Tensor, "B M 3 32 32"], paradigm: str
    ) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B P K"]]:
        """Attention weights; class probabilities of each segment (P = M), for "soft" of the weighted sum (P = 1)."""
        num_segments = mosaics.shape[1]
        scores = [self.focus_model(mosaics[:, place])[:, 0] for place in range(num_segments)]
        alpha = torch.stack(scores, dim=1).softmax(dim=1)  # (B, M)
        if paradigm == "soft":
            total = sum(alpha[:, place, None, None, None] * mosaics[:, place] for place in range(num_segments))
            return alpha, self.classification_model(total).softmax(dim=1)[:, None]
        logits = [self.classification_model(mosaics[:, place]) for place in range(num_segments)]
        return alpha, torch.stack(logits, dim=1).softmax(dim=2)  # (B, M, K)

    def loss(self, mosaics: Tensor, label: Tensor, paradigm: str) -> Float[Tensor, ""]:
        alpha, probability = self(mosaics, paradigm)
        return plain_loss(alpha, probability, label, paradigm).mean()


def plain_loss(
    alpha: Float[Tensor, "B M"], probability: Float[Tensor, "B P K"], label: Int[Tensor, " B"], paradigm: str
) -> Float[Tensor, " B"]:
    """The paradigm's loss of each instance. Source: arXiv 2307.13421, sec. 2."""
    likelihood = probability[torch.arange(len(label), device=label.device), :, label]  # (B, P)
    if paradigm == "soft":
        return -likelihood[:, 0].log()
    if paradigm == "hard":
        return -(alpha * likelihood.log()).sum(dim=1)
    return -(alpha * likelihood).sum(dim=1).log()


def float_pictures(bank: Bank, dtype: torch.dtype = torch.float32) -> Float[Tensor, "N C H W"]:
    """Every base picture as floating-point numbers, channels first; nothing but the result is allocated."""
    pictures = bank.values.permute(0, 3, 1, 2).to(dtype, memory_format=torch.contiguous_format)
    return pictures.mul_(bank.scale).add_(bank.shift)


def materialised(pictures: Float[Tensor, "N C H W"], segments: Int[Tensor, "n M"]) -> Float[Tensor, "n M C H W"]:
    """The mosaics themselves, built one by one and stacked."""
    return torch.stack([torch.stack([pictures[index] for index in row.tolist()]) for row in segments])


def batches(data: SDCData, batch_size: int, dtype: torch.dtype = torch.float32) -> Batches:
    """A loader of the materialised mosaics in their own order."""
    mosaics = materialised(float_pictures(data.bank, dtype), data.segments)
    return DataLoader(TensorDataset(mosaics, data.label, data.foreground.int().argmax(dim=1)), batch_size)


def plain_epoch(model: PlainFCAM, loader: Batches, optimizer: torch.optim.Optimizer, paradigm: str) -> None:
    """One pass of steps, with the batch's loss after each step from a second forward pass."""
    model.train()
    for mosaics, label, _ in loader:
        optimizer.zero_grad()
        model.loss(mosaics, label, paradigm).backward()
        optimizer.step()
        with torch.no_grad():
            model.loss(mosaics, label, paradigm).item()


@torch.no_grad()
def plain_scores(model: PlainFCAM, loader: Batches, paradigm: str) -> dict[str, Tensor]:
    """Scores of each mosaic: `a_z`, `s_y` and `loss`, each (n,)."""
    model.eval()
    rows = []
    for mosaics, label, place in loader:
        alpha, probability = model(mosaics, paradigm)
        each, focus = torch.arange(len(label), device=label.device), alpha.argmax(dim=1)
        if paradigm == "lvml":
            predicted = (alpha[:, :, None] * probability).sum(dim=1)
        else:
            predicted = probability[each, focus if paradigm == "hard" else 0]
        rows.append((alpha[each, place], predicted[each, label], plain_loss(alpha, probability, label, paradigm)))
    return dict(zip(("a_z", "s_y", "loss"), map(torch.cat, zip(*rows, strict=True)), strict=True))

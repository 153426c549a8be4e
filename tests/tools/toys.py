"""Small tasks of vectors and models for them, as several files of tests share them."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fcamlib.checkpoint import Row
from fcamlib.config import Phase, Training
from fcamlib.data.sdc import Bank, SDCData, SDCTask
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network, focus_network

RINGS = """
from fcamlib.config import Source, register_source
from fcamlib.config.tasks import Field, Task

class Rings(Task):
    num_train: int = Field(30, ge=1, description="training rings")
    radius: float = Field(1.0, gt=0, description="radius of a ring")

register_source("rings", Source(Rings, "rings:task", "rings", {"epochs": 3}))
"""  # a plug-in
M, K, D, N_TRAIN, BATCH = 3, 5, 7, 21, 8  # the last batch of an epoch has 5 instances
FLOAT64 = Training(batch_size=BATCH, precision="float64", device="cpu")


def draw(bank: Bank, size: int, seed: int) -> SDCData:
    """Foreground k from rows 4k..4k+3 of the bank, background from the last 20 rows."""
    rng = np.random.default_rng(seed)
    label, place = rng.integers(K, size=size), rng.integers(M, size=size)
    segments = rng.integers(20, 40, size=(size, M)).astype(np.int32)
    segments[np.arange(size), place] = 4 * label + rng.integers(4, size=size)
    foreground = functional.one_hot(torch.from_numpy(place), M).bool()
    return SDCData(bank, torch.from_numpy(segments), torch.from_numpy(label), foreground)


def toy_task() -> SDCTask:
    """Vectors of five classes, of which a linear model learns most."""
    rng = np.random.default_rng(1)
    values = 0.4 * rng.normal(size=(40, D))
    values[np.arange(20), np.arange(20) // 4] += 1.0
    values[20:, 5] += 1.0
    bank = Bank(torch.from_numpy(values))
    sizes = {"train": N_TRAIN, "validation": 20, "test": 30}
    splits = {name: draw(bank, size, number) for number, (name, size) in enumerate(sizes.items())}
    return SDCTask(splits, tuple("abcde"), "toy")


def changed(task: SDCTask, split: str, **fields: Any) -> SDCTask:
    return replace(task, splits={**task.splits, split: replace(task.splits[split], **fields)})


def with_bank(task: SDCTask, bank: Bank) -> SDCTask:
    return replace(task, splits={name: replace(data, bank=bank) for name, data in task.splits.items()})


def linear(seed: int = 0) -> FCAM:
    generator = torch.Generator().manual_seed(seed)
    pair = focus_network("linear", (D,), generator), classification_network("linear", (D,), K, generator)
    return FCAM(*pair).double()


def mlp(dim: int, num_classes: int, encoder: nn.Module | None = None, seed: int = 5) -> FCAM:
    generator = torch.Generator().manual_seed(seed)
    pair = focus_network("mlp", (dim,), generator), classification_network("mlp", (dim,), num_classes, generator)
    return FCAM(*pair, encoder=encoder).double()


def vectors(batch: int, num_segments: int, rows: int, dim: int, num_classes: int, masked: bool) -> SDCData:
    """Instances of random vectors, a part of them padded if `masked`, a third of the real segments foreground."""
    draws = np.random.default_rng(3)
    bank = Bank(torch.from_numpy(draws.normal(size=(rows, dim))))
    segments = torch.from_numpy(draws.integers(rows, size=(batch, num_segments)).astype(np.int32))
    mask = torch.from_numpy(draws.random((batch, num_segments)) < 0.7)
    mask[:, 0] = True
    label = torch.from_numpy(draws.integers(num_classes, size=batch))
    return SDCData(bank, segments, label, mask & (segments % 3 == 0), mask if masked else None)


def coloured(task: SDCTask) -> tuple[SDCTask, FCAM]:
    """Coloured pictures for segments, and convolutions, whose layout in memory matters."""
    size = (len(task.bank.values), 6, 6, 3)
    values = torch.randint(256, size, generator=torch.Generator().manual_seed(5), dtype=torch.uint8)
    bank = Bank(values, 2 / 255, -1.0, pictures=True)
    with torch.random.fork_rng():
        torch.manual_seed(6)
        focus = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 1), nn.Flatten(0))
        classifier = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, K))
    return with_bank(task, bank), FCAM(focus, classifier)


class LinearFocus(nn.Module):
    """The scalar product with a weight."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, segments: Tensor) -> Tensor:
        return segments @ self.weight


def phase(paradigm: str = "soft", epochs: int = 3, rates: tuple[float, ...] = (0.5,), **more: Any) -> Phase:
    return Phase(paradigm=paradigm, epochs=epochs, learning_rates=rates, **more)


class Centred(nn.Module):
    """Subtracts a multiple of its instance's mean from each segment: a segment's code depends on its neighbours."""

    context_free = False

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, segments: Tensor, mask: Tensor | None) -> Tensor:
        weight = torch.ones_like(segments[..., 0]) if mask is None else mask.to(segments.dtype)
        mean = torch.einsum("bmd,bm->bd", segments, weight) / weight.sum(dim=1, keepdim=True)
        return segments - self.factor * mean[:, None]


def bits(model: nn.Module) -> list[bytes]:
    return [value.numpy().tobytes() for value in model.state_dict().values()]


def untimed(rows: list[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]

"""`fcam bench --measure ensemble`: models that train together against one after the other, in one run."""

from __future__ import annotations

import copy
import time
from dataclasses import asdict, replace
from typing import Any

import torch

from fcamlib.bench.results import Spread
from fcamlib.bench.settings import BenchSettings
from fcamlib.data.sdc import Bank, SDCData
from fcamlib.ensemble_training import TrainingMember, pass_together
from fcamlib.fcam import FCAM, PARADIGMS
from fcamlib.heap import keep_freed_memory
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance

BATCHES = 4  # of a measured pass
NUM_PICTURES, NUM_CLASSES = 1_500, 3
# Networks, shape of a segment, instances of a batch, format: the book's digits and the paper's CIFAR-10 networks.
CASES = (
    ("digits", (1, 8, 8), 256, torch.float64),
    ("digits", (1, 8, 8), 256, torch.float32),
    ("cifar10", (3, 32, 32), 64, torch.float32),
)
MEMBERS = (3, 5)  # learning rates as they are compared, seeds as they are reported


def problem(network: str, shape: tuple[int, ...], size: int, num_segments: int, seed: int = 0) -> tuple[FCAM, SDCData]:
    """A model and random instances."""
    generator = torch.Generator().manual_seed(seed)
    segments = torch.randint(NUM_PICTURES, (size, num_segments), generator=generator, dtype=torch.int32)
    label = torch.randint(NUM_CLASSES, (size,), generator=generator)
    values = torch.rand(NUM_PICTURES, *shape, generator=generator)
    pair = focus_network(network, shape, generator), classification_network(network, shape, NUM_CLASSES, generator)
    return FCAM(*pair), SDCData(Bank(values), segments, label, torch.zeros(segments.shape, dtype=torch.bool))


def members_of(model: FCAM, data: SDCData, number: int) -> list[TrainingMember]:
    """Copies of a model with learning rates of their own, on the same batches."""
    order = torch.arange(len(data), device=data.label.device)
    members = []
    for place in range(number):
        own = copy.deepcopy(model)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.02 / (1 + place), momentum=0.9)
        members.append(TrainingMember(own, optimizer, data, order))
    return members


def one_by_one(members: list[TrainingMember], paradigm: str, numerics: Numerics, batch_size: int) -> None:
    """The same passes, one member after the other."""
    from fcamlib.training import training_pass

    for member in members:
        training_pass(member, paradigm, numerics, batch_size)


def measure(settings: BenchSettings) -> dict[str, Any]:
    """The benchmark as plain values, for a JSON file."""
    keep_freed_memory()
    device = torch.device(settings.device)
    rows = []
    with reproducible(settings.threads):
        for network, shape, batch_size, dtype in CASES:
            numerics = Numerics(device, dtype, channels_last=len(shape) == 3 and shape[0] > 1)
            model, data = problem(network, shape, BATCHES * batch_size, settings.segments[0])
            numerics.place(model)
            data = replace(data, bank=replace(data.bank, values=data.bank.values.to(dtype))).to(device)
            for number in MEMBERS:
                for paradigm in PARADIGMS:
                    pairs = [_pair(model, data, number, paradigm, numerics, batch_size)
                             for _ in range(settings.repeats + 1)][1:]  # fmt: skip
                    described = {"network": network, "precision": str(dtype).removeprefix("torch."), "members": number,
                                 "paradigm": paradigm, "batch_size": batch_size}  # fmt: skip
                    one, together = (list(values) for values in zip(*pairs, strict=True))
                    ratios = [a / b for a, b in pairs]
                    spreads = {"one_by_one": one, "together": together, "ratio": ratios}
                    rows.append(described | {name: asdict(Spread.of(values)) for name, values in spreads.items()})
    return {
        "what": "seconds of a step of several models, one after the other and together; ratios above 1 are gains",
        "how": (
            f"m = {settings.segments[0]}, {BATCHES} batches, members differ in their learning rates, "
            f"device: {settings.device}, threads: {settings.threads}, wall time, "
            f"median of n = {settings.repeats} taken in turn (least to greatest)"
        ),
        "provenance": provenance(Numerics(device, torch.float32)),
        "rows": rows,
    }


def _pair(
    model: FCAM, data: SDCData, number: int, paradigm: str, numerics: Numerics, batch_size: int
) -> tuple[float, float]:
    """Seconds of a step one by one and together."""
    seconds = []
    for call in (one_by_one, pass_together):
        members = members_of(model, data, number)
        _finish(numerics)
        began = time.perf_counter()
        call(members, paradigm, numerics, batch_size)
        _finish(numerics)
        seconds.append((time.perf_counter() - began) / BATCHES)
    return seconds[0], seconds[1]


def _finish(numerics: Numerics) -> None:
    if numerics.device.type == "cuda":
        torch.cuda.synchronize()


def table(content: dict[str, Any]) -> str:
    """The rows as people read them."""
    import pandas as pd

    def shown(row: dict[str, Any], name: str, scale: float) -> str:
        low, median, high = (scale * row[name][part] for part in ("low", "median", "high"))
        return f"{median:.2f} ({low:.2f} to {high:.2f})"

    frame = pd.DataFrame(
        {
            "networks": f"{row['network']}, {row['precision']}",
            "members": row["members"],
            "paradigm": row["paradigm"],
            "one by one, ms": shown(row, "one_by_one", 1e3),
            "together, ms": shown(row, "together", 1e3),
            "ratio": shown(row, "ratio", 1.0),
        }
        for row in content["rows"]
    )
    return frame.to_string(index=False)

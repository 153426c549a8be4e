"""`fcam bench --measure layers`: where the time of a training step goes, layer by layer, beside its floor.

A step of hard attention with the paper's CIFAR-10 networks is watched by torch's profiler. A layer's floor is the
greater of its floating-point operations over the machine's rate of matrix products and its bytes over the machine's
rate of copying, both measured in the same run; the fraction is floor over time: 1 is what a perfect kernel reaches.
Operations and bytes are counted from shapes; an index that max-pooling writes counts as bytes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from fcamlib.bench.settings import BenchSettings
from fcamlib.bench.sides import LibrarySide
from fcamlib.chunked import batch_output
from fcamlib.computing import build_model
from fcamlib.evaluation import batch_scores
from fcamlib.fcam import FCAM
from fcamlib.heap import keep_freed_memory
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance

PARADIGM = "hard"  # both networks see every segment
MATRIX = 1024  # rows of the products that the rate is measured with
COPIED = 2**27  # bytes of the copies
WARM_UP = 3  # steps until the heap is as large as a step needs
SMALL = 0.01  # share of a step below which a pass is small
HALF = 0.5
REGISTER = 16  # numbers of float32 that the widest vector register holds


@dataclass
class Layer:
    """One layer of a network, its sizes in the step that was watched, and its seconds in each repeat."""

    name: str
    module: nn.Module
    needs_input_gradient: bool = False
    input: Tensor | None = None  # of no storage: sizes alone
    output: Tensor | None = None
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"forward": [], "backward": []})

    @property
    def num_segments(self) -> int:
        """Segments that it saw."""
        assert self.input is not None
        return len(self.input)

    def work(self, direction: str) -> tuple[int, int]:
        """Floating-point operations and bytes, read and written, of a pass."""
        assert self.input is not None and self.output is not None
        read, written = _bytes(self.input), _bytes(self.output)
        weights = sum(_bytes(parameter) for parameter in self.module.parameters())
        operations = 2 * self.output.numel() * _products_per_output(self.module)
        index = 8 * self.output.numel() if isinstance(self.module, nn.MaxPool2d) else 0
        if direction == "forward":
            return operations, read + written + weights + index
        passes = int(weights > 0) + int(self.needs_input_gradient)
        kept = index or (read if weights else written)  # pooling looks at its indices, ReLU at its output
        gradient = read if self.needs_input_gradient else 0
        return operations * passes, written + kept + gradient + 2 * weights


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _products_per_output(module: nn.Module) -> int:
    """Multiplications with an addition for each number of the output."""
    return module.weight[0].numel() if isinstance(module, nn.Conv2d | nn.Linear) else 0


def measure(settings: BenchSettings) -> dict[str, Any]:
    """The table as plain values, for a JSON file; `rows` are layers and passes, `rest` what is no layer's."""
    keep_freed_memory()
    side = LibrarySide(settings)
    num_segments = settings.segments[0]
    config, task = side.training_task(num_segments, PARADIGM)
    numerics = Numerics.of(config.training)
    model, data = build_model(config, task), task.splits["train"].take(torch.arange(settings.batch_size))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    layers = layers_of(model)
    with reproducible(settings.threads, numerics.tf32):
        rate, bandwidth = matmul_rate(settings.repeats), copy_rate(settings.repeats)
        totals: list[float] = []
        for repeat in range(WARM_UP + settings.repeats):
            if repeat == WARM_UP:
                totals.clear()
                for layer in layers:
                    layer.seconds = {"forward": [], "backward": []}
            totals.append(watched_step(layers, lambda: step(model, data, numerics, optimizer)))
    total = statistics.median(totals)
    rows = [row for layer in layers for row in rows_of(layer, rate, bandwidth, total)]
    floor = sum(row["floor_ms"] for row in rows)
    return {
        "what": "milliseconds of a training step by layer and pass, and the floor that the machine sets",
        "how": (
            f"hard attention, m = {num_segments}, the paper's CIFAR-10 networks, {settings.batch_size} "
            f"mosaics a step with {layers[0].num_segments:,} distinct pictures, "
            f"{settings.precision}, threads: {settings.threads}, torch.profiler; median of {settings.repeats} steps. "
            f"Floor: operations over {rate / 1e9:.0f} GFLOP/s (product of {MATRIX} x {MATRIX} matrices) or bytes over "
            f"{bandwidth / 1e9:.0f} GB/s (a copy), whichever takes longer, both measured in the same run"
        ),
        "provenance": provenance(numerics),
        "matmul_flops_per_second": rate,
        "copy_bytes_per_second": bandwidth,
        "step_ms": spread(totals),
        "floor_ms": floor,
        "fraction": floor / (1e3 * total),
        "rest_ms": 1e3 * statistics.median(rest_of(layers, totals)),
        "rows": rows,
    }


def rest_of(layers: list[Layer], totals: list[float]) -> list[float]:
    """Seconds of each step that are no layer's."""
    return [
        total - sum(seconds[place] for layer in layers for seconds in layer.seconds.values())
        for place, total in enumerate(totals)
    ]


def step(model: FCAM, data: Any, numerics: Numerics, optimizer: torch.optim.Optimizer) -> None:
    """What `fcamlib.training` does with a batch."""
    output = batch_output(model, data, PARADIGM, numerics)
    optimizer.zero_grad(set_to_none=True)
    output.loss(PARADIGM, data.label).backward()
    optimizer.step()
    with torch.no_grad():
        batch_scores(output, data, PARADIGM)


def layers_of(model: FCAM) -> list[Layer]:
    """The layers of both networks; those before and at a network's first weights need no gradient of their input."""
    layers = []
    for network in ("focus", "classification"):
        trainable = False
        for module in getattr(model, f"{network}_model"):
            layers.append(Layer(f"{network} {described(module)}", module, trainable))
            trainable = trainable or any(True for _ in module.parameters())
    return layers


def described(module: nn.Module) -> str:
    """A layer in a few words."""
    if isinstance(module, nn.Conv2d):
        size = module.kernel_size[0]
        return f"convolution {module.in_channels} to {module.out_channels}, {size} x {size}"
    if isinstance(module, nn.Linear):
        return f"dense {module.in_features} to {module.out_features}"
    name = type(module).__name__
    return {"MaxPool2d": "max-pooling", "ReLU": "ReLU"}.get(name, name.strip("_").lower())


def watched_step(layers: list[Layer], call: Callable[[], None]) -> float:
    """Seconds of one call; those of each layer are added to its lists."""
    hooks, spans = [], {}

    def before(layer: Layer, given: Tensor) -> None:
        layer.input = torch.empty_like(given, device="meta")
        spans[layer.name] = record_function(f"layer {layers.index(layer)}")
        spans[layer.name].__enter__()

    def after(layer: Layer, output: Tensor) -> None:
        spans[layer.name].__exit__(None, None, None)
        layer.output = torch.empty_like(output, device="meta")

    for layer in layers:
        hooks += [
            layer.module.register_forward_pre_hook(lambda _, given, layer=layer: before(layer, given[0])),
            layer.module.register_forward_hook(lambda _, given, output, layer=layer: after(layer, output)),
        ]
    try:
        with profile(activities=[ProfilerActivity.CPU]) as watched:
            began = time.perf_counter()
            call()
            seconds = time.perf_counter() - began
    finally:
        for hook in hooks:
            hook.remove()
    for number, found in by_layer(watched.events()).items():
        for direction, microseconds in found.items():
            layers[number].seconds[direction].append(1e-6 * microseconds)
    return seconds


def by_layer(events: Any) -> dict[int, dict[str, float]]:
    """Microseconds of each layer; autograd numbers an operation and its backward function alike."""
    found: dict[int, dict[str, float]] = {}
    layer_of: dict[int, int] = {}

    def note(event: Any, number: int) -> None:
        if event.sequence_nr >= 0:
            layer_of[event.sequence_nr] = number  # an operation without gradient bears the next one's number
        for child in event.cpu_children:
            note(child, number)

    for event in events:
        if event.name.startswith("layer "):
            number = int(event.name.split()[1])
            found[number] = {"forward": event.cpu_time_total, "backward": 0.0}
            note(event, number)
    for event in events:
        if event.name.startswith("autograd::engine::evaluate_function") and event.sequence_nr in layer_of:
            found[layer_of[event.sequence_nr]]["backward"] += event.cpu_time_total
    return found


def rows_of(layer: Layer, rate: float, bandwidth: float, step_seconds: float) -> list[dict[str, Any]]:
    """A row for each pass that does anything."""
    rows = []
    for direction, seconds in layer.seconds.items():
        flops, moved = layer.work(direction)
        taken = statistics.median(seconds)
        is_view = not flops and not isinstance(layer.module, nn.MaxPool2d | nn.ReLU)
        if is_view or not taken:
            continue
        floor = max(flops / rate, moved / bandwidth)
        row = {"layer": layer.name, "pass": direction, "ms": spread(seconds), "gflop": flops / 1e9, "mb": moved / 1e6}
        row |= {"floor_ms": 1e3 * floor, "bound": "compute" if flops / rate > moved / bandwidth else "memory"}
        fraction, share = floor / taken, taken / step_seconds
        row |= {"fraction": fraction, "share": share}
        assert layer.output is not None
        sentence = why(layer.module, direction, share, layer.output.shape[1]) if fraction < HALF else ""
        rows.append(row | {"why": sentence})
    return rows


def why(module: nn.Module, direction: str, share: float, channels: int) -> str:
    """Why a pass takes more than twice its floor, one sentence."""
    if isinstance(module, nn.MaxPool2d) and direction == "backward":
        return (
            "Zeros are written first, then one gradient in four goes to its place; masks, a scatter and maxima of "
            "strided views, tried instead on the focus network's pooling, took 1.6 to 15 times as long."
        )
    if isinstance(module, nn.MaxPool2d) and channels < REGISTER:
        return "Few channels fill a vector register in part, so that, we think, numbers are compared nearly one by one."
    if isinstance(module, nn.MaxPool2d):
        return "Four numbers are compared for each that is written, and its 8-byte index is kept for the backward pass."
    if share < SMALL:
        return "Under a hundredth of the step: starting an operation costs as much as its work."
    if isinstance(module, nn.Conv2d):
        return (
            f"{module.in_channels} channels in and {module.out_channels} out fill a vector register in part, we think; "
            "zeros added to the classifier's channels up to 8 saved under one per cent of a step."
        )
    return "The operation waits, we think, for memory that is touched for the first time, slower than copying."


def spread(seconds: list[float]) -> dict[str, float]:
    """Median, least and greatest in milliseconds."""
    return {
        "median": 1e3 * statistics.median(seconds), "low": 1e3 * min(seconds), "high": 1e3 * max(seconds)
    }  # fmt: skip


def matmul_rate(repeats: int) -> float:
    """Floating-point operations of a second in float32 matrix products: the fastest of several."""
    left, right = torch.ones(MATRIX, MATRIX), torch.ones(MATRIX, MATRIX)
    return 2 * MATRIX**3 / _fastest(lambda: left @ right, 10 * repeats)


def copy_rate(repeats: int) -> float:
    """Bytes read and written of a second in copying: the fastest of several."""
    source = torch.ones(COPIED // 4)
    target = torch.empty_like(source)
    return 2 * COPIED / _fastest(lambda: target.copy_(source), 5 * repeats)


def _fastest(call: Callable[[], Any], times: int) -> float:
    call()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return min(taken)


def table(content: dict[str, Any]) -> str:
    """The rows as people read them."""
    import pandas as pd

    frame = pd.DataFrame(
        {
            "layer": row["layer"],
            "pass": row["pass"],
            "ms": f"{row['ms']['median']:.2f} ({row['ms']['low']:.2f} to {row['ms']['high']:.2f})",
            "floor ms": f"{row['floor_ms']:.2f}",
            "bound": row["bound"],
            "fraction": f"{row['fraction']:.2f}",
            "share": f"{100 * row['share']:.1f} %",
        }
        for row in content["rows"]
    )
    step_ms = content["step_ms"]
    whole = (
        f"A step takes {step_ms['median']:.0f} ms ({step_ms['low']:.0f} to {step_ms['high']:.0f}); its layers' floors "
        f"are {content['floor_ms']:.0f} ms together, {content['fraction']:.2f} of it. What is no layer's (gathering "
        f"pictures, loss, update, measures) takes {content['rest_ms']:.0f} ms."
    )
    return f"{frame.to_string(index=False)}\n\n{whole}"

"""Time and memory of a training step over the number of segments: counted, derived, and recorded.

Three methods compute the same mathematics: evaluate every occurrence of a segment; each distinct segment of the batch
once (the bank); or these in chunks, whose activations are recomputed for the gradients. Memory is the counted peak of
the bytes of all tensors, the same in every run. `python -m benchmarks cost` makes the recorded measurements.
Axes: B batch, M segments, K classes, D features, U distinct segments.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fcamlib import paths
from fcamlib.chunked import kept_of_each, output_in_chunks
from fcamlib.config import CostParameters
from fcamlib.data.sdc import Bank, SDCData, distinct, every_occurrence
from fcamlib.fcam import FCAM, FCAMOutput
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import PLAIN
from fcamlib.paradigms import PAPER, needs

METHODS = {
    "every": "every occurrence evaluated",
    "bank": "distinct segments evaluated once",
    "chunks": "distinct segments in chunks",
}
SMALL_CHUNKS = 2**17  # bytes, so that the small batches used for counting are divided too
SHAPE = (1, 8, 8)


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of all tensors created inside this context, and their peak.

    A storage counts once, however many views it has, from the operation that creates it until nothing refers to it,
    including autograd's graph. Temporary memory within one operation is not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0  # bytes
        self._known: set[int] = set()  # storages that are counted

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        def storages(tree: Any) -> dict[int, torch.UntypedStorage]:
            held = [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
            return {id(storage): storage for storage in held}

        given, result = storages((args, kwargs)), func(*args, **(kwargs or {}))
        for key, storage in storages(result).items():
            if key not in given and key not in self._known:
                self._known.add(key)
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._forget, key, storage.nbytes())
        return result

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def problem(
    sizes: CostParameters, num_segments: int, batch_size: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[FCAM, SDCData]:
    """The digits networks, and a batch with segments drawn from the bank."""
    generator = torch.Generator().manual_seed(sizes.seed)
    values = torch.rand(sizes.num_pictures, *SHAPE, generator=generator)
    shape = (batch_size or sizes.batch_size, num_segments)
    segments = torch.randint(sizes.num_pictures, shape, generator=generator, dtype=torch.int32)
    label = torch.randint(sizes.num_classes, (shape[0],), generator=generator)
    focus = focus_network("digits", SHAPE, generator, dtype)
    classifier = classification_network("digits", SHAPE, sizes.num_classes, generator, dtype)
    return FCAM(focus, classifier), SDCData(Bank(values), segments, label, torch.zeros(shape, dtype=torch.bool))


def output(method: str, model: FCAM, data: SDCData, paradigm: str, chunk_bytes: int = SMALL_CHUNKS) -> FCAMOutput:
    """The forward pass of a step with one of the three methods."""
    numerics = replace(PLAIN, dtype=next(model.parameters()).dtype)
    if method == "chunks":
        size = max(1, int(chunk_bytes / kept_of_each(model, data, paradigm, numerics)))
        return output_in_chunks(model, data, paradigm, numerics, size)
    rows, places = (every_occurrence if method == "every" else distinct)(data.segments)
    return model(data.bank.rows(rows, numerics.dtype), places, paradigm, data.mask)


def step(method: str, model: FCAM, data: SDCData, paradigm: str, chunk_bytes: int) -> None:
    """Forward and backward pass of a batch."""
    model.zero_grad(set_to_none=True)
    output(method, model, data, paradigm, chunk_bytes).loss(paradigm, data.label).backward()


def counted(method: str, model: FCAM, data: SDCData, paradigm: str, chunk_bytes: int) -> tuple[int, int]:
    """Floating-point operations (products and convolutions) and peak tensor bytes of a step, both exact."""
    call = partial(step, method, model, data, paradigm, chunk_bytes)
    with FlopCounterMode(display=False) as flops:
        call()
    with PeakMemory() as memory:
        call()
    return flops.get_total_flops(), memory.peak


def measurements() -> dict[str, Any]:
    """The recorded benchmark."""
    return json.loads(Path(paths.recorded_dir() or "", "bench", "cost.json").read_text("utf-8"))


def table(content: dict[str, Any]) -> pd.DataFrame:
    """One row per paradigm, number of segments and method; milliseconds and megabytes as numbers."""
    found = pd.DataFrame(content["rows"])
    return found.drop(columns="seconds").join(1e3 * pd.DataFrame(found["seconds"].tolist()))


def counted_rows(sizes: CostParameters) -> list[dict[str, Any]]:
    """Counted operations (MFLOP) and peak memory (MB) of a step of 16 instances, and derived operations."""
    rows = []
    for paradigm in PAPER:
        for m in sizes.counted_segments:
            model, data = problem(sizes, m, batch_size=16)
            num_distinct = len(distinct(data.segments)[0])
            derived = derived_operations(model, paradigm, num_distinct, len(data))
            row: dict[str, Any] = {"paradigm": paradigm, "m": m, "U": num_distinct, "MFLOP derived": derived / 1e6}
            found = {name: counted(name, model, data, paradigm, SMALL_CHUNKS) for name in ("bank", "chunks", "every")}
            row |= {f"MFLOP {name}": flops / 1e6 for name, (flops, _) in found.items()}
            rows.append(row | {f"MB {name}": peak / 1e6 for name, (_, peak) in found.items()})
    return rows


def derived_operations(model: FCAM, paradigm: str, num_distinct: int, batch_size: int) -> int:
    """Operations of a forward and backward pass with the bank, derived from the sizes of the layers.

    A layer computes the forward product, one for the gradient of its weights and one for that of its input. A network's
    first layer skips the last one, except in soft attention's classifier, whose input depends on the attention.
    """
    focus, classifier = forward_operations(model.focus_model), forward_operations(model.classification_model)
    total = num_distinct * (3 * sum(focus) - focus[0])
    if needs([paradigm], "mixture"):
        return total + batch_size * 3 * sum(classifier)
    return total + num_distinct * (3 * sum(classifier) - classifier[0])


def forward_operations(network: nn.Module) -> list[int]:
    """Operations of each layer with weights on one segment: two per multiply-add."""
    operations, hidden = [], torch.zeros(1, *SHAPE)
    with torch.no_grad():
        for layer in network.children():
            hidden = layer(hidden)
            if isinstance(layer, nn.Conv2d | nn.Linear):
                operations.append(2 * hidden.numel() * layer.weight[0].numel())
    return operations


def chunk_difference(sizes: CostParameters, paradigm: str) -> float:
    """Largest difference between gradients in chunks and in one piece, relative to the largest entry; float64."""
    model, data = problem(sizes, max(sizes.counted_segments), batch_size=4, dtype=torch.float64)
    found = []
    for method in ("bank", "chunks"):
        loss = output(method, model, data, paradigm).loss(paradigm, data.label)
        found.append(nn.utils.parameters_to_vector(torch.autograd.grad(loss, list(model.parameters()))))
    return float((found[0] - found[1]).abs().max() / found[0].abs().max())


def figure_record(content: dict[str, Any], sizes: CostParameters) -> dict[str, object]:
    """The provenance record saved with the figure of the measurements."""
    source, pictures = content["provenance"], f"{content['experiment']['num_pictures']:,} random pictures"
    return {
        "notebook": "notebooks/11_cost_of_attention.ipynb",
        "data": [pictures],
        "computed": [{"data": pictures, "recorded": True, "commits": [source["commit"]], "dates": [source["date"]]}],
        "parameters": sizes.model_dump(mode="json"),
        "measured": {name: source[name] for name in ("commit", "date", "device")} | {"how": content["how"]},
        "rerun": "python -m benchmarks cost --json results/recorded/bench/cost.json",
    }

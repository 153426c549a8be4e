"""`fcam bench --measure cost`: time and memory of a training step as instances get more segments.

Three ways of the same mathematics: every occurrence of a segment is evaluated; each distinct segment of the batch is
evaluated once, the bank; and that in chunks, whose activations are computed again for the gradients. Memory is the
peak of the bytes of all tensors of the step, counted, so that it is the same in every run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from fcamlib.bench.results import Spread
from fcamlib.bench.settings import BenchSettings
from fcamlib.chunked import kept_of_each, output_in_chunks
from fcamlib.config.cost import CostExperiment
from fcamlib.data.sdc import Bank, SDCData, distinct, every_occurrence
from fcamlib.fcam import FCAM, PARADIGMS, FCAMOutput
from fcamlib.heap import keep_freed_memory
from fcamlib.memory import PeakMemory
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import PLAIN, reproducible
from fcamlib.provenance import provenance

WAYS = {
    "every": "every occurrence evaluated",
    "bank": "distinct segments evaluated once",
    "chunks": "distinct segments in chunks",
}
CHUNK_BYTES = 2**24  # that autograd keeps of a chunk
MOST_BYTES = 2**32  # of a pass in one piece; larger ones are not measured
SHAPE = (1, 8, 8)


def problem(
    experiment: CostExperiment, num_segments: int, batch_size: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[FCAM, SDCData]:
    """The digits networks, and a batch whose segments are drawn from the bank."""
    generator = torch.Generator().manual_seed(experiment.seed)
    values = torch.rand(experiment.num_pictures, *SHAPE, generator=generator)
    shape = (batch_size or experiment.batch_size, num_segments)
    segments = torch.randint(experiment.num_pictures, shape, generator=generator, dtype=torch.int32)
    label = torch.randint(experiment.num_classes, (shape[0],), generator=generator)
    foreground = torch.zeros(shape, dtype=torch.bool)
    pair = (
        focus_network("digits", SHAPE, generator, dtype),
        classification_network("digits", SHAPE, experiment.num_classes, generator, dtype),
    )
    return FCAM(*pair), SDCData(Bank(values), segments, label, foreground)


def output(way: str, model: FCAM, data: SDCData, paradigm: str, chunk_bytes: int = CHUNK_BYTES) -> FCAMOutput:
    """The pass of a step, in one of the three ways."""
    numerics = replace(PLAIN, dtype=next(model.parameters()).dtype)
    if way == "chunks":
        size = max(1, int(chunk_bytes / kept_of_each(model, data, paradigm, numerics)))
        return output_in_chunks(model, data, paradigm, numerics, size)
    rows, places = (every_occurrence if way == "every" else distinct)(data.segments)
    return model(data.bank.rows(rows, numerics.dtype), places, paradigm, data.mask)


def step(way: str, model: FCAM, data: SDCData, paradigm: str, chunk_bytes: int = CHUNK_BYTES) -> None:
    """Forward and backward pass of a batch."""
    model.zero_grad(set_to_none=True)
    output(way, model, data, paradigm, chunk_bytes).loss(paradigm, data.label).backward()


def counted(call: Callable[[], None]) -> tuple[int, int]:
    """Floating-point operations of products and convolutions, and peak bytes of tensors: both exact."""
    with FlopCounterMode(display=False) as flops:
        call()
    with PeakMemory() as memory:
        call()
    return flops.get_total_flops(), memory.peak


def rows_of(experiment: CostExperiment) -> list[dict[str, Any]]:
    """One row for each number of segments, paradigm and way that fits."""
    rows = []
    for num_segments in experiment.num_segments:
        model, data = problem(experiment, num_segments)
        num_distinct = len(distinct(data.segments)[0])
        for paradigm in PARADIGMS:
            each = kept_of_each(model, data, paradigm, PLAIN)
            for way in WAYS:
                evaluated = data.segments.numel() if way == "every" else num_distinct
                if way != "chunks" and evaluated * each > MOST_BYTES:
                    continue
                call = _step_of(way, model, data, paradigm)
                flops, peak = counted(call)
                seconds = [_seconds(call) for _ in range(experiment.repeats)]
                rows.append(
                    {
                        "paradigm": paradigm,
                        "num_segments": num_segments,
                        "way": way,
                        "evaluated": evaluated,
                        "gflop": flops / 1e9,
                        "peak_mb": peak / 1e6,
                        "seconds": asdict(Spread.of(seconds)),
                    }
                )
    return rows


def _step_of(way: str, model: FCAM, data: SDCData, paradigm: str) -> Callable[[], None]:
    return lambda: step(way, model, data, paradigm)


def _seconds(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure(settings: BenchSettings) -> dict[str, Any]:
    """The benchmark of `fcam bench`."""
    return measured(CostExperiment(num_segments=settings.segments, repeats=settings.repeats, threads=settings.threads))


def measured(experiment: CostExperiment) -> dict[str, Any]:
    """The benchmark as plain values, for a JSON file."""
    keep_freed_memory()
    with reproducible(experiment.threads):
        rows = rows_of(experiment)
    return {
        "what": "seconds and peak memory of a forward and backward pass as instances get more segments",
        "how": (
            f"batches of {experiment.batch_size} instances drawn from {experiment.num_pictures:,} pictures of 8 x 8, "
            f"{experiment.num_classes} classes, the digits networks, float32, threads: {experiment.threads}, wall "
            f"time, median of n = {experiment.repeats} (least to greatest); memory is the peak of the tensors' bytes, "
            f"counted; chunks keep {CHUNK_BYTES / 1e6:.0f} MB; what would keep more than {MOST_BYTES / 1e9:.1f} GB "
            "in one piece is left out"
        ),
        "experiment": experiment.model_dump(mode="json"),
        "provenance": provenance(PLAIN),
        "rows": rows,
    }


def table(content: dict[str, Any]) -> str:
    """The rows as people read them."""
    from fcamlib.bench.cost_tables import measured_table

    return measured_table(content).to_string()

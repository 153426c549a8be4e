"""A step as instances get more segments, for notebook 11: seconds and peak memory by each method of `fcamlib.cost`."""

from __future__ import annotations

from typing import Any

from benchmarks.report import seconds, spread
from fcamlib.chunked import kept_of_each
from fcamlib.config import CostParameters
from fcamlib.cost import METHODS, counted, problem, step, table
from fcamlib.data.sdc import distinct
from fcamlib.numerics import PLAIN, reproducible
from fcamlib.paradigms import PAPER
from fcamlib.provenance import provenance

__all__ = ["benchmark", "table"]
CHUNK_BYTES = 2**24  # that autograd keeps of a chunk
MOST_BYTES = 2**32  # of a pass in one piece; larger ones are not measured


def benchmark(repeats: int, threads: int, quick: bool = False, **ignored: Any) -> dict[str, Any]:
    """Every row, as plain values for a JSON file."""
    some = {"num_segments": (2, 20)} if quick else {}
    sizes = CostParameters.model_validate({"repeats": repeats, "threads": threads, **some})
    with reproducible(threads):
        rows = [row for m in sizes.num_segments for paradigm in PAPER for row in measured(sizes, m, paradigm)]
    how = (
        f"batches of {sizes.batch_size} instances drawn from {sizes.num_pictures:,} pictures of 8 x 8, "
        f"{sizes.num_classes} classes, the digits networks, float32, threads: {threads}, wall time, median of "
        f"n = {repeats} (least to greatest); memory is the peak of the tensors' bytes, counted; chunks keep "
        f"{CHUNK_BYTES / 1e6:.0f} MB; what would keep more than {MOST_BYTES / 1e9:.1f} GB in one piece is left out"
    )
    what = "seconds and peak memory of a forward and backward pass as instances get more segments"
    experiment = sizes.model_dump(mode="json")
    return {"what": what, "how": how, "experiment": experiment, "provenance": provenance(PLAIN), "rows": rows}


def measured(sizes: CostParameters, num_segments: int, paradigm: str) -> list[dict[str, Any]]:
    """A row for each method that fits."""
    rows, (model, data) = [], problem(sizes, num_segments)
    each, num_distinct = kept_of_each(model, data, paradigm, PLAIN), len(distinct(data.segments)[0])
    for method in METHODS:
        evaluated = data.segments.numel() if method == "every" else num_distinct
        if method == "chunks" or evaluated * each <= MOST_BYTES:
            flops, peak = counted(method, model, data, paradigm, CHUNK_BYTES)
            found = [seconds(lambda: step(method, model, data, paradigm, CHUNK_BYTES)) for _ in range(sizes.repeats)]  # noqa: B023
            about = {"paradigm": paradigm, "num_segments": num_segments, "way": method, "evaluated": evaluated}
            rows.append(about | {"gflop": flops / 1e9, "peak_mb": peak / 1e6, "seconds": spread(found)})
    return rows

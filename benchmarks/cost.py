"""A step as instances get more segments, for notebook 11: seconds and peak memory by each method of `fcamlib.cost`."""

from functools import partial
from typing import Any

from benchmarks.report import seconds, spread
from fcamlib.chunked import kept_of_each
from fcamlib.config import CostParameters
from fcamlib.cost import METHODS, counted, problem, step
from fcamlib.data.sdc import distinct
from fcamlib.numerics import PLAIN, reproducible
from fcamlib.paradigms import PAPER

CHUNK_BYTES = 2**24  # that autograd keeps of a chunk
MOST_BYTES = 2**32  # of a pass in one piece; larger ones are not measured


def benchmark(repeats: int, threads: int, quick: bool, **ignored: Any) -> dict[str, Any]:
    """Every row, as `fcamlib.cost.table` reads them."""
    sizes = CostParameters.of({"repeats": repeats, "threads": threads} | ({"num_segments": "2,20"} if quick else {}))
    with reproducible(threads):
        rows = [row for m in sizes.num_segments for paradigm in PAPER for row in measured(sizes, m, paradigm)]
    how = (
        f"batches of {sizes.batch_size} instances drawn from {sizes.num_pictures:,} pictures of 8 x 8, "
        f"{sizes.num_classes} classes, the digits networks, float32; memory is the peak of the tensors' bytes, "
        f"counted; chunks keep {CHUNK_BYTES / 1e6:.0f} MB; what would keep more than {MOST_BYTES / 1e9:.1f} GB in one "
        "piece is left out"
    )
    experiment = sizes.model_dump(mode="json")
    return {"what": "seconds and peak memory of a step", "how": how, "experiment": experiment, "rows": rows}


def measured(sizes: CostParameters, num_segments: int, paradigm: str) -> list[dict[str, Any]]:
    """A row for each method that fits."""
    rows, (model, data) = [], problem(sizes, num_segments)
    each, num_distinct = kept_of_each(model, data, paradigm, PLAIN), len(distinct(data.segments)[0])
    for method in METHODS:
        evaluated = data.segments.numel() if method == "every" else num_distinct
        if method == "chunks" or evaluated * each <= MOST_BYTES:
            given = method, model, data, paradigm, CHUNK_BYTES
            flops, peak = counted(*given)
            took = spread([seconds(partial(step, *given)) for _ in range(sizes.repeats)])
            about = {"paradigm": paradigm, "num_segments": num_segments, "way": method, "evaluated": evaluated}
            rows.append(about | {"gflop": flops / 1e9, "peak_mb": peak / 1e6, "seconds": took})
    return rows

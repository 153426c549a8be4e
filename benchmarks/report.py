"""One form for every benchmark: rows of a plain implementation and this library, measured in turn."""

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

Row = dict[str, Any]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest of the repeats."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def row(label: str, unit: str, library: Sequence[float], plain: Sequence[float] = (), aim: float | None = None) -> Row:
    """One measure; `ratio` is plain over library: of the medians, and its spread over the pairs taken in turn."""
    both = {"plain": spread(plain) if plain else None, "library": spread(library), "ratio": None}
    if plain:
        each = spread([a / b for a, b in zip(plain, library, strict=True)])
        both["ratio"] = each | {"median": statistics.median(plain) / statistics.median(library)}
    return {"label": label, "unit": unit, **both, "aim": aim}


def compared(label: str, measure: Callable[[bool], float], repeats: int, aim: float | None = None) -> Row:
    """A row of the seconds that `measure(is_plain)` returns for both sides in turn; they alternate in going first."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for repeat in range(repeats):
        for is_plain in (repeat % 2 == 0, repeat % 2 == 1):
            found[is_plain].append(measure(is_plain))
    return row(label, "s", found[False], found[True], aim)


def seconds(call: Callable[[], Any]) -> float:
    """Wall-clock seconds of a call, with what it left to a GPU."""
    began = time.perf_counter()
    call()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def in_fresh_process(call: Callable[..., Any], *given: Any) -> Any:
    """What `call` returns in a process of its own, whose peak of memory is then its own too."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, given)


def peak_memory() -> float:
    """Largest resident size of this process so far, in MB; the kernel's other figure starts at the parent's size."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def table(content: dict[str, Any]) -> pd.DataFrame:
    """The rows of a benchmark as text: median (least to greatest), with the aim where there is one."""
    shown = {
        line["label"]: {
            "plain": _shown(line["plain"], line["unit"]),
            "fcamlib": _shown(line["library"], line["unit"]),
            "ratio": _shown(line["ratio"]),
            "aim": "" if line["aim"] is None else f"{line['aim']:,g}",
        }
        for line in content["rows"]
    }
    return pd.DataFrame.from_dict(shown, orient="index").rename_axis("measure")


def _shown(value: dict[str, float] | None, unit: str = "") -> str:
    """A spread with three digits."""
    if value is None:
        return ""
    median, low, high = (f"{v:,.0f}" if v >= 100 else f"{v:.3g}" for v in (value[k] for k in ("median", "low", "high")))
    return (f"{median} ({low} to {high})" if low != high else median) + f" {unit}".rstrip()

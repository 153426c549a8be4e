"""One form for every benchmark: rows of a plain implementation and this library, measured in turn."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from fcamlib.numerics import Numerics
from fcamlib.provenance import provenance

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


def in_turn(plain: Callable[[], float], library: Callable[[], float], repeats: int) -> tuple[list[float], list[float]]:
    """What both sides measure, one after the other; the side that goes first alternates."""
    found: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats):
        for side in (0, 1) if repeat % 2 == 0 else (1, 0):
            found[side].append((plain, library)[side]())
    return found


def seconds(call: Callable[[], Any]) -> float:
    """Wall-clock seconds of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def in_fresh_process(call: Callable[..., Any], *given: Any) -> Any:
    """The result of a call in a process of its own, whose peak of memory is that of the call."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, given)


def peak_memory() -> float:
    """Largest resident size of this process so far, in MB."""
    try:
        # In a child process the kernel's rusage figure starts at the parent's size; this one does not.
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) / 1e3 for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def report(what: str, how: str, numerics: Numerics, rows: list[Row]) -> dict[str, Any]:
    """A benchmark as plain values, for a JSON file."""
    return {"what": what, "how": how, "provenance": provenance(numerics), "rows": rows}


def table(content: dict[str, Any]) -> pd.DataFrame:
    """The rows of a report as text: median (least to greatest), with the aim where there is one."""
    rows = [
        {
            "measure": line["label"],
            "plain": _shown(line["plain"], line["unit"]),
            "fcamlib": _shown(line["library"], line["unit"]),
            "ratio": _shown(line["ratio"], ""),
            "aim": "" if line["aim"] is None else f"{line['aim']:,g}",
        }
        for line in content["rows"]
    ]
    return pd.DataFrame(rows).set_index("measure")


def _shown(value: dict[str, float] | None, unit: str) -> str:
    """A spread with three digits."""
    if value is None:
        return ""
    median, low, high = (f"{v:,.0f}" if v >= 100 else f"{v:.3g}" for v in (value[k] for k in ("median", "low", "high")))
    return (f"{median} ({low} to {high})" if low != high else median) + f" {unit}".rstrip()

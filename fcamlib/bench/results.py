"""What the benchmarks share: the spread of a repeated measure, and the file that a benchmark is written to."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from fcamlib.errors import UserError


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of the repeats."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """The spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


def write_text(path: Path, text: str) -> None:
    """Write a benchmark's file, its folder made if need be; one sentence where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(f"json='{path}' cannot be written ({error.strerror}): choose another file.") from None

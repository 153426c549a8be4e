"""`fcam rerun`: compute recorded results again from their configs, and compare every number with the record."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import click
import numpy as np

from fcamlib import paths, store
from fcamlib.errors import UserError
from fcamlib.provenance import instruction_sets
from fcamlib.store import Result

CLOCK = "seconds"  # columns of the history that differ each time
CAPABILITY = "ATEN_CPU_CAPABILITY"  # the environment variable that sets PyTorch's instruction set at startup
NO_LONGER_KEPT = ("summary/splits/train/saif_curve", "summary/splits/validation/saif_curve")
DIGITS = 5e-4  # of measures as they are printed


def difference(record: Result[Any], found: Result[Any]) -> tuple[int, float, str]:
    """Number of compared values of a record (timings excluded), the largest absolute difference, and its location.

    A missing value and a differing text count as an infinite difference.
    """
    recorded, computed = _values(record), _values(found)
    apart = {name: _apart(values, computed.get(name)) for name, values in recorded.items()}
    place = max(apart, key=lambda name: apart[name])
    return sum(map(len, recorded.values())), apart[place], place


def _values(result: Result[Any]) -> dict[str, np.ndarray]:
    """The values of a result by location, as flat arrays."""
    history = result.history
    values = {name: history[name].to_numpy() for name in map(str, history) if CLOCK not in name}
    measures = _leaves({name: part for name, part in result.summary.items() if name != "provenance"}, "summary")
    values |= {place: value for place, value in measures.items() if not place.startswith(NO_LONGER_KEPT)}
    return values | {f"examples/{name}": array.ravel() for name, array in result.arrays("examples.npz").items()}


def _leaves(content: Any, place: str) -> dict[str, np.ndarray]:
    """The values in nested mappings and lists."""
    if isinstance(content, Mapping | list):
        parts = content.items() if isinstance(content, Mapping) else enumerate(content)
        return {name: leaf for key, part in parts for name, leaf in _leaves(part, f"{place}/{key}").items()}
    return {place: np.array([content])}


def _apart(one: np.ndarray, other: np.ndarray | None) -> float:
    """Largest absolute difference of two arrays; entries that are NaN in both count as equal."""
    if other is None or len(one) != len(other):
        return np.inf
    if {one.dtype.kind, other.dtype.kind} <= set("biuf"):
        one, other = one.astype(float), other.astype(float)
        gaps = np.where(np.isnan(one) & np.isnan(other), 0.0, np.abs(one - other))
        return float(np.nan_to_num(gaps, nan=np.inf).max(initial=0.0))
    return 0.0 if list(map(str, one)) == list(map(str, other)) else np.inf


def within_seeds(record: Result[Any], found: Result[Any]) -> bool:
    """Whether the final test measures agree to their printed digits, or within the recorded spread over seeds."""
    seed, kind = getattr(record.config, "seed", None), type(record.config)
    alike = [
        _values(other)
        for other in store.every(kind, recorded=True)
        if seed is not None and other.config.model_copy(update={"seed": seed}) == record.config
    ]
    recorded, computed = _values(record), _values(found)
    for name in (name for name in recorded if name.startswith("summary/splits/test/") and name.count("/") == 3):
        spread = np.ptp([other[name] for other in alike]) if len(alike) > 1 else 0.0
        if _apart(recorded[name], computed.get(name)) > max(DIGITS, spread):
            return False
    return bool(len(alike) > 1 or difference(record, found)[1] < DIGITS)


def chosen(patterns: tuple[str, ...]) -> list[Result[Any]]:
    """The recorded results whose names match, each once, ordered by pattern."""
    known = {result.folder.name: result for result in store.survey(paths.recorded_dir())}
    if not known:
        raise UserError("no results are recorded here: `fcam rerun` needs a source checkout.")
    matching: dict[str, Result[Any]] = {}
    for pattern in patterns:
        names = fnmatch.filter(known, pattern)
        if not names:
            raise UserError(f"no recorded result matches '{pattern}': `fcam list` shows the names of all {len(known)}.")
        matching |= {name: known[name] for name in names}
    for name, result in matching.items():
        if result.damage:
            raise UserError(f"the recorded result '{name}' is damaged ({result.damage}): restore it with git.")
    return list(matching.values())


def capability(record: Result[Any]) -> str:
    """The record's instruction set if this machine has it but PyTorch would not use it by default, else empty."""
    wanted, known = record.summary["provenance"].get("cpu_capability", ""), instruction_sets()
    return "" if wanted not in known or os.environ.get(CAPABILITY, known[-1]).upper() == wanted else wanted


def compared(record: Result[Any]) -> bool:
    """Compute a recorded result again, print one line, and return whether it is reproduced."""
    found = store.get(record.config, recorded=False)
    number, largest, place = difference(record, found)
    line = f"{record.folder.name}: {number:,} numbers compared, largest difference {largest:.3g}"
    line += f" ({place})" if largest else ""
    wanted, used = (result.summary["provenance"].get("cpu_capability", "unknown") for result in (record, found))
    reproduced = largest == 0
    if wanted != used:
        line += f"; computed with {used} instructions, the record with {wanted}, which this machine lacks"
        if not reproduced and (reproduced := within_seeds(record, found)):
            line += ": final measures agree within their digits or the spread over seeds"
    click.echo(f"{line}{'' if reproduced else '; NOT REPRODUCED'}; in {found.folder}")
    sys.stdout.flush()
    return reproduced


def rerun(names: tuple[str, ...]) -> bool:
    """Compute the recorded results that match these names or patterns again; return whether all are reproduced.

    Each result uses the record's vector instructions if the processor has them, in a separate process if necessary.
    """
    groups: dict[str, list[Result[Any]]] = {}
    for record in chosen(names):
        groups.setdefault(capability(record), []).append(record)
    reproduced = True
    for instructions, records in groups.items():
        if instructions:
            command = [sys.executable, "-m", "fcamlib", "rerun", *(record.folder.name for record in records)]
            environment = os.environ | {CAPABILITY: instructions.lower()}
            reproduced &= subprocess.run(command, env=environment).returncode == 0
            continue
        from fcamlib.numerics import keep_freed_memory

        keep_freed_memory()
        reproduced &= all([compared(record) for record in records])
    return reproduced

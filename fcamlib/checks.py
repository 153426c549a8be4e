"""`fcam check` shows what is here, changing and downloading nothing; `fcam rerun` computes recorded results again."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click
import numpy as np

from fcamlib import __version__, paths, store
from fcamlib.config import SOURCES, Training
from fcamlib.errors import UserError, shown
from fcamlib.provenance import cpu_name, instruction_sets, slow_bfloat16
from fcamlib.store import Result

PACKAGES = ("torch", "torchvision", "numpy", "scipy", "scikit-learn", "pandas", "matplotlib", "pydantic", "safetensors",
            "papermill", "jupyter-book", "snakemake")  # fmt: skip
Line = tuple[str, str]  # name, state
CLOCK = "seconds"  # columns of the history that differ each time
CAPABILITY = "ATEN_CPU_CAPABILITY"  # the environment variable that sets PyTorch's instruction set at startup
PRINTED = 5e-4  # half a unit of the last digit that is printed


def report() -> str:
    """The report of `fcam check` as aligned text."""
    sections = {"Versions": _versions(), "Devices": _devices(), "Folders": _folders(), "Data sets": _data_sets(),
                "Results": _results()}  # fmt: skip
    width = max(len(name) for lines in sections.values() for name, _ in lines)
    parts = ["\n".join([title, *(f"  {name:<{width}}  {state}" for name, state in lines)])
             for title, lines in sections.items()]  # fmt: skip
    return "\n\n".join(parts)


def _versions() -> list[Line]:
    known = f" (commit {paths.commit()})" if paths.commit() else ""
    lines = [("fcamlib", __version__ + known), ("python", platform.python_version())]
    for name in PACKAGES:
        try:
            lines.append((name, version(name)))
        except PackageNotFoundError:
            lines.append((name, "not installed"))
    return lines


def _devices() -> list[Line]:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    lines = [("CPU", f"{cpu_name()}, {os.cpu_count()} threads, instruction set {capability}")]
    lines.append(("bfloat16", slow_bfloat16(Training(precision="bfloat16", device="cpu")) or "as fast as float32"))
    devices = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    cuda = [(f"CUDA {n}", f"{device.name}, {device.total_memory / 2**30:.0f} GiB") for n, device in enumerate(devices)]
    return lines + (cuda or [("CUDA", "no device")])


def _folders() -> list[Line]:
    """Whether files can be written in each folder, or in its nearest existing parent."""
    folders = {"data (FCAM_DATA)": paths.data_dir(), "results (FCAM_RESULTS)": paths.results_dir(),
               "figures (FCAM_FIGURES)": paths.figures_dir(), "recorded runs": paths.recorded_dir()}  # fmt: skip
    lines = []
    for name, folder in ((name, folder) for name, folder in folders.items() if folder):
        nearest = next(parent for parent in (folder, *folder.parents) if os.path.lexists(parent))
        try:
            with tempfile.TemporaryFile(dir=nearest):
                state = "writable" if nearest == folder else "will be created when needed"
        except OSError as error:
            state = f"NOT WRITABLE ({error.strerror})"
        lines.append((name, f"{state}: {folder}"))
    return lines


def _data_sets() -> list[Line]:
    """One line per source of this package, and one per data set of the user's own in the data folder."""
    lines = [(kind, _state(kind)) for kind, source in SOURCES.items() if not source.path or source.optional]
    for kind in (kind for kind, source in SOURCES.items() if source.path and not source.optional):
        pattern = "*/train" if kind == "folder" else f"{kind}/[!.]*"  # a folder of pictures has any name
        found = [path.parent if kind == "folder" else path for path in sorted(paths.data_dir().glob(pattern))]
        lines += [(f"{kind}:{path.name}", "present") for path in found] or [(f"{kind}:PATH", "none in the data folder")]
    return lines


def _state(kind: str) -> str:
    """Whether the data of a source are present and the official ones."""
    from fcamlib.data import coco, pictures, posts

    state = SOURCES[kind].title
    try:
        if kind in pictures.CIFAR:
            state = pictures.cifar_state(kind)
        elif kind == "coco":
            state = coco.survey(paths.data_dir() / kind)
        elif kind == "hatexplain":
            files = {paths.data_dir() / kind / name: digest for name, digest in posts.OFFICIAL_FILES.items()}
            here = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.is_file()}
            odd = [path.name for path, digest in here.items() if digest != files[path]]
            state = f"not the official file: {odd[0]}" if odd else "verified" if len(here) == len(files) else "absent"
    except OSError as error:
        return f"NOT USABLE: '{error.filename}' cannot be read ({error.strerror})"
    return "absent; downloaded when first used" if state == "absent" else state


def _results() -> list[Line]:
    lines, damaged = [], []
    for kind, root in (("recorded", paths.recorded_dir()), ("stored", paths.results_dir())):
        try:
            results, unfinished = store.survey(root), store.unfinished() if kind == "stored" else None
        except OSError as error:
            lines.append((kind, f"NOT READABLE ({error.strerror}): {root}"))
            continue
        lines.append((kind, f"{sum(not result.damage for result in results)} verified"))
        for result in (result for result in results if result.damage):
            state = "not read" if result.damage == store.OTHER_VERSION else "DAMAGED"
            damaged.append((state, f"{result.folder}: {result.damage}"))
        if unfinished is not None:
            lines.append(("unfinished", f"{len(unfinished)}: {', '.join(unfinished)}" if unfinished else "0"))
    return lines + damaged


def difference(record: Result[Any], found: Result[Any]) -> tuple[int, float, str]:
    """Number of compared values of a record, the largest absolute difference, and its location.

    Numbers that agree to the significant digits of a record count as equal. Timings, provenance and title are left out.
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
    told = {name: part for name, part in result.summary.items() if name not in ("provenance", "title")}
    examples = {f"examples/{name}": array.ravel() for name, array in result.arrays("examples.npz").items()}
    return values | _leaves(told, "summary") | examples


def _leaves(content: Any, place: str) -> dict[str, np.ndarray]:
    """The values in nested mappings and lists."""
    if isinstance(content, Mapping | list):
        parts = content.items() if isinstance(content, Mapping) else enumerate(content)
        return {name: leaf for key, part in parts for name, leaf in _leaves(part, f"{place}/{key}").items()}
    return {place: np.array([content])}


def _apart(one: np.ndarray, other: np.ndarray | None) -> float:
    """Largest absolute difference of two arrays; NaN in both, and equal digits, count as no difference."""
    if other is None or len(one) != len(other):
        return np.inf
    if {one.dtype.kind, other.dtype.kind} <= set("biuf"):
        one, other = one.astype(float), other.astype(float)
        alike = np.isclose(one, other, rtol=10.0 ** (1 - store.DIGITS), atol=0.0, equal_nan=True)
        gaps = np.where(alike, 0.0, np.abs(one - other))
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
        if _apart(recorded[name], computed.get(name)) > max(PRINTED, spread):
            return False
    return bool(len(alike) > 1 or difference(record, found)[1] < PRINTED)


def chosen(patterns: tuple[str, ...]) -> list[Result[Any]]:
    """The recorded results whose names match, each once, ordered by pattern."""
    known = {result.folder.name: result for result in store.survey(paths.recorded_dir())}
    if not known:
        raise UserError("no results are recorded here: `fcam rerun` needs a source checkout.")
    matching: dict[str, Result[Any]] = {}
    for pattern in patterns:
        names = fnmatch.filter(known, pattern)
        if not names:
            advice = f"`fcam list` shows the names of all {len(known)}"
            raise UserError(f"no recorded result matches '{shown(pattern)}': {advice}.")
        matching |= {name: known[name] for name in names}
    for name, result in matching.items():
        if result.damage:
            raise UserError(f"the recorded result '{name}' is damaged ({result.damage}): restore it with git.")
    return list(matching.values())


def capability(record: Result[Any]) -> str:
    """The record's instruction set if this machine has it but PyTorch would not use it by default, else empty."""
    wanted, known = _instructions(record), instruction_sets()
    return "" if wanted not in known or os.environ.get(CAPABILITY, known[-1]).upper() == wanted else wanted


def _instructions(result: Result[Any]) -> str:
    """The instruction set that computed a result."""
    return str(result.summary["provenance"].get("cpu_capability", "unknown"))


def compared(record: Result[Any]) -> bool:
    """Compute a recorded result again, print one line, and return whether it is reproduced."""
    found, wanted = store.get(record.config, fresh=True, recorded=False), _instructions(record)
    number, largest, place = difference(record, found)
    line = f"{record.folder.name}: {number:,} numbers compared, largest difference {largest:.3g}"
    line += f" ({place})" if largest else ""
    reproduced, used = largest == 0, _instructions(found)
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
    from fcamlib.numerics import keep_freed_memory

    groups: dict[str, list[Result[Any]]] = {}
    for record in chosen(names):
        groups.setdefault(capability(record), []).append(record)
    keep_freed_memory()
    reproduced = all([compared(record) for record in groups.pop("", [])])
    for instructions, records in groups.items():
        command = [sys.executable, "-m", "fcamlib", "rerun", *(record.folder.name for record in records)]
        environment = os.environ | {CAPABILITY: instructions.lower()}
        reproduced &= subprocess.run(command, env=environment).returncode == 0
    return reproduced

"""The run store: one folder a run, written whole, checked by checksum.

results/<name>/ holds `config.json`, `history.csv` (one row per epoch), `summary.json`, `scores.npz` (per
instance), `examples.npz` (a few test instances with their attention), `model.safetensors` and `SHA256SUMS`
(as the command `sha256sum --check` reads it). results/recorded/ holds runs kept with the source, without
scores and weights. No pickle is ever loaded.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock
from pydantic import ValidationError

from fcamlib import paths
from fcamlib.config import RunConfig, explain, portable_source
from fcamlib.errors import StoreError

log = logging.getLogger(__name__)
SUMS = "SHA256SUMS"
RECORDED_FILES = ("config.json", "history.csv", "summary.json", "examples.npz")


@dataclass(frozen=True)
class Run:
    """A finished run in a folder of the store."""

    folder: Path

    @cached_property
    def config(self) -> RunConfig:
        """What defined the run."""
        return RunConfig.model_validate_json((self.folder / "config.json").read_bytes())

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row per epoch."""
        return pd.read_csv(self.folder / "history.csv", float_precision="round_trip")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Final measures per split, selection of learning rates, hardware, versions, seconds."""
        return json.loads((self.folder / "summary.json").read_text("utf-8"))

    def arrays(self, file: str) -> dict[str, np.ndarray]:
        """The arrays of `scores.npz` or `examples.npz`."""
        with np.load(self.folder / file, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}

    @property
    def is_recorded(self) -> bool:
        """Whether the run is kept with the source."""
        return self.folder.parent == paths.recorded_dir()


def find(config: RunConfig) -> Run | None:
    """The stored run of `config`, recorded ones first; a damaged one is reported and passed over."""
    for root in (paths.recorded_dir(), paths.results_dir()):
        if root is None or not (root / config.name).is_dir():
            continue
        if not (fault := damage(root / config.name)):
            return Run(root / config.name)
        log.warning("the stored run '%s' is damaged (%s): it is computed anew.", root / config.name, fault)
    return None


def damage(folder: Path) -> str:
    """What is wrong with a stored run: empty where every file has its checksum."""
    try:
        lines = (folder / SUMS).read_text("utf-8").splitlines()
        sums = dict(reversed(line.split("  ", 1)) for line in lines)
    except (OSError, ValueError):
        return f"{SUMS} is missing or unreadable"
    if missing := sorted({"config.json", "history.csv", "summary.json"} - set(sums)):
        return f"{SUMS} does not list {missing[0]}"
    for name, expected in sums.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _sha256(path) != expected:
            return f"{name} does not have its checksum"
    return ""


def recorded_runs() -> list[Run]:
    """The runs kept with the source, sorted by name; damaged ones are reported and left out."""
    root = paths.recorded_dir()
    return _runs(root) if root else []


def stored_runs() -> list[Run]:
    """The runs of the results folder, sorted by name, recorded ones not among them."""
    return _runs(paths.results_dir())


def _runs(root: Path) -> list[Run]:
    runs = []
    for folder in sorted(root.glob("*")) if root.is_dir() else []:
        if not (folder / SUMS).is_file():
            continue
        if fault := damage(folder):
            log.warning("the stored run '%s' is damaged (%s) and left out.", folder, fault)
        else:
            runs.append(Run(folder))
    return runs


def partial_dir(config: RunConfig) -> Path:
    """Where an unfinished run keeps its checkpoint."""
    return paths.results_dir() / ".partial" / config.name


@contextmanager
def locked(config: RunConfig) -> Iterator[None]:
    """Hold the run: a second process that wants it waits. The lock falls with the process."""
    folder = writable(paths.results_dir() / ".locks")
    with FileLock(folder / f"{config.name}.lock"):
        yield


def writable(folder: Path) -> Path:
    """`folder`, made if need be; one sentence where nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise StoreError(
            f"the results folder '{paths.results_dir()}' cannot be written ({error.strerror}): "
            "set FCAM_RESULTS to a folder that can."
        ) from None


def write(config: RunConfig, history: pd.DataFrame, summary: dict[str, Any], files: Mapping[str, bytes]) -> Run:
    """Put a finished run into the store: written beside, then renamed, so that it is there whole or not at all."""
    target = paths.results_dir() / config.name
    beside = partial_dir(config).with_suffix(".new")
    shutil.rmtree(beside, ignore_errors=True)
    writable(beside)
    content = {
        "config.json": config.model_dump_json(indent=2).encode() + b"\n",
        "history.csv": history.to_csv(index=False).encode(),
        "summary.json": json.dumps(summary, indent=1, allow_nan=False).encode() + b"\n",
        **files,
    }
    try:
        _write_all(beside, content)
        _replace(beside, target)
    except OSError as error:
        raise StoreError(f"the run '{target}' cannot be written ({error.strerror}): make room and start again.") from None
    shutil.rmtree(partial_dir(config), ignore_errors=True)
    return Run(target)


def record(run: Run, recorded: Path) -> Run:
    """Copy a run without its scores and weights to the folder of recorded runs, its paths made portable."""
    target = recorded / run.folder.name
    with tempfile.TemporaryDirectory(dir=writable(recorded), prefix=".new-") as scratch:
        beside = Path(scratch) / "run"
        beside.mkdir()
        data = run.config.data.model_copy(update={"source": portable_source(run.config.data.source)})
        config = run.config.model_copy(update={"data": data})
        content = {name: (run.folder / name).read_bytes() for name in RECORDED_FILES}
        content["config.json"] = config.model_dump_json(indent=2).encode() + b"\n"
        _write_all(beside, content)
        _replace(beside, target)
    return Run(target)


def _write_all(folder: Path, content: Mapping[str, bytes]) -> None:
    for name, data in content.items():
        _write_durably(folder / name, data)
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in content.items())
    _write_durably(folder / SUMS, sums.encode())


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replace(beside: Path, target: Path) -> None:
    """Rename a finished folder into place; an old one, damaged or outdated, goes first."""
    if target.exists():
        shutil.rmtree(target)
    os.replace(beside, target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_config(path: Path) -> RunConfig:
    """A `RunConfig` from a JSON file; one sentence where it is not one."""
    try:
        return RunConfig.model_validate_json(path.read_bytes())
    except OSError as error:
        raise StoreError(f"the config '{path}' cannot be read ({error.strerror}): give a config.json.") from None
    except ValidationError as error:
        raise StoreError(f"the config '{path}' is not valid: {explain(error, RunConfig)}") from None

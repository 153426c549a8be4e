"""The run store: one folder a run, written whole, checked by checksum.

results/<name>/ holds `config.json`, `history.csv` (one row per epoch), `summary.json`, `scores.npz` (per
instance), `examples.npz` (a few test instances with their attention), `model.safetensors` and `SHA256SUMS`
(as the command `sha256sum --check` reads it). results/recorded/ holds runs kept with the source, without
scores and weights. Results of other configurations (`StoredConfig`) lie in the same folders in the same way. No pickle
is ever loaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, overload

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout
from pydantic import ValidationError

from fcamlib import paths
from fcamlib.config import RunConfig, StoredConfig, stored_class
from fcamlib.errors import StoreError, explain

log = logging.getLogger(__name__)
SUMS = "SHA256SUMS"
CHECKPOINT = "checkpoint.safetensors"
REQUIRED_FILES = ("config.json", "history.csv", "summary.json")
RECORDED_FILES = (*REQUIRED_FILES, "examples.npz")
KNOWN_FILES = (*RECORDED_FILES, "scores.npz", "model.safetensors")


ConfigT = TypeVar("ConfigT", bound=StoredConfig)


@dataclass(frozen=True)
class Stored(Generic[ConfigT]):
    """A finished result in a folder of the store, and the class of its configuration."""

    folder: Path
    kind: type[ConfigT]

    @cached_property
    def config(self) -> ConfigT:
        """What defined the result."""
        return self.kind.model_validate_json((self.folder / "config.json").read_bytes())

    @cached_property
    def history(self) -> pd.DataFrame:
        """The rows that were measured: of a run, one per epoch."""
        return pd.read_csv(self.folder / "history.csv")

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
        """Whether the result is kept with the source."""
        return self.folder.parent == paths.recorded_dir()


@dataclass(frozen=True)
class Run(Stored[RunConfig]):
    """A finished run in a folder of the store."""

    kind: type[RunConfig] = RunConfig


def _stored(folder: Path, kind: type[ConfigT]) -> Stored[ConfigT]:
    """The result in `folder`; of a run, a `Run`."""
    return Run(folder) if kind is RunConfig else Stored(folder, kind)  # type: ignore[return-value]


StoredT = TypeVar("StoredT", bound=Stored[Any])
_passes_over_recorded = ContextVar("_passes_over_recorded", default=False)


@contextmanager
def recorded_passed_over() -> Iterator[None]:
    """Within it, `find` looks into the results folder alone, so that what is kept with the source is computed anew."""
    token = _passes_over_recorded.set(True)
    try:
        yield
    finally:
        _passes_over_recorded.reset(token)


@overload
def find(config: RunConfig, report: bool = True) -> Run | None: ...
@overload
def find(config: ConfigT, report: bool = True) -> Stored[ConfigT] | None: ...
def find(config: StoredConfig, report: bool = True) -> Stored[Any] | None:
    """The stored result of `config`, recorded ones first; a damaged one is reported, if asked, and passed over."""
    recorded_dir = None if _passes_over_recorded.get() else paths.recorded_dir()
    for root in (recorded_dir, paths.results_dir()):
        if root is None or not os.path.isdir(folder := root / config.name):
            continue
        fault = damage(folder)
        if not fault and not _is_of(folder, config):
            fault = "config.json is another run's"
        if not fault:
            return _stored(folder, type(config))
        if report:
            log.warning("the stored run '%s' is damaged (%s): it is not used, and computed anew.", folder, fault)
    return None


def _is_of(folder: Path, config: StoredConfig) -> bool:
    content = (folder / "config.json").read_bytes()
    kind = type(config)
    return stored_class(content) is kind and kind.model_validate_json(content).digest() == config.digest()


def damage(folder: Path) -> str:
    """What is wrong with a stored run: empty where every file has its checksum and the config can be read."""
    try:
        lines = (folder / SUMS).read_text("utf-8").splitlines()
        sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError):
        return f"{SUMS} is missing or unreadable"
    if strange := [name for name in sums if Path(name).name != name]:
        return f"{SUMS} lists {strange[0]}, which is no file of the run"
    needed = (*REQUIRED_FILES, *(name for name in KNOWN_FILES if (folder / name).exists()))
    if missing := sorted(set(needed) - set(sums)):
        return f"{SUMS} does not list {missing[0]}"
    for name, expected in sums.items():
        if fault := _fault(folder / name, expected):
            return f"{name} {fault}"
    content = (folder / "config.json").read_bytes()
    kind = stored_class(content)
    try:
        if kind is not None:
            kind.model_validate_json(content)
    except ValidationError:
        kind = None
    return "" if kind else "config.json is of another version"


def _fault(path: Path, expected: str) -> str:
    """What is wrong with a file of a stored run, by its sha256."""
    try:
        if not path.is_file():
            return "is missing"
        return "" if _sha256(path) == expected else "does not have its checksum"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


@overload
def recorded(kind: type[RunConfig]) -> list[Run]: ...
@overload
def recorded(kind: type[ConfigT]) -> list[Stored[ConfigT]]: ...
def recorded(kind: type[StoredConfig]) -> Sequence[Stored[Any]]:
    """The results of `kind` kept with the source, sorted by name; damaged ones are reported and left out."""
    root = paths.recorded_dir()
    return _results(root, kind) if root else []


def recorded_runs() -> list[Run]:
    """The runs kept with the source, sorted by name; damaged ones are reported and left out."""
    return recorded(RunConfig)


def stored_runs() -> list[Run]:
    """The runs of the results folder, sorted by name, recorded ones not among them."""
    return [run for run in _results(paths.results_dir(), RunConfig) if isinstance(run, Run)]


def stored_results() -> list[Stored[Any]]:
    """What the results folder holds of any configuration, sorted by name."""
    return _results(paths.results_dir(), None)


def _results(root: Path, wanted: type[StoredConfig] | None) -> list[Stored[Any]]:
    """The undamaged results below `root`, of one configuration or of all."""
    found: list[Stored[Any]] = []
    for folder, fault in survey(root):
        if fault:
            log.warning("the stored run '%s' is damaged (%s) and left out.", folder, fault)
            continue
        kind = stored_class((folder / "config.json").read_bytes())
        if kind is not None and wanted in (None, kind):
            found.append(_stored(folder, kind))
    return found


def survey(root: Path) -> list[tuple[Path, str]]:
    """Each result's folder below `root`, sorted by name, with what is wrong with it."""
    folders = sorted(root.glob("[!.]*")) if os.path.isdir(root) else []
    runs = [folder for folder in folders if any((folder / name).exists() for name in (SUMS, "config.json"))]
    return [(folder, damage(folder)) for folder in runs]


def unfinished_runs() -> list[str]:
    """Names of the runs that can go on from a checkpoint and are not stored."""
    names = (path.parent.name for path in _partial_root().glob(f"*/{CHECKPOINT}"))
    return sorted(name for name in names if not (paths.results_dir() / name / SUMS).exists())


def _partial_root() -> Path:
    return paths.results_dir() / ".partial"


def partial_dir(config: StoredConfig) -> Path:
    """Where an unfinished run keeps its checkpoint."""
    return _partial_root() / config.name


class RunBusyError(Exception):
    """Another process computes the run."""


@contextmanager
def locked(config: StoredConfig, wait: bool = True) -> Iterator[None]:
    """Hold the run: a second process that wants it waits, or is told so. The lock falls with the process."""
    lock = FileLock(writable(paths.results_dir() / ".locks") / f"{config.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise RunBusyError(config.name) from None
        log.info("another process computes '%s': waiting for it.", config.name)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def writable(
    folder: Path, called: str = "results folder", advice: str = "set FCAM_RESULTS to a folder that can"
) -> Path:
    """`folder`, made if need be; one sentence where nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        shown = paths.results_dir() if folder.is_relative_to(paths.results_dir()) else folder
        raise StoreError(f"the {called} '{shown}' cannot be written ({error.strerror}): {advice}.") from None


def find_or_compute(
    config: StoredConfig, compute: Callable[[], StoredT], fresh: bool = False, wait: bool = True
) -> StoredT:
    """The stored result of `config`, or what `compute` puts into the store; of two processes that ask, one computes.

    Parameters
    ----------
    config : StoredConfig
    compute : callable
        Computes the result of `config`, stores and returns it.
    fresh : bool
        Compute even where the store has the result.
    wait : bool
        Whether to wait for another process that computes it, or to raise `RunBusyError`.
    """
    if not fresh and (stored := find(config)):
        return cast(StoredT, stored)
    with locked(config, wait):
        if not fresh and (stored := find(config, report=False)):  # by a process that this one waited for
            return cast(StoredT, stored)
        return compute()


@overload
def write(config: RunConfig, history: pd.DataFrame, summary: dict[str, Any], files: Mapping[str, bytes]) -> Run: ...
@overload
def write(
    config: ConfigT, history: pd.DataFrame, summary: dict[str, Any], files: Mapping[str, bytes]
) -> Stored[ConfigT]: ...
def write(
    config: StoredConfig, history: pd.DataFrame, summary: dict[str, Any], files: Mapping[str, bytes]
) -> Stored[Any]:
    """Put a finished result into the store: written beside, then renamed, so that it is there whole or not at all."""
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
    _put(beside, target, content)
    shutil.rmtree(partial_dir(config), ignore_errors=True)
    return _stored(target, type(config))


@overload
def record(run: Run, root: Path) -> Run: ...
@overload
def record(run: Stored[ConfigT], root: Path) -> Stored[ConfigT]: ...
def record(run: Stored[Any], root: Path) -> Stored[Any]:
    """Copy a result without its scores and weights to the folder of recorded runs, its paths made portable."""
    beside = writable(root, "folder of recorded runs", "make it writable") / f".new-{run.folder.name}"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    content = {name: (run.folder / name).read_bytes() for name in RECORDED_FILES if (run.folder / name).exists()}
    content["config.json"] = run.config.portable().model_dump_json(indent=2).encode() + b"\n"
    target = root / run.folder.name
    _put(beside, target, content)
    return _stored(target, run.kind)


def _put(beside: Path, target: Path, content: Mapping[str, bytes]) -> None:
    """Write the files of a run into the folder `beside`, and rename it to `target` when all are there."""
    try:
        for name, data in content.items():
            _write_durably(beside / name, data)
        sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in content.items())
        _write_durably(beside / SUMS, sums.encode())
        _replace(beside, target)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)  # what it takes is missing elsewhere
        raise StoreError(
            f"the run '{target}' cannot be written ({error.strerror}): make room and start again."
        ) from None


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replace(beside: Path, target: Path) -> None:
    """Rename a finished folder into place; an old one, damaged or outdated, steps aside whole."""
    old = beside.with_name(f"{beside.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        os.replace(target, old)
    os.replace(beside, target)
    shutil.rmtree(old, ignore_errors=True)


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


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A compressed .npz file of arrays, those of float64 in float32."""
    buffer = io.BytesIO()
    single: dict[str, Any] = {name: v.astype(np.float32) if v.dtype == np.float64 else v for name, v in arrays.items()}
    np.savez_compressed(buffer, **single)
    return buffer.getvalue()

"""The store: one folder per result, written atomically, verified by checksum, without pickle.

results/<name>/ holds `config.json`, `history.csv` (the measured rows), `summary.json`, further files (`scores.npz`,
`examples.npz`, `model.safetensors`) and `SHA256SUMS` in the format of `sha256sum --check`. results/recorded/ holds the
recorded results, which are kept with the source, without scores and weights. An interrupted computation resumes from
results/.partial/<name>/.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from filelock import AcquireReturnProxy, FileLock, Timeout

from fcamlib import paths
from fcamlib.config import Config, read
from fcamlib.errors import StoreError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

log = logging.getLogger(__name__)
SUMS = "SHA256SUMS"
CHECKPOINT = "checkpoint.safetensors"
ROWS = "rows.jsonl"
REQUIRED_FILES = ("config.json", "history.csv", "summary.json")
RECORDED_FILES = (*REQUIRED_FILES, "examples.npz")
KNOWN_FILES = (*RECORDED_FILES, "scores.npz", "model.safetensors")
DIGITS = 9  # significant digits of a recorded number, as many as tell any two float32 numbers apart
OTHER_VERSION = "config.json belongs to another version, or to a source or paradigm that is not registered here"

Row = dict[str, Any]
Progress = Callable[[Row], None]  # is called with each row as it is measured
ConfigT = TypeVar("ConfigT", bound=Config)


@dataclass(frozen=True)
class Result(Generic[ConfigT]):
    """A finished result in a folder of the store."""

    folder: Path

    @cached_property
    def config(self) -> ConfigT:
        """The config of the result."""
        return cast(ConfigT, read((self.folder / "config.json").read_bytes()))

    @cached_property
    def history(self) -> pd.DataFrame:
        """The measured rows: one per epoch (run, sweep) or one per training (study, cross-validation)."""
        import pandas

        return pandas.read_csv(self.folder / "history.csv", encoding="utf-8")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Final measures, title and provenance."""
        return json.loads((self.folder / "summary.json").read_text("utf-8"))

    def arrays(self, file: str = "examples.npz") -> dict[str, np.ndarray]:
        """The arrays of `scores.npz` or `examples.npz`; none if the file is not kept."""
        import numpy

        if not (self.folder / file).exists():
            return {}
        with numpy.load(self.folder / file, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}

    @property
    def is_recorded(self) -> bool:
        """Whether the result is kept with the source."""
        return self.folder.parent == paths.recorded_dir()

    @cached_property
    def damage(self) -> str:
        """The first fault of the folder; empty if all checksums match and the config gives the folder's name."""
        try:
            lines = (self.folder / SUMS).read_text("utf-8").splitlines()
            sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
        except (OSError, ValueError):
            return f"{SUMS} is missing or unreadable"
        present = {name for name in KNOWN_FILES if os.path.lexists(self.folder / name)}
        if not {*REQUIRED_FILES} | present <= set(sums) or any(Path(name).name != name for name in sums):
            return f"{SUMS} does not list the files of a result"
        for name, expected in sums.items():
            try:
                with (self.folder / name).open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                return f"{name} cannot be read ({error.strerror})"
            if found != expected:
                return f"{name} does not match its checksum"
        try:
            return "" if self.config.name == self.folder.name else "config.json belongs to another result"
        except (KeyError, ValueError):
            return OTHER_VERSION


def find(config: ConfigT, recorded: bool = True, report: bool = True) -> Result[ConfigT] | None:
    """The stored result of `config`, preferably a recorded one; a damaged one is skipped with a warning."""
    for root in (paths.recorded_dir() if recorded else None, paths.results_dir()):
        if root is not None and os.path.isdir(folder := root / config.name):
            found = Result[ConfigT](folder)
            if not found.damage:
                return found
            if report:
                log.warning("the stored result '%s' is damaged (%s) and is not used.", folder, found.damage)
    return None


def survey(root: Path | None) -> list[Result[Any]]:
    """Every result folder in `root`, damaged or not, sorted by name."""
    folders = sorted(root.glob("[!.]*")) if root else []
    return [Result[Any](one) for one in folders if any(os.path.lexists(one / name) for name in (SUMS, "config.json"))]


def every(kind: type[ConfigT] = Config, recorded: bool = False) -> list[Result[ConfigT]]:  # type: ignore[assignment]
    """The undamaged results of one kind, or of all, in the results folder or among the records, sorted by name."""
    found = []
    for result in survey(paths.recorded_dir() if recorded else paths.results_dir()):
        with suppress(OSError, KeyError, ValueError):  # if a config cannot be read, `damage` says why
            if not isinstance(result.config, kind):  # checked first, since checksums take longer
                continue
        if not result.damage:
            found.append(result)
        elif result.damage != OTHER_VERSION:
            log.warning("the stored result '%s' is damaged (%s) and is left out.", result.folder, result.damage)
    return found


def get(
    config: ConfigT, progress: Progress | None = None, fresh: bool = False, recorded: bool = True
) -> Result[ConfigT]:
    """The result of `config`: cached in the store, or computed and stored, by one process only; others wait.

    An interrupted computation resumes from its checkpoint and gives the same numbers. `fresh` computes a stored result
    again; `recorded=False` ignores recorded results.
    """
    if not fresh and (found := find(config, recorded)):
        return found
    with locked(config):
        if not fresh and (found := find(config, recorded, report=False)):  # by the process for which this one waited
            return found
        module, function = config.compute.split(":")
        scratch = writable(partial_dir(config))
        try:
            found = getattr(import_module(module), function)(config, progress or (lambda row: None), scratch)
        finally:
            with suppress(OSError):
                scratch.rmdir()  # if there is nothing to resume from
        return write(config, *found)


def get_all(configs: Iterable[ConfigT], recorded: bool = True) -> list[Result[ConfigT]]:
    """The results of several configs, in order."""
    return [get(config, recorded=recorded) for config in configs]


def write(
    config: ConfigT, history: pd.DataFrame, summary: dict[str, Any], files: Mapping[str, bytes]
) -> Result[ConfigT]:
    """Write a finished result to the store atomically, and remove its checkpoints."""
    content = {
        "config.json": config.model_dump_json(indent=2).encode() + b"\n",
        "history.csv": history.to_csv(index=False).encode(),
        "summary.json": json.dumps(summary, indent=1, allow_nan=False).encode() + b"\n",
        **files,
    }
    _put(writable(paths.results_dir()) / config.name, content)
    shutil.rmtree(partial_dir(config), ignore_errors=True)
    return Result(paths.results_dir() / config.name)


def record(result: Result[ConfigT]) -> Result[ConfigT]:
    """Copy a result to results/recorded: `DIGITS` significant digits, portable paths, no scores or weights.

    Examples are kept only of seed 0.
    """
    if (root := paths.recorded_dir()) is None:
        raise StoreError("`fcam record` needs a source checkout: run it from an editable install.")
    files = RECORDED_FILES if getattr(result.config, "seed", 0) == 0 else REQUIRED_FILES
    content = {name: (result.folder / name).read_bytes() for name in files if (result.folder / name).exists()}
    content["config.json"] = result.config.portable.model_dump_json(indent=2).encode() + b"\n"
    content["history.csv"] = result.history.to_csv(index=False, float_format=f"%.{DIGITS}g").encode()
    summary = json.loads(json.dumps(result.summary), parse_float=lambda digits: float(f"{float(digits):.{DIGITS}g}"))
    content["summary.json"] = json.dumps(summary, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    _put(root / result.folder.name, content)
    return Result(root / result.folder.name)


def _put(target: Path, content: Mapping[str, bytes]) -> None:
    """Write files to a temporary folder, then rename it to `target`; an existing folder is replaced as a whole."""
    new, old = (target.with_name(f".{target.name}.{end}") for end in ("new", "old"))
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in content.items())
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for name, data in {**content, SUMS: sums.encode()}.items():
            with (new / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            os.replace(target, old)
        os.replace(new, target)
    except OSError as error:
        raise _full(f"the result '{target}'", error) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if old.exists() and not target.exists():
            os.replace(old, target)
        shutil.rmtree(old, ignore_errors=True)


def _full(what: str, error: OSError) -> StoreError:
    return StoreError(f"{what} cannot be written ({error.strerror}): free some space and start again.")


def partial_dir(config: Config) -> Path:
    """Folder of the checkpoints and rows from which an unfinished result resumes."""
    return paths.results_dir() / ".partial" / config.name


def unfinished() -> list[str]:
    """Names of unfinished results, which can resume."""
    kept = (paths.results_dir() / ".partial").glob("*/*")
    names = {path.parent.name for path in kept if path.name.endswith((CHECKPOINT, ROWS))}
    return sorted(name for name in names if not os.path.lexists(paths.results_dir() / name / SUMS))


def locked(config: Config) -> AcquireReturnProxy:
    """Lock a result while it is computed; the lock ends with the process."""
    lock = FileLock(writable(paths.results_dir() / ".locks") / f"{config.name}.lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        log.info("another process is computing '%s': waiting for it.", config.name)
        return lock.acquire()


def writable(folder: Path) -> Path:
    """`folder`, in the results folder, created if necessary; `StoreError` if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "its name does not fit the system's encoding"
        fault = f"the results folder '{paths.results_dir()}' cannot be written ({reason})"
        raise StoreError(f"{fault}: set FCAM_RESULTS to a folder that can.") from None


def kept_rows(folder: Path) -> list[Row]:
    """The rows written by `keep_row`; a line that fails its checksum is left out with a warning."""
    path, kept = folder / ROWS, []
    for line in filter(None, path.read_bytes().splitlines()) if path.is_file() else ():
        digest, _, content = line.partition(b"  ")
        if hashlib.sha256(content).hexdigest().encode() == digest:
            kept.append(json.loads(content))
        else:
            log.warning("a line of '%s' is damaged: its row is computed again.", path)
    return kept


def keep_row(folder: Path, row: Row) -> None:
    """Append a row with its checksum; it begins with a line break, since the last line may have been cut short."""
    content = json.dumps(row, allow_nan=False).encode()
    try:
        with (folder / ROWS).open("ab") as file:
            file.write(b"\n" + hashlib.sha256(content).hexdigest().encode() + b"  " + content + b"\n")
    except OSError as error:
        raise _full(f"'{folder / ROWS}'", error) from None


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as a compressed .npz file; float64 is stored as float32."""
    import numpy

    single: dict[str, Any] = {n: a.astype(numpy.float32) if a.dtype == numpy.float64 else a for n, a in arrays.items()}
    numpy.savez_compressed(buffer := io.BytesIO(), **single)
    return buffer.getvalue()

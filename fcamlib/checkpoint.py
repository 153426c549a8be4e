"""Checkpoints: a nested state in one safetensors file, from which a computation resumes.

Tensors are stored as tensors, everything else as JSON in the file's header, with a checksum over both. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fcamlib.errors import StoreError, UserError

log = logging.getLogger(__name__)
Row = dict[str, Any]  # one epoch of history, or one compared learning rate
State = dict[str, Any]  # nested dicts, lists, tuples, tensors, numbers, strings and None


def seconds_between() -> float:
    """Least time between two checkpoints: the environment variable `FCAM_CHECKPOINT_SECONDS`, or 20 s."""
    given = os.environ.get("FCAM_CHECKPOINT_SECONDS") or 20
    with suppress(ValueError):
        if math.isfinite(seconds := float(given)):
            return seconds
    raise UserError(f"FCAM_CHECKPOINT_SECONDS={given} is not a number of seconds: set a number such as 20.")


def save(path: Path, state: State) -> None:
    """Write `state` to `path` atomically."""
    tensors: dict[str, Tensor] = {}
    described = json.dumps(_flattened(state, "", tensors))
    metadata = {"state": described, "sha256": _checksum(described, tensors)}
    beside = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, beside, metadata=metadata)
        os.replace(beside, path)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            beside.unlink()  # frees its space on a full disk
        reason = getattr(error, "strerror", None) or error
        remedy = "free some space and start again; training resumes from the previous checkpoint"
        raise StoreError(f"the checkpoint '{path}' cannot be written ({reason}): {remedy}.") from None


def load(path: Path, restore: Callable[[State], Any] = dict) -> Any:
    """The state in `path`, passed through `restore`; None without a file, or with a warning if it does not fit."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
        if _checksum(metadata["state"], tensors) != metadata["sha256"]:
            raise ValueError("another checksum")
        return restore(_restored(json.loads(metadata["state"]), tensors))
    except (AttributeError, LookupError, OSError, RuntimeError, SafetensorError, TypeError, ValueError):
        told = "the checkpoint '%s' is damaged or belongs to another run: training starts from the beginning."
        log.warning(told, path)
        return None


def _flattened(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """A nested value as JSON; its tensors are moved into `tensors`."""
    match value:
        case Tensor():
            name = f"{len(tensors)}{place}"
            tensors[name] = value.detach().cpu().contiguous()
            return {"tensor": name}
        case dict():
            return {"dict": [[key, _flattened(entry, f"{place}/{key}", tensors)] for key, entry in value.items()]}
        case tuple():
            return {"tuple": _flattened(list(value), place, tensors)}
        case list():
            return [_flattened(entry, f"{place}/{number}", tensors) for number, entry in enumerate(value)]
    return value


def _restored(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `_flattened`."""
    if isinstance(value, list):
        return [_restored(entry, tensors) for entry in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    entries = _restored(content, tensors)
    return tuple(entries) if kind == "tuple" else dict(entries)


def _checksum(described: str, tensors: dict[str, Tensor]) -> str:
    """sha256 of everything that a checkpoint restores."""
    digest = hashlib.sha256(described.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

"""The state of a fit between two epochs, and the file that it resumes from.

A checkpoint is one safetensors file: tensors by role, everything else as JSON in its header, with the checksum of both.
No pickle.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fcamlib.errors import StoreError, UserError
from fcamlib.fcam import FCAM

log = logging.getLogger(__name__)
Row = dict[str, Any]  # one epoch of history, or one compared learning rate
State = dict[str, Tensor]


NO_SCORE = (-1.0, 0.0)  # below every validation score


@dataclass
class Candidate:
    """A model in training within a phase, at one learning rate."""

    model: FCAM
    optimizer: torch.optim.Optimizer
    learning_rate: float
    epoch: int = 0  # epochs done in this phase
    history: list[Row] = field(default_factory=list)
    failure: str = ""  # why it stopped, where the loss diverged
    search_score: tuple[float, float] = NO_SCORE  # what candidates are compared by
    best_score: tuple[float, float] = NO_SCORE  # of the best validation epoch
    best: State | None = None  # its weights, where the run keeps those


@dataclass
class FitState:
    """Where a fit stands between two epochs: all that a checkpoint holds."""

    start: State  # weights at the beginning of the phase
    phase: int = 0
    candidates: list[Candidate] = field(default_factory=list)  # of the phase, in the order of its learning rates
    history: list[Row] = field(default_factory=list)  # of the phases that are done
    selection: list[Row] = field(default_factory=list)  # one row per compared learning rate


def validation_score(row: Row) -> tuple[float, float]:
    """What learning rates and epochs are chosen by: accuracy, then lower loss, on validation data alone."""
    return (row["validation_accuracy"], -row["validation_loss"])


_CANDIDATE_FIELDS = ("learning_rate", "epoch", "history", "failure", "search_score", "best_score")


def seconds_between(default: float) -> float:
    """The least time between two checkpoints: the variable `FCAM_CHECKPOINT_SECONDS`, or `default`."""
    given = os.environ.get("FCAM_CHECKPOINT_SECONDS") or default
    try:
        if math.isfinite(seconds := float(given)):
            return seconds
    except ValueError:
        pass
    raise UserError(f"FCAM_CHECKPOINT_SECONDS={given} is not a number of seconds: give one, such as 20.")


def save_checkpoint(path: Path, state: FitState) -> None:
    """Write `state` to `path`, whole or not at all."""
    tensors = {f"start/{name}": value for name, value in state.start.items()}
    content = {name: getattr(state, name) for name in ("phase", "history", "selection")} | {"candidates": []}
    for number, candidate in enumerate(state.candidates):
        content["candidates"].append({name: getattr(candidate, name) for name in _CANDIDATE_FIELDS})
        tensors |= {f"{number}/model/{name}": value for name, value in candidate.model.state_dict().items()}
        tensors |= {f"{number}/best/{name}": value for name, value in (candidate.best or {}).items()}
        for index, slots in candidate.optimizer.state_dict()["state"].items():
            kept = {slot: value for slot, value in slots.items() if value is not None}
            tensors |= {f"{number}/optimizer/{index}/{slot}": value for slot, value in kept.items()}
    write_state(path, content, tensors)


def write_state(path: Path, content: dict[str, Any], tensors: State) -> None:
    """Write plain values and tensors to one safetensors file, whole or not at all."""
    beside = path.with_suffix(".part")
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    described = json.dumps(content)
    metadata = {"state": described, "sha256": _checksum(described, contiguous)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(contiguous, beside, metadata=metadata)
        os.replace(beside, path)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            beside.unlink()  # what it takes is missing elsewhere
        reason = getattr(error, "strerror", None) or error
        raise StoreError(
            f"the checkpoint '{path}' cannot be written ({reason}): make room and start again; "
            "what is stored stays, and training goes on from the checkpoint before."
        ) from None


def _checksum(described: str, tensors: State) -> str:
    """sha256 over everything that a checkpoint restores."""
    digest = hashlib.sha256(described.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_state(path: Path) -> tuple[dict[str, Any], State] | None:
    """The plain values and tensors in `path`, or None, with a warning, where the file is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
        if _checksum(metadata["state"], tensors) != metadata["sha256"]:
            raise ValueError("another checksum")
    except (SafetensorError, OSError, KeyError, ValueError):
        log.warning("the checkpoint '%s' is damaged: training starts from its beginning.", path)
        return None
    return json.loads(metadata["state"]), tensors


def load_checkpoint(path: Path, new_candidate: Callable[[int, float], Candidate]) -> FitState | None:
    """The state in `path`, or None, with a warning, where the file is damaged.

    `new_candidate(phase, learning_rate)` makes the model and optimiser that the tensors are put into.
    """
    if (found := read_state(path)) is None:
        return None
    content, tensors = found
    state = FitState(_below(tensors, "start/"), content["phase"])
    state.history, state.selection = content["history"], content["selection"]
    for number, fields in enumerate(content["candidates"]):
        candidate = new_candidate(state.phase, fields["learning_rate"])
        state.candidates.append(_restored(candidate, fields, _below(tensors, f"{number}/")))
    return state


def _restored(candidate: Candidate, fields: dict[str, Any], tensors: State) -> Candidate:
    """Put stored fields, weights and optimiser state into a fresh candidate."""
    candidate.model.load_state_dict(_below(tensors, "model/"))
    slots: dict[int, State] = {}
    for name, value in _below(tensors, "optimizer/").items():
        index, slot = name.split("/")
        slots.setdefault(int(index), {})[slot] = value
    groups = candidate.optimizer.state_dict()["param_groups"]
    candidate.optimizer.load_state_dict({"state": slots, "param_groups": groups})
    candidate.epoch, candidate.history, candidate.failure = fields["epoch"], fields["history"], fields["failure"]
    candidate.search_score, candidate.best_score = tuple(fields["search_score"]), tuple(fields["best_score"])
    candidate.best = _below(tensors, "best/") or None
    return candidate


def _below(tensors: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

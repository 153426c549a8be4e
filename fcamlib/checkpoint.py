"""The state of a fit between two epochs, and the file that it resumes from.

A checkpoint is one safetensors file: tensors by role, everything else as JSON in its header. No pickle.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fcamlib.fcam import FCAM

Row = dict[str, Any]  # one epoch of history, or one compared learning rate
State = dict[str, Tensor]


@dataclass
class Candidate:
    """A model in training within a phase, at one learning rate."""

    model: FCAM
    optimizer: torch.optim.Optimizer
    learning_rate: float
    epoch: int = 0  # epochs done in this phase
    history: list[Row] = field(default_factory=list)
    failure: str = ""  # why it stopped, where the loss diverged
    best: State | None = None  # weights of the best validation epoch, where the run keeps those
    best_score: tuple[float, float] = (-1.0, 0.0)

    def score(self, keep: str) -> tuple[float, float]:
        """Validation accuracy, ties broken by lower validation loss; a diverged candidate loses to all."""
        if self.failure:
            return (-2.0, 0.0)
        return self.best_score if keep == "best" else validation_score(self.history[-1])


@dataclass
class FitState:
    """Where a fit stands between two epochs: all that a checkpoint holds."""

    start: State  # weights at the beginning of the phase
    phase: int = 0
    number: int = 0  # candidate in training; equal to their count when the winner is being finished
    current: Candidate | None = None
    winner: Candidate | None = None  # best candidate of the phase so far
    history: list[Row] = field(default_factory=list)  # of the phases that are done
    selection: list[Row] = field(default_factory=list)  # one row per compared learning rate


def validation_score(row: Row) -> tuple[float, float]:
    """What learning rates and epochs are chosen by: accuracy, then lower loss, on validation data alone."""
    return (row["validation_accuracy"], -row["validation_loss"])


def save_checkpoint(path: Path, state: FitState) -> None:
    """Write `state` to `path`, whole or not at all."""
    tensors = {f"start/{name}": value for name, value in state.start.items()}
    content: dict[str, Any] = {
        "phase": state.phase,
        "number": state.number,
        "history": state.history,
        "selection": state.selection,
    }
    for role, candidate in (("current", state.current), ("winner", state.winner)):
        if candidate is None:
            continue
        tensors |= {f"{role}/model/{name}": value for name, value in candidate.model.state_dict().items()}
        tensors |= {f"{role}/best/{name}": value for name, value in (candidate.best or {}).items()}
        for index, slots in candidate.optimizer.state_dict()["state"].items():
            tensors |= {f"{role}/optimizer/{index}/{slot}": value for slot, value in slots.items() if value is not None}
        kept = ("learning_rate", "epoch", "history", "failure", "best_score")
        content[role] = {name: getattr(candidate, name) for name in kept}
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(contiguous, beside, metadata={"state": json.dumps(content)})
    os.replace(beside, path)


def load_checkpoint(path: Path, new_candidate: Callable[[int, float], Candidate]) -> FitState | None:
    """The state in `path`, or None where the file is damaged.

    `new_candidate(phase, learning_rate)` makes the model and optimiser that the tensors are put into.
    """
    try:
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {})["state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError):
        return None
    state = FitState(_below(tensors, "start/"), content["phase"], content["number"])
    state.history, state.selection = content["history"], content["selection"]
    for role in ("current", "winner"):
        if role in content:
            setattr(state, role, _candidate(new_candidate, state.phase, content[role], _below(tensors, f"{role}/")))
    return state


def _candidate(
    new_candidate: Callable[[int, float], Candidate], phase: int, content: dict[str, Any], tensors: State
) -> Candidate:
    candidate = new_candidate(phase, content["learning_rate"])
    candidate.model.load_state_dict(_below(tensors, "model/"))
    slots: dict[int, State] = {}
    for name, value in _below(tensors, "optimizer/").items():
        index, slot = name.split("/")
        slots.setdefault(int(index), {})[slot] = value
    groups = candidate.optimizer.state_dict()["param_groups"]
    candidate.optimizer.load_state_dict({"state": slots, "param_groups": groups})
    candidate.epoch, candidate.history = content["epoch"], content["history"]
    candidate.failure, candidate.best_score = content["failure"], tuple(content["best_score"])
    candidate.best = _below(tensors, "best/") or None
    return candidate


def _below(tensors: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

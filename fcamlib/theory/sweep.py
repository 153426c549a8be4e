r"""Fixed-focus sweeps: the classification model is trained at all alphas, paradigms and seeds together.

`time` in a sweep's history is the time of the gradient flow in `fcamlib.theory.fixed_focus`, so the closed forms can be
drawn over trained curves: under plain gradient descent on the mean loss it is the learning rate times the number of
steps s. Momentum p multiplies it by 1/(1 - p), minus the lag while the velocity builds up (F7):

$$t = \frac{\eta}{1-p}\Big(s - p\,\frac{1-p^s}{1-p}\Big)$$
"""

from __future__ import annotations

import math
import time as clock
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor, nn

from fcamlib import checkpoint, running, store
from fcamlib.config import Orthogonal, Phase, Sweep, Training
from fcamlib.data.mosaics import orthogonal_task
from fcamlib.data.sdc import SDCTask
from fcamlib.errors import DivergenceError
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance
from fcamlib.store import Progress, Row
from fcamlib.theory.ensemble import ENSEMBLES, Ensemble, FixedFocusData, Member
from fcamlib.training import fit

BYTES = 32  # of memory per number in a step's input, roughly
COLUMNS = ("paradigm", "alpha", "seed", "epoch", "time", "loss", "incentive", "incentive_exact")


def flow_time(steps: int | float | np.ndarray, learning_rate: float, momentum: float) -> Any:
    """Time of the gradient flow after a number of steps of SGD with momentum (F7)."""
    lag = momentum * (1.0 - momentum**steps) / (1.0 - momentum)
    return learning_rate / (1.0 - momentum) * (steps - lag)


def members_of(config: Sweep) -> list[Member]:
    """Every paradigm at every alpha."""
    rates = dict(zip(config.paradigms, config.learning_rates, strict=True))
    return [Member(paradigm, alpha, rates[paradigm]) for paradigm in config.paradigms for alpha in config.alphas]


def tasks_of(config: Sweep) -> list[SDCTask]:
    """The data of each seed."""
    if isinstance(config.data, Orthogonal):
        return [orthogonal_task(config.data, seed) for seed in config.seeds]
    running.require_same_data(config.data)
    return [running.data(config.data, seed) for seed in config.seeds]


def initial_network(config: Sweep, data: SDCTask, seed: int, numerics: Numerics) -> nn.Module:
    """A seed's classification network before training."""
    generator = torch.Generator().manual_seed(seed)
    shape, num_classes = data.bank.segment_shape, len(data.class_names)
    network = classification_network(config.classifier, shape, num_classes, generator, numerics.dtype)
    if config.initial == "zero":
        for weight in network.parameters():
            nn.init.zeros_(weight)
    return numerics.place(network)


def batch_order(seeds: tuple[int, ...], epoch: int, num_instances: int) -> Int[Tensor, "R n"]:
    """Each seed's order of instances in an epoch; it depends only on the seed and the epoch."""
    return torch.stack(
        [torch.from_numpy(np.random.default_rng([seed, 0, epoch]).permutation(num_instances)) for seed in seeds]
    )


class Trainer:
    """A sweep in training: ensembles of members that fit into memory, and the rows measured so far."""

    def __init__(self, config: Sweep) -> None:
        self.config, self.numerics = config, Numerics.of(config.training)
        tasks = [data.to(self.numerics.device) for data in tasks_of(config)]
        self.title = tasks[0].title
        self.data = FixedFocusData([data.splits["train"] for data in tasks], self.numerics)
        networks = [initial_network(config, *each, self.numerics) for each in zip(tasks, config.seeds, strict=True)]
        segments = len(config.seeds) * config.training.batch_size * self.data.num_segments
        at_once = self.numerics.rows_at_once(BYTES * segments * math.prod(tasks[0].bank.segment_shape))
        self.ensembles: list[Ensemble] = []
        for name in config.paradigms:
            members = [member for member in members_of(config) if member.paradigm == name]
            for start in range(0, len(members), at_once):
                group = members[start : start + at_once]
                self.ensembles.append(ENSEMBLES[name](networks, group, config.momentum))
        self.epoch, self.rows = 0, list[Row]()

    def measure(self) -> list[Row]:
        """Measure this epoch and return its rows."""
        steps, rows = self.epoch * math.ceil(self.data.num_instances / self.config.training.batch_size), []
        for ensemble in self.ensembles:
            values = ensemble.measure(self.data).permute(2, 1, 0).tolist()  # G, R, 3
            for member, of_member in zip(ensemble.members, values, strict=True):
                elapsed = float(flow_time(steps, member.learning_rate, self.config.momentum))
                for seed, measured in zip(self.config.seeds, of_member, strict=True):
                    if not np.isfinite(measured).all():
                        raise DivergenceError(
                            f"the {member.paradigm} loss at alpha={member.alpha:g} became NaN or infinite in epoch "
                            f"{self.epoch} of seed {seed} with learning rate {member.learning_rate:g}: "
                            "choose a smaller one."
                        )
                    row = (member.paradigm, member.alpha, seed, self.epoch, elapsed, *measured)
                    rows.append(dict(zip(COLUMNS, row, strict=True)))
        self.rows += rows
        return rows

    def train_epoch(self) -> None:
        """One pass over the training instances."""
        order = batch_order(self.config.seeds, self.epoch, self.data.num_instances).to(self.numerics.device)
        for index in order.split(self.config.training.batch_size, dim=1):
            for ensemble in self.ensembles:
                ensemble.step(self.data, index)
        self.epoch += 1

    def frame(self) -> pd.DataFrame:
        """The rows measured so far, ordered as the config lists paradigms, alphas and seeds, then by epoch."""
        rows = pd.DataFrame(self.rows, columns=list(COLUMNS))
        place = rows.groupby(["paradigm", "alpha", "seed"], sort=False).ngroup()
        return rows.loc[place.sort_values(kind="stable").index].reset_index(drop=True)

    def state(self) -> Row:
        """The mutable state of training."""
        tensors = [{"weights": ensemble.weights, "velocity": ensemble.velocity} for ensemble in self.ensembles]
        return {"epoch": self.epoch, "rows": self.rows, "ensembles": tensors}

    @torch.no_grad()
    def restore(self, state: Row) -> bool:
        """Resume from a state; nothing changes if it is that of other ensembles."""
        epoch, rows, pairs = state["epoch"], state["rows"], []
        for own, kept in zip(self.state()["ensembles"], state["ensembles"], strict=True):
            pairs += [(value, kept[role][name]) for role, values in own.items() for name, value in values.items()]
        if any(value.shape != stored.shape for value, stored in pairs):
            raise ValueError("other ensembles")
        for value, stored in pairs:
            value.copy_(stored)
        self.epoch, self.rows = epoch, rows
        return True


def compute(config: Sweep, progress: Progress, scratch: Path) -> running.Computed:
    """Train all members, resuming an interrupted sweep; returns history and summary, without further files.

    The history has one row per paradigm, alpha, seed and measured epoch; epoch 0 is before training.

    | column | meaning |
    |---|---|
    | `time` | time of the gradient flow (F7) |
    | `loss` | mean loss L(alpha) on the training data, nats |
    | `incentive` | [L(alpha) - L(alpha + 0.01)] / 0.01 at the same classifier; backward if alpha > 0.99 (F8) |
    | `incentive_exact` | -dL/dalpha (F9) |
    """
    began, kept, interval = clock.perf_counter(), scratch / store.CHECKPOINT, checkpoint.seconds_between()
    with reproducible(config.training.threads, Numerics.of(config.training).tf32):
        trainer = Trainer(config)
        if checkpoint.load(kept, trainer.restore) is None:
            trainer.measure()
        saved = clock.monotonic()
        while trainer.epoch < config.epochs:
            trainer.train_epoch()
            is_due = trainer.epoch % config.training.evaluate_every == 0 or trainer.epoch == config.epochs
            for row in trainer.measure() if is_due else []:
                progress(row)
            if clock.monotonic() - saved > interval:
                checkpoint.save(kept, trainer.state())
                saved = clock.monotonic()
    seconds = round(clock.perf_counter() - began, 1)
    summary = {"title": trainer.title, "provenance": provenance(trainer.numerics) | {"last_session_seconds": seconds}}
    return trainer.frame(), summary, {}


def train_jointly(
    config: Orthogonal, paradigm: str, seed: int, epochs: int, learning_rate: float, momentum: float, batch_size: int
) -> pd.DataFrame:
    """Train linear models from zero weights, as described in `fcamlib.theory.flow`.

    One row per epoch, from 0: `paradigm`, `seed`, `epoch`, `time` of the flow (F7), `mu` and `nu` (means over classes).
    The background has mean zero, hence a focus logit of zero.
    """
    task, generator, steps = orthogonal_task(config, seed), torch.Generator(), math.ceil(config.num_train / batch_size)
    focus = focus_network("linear", task.bank.segment_shape, generator, torch.float64)
    classifier = classification_network("linear", task.bank.segment_shape, config.num_classes, generator, torch.float64)
    model = FCAM(focus, classifier)
    for weight in model.parameters():
        nn.init.zeros_(weight)
    rows: list[Row] = []

    def note(model: FCAM, row: Row) -> None:
        of_focus, of_classes = (weight.detach()[:, :-1] for weight in model.parameters())  # (1, K), (K, K)
        own = of_classes.diagonal()
        margin = own - (of_classes.sum(dim=0) - own) / (len(own) - 1)
        time = float(flow_time(row["epoch"] * steps, learning_rate, momentum))
        described = {"paradigm": paradigm, "seed": seed, "epoch": row["epoch"], "time": time}
        rows.append(described | {"mu": margin.mean().item(), "nu": of_focus.mean().item()})

    note(model, {"epoch": 0})
    phase = Phase(paradigm=paradigm, epochs=epochs, learning_rates=(learning_rate,), momentum=momentum)
    training = Training(batch_size=batch_size, precision="float64", device="cpu", evaluate_every=epochs)
    fit(model, task, (phase,), training, seed, on_epoch=note)
    return pd.DataFrame(rows)

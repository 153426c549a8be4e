"""The training of a fixed-focus sweep: ensembles over all members, measured after each epoch, resumable."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fcamlib import store
from fcamlib.checkpoint import read_state, seconds_between, write_state
from fcamlib.computing import task
from fcamlib.config.fixed_focus import FixedFocusConfig
from fcamlib.config.orthogonal import OrthogonalConfig
from fcamlib.data.orthogonal import orthogonal_task
from fcamlib.data.sdc import SDCTask
from fcamlib.errors import DataError, DivergenceError
from fcamlib.networks import classification_network
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance
from fcamlib.store import Stored
from fcamlib.theory.ensemble import Ensemble, FixedFocusData, Member
from fcamlib.theory.sweep import flow_time

Row = dict[str, Any]
CHECKPOINT_SECONDS = 20.0  # at least this long between checkpoints
INPUT_BUDGET = 2**26  # numbers that the inputs of all members' models in one step may hold, roughly
COLUMNS = ("paradigm", "alpha", "seed", "epoch", "time", "loss", "incentive", "incentive_exact")


def members_of(config: FixedFocusConfig) -> list[Member]:
    """Every paradigm at every alpha."""
    rates = dict(zip(config.paradigms, config.learning_rates, strict=True))
    return [Member(paradigm, alpha, rates[paradigm]) for paradigm in config.paradigms for alpha in config.alphas]


def tasks_of(config: FixedFocusConfig) -> list[SDCTask]:
    """Each seed's data."""
    if isinstance(config.data, OrthogonalConfig):
        return [orthogonal_task(config.data, seed) for seed in config.seeds]
    found = config.data.current_fingerprint() if config.data.fingerprint else ""
    if found != config.data.fingerprint:
        raise DataError(
            f"dataset='{config.data.source}': its files are not those that the config was made for: "
            "give the same data, or make a new config from options."
        )
    return [task(config.data, seed) for seed in config.seeds]


def initial_network(config: FixedFocusConfig, data: SDCTask, seed: int, numerics: Numerics) -> nn.Module:
    """A seed's classification network before training."""
    generator = torch.Generator().manual_seed(seed)
    shape, num_classes = data.bank.segment_shape, len(data.class_names)
    network = classification_network(config.classifier, shape, num_classes, generator, numerics.dtype)
    if config.initial == "zero":
        for weight in network.parameters():
            nn.init.zeros_(weight)
    return numerics.place(network)


def batch_order(seeds: tuple[int, ...], epoch: int, num_instances: int) -> Tensor:
    """The order of instances of each seed in an epoch, a function of both alone: (R, n)."""
    return torch.stack(
        [torch.from_numpy(np.random.default_rng([seed, 0, epoch]).permutation(num_instances)) for seed in seeds]
    )


class Trainer:
    """A sweep in training: ensembles over all members, and what has been measured.

    Parameters
    ----------
    config : FixedFocusConfig
    """

    def __init__(self, config: FixedFocusConfig) -> None:
        self.config, self.numerics = config, Numerics.of(config.training)
        tasks = [data.to(self.numerics.device) for data in tasks_of(config)]
        self.title = tasks[0].title
        self.data = FixedFocusData([data.splits["train"] for data in tasks], self.numerics)
        networks = [
            initial_network(config, data, seed, self.numerics) for data, seed in zip(tasks, config.seeds, strict=True)
        ]
        self.ensembles = [
            Ensemble(networks, group, config.momentum) for group in self._groups(tasks[0].bank.segment_shape)
        ]
        self.epoch, self.rows = 0, list[Row]()
        self.steps_per_epoch = math.ceil(self.data.num_instances / config.training.batch_size)

    def _groups(self, segment_shape: tuple[int, ...]) -> list[list[Member]]:
        """Members by what they classify, as many at once as the memory of a step allows."""
        members, models = members_of(self.config), len(self.config.seeds)
        inputs = self.config.training.batch_size * math.prod(segment_shape)
        groups = []
        for soft in (True, False):
            chosen = [member for member in members if (member.paradigm == "soft") == soft]
            at_once = max(1, INPUT_BUDGET // (models * inputs * (1 if soft else self.data.num_segments)))
            groups += [chosen[start : start + at_once] for start in range(0, len(chosen), at_once)]
        return groups

    def measure(self) -> None:
        """Add the rows of this epoch."""
        steps = self.epoch * self.steps_per_epoch
        for ensemble in self.ensembles:
            measures = ensemble.measure(self.data)
            values = torch.stack([measures.loss, measures.incentive, measures.incentive_exact]).cpu().numpy()
            for number, member in enumerate(ensemble.members):
                elapsed = flow_time(steps, member.learning_rate, self.config.momentum)
                for place, seed in enumerate(self.config.seeds):
                    row = (member.paradigm, member.alpha, seed, self.epoch, elapsed, *values[:, place, number].tolist())
                    self.rows.append(dict(zip(COLUMNS, row, strict=True)))
                    if not np.isfinite(values[:, place, number]).all():
                        raise DivergenceError(
                            f"the {member.paradigm} loss at alpha={member.alpha:g} became NaN or infinite in epoch "
                            f"{self.epoch} of seed {seed} with learning rate {member.learning_rate:g}: "
                            "choose a smaller one."
                        )

    def train_epoch(self) -> None:
        """One pass over the training instances."""
        order = batch_order(self.config.seeds, self.epoch, self.data.num_instances)
        for index in order.to(self.numerics.device).split(self.config.training.batch_size, dim=1):
            for ensemble in self.ensembles:
                ensemble.step(self.data, index)
        self.epoch += 1

    def is_due(self) -> bool:
        """Whether this epoch is measured."""
        return self.epoch % self.config.training.evaluate_every == 0 or self.epoch == self.config.epochs

    def frame(self) -> pd.DataFrame:
        """The rows, sorted as the config lists paradigms, alphas and seeds."""
        frame = pd.DataFrame(self.rows, columns=list(COLUMNS))
        places = {name: place for place, name in enumerate(self.config.paradigms)}
        alphas = {alpha: place for place, alpha in enumerate(self.config.alphas)}
        seeds = {seed: place for place, seed in enumerate(self.config.seeds)}
        keys = [frame["epoch"], frame["seed"].map(seeds), frame["alpha"].map(alphas), frame["paradigm"].map(places)]
        return frame.iloc[np.lexsort([key.to_numpy() for key in keys])].reset_index(drop=True)

    def tensors(self) -> dict[str, Tensor]:
        """Weights and velocities of all ensembles, by number, role and name."""
        return {
            f"{number}/{role}/{name}": value.detach()
            for number, ensemble in enumerate(self.ensembles)
            for role, values in (("weight", ensemble.weights), ("velocity", ensemble.velocity))
            for name, value in values.items()
        }


def compute(config: FixedFocusConfig, on_epoch: Callable[[int], None]) -> Stored[FixedFocusConfig]:
    """Train all members, or those epochs that an interrupted sweep lacks, and store what was measured."""
    began = clock.perf_counter()
    checkpoint = store.writable(store.partial_dir(config)) / store.CHECKPOINT
    interval = seconds_between(CHECKPOINT_SECONDS)
    with reproducible(config.training.threads):
        trainer = Trainer(config)
        if not (checkpoint.exists() and _resume(trainer, checkpoint)):
            trainer.measure()
        saved = clock.monotonic()
        while trainer.epoch < config.epochs:
            trainer.train_epoch()
            if trainer.is_due():
                trainer.measure()
            on_epoch(trainer.epoch)
            if clock.monotonic() - saved > interval:
                _save(trainer, checkpoint)
                saved = clock.monotonic()
    seconds = round(clock.perf_counter() - began, 1)
    summary = {"title": trainer.title, "provenance": provenance(trainer.numerics) | {"last_session_seconds": seconds}}
    return store.write(config, trainer.frame(), summary, {})


def _save(trainer: Trainer, path: Path) -> None:
    """Write the state between two epochs to `path`."""
    write_state(path, {"epoch": trainer.epoch, "rows": trainer.rows}, trainer.tensors())


def _resume(trainer: Trainer, path: Path) -> bool:
    """Put the state in `path` into the trainer; False, with a warning, where the file is damaged."""
    if (found := read_state(path)) is None:
        return False
    content, tensors = found
    trainer.epoch, trainer.rows = content["epoch"], content["rows"]
    with torch.no_grad():
        for name, value in trainer.tensors().items():
            value.copy_(tensors[name])
    return True

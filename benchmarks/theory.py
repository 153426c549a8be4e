"""The flow's solver beside Euler's method, and a fixed-focus sweep beside one training after the other.

The plain sides do what one writes first: explicit Euler steps of 0.01 in a Python loop, and PyTorch training of one
classifier at a time on materialised instances (B, M, D), with the loss and the loss at alpha + 0.01 after every epoch.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import plain
from benchmarks.report import Row, in_turn, report, row, seconds, table
from fcamlib.config import Sweep, SweepGrid
from fcamlib.data.sdc import SDCData, SDCTask
from fcamlib.numerics import Numerics, reproducible
from fcamlib.theory.ensemble import DIFFERENCE, Member
from fcamlib.theory.fixed_focus import LAWS
from fcamlib.theory.flow import trajectory
from fcamlib.theory.sweep import Trainer, batch_order, initial_network, members_of, tasks_of

__all__ = ["benchmark", "table"]
STEP = 0.01  # of Euler's method
CASES = ((20, 20, 1e3, 50.0), (100, 1000, 4e5, 5_000.0))  # m, C, end time and the ratio aimed at
MOST_STEPS = 100_000  # of Euler's method; longer runs are scaled up from these


def benchmark(repeats: int, threads: int, quick: bool = False, **ignored: Any) -> dict[str, Any]:
    """Every row, for `benchmarks.report`; float64 on the CPU."""
    epochs = 1 if quick else 10
    config = SweepGrid.of({"epochs": epochs, "device": "cpu", "threads": threads}).config()
    how = (
        f"explicit Euler steps of {STEP} in Python beside the solver; {len(members_of(config))} trainings of the "
        f"linear orthogonal task (m = 20, C = 20, n = 5,000, {epochs} epochs) one after the other beside all "
        f"at once; float64, threads: {threads}, wall time, median of {repeats} taken in turn (least to greatest)"
    )
    rows = [*solver_rows(repeats, CASES[:1] if quick else CASES), *sweep_rows(config, repeats)]
    what = "seconds of plain Python and PyTorch beside fcamlib; ratios are plain over fcamlib"
    return report(what, how, Numerics(torch.device("cpu"), torch.float64), rows)


def solver_rows(repeats: int, cases: tuple[tuple[int, int, float, float], ...] = CASES) -> list[Row]:
    """Euler's method beside `trajectory`."""
    rows = []
    for m, c, end, aim in cases:
        steps = round(end / STEP)
        taken = min(steps, MOST_STEPS)
        for paradigm in LAWS:
            slow, fast = partial(euler, paradigm, m, c, taken), partial(trajectory, paradigm, m, c, [end])
            plain, library = in_turn(partial(seconds, slow), partial(seconds, fast), repeats)
            plain = [value * steps / taken for value in plain]
            rows.append(row(f"solver, m = {m}, C = {c:,}, t = {end:,.0f}, {paradigm}", "s", library, plain, aim))
    return rows


def sweep_rows(config: Sweep, repeats: int) -> list[Row]:
    """One training after the other beside the vectorised sweep."""
    with reproducible(config.training.threads):
        sides = partial(seconds, partial(plain_sweep, config)), partial(seconds, partial(vectorised_sweep, config))
        plain, library = in_turn(*sides, repeats)
    return [
        row(f"fixed-focus sweep, {len(members_of(config)) * len(config.seeds)} trainings", "s", library, plain, 10.0)
    ]


def euler(paradigm: str, m: int, c: int, steps: int) -> tuple[float, float]:
    """(mu, nu) after explicit Euler steps of 0.01, written out for one loss at a time."""
    mu, nu, n = 0.0, 0.0, c - 1
    exp, log = math.exp, math.log
    for _ in range(steps):
        alpha = exp(nu) / (exp(nu) + m - 1)
        if paradigm == "soft":
            total = exp(alpha * mu) + n
            mu_velocity = alpha / total
            nu_velocity = alpha * (1 - alpha) * n * mu / (c * total)
        elif paradigm == "hard":
            total = exp(mu) + n
            mu_velocity = alpha / total
            nu_velocity = alpha * (1 - alpha) * log(c * exp(mu) / total) / c
        else:
            total = exp(mu) + n
            beta = exp(mu) / total
            marginal = alpha * beta + (1 - alpha) / c
            mu_velocity = alpha * beta / (marginal * total)
            nu_velocity = alpha * (1 - alpha) * (beta - 1 / c) / (c * marginal)
        mu += STEP * mu_velocity
        nu += STEP * nu_velocity
    return mu, nu


def plain_loss(network: nn.Module, member: Member, alpha: float, segments: Tensor, label: Tensor) -> Tensor:
    """Mean loss with the foreground at the first of the places, on materialised instances (B, M, D)."""
    _, num_segments, _ = segments.shape
    weights = torch.full((num_segments,), (1 - alpha) / (num_segments - 1), dtype=segments.dtype)
    weights[0] = alpha
    mixed = (segments * weights[:, None]).sum(dim=1, keepdim=True) if member.paradigm == "soft" else segments
    return plain.loss(weights.expand(len(label), -1), network(mixed).softmax(dim=-1), label, member.paradigm).mean()


def plain_network(config: Sweep, task: SDCTask, seed: int) -> nn.Module:
    """The linear layer with a seed's initial weights, (..., D) -> (..., K)."""
    layer = list(initial_network(config, task, seed, Numerics.of(config.training)).children())[-1]
    assert isinstance(layer, nn.Linear)
    return layer


def train_one(config: Sweep, member: Member, network: nn.Module, data: SDCData, seed: int) -> list[float]:
    """Train one classifier in plain PyTorch: its loss after every epoch; the incentive is computed beside it."""
    segments, label = data.bank.values[data.segments.long()], data.label
    optimizer = torch.optim.SGD(network.parameters(), lr=member.learning_rate, momentum=config.momentum)
    shift = -DIFFERENCE if member.alpha + DIFFERENCE > 1 else DIFFERENCE
    losses = []
    for epoch in range(config.epochs):
        for index in batch_order((seed,), epoch, len(label))[0].split(config.training.batch_size):
            loss = plain_loss(network, member, member.alpha, segments[index], label[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            losses.append(plain_loss(network, member, member.alpha, segments, label).item())
            plain_loss(network, member, member.alpha + shift, segments, label)
    return losses


def plain_sweep(config: Sweep) -> dict[tuple[str, float, int], list[float]]:
    """Losses by paradigm, alpha and seed: every classifier one after the other."""
    return {
        (member.paradigm, member.alpha, seed): train_one(
            config, member, plain_network(config, task, seed), task.splits["train"], seed
        )
        for task, seed in zip(tasks_of(config), config.seeds, strict=True)
        for member in members_of(config)
    }


def vectorised_sweep(config: Sweep) -> Trainer:
    """The library's sweep, without the store."""
    trainer = Trainer(config)
    while trainer.epoch < config.epochs:
        trainer.train_epoch()
        trainer.measure()
    return trainer

"""The flow's solver beside Euler's method, and a fixed-focus sweep beside one training after the other.

The plain sides do what one writes first: explicit Euler steps of 0.01 in a Python loop, and PyTorch training of one
classifier at a time on materialised instances (B, M, ...), measured before and after every epoch.
"""

import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.pictures import plain_loss
from benchmarks.report import compared, seconds
from fcamlib.config import Sweep, SweepGrid
from fcamlib.numerics import Numerics, reproducible
from fcamlib.theory.ensemble import DIFFERENCE
from fcamlib.theory.fixed_focus import LAWS
from fcamlib.theory.flow import trajectory
from fcamlib.theory.sweep import batch_order, compute, initial_network, members_of, tasks_of

STEP = 0.01  # of Euler's method
CASES = ((20, 20, 1e3, 50.0), (100, 1000, 4e5, 5_000.0))  # m, C, end time and the ratio aimed at
LONGEST = 1e3  # time that Euler's method solves; later ends are scaled up from it


def benchmark(repeats: int, threads: int, quick: bool, **ignored: Any) -> dict[str, Any]:
    """Every row; float64 on the CPU."""
    epochs, rows = 1 if quick else 10, []
    config = SweepGrid.of({"epochs": epochs, "device": "cpu", "threads": threads}).config()
    for (m, c, end, aim), paradigm in product(CASES[:1] if quick else CASES, LAWS):
        label = f"solver, m = {m}, C = {c:,}, t = {end:,.0f}, {paradigm}"
        rows.append(compared(label, partial(solved, paradigm, m, c, end), repeats, aim))
    trainings = f"{len(members_of(config)) * len(config.seeds)} trainings"
    with reproducible(threads):
        rows.append(compared(f"fixed-focus sweep, {trainings}", partial(swept, config), repeats, 10.0))
    how = (
        f"explicit Euler steps of {STEP} in Python beside the solver; {trainings} of the linear orthogonal task (m = "
        f"20, C = 20, n = 5,000, {epochs} epochs) one after the other beside all at once, in float64"
    )
    return {"what": "seconds of plain Python and PyTorch beside fcamlib", "how": how, "rows": rows}


def solved(paradigm: str, m: int, c: int, end: float, is_plain: bool) -> float:
    """Seconds of the flow until `end`; of Euler's method from its first steps."""
    if not is_plain:
        return seconds(lambda: trajectory(paradigm, m, c, [end]))
    part = min(end, LONGEST)
    return seconds(lambda: euler(paradigm, m, c, round(part / STEP))) * end / part


def euler(paradigm: str, m: int, c: int, steps: int) -> tuple[float, float]:
    """(mu, nu) after explicit Euler steps of 0.01, with the equations written out."""
    mu, nu, n, exp, log = 0.0, 0.0, c - 1, math.exp, math.log
    for _ in range(steps):
        alpha = exp(nu) / (exp(nu) + m - 1)
        total = exp(alpha * mu if paradigm == "soft" else mu) + n
        if paradigm == "soft":
            speed, incentive = alpha / total, n * mu / total
        elif paradigm == "hard":
            speed, incentive = alpha / total, log(c * exp(mu) / total)
        else:
            beta = exp(mu) / total
            marginal = alpha * beta + (1 - alpha) / c
            speed, incentive = alpha * beta / (marginal * total), (beta - 1 / c) / marginal
        mu += STEP * speed
        nu += STEP * alpha * (1 - alpha) * incentive / c
    return mu, nu


def fixed_loss(network: nn.Module, paradigm: str, alpha: float, segments: Tensor, on: Tensor, label: Tensor) -> Tensor:
    """Mean loss of materialised instances (B, M, ...) with the weight alpha on their foreground, `on` (B, M)."""
    weights = torch.where(on, segments.new_tensor(alpha), (1 - alpha) / (on.shape[1] - 1))  # (B, M)
    classified = torch.einsum("bm,bm...->b...", weights, segments)[:, None] if paradigm == "soft" else segments
    logits = network(classified.flatten(0, 1)).view(*classified.shape[:2], -1)
    return plain_loss(weights, logits.softmax(dim=-1), label, paradigm).mean()


def plain_sweep(config: Sweep) -> list[tuple[Any, ...]]:
    """Train every classifier one after the other in plain PyTorch: a row before and after every epoch."""
    rows, numerics = [], Numerics.of(config.training)  # paradigm, alpha, seed, epoch, loss, incentive
    for (task, seed), member in product(zip(tasks_of(config), config.seeds, strict=True), members_of(config)):
        network, data = initial_network(config, task, seed, numerics), task.splits["train"]
        values = data.bank.rows(data.segments.flatten().long(), numerics.dtype)
        whole = values.view(*data.segments.shape, *values.shape[1:]), data.foreground, data.label
        optimizer = torch.optim.SGD(network.parameters(), lr=member.learning_rate, momentum=config.momentum)
        shift = DIFFERENCE if member.alpha + DIFFERENCE <= 1 else -DIFFERENCE
        for epoch in range(config.epochs + 1):
            with torch.no_grad():
                near = member.alpha, member.alpha + shift
                here, there = (fixed_loss(network, member.paradigm, alpha, *whole).item() for alpha in near)
            rows.append((member.paradigm, member.alpha, seed, epoch, here, (here - there) / shift))
            for index in batch_order((seed,), epoch, len(data))[0].split(config.training.batch_size):
                optimizer.zero_grad(set_to_none=True)
                fixed_loss(network, member.paradigm, member.alpha, *(part[index] for part in whole)).backward()
                optimizer.step()
    return rows


def swept(config: Sweep, is_plain: bool) -> float:
    """Seconds of all trainings; the library's without the store."""
    library = partial(compute, progress=list[Any]().append, scratch=Path())
    return seconds(partial(plain_sweep if is_plain else library, config))

"""Benchmark of the theory: the solver against Euler's steps, a fixed-focus sweep against one training after the other.

`python -m fcamlib.bench.theory --json FILE`, or the rows of `measure_theory`. The slow sides do what one writes first:
Euler's method with steps of 0.01 in a Python loop, and plain PyTorch training of one member at a time on
materialised instances (B, M, D), the loss and the loss at alpha + 0.01 evaluated after every epoch.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor, nn

from fcamlib.bench.results import Spread, write_text
from fcamlib.config.fixed_focus import FixedFocusConfig, fixed_focus_experiment
from fcamlib.data.sdc import SDCData, SDCTask
from fcamlib.heap import keep_freed_memory
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance
from fcamlib.theory.ensemble import DIFFERENCE, Member
from fcamlib.theory.fixed_focus import LAWS
from fcamlib.theory.flow import trajectory
from fcamlib.theory.sweep import Trainer, batch_order, initial_network, members_of, tasks_of

STEP = 0.01  # of Euler's method
CASES = ((20, 20, 1e3, 50.0), (100, 1000, 4e5, 5_000.0))  # m, C, t and the ratio aimed at
EXTRAPOLATED_STEPS = 100_000  # of Euler's method, from which longer ones are scaled up
SWEEP_AIM = 10.0


def euler(paradigm: str, m: int, c: int, steps: int) -> tuple[float, float]:
    """(mu, nu) after explicit Euler steps of 0.01, written out for one paradigm at a time."""
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


def materialised(data: SDCData) -> tuple[Tensor, Tensor]:
    """All instances as (n, M, D) and their labels."""
    return data.bank.values[data.segments.long()], data.label


def plain_loss(network: nn.Module, member: Member, alpha: float, segments: Tensor, label: Tensor) -> Tensor:
    """Mean loss of a member with its foreground at the first place, on materialised instances (B, M, D)."""
    _, num_segments, _ = segments.shape
    weights = torch.full((num_segments,), (1 - alpha) / (num_segments - 1), dtype=segments.dtype)
    weights[0] = alpha
    if member.paradigm == "soft":
        mixture = (segments * weights[:, None]).sum(dim=1)
        return nn.functional.cross_entropy(network(mixture), label)
    log_prob = network(segments).log_softmax(dim=-1)  # (B, M, K)
    index = label[:, None, None].expand(-1, num_segments, 1)
    log_likelihood = log_prob.gather(2, index).squeeze(2)
    if member.paradigm == "hard":
        return -(weights * log_likelihood).sum(dim=1).mean()
    return -torch.logsumexp(weights.log() + log_likelihood, dim=1).mean()


def plain_network(config: FixedFocusConfig, task: SDCTask, seed: int) -> nn.Module:
    """The layer of a linear network, which takes (..., D), with a seed's initial weights."""
    network = initial_network(config, task, seed, Numerics.of(config.training))
    layer = list(network.children())[-1]
    assert isinstance(layer, nn.Linear)
    return layer


def train_one(
    config: FixedFocusConfig, member: Member, network: nn.Module, segments: Tensor, label: Tensor, seed: int
) -> list[tuple[float, float]]:
    """Train one member in plain PyTorch: its loss and measured incentive after every epoch."""
    optimizer = torch.optim.SGD(network.parameters(), lr=member.learning_rate, momentum=config.momentum)
    shift = -DIFFERENCE if member.alpha + DIFFERENCE > 1 else DIFFERENCE
    history = []
    for epoch in range(config.epochs):
        for index in batch_order((seed,), epoch, len(label))[0].split(config.training.batch_size):
            loss = plain_loss(network, member, member.alpha, segments[index], label[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            here = plain_loss(network, member, member.alpha, segments, label).item()
            there = plain_loss(network, member, member.alpha + shift, segments, label).item()
        history.append((here, (here - there) / shift))
    return history


def plain_sweep(config: FixedFocusConfig) -> dict[tuple[str, float, int], list[tuple[float, float]]]:
    """Every member of every seed, one after the other."""
    results = {}
    for task, seed in zip(tasks_of(config), config.seeds, strict=True):
        segments, label = materialised(task.splits["train"])
        for member in members_of(config):
            network = plain_network(config, task, seed)
            key = (member.paradigm, member.alpha, seed)
            results[key] = train_one(config, member, network, segments, label, seed)
    return results


def vectorised_sweep(config: FixedFocusConfig) -> Trainer:
    """The same by `fcamlib.theory.sweep`, without the store."""
    trainer = Trainer(config)
    while trainer.epoch < config.epochs:
        trainer.train_epoch()
        trainer.measure()
    return trainer


def solver_rows(repeats: int) -> list[dict[str, Any]]:
    """Euler's steps against `trajectory`, taken in turn; Euler's longer runs are scaled up from 100,000 steps."""
    rows = []
    for m, c, end, aim in CASES:
        steps = round(end / STEP)
        taken = min(steps, EXTRAPOLATED_STEPS)
        for paradigm in LAWS:
            pairs = []
            for _ in range(repeats):
                plain = _seconds(partial(euler, paradigm, m, c, taken))
                fast = statistics.median(_seconds(partial(trajectory, paradigm, m, c, [end])) for _ in range(9))
                pairs.append((plain * steps / taken, fast))
            described = {"measure": "solver", "paradigm": paradigm, "num_segments": m, "num_classes": c, "time": end}
            rows.append(described | {"euler_steps": steps, "euler_steps_taken": taken} | _ratio(pairs, aim))
    return rows


def sweep_rows(config: FixedFocusConfig, repeats: int) -> list[dict[str, Any]]:
    """One training after the other against the vectorised sweep, taken in turn, and how far their losses differ."""
    with reproducible(config.training.threads):
        slow, fast = plain_sweep(config), vectorised_sweep(config)  # warms up, and compares
        pairs = [(_seconds(lambda: plain_sweep(config)), _seconds(lambda: vectorised_sweep(config)))
                 for _ in range(repeats)]  # fmt: skip
    frame = fast.frame().set_index(["paradigm", "alpha", "seed", "epoch"])["loss"]
    apart = max(
        abs(frame[(*key, epoch)] - loss) for key, history in slow.items() for epoch, (loss, _) in enumerate(history, 1)
    )
    described = {
        "measure": "fixed-focus sweep",
        "trainings": len(slow),
        "epochs": config.epochs,
        "num_train": config.data.num_train,
        "precision": config.training.precision,
        "largest_difference_of_losses": float(apart),
    }
    return [described | _ratio(pairs, SWEEP_AIM)]


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _ratio(pairs: list[tuple[float, float]], aim: float) -> dict[str, Any]:
    """Median, least and greatest of both sides' seconds and of their ratio."""
    slow, fast = (list(values) for values in zip(*pairs, strict=True))
    each = [a / b for a, b in pairs]
    spreads = {"plain_seconds": slow, "library_seconds": fast, "ratio": each}
    return {name: asdict(Spread.of(values)) for name, values in spreads.items()} | {"aim": aim}


def measure_theory(repeats: int = 5, epochs: int = 5) -> dict[str, Any]:
    """Both benchmarks as plain values, for a JSON file.

    Parameters
    ----------
    repeats : int
        Times that each measure is taken.
    epochs : int
        Epochs of the sweep, the paper's linear orthogonal task with 3 paradigms at 5 attention weights, float64.
    """
    config = fixed_focus_experiment({"epochs": epochs, "device": "cpu"}).config()
    return {
        "what": "seconds of plain Python and PyTorch against fcamlib; ratios are plain over fcamlib",
        "how": (
            f"explicit Euler steps of {STEP} in Python against the solver; {len(members_of(config))} trainings of the "
            f"linear orthogonal task (m = 20, C = 20, n = 5,000, {epochs} epochs, set-up included) one after the other "
            f"against all at once; one thread, wall time, median of {repeats} taken in turn (least to greatest)"
        ),
        "provenance": provenance(Numerics(torch.device("cpu"), torch.float64)),
        "rows": [*solver_rows(repeats), *sweep_rows(config, repeats)],
    }


@click.command("bench_theory")
@click.option("--repeats", type=click.IntRange(1, 100), default=5, show_default=True, help="times each is measured")
@click.option("--epochs", type=click.IntRange(1, 1_000), default=10, show_default=True, help="epochs of the sweep")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="write everything to FILE")  # fmt: skip
def main(repeats: int, epochs: int, json_path: Path | None) -> None:
    """Measure the solver against Euler's steps, and the vectorised sweep against one training after the other."""
    keep_freed_memory()  # as the command line does
    content = measure_theory(repeats, epochs)
    for row in content["rows"]:
        shown = " ".join(str(row[name]) for name in ("measure", "paradigm", "time") if name in row)
        ratio = row["ratio"]
        click.echo(
            f"{shown}: {ratio['median']:.1f} times ({ratio['low']:.1f} to {ratio['high']:.1f}), aim {row['aim']:g}"
        )
    if json_path is not None:
        write_text(json_path, json.dumps(content, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()

"""Benchmark of captioning at the paper's sizes: pictures per second, and the memory that a step takes.

`python -m fcamlib.bench.captions --json FILE`. Random regions and captions: what is measured does not depend on their
values. Each measure runs in a process of its own, so that its peak of memory is its own too.

| measure    | what is done                                                                                      |
|------------|---------------------------------------------------------------------------------------------------|
| `features` | VGG19's convolutions on pictures of 224 x 224: 196 regions of 512 numbers, as they are cached     |
| `greedy`   | greedy captions of 15 words from cached features, evaluation without gradients                    |
| `soft`, `hard` | training steps on captions of 15 words: forward, backward, Adam                               |
| `keys`     | `soft` with the attention's keys computed anew for every word, as a plain loop does               |

Source of the sizes: arXiv 2307.13421, experiments on MSCOCO: batch 100, additive attention 256, LSTM and embedding 512.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from fcamlib.bench.results import write_text
from fcamlib.captioning.decoding import greedy
from fcamlib.captioning.losses import cross_entropy, place_log_prob, real_words, reinforce_loss, rewards, word_log_prob
from fcamlib.captioning.model import Captioner, Regions
from fcamlib.config.caption_runs import CaptionModelConfig
from fcamlib.heap import keep_freed_memory
from fcamlib.numerics import PLAIN, Numerics, reproducible
from fcamlib.provenance import provenance

NUM_REGIONS, REGION_DIM, NUM_WORDS, LENGTH, BATCH = 196, 512, 10_000, 15, 100
FEATURE_BATCH = 10
MEASURES = ("features", "greedy", "soft", "hard", "keys")
MIB = 2**20


def random_captions(batch: int, seed: int = 0) -> Tensor:
    """Captions of the greatest length: <start>, words, <end>."""
    tokens = torch.randint(4, NUM_WORDS, (batch, LENGTH + 1), generator=torch.Generator().manual_seed(seed))
    tokens[:, 0], tokens[:, -1] = 1, 2
    return tokens


def training_step(measure: str, model: Captioner, regions: Tensor, tokens: Tensor) -> Tensor:
    """The loss of one batch, as training computes it; of `keys` as a plain loop does."""
    real = real_words(tokens)
    if measure == "keys":
        state, log_probs = model.start(regions), []
        for t in range(tokens.shape[1] - 1):
            anew = Regions(regions, model.attention.keys(regions))
            log_prob, _, _, state = model.step(anew, state, tokens[:, t], "soft")
            log_probs.append(log_prob)
        return cross_entropy(word_log_prob(torch.stack(log_probs, dim=1), tokens, real), real)
    if measure == "soft":
        output = model(model.regions(regions), tokens, "soft")
        return cross_entropy(word_log_prob(output.log_prob, tokens, real), real)
    quantiles = torch.rand(real.shape, generator=torch.Generator().manual_seed(0)).to(tokens.device)
    output = model(model.regions(regions), tokens, "drawn", quantiles)
    words = word_log_prob(output.log_prob, tokens, real)
    baseline = torch.zeros(real.shape[1], device=tokens.device)
    return reinforce_loss(words, place_log_prob(output, real), rewards(words, "caption"), baseline, real)


def step_of(measure: str, batch: int, device: torch.device) -> Callable[[], Any]:
    """What is timed, on random input; nothing of it is prepared in the time."""
    generator = torch.Generator().manual_seed(0)
    if measure == "features":
        from torchvision.models import vgg19

        layers = vgg19(weights=None).features[:-1].eval().to(device)
        pictures = torch.rand(batch, 3, 224, 224, generator=generator).to(device)

        def features() -> Tensor:
            with torch.inference_mode():
                return layers(pictures)

        return features
    model = Captioner(CaptionModelConfig(), (NUM_REGIONS, REGION_DIM), NUM_WORDS, generator).to(device)
    regions = torch.rand(batch, NUM_REGIONS, REGION_DIM, generator=generator).to(device)
    if measure == "greedy":
        with torch.no_grad():
            model.output.bias[2] = -1e4  # no caption ends early
        names = torch.zeros(NUM_WORDS, 80, device=device)

        def decode() -> Any:
            with torch.inference_mode():
                return greedy(model, model.regions(regions), "soft", LENGTH, names)

        return decode
    tokens = random_captions(batch).to(device)
    optimizer = torch.optim.Adam(model.parameters())

    def train() -> None:
        loss = training_step(measure, model, regions, tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return train


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def measure(name: str, repeats: int, threads: int, device_name: str, clock: str = "wall") -> dict[str, Any]:
    """Seconds of a step, pictures per second, and by how much the step raises the peak of memory, in MiB.

    `clock` counts seconds that pass, or seconds of the processor, which mind other programs less.
    """
    keep_freed_memory()
    device = torch.device(device_name)
    size = FEATURE_BATCH if name == "features" else BATCH
    with reproducible(threads):
        step = step_of(name, size, device)
        before = _peak(device)
        step()  # warms up; its memory counts
        _wait(device)
        peak = _peak(device) - before
        seconds = [_seconds(step, device, clock) for _ in range(repeats)]
    middle = statistics.median(seconds)
    return {
        "measure": name,
        "batch": size,
        "seconds": {"median": middle, "low": min(seconds), "high": max(seconds)},
        "pictures_per_second": size / middle,
        "peak_mib": round(peak / MIB, 1),
    }


def _seconds(step: Callable[[], Any], device: torch.device, clock: str) -> float:
    now = CLOCKS[clock]
    began = now()
    step()
    _wait(device)
    return now() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak(device: torch.device) -> int:
    """Greatest memory so far in bytes: of the process on a CPU, of torch's tensors on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure_captions(repeats: int = 5, threads: int = 1, device: str = "cpu", clock: str = "wall") -> dict[str, Any]:
    """All measures as plain values, for a JSON file."""
    spawn = multiprocessing.get_context("spawn")
    rows = []
    for name in MEASURES:
        with spawn.Pool(1) as pool:
            rows.append(pool.apply(measure, (name, repeats, threads, device, clock)))
    numerics = PLAIN if device == "cpu" else Numerics(torch.device(device), torch.float32)
    return {
        "what": "seconds of a step of captioning at the paper's sizes, and by how much it raises the peak of memory",
        "how": (
            f"{NUM_REGIONS} regions of {REGION_DIM} numbers, attention 256, LSTM and embedding 512, {NUM_WORDS:,} "
            f"words, captions of {LENGTH} words; float32, {device}, threads: {threads}, {clock} time; median of "
            f"{repeats} steps (least to greatest) after one that is not timed; each measure in a process of its own"
        ),
        "provenance": provenance(numerics),
        "rows": rows,
    }


@click.command("bench_captions")
@click.option("--repeats", type=click.IntRange(1, 100), default=5, show_default=True, help="steps that are timed")
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="CPU threads")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="where to run")
@click.option("--clock", type=click.Choice(list(CLOCKS)), default="wall", show_default=True,
              help="seconds that pass, or of the processor")  # fmt: skip
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="write everything to FILE")  # fmt: skip
def main(repeats: int, threads: int, device: str, clock: str, json_path: Path | None) -> None:
    """Measure captioning at the paper's sizes: features, greedy decoding and training steps."""
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("device=cuda is not available here: choose --device cpu.")
    if clock == "cpu" and (device == "cuda" or threads > 1):
        raise click.UsageError("clock=cpu counts one thread of a processor: choose --clock wall.")
    content = measure_captions(repeats, threads, device, clock)
    for row in content["rows"]:
        seconds = row["seconds"]
        click.echo(
            f"{row['measure']}: {row['pictures_per_second']:.3g} pictures a second, {seconds['median']:.3g} s a step "
            f"of {row['batch']} ({seconds['low']:.3g} to {seconds['high']:.3g}), peak {row['peak_mib']:.0f} MiB"
        )
    if json_path is not None:
        write_text(json_path, json.dumps(content, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()

"""Captioning at the paper's sizes: features, greedy decoding and training steps, and the memory that each takes.

Regions and captions are random. Each measure runs in a fresh process, so its peak of memory is its own. The plain side
computes the attention's keys again for every word, as a first loop does. Source of the sizes: arXiv 2307.13421,
experiments on MSCOCO: batch 100, additive attention 256, LSTM and embedding 512.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.report import in_fresh_process, peak_memory, report, row, seconds, table
from fcamlib.captioning.decoding import greedy, read
from fcamlib.captioning.losses import cross_entropy, real_words, reinforce_loss, rewards
from fcamlib.captioning.model import Captioner, Context, Regions
from fcamlib.config import CaptionModel
from fcamlib.numerics import PLAIN, reproducible

__all__ = ["benchmark", "table"]
NUM_REGIONS, REGION_DIM, NUM_WORDS, LENGTH, BATCH = 196, 512, 10_000, 15, 100
FEATURE_BATCH = 10


def benchmark(repeats: int, threads: int, quick: bool = False, **ignored: Any) -> dict[str, Any]:
    """Every row, for `benchmarks.report`; on the CPU."""
    found = {}
    for name in ("greedy", "hard", "soft", "keys") if quick else ("features", "greedy", "hard", "soft", "keys"):
        found[name] = in_fresh_process(measure, name, repeats, threads)
    titles = {
        "features": f"features of VGG19, {FEATURE_BATCH} pictures",
        "greedy": f"greedy captions, {BATCH} pictures",
    }
    titles |= {name: f"training step, {BATCH} captions, {name}" for name in ("hard", "soft")}
    rows = []
    for name, title in titles.items():
        if name in found:
            plain = found["keys"] if name == "soft" else ([], [])
            rows.append(row(title, "s", found[name][0], plain[0]))
            rows.append(row(f"peak memory, {title}", "MB", found[name][1], plain[1]))
    how = (
        f"{NUM_REGIONS} regions of {REGION_DIM} numbers, attention 256, LSTM and embedding 512, {NUM_WORDS:,} words, "
        f"captions of {LENGTH} words; float32, threads: {threads}, wall time; median of {repeats} steps (least to "
        "greatest) after one that is not timed; plain: the attention's keys are computed again for every word"
    )
    return report("seconds and peak memory of captioning at the paper's sizes", how, PLAIN, rows)


def measure(name: str, repeats: int, threads: int) -> tuple[list[float], list[float]]:
    """Seconds of each step, and by how many MB a step raises the peak of memory."""
    with reproducible(threads):
        step, before = step_of(name), peak_memory()
        step()
        grown = peak_memory() - before
        return [seconds(step) for _ in range(repeats)], [max(grown, 1.0)] * repeats


def step_of(name: str) -> Callable[[], Any]:
    """The step that is timed, on random input made beforehand."""
    generator = torch.Generator().manual_seed(0)
    if name == "features":
        from torchvision.models import vgg19

        layers, pictures = vgg19(weights=None).features[:-1].eval(), torch.rand(FEATURE_BATCH, 3, 224, 224)
        return torch.inference_mode()(lambda: layers(pictures))
    model = Captioner(CaptionModel(), (NUM_REGIONS, REGION_DIM), NUM_WORDS, generator)
    regions = torch.rand(BATCH, NUM_REGIONS, REGION_DIM, generator=generator)
    if name == "greedy":
        with torch.no_grad():
            model.output.bias[2] = -1e4  # no caption ends early
        names = torch.zeros(NUM_WORDS, 80)
        return torch.inference_mode()(lambda: greedy(model, model.regions(regions), "soft", LENGTH, names))
    tokens, optimizer = random_captions(BATCH), torch.optim.Adam(model.parameters())

    def train() -> None:
        loss = step_loss(name, model, regions, tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return train


def random_captions(batch: int) -> Tensor:
    """Captions of the greatest length: <start>, words, <end>."""
    tokens = torch.randint(4, NUM_WORDS, (batch, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    tokens[:, 0], tokens[:, -1] = 1, 2
    return tokens


def step_loss(name: str, model: Captioner, regions: Tensor, tokens: Tensor) -> Tensor:
    """The loss of one batch as training computes it; of `keys` as a plain loop does."""
    real = real_words(tokens)
    if name == "keys":
        state, words = model.start(regions), []
        for t in range(tokens.shape[1] - 1):
            again = Regions(regions, model.attention.of_region(regions))
            log_prob, _, _, state = model.step(again, state, tokens[:, t], "soft")
            words.append(log_prob.gather(1, tokens[:, t + 1, None]).squeeze(1))
        return cross_entropy(torch.stack(words, dim=1).masked_fill(~real, 0.0), real)
    place = torch.arange(len(tokens))
    context: Context = "soft" if name == "soft" else "drawn"
    quantiles = torch.rand(real.shape, generator=torch.Generator().manual_seed(0))
    found = read(model, model.regions(regions), place, tokens, context, quantiles)
    if found.places is None:
        return cross_entropy(found.words, real)
    return reinforce_loss(found.words, found.places, rewards(found.words, "caption"), torch.zeros(real.shape[1]), real)

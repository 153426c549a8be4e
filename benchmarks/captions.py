"""Captioning at the paper's sizes: features, greedy decoding and training steps, and the memory that each takes.

Regions and captions are random; captions have 6 to 15 words, as those of Flickr8k. Each measure runs in a fresh
process, so its peak of memory is its own. The plain side computes the features again in every epoch, where the library
reads them from disk; it pads every caption to the longest of the batch and reads word after word. Source of the sizes:
arXiv 2307.13421, experiments on MSCOCO: 196 regions, batch 100, additive attention 256, LSTM and embedding 512.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import in_fresh_process, peak_memory, report, row, seconds, table
from fcamlib.captioning.decoding import Reading, greedy, read
from fcamlib.captioning.losses import cross_entropy, real_words, reinforce_loss, rewards
from fcamlib.captioning.model import Captioner, Context
from fcamlib.config import CaptionModel
from fcamlib.data.features import ENCODERS
from fcamlib.numerics import PLAIN, reproducible

__all__ = ["benchmark", "table"]
NUM_REGIONS, REGION_DIM, NUM_WORDS, BATCH, FEATURE_BATCH = 196, 672, 2_216, 100, 8
SHORTEST, LONGEST = 6, 15  # words of a caption
FEATURES = "features of EfficientNet-Lite0"
TITLES = {
    FEATURES: f"features of EfficientNet-Lite0, {FEATURE_BATCH} pictures",
    "greedy": f"greedy captions, {BATCH} pictures",
    "soft": f"training step, {BATCH} captions, soft",
    "hard": f"training step, {BATCH} captions, hard",
}


def benchmark(repeats: int, threads: int, quick: bool = False, **ignored: Any) -> dict[str, Any]:
    """Every row, for `benchmarks.report`; on the CPU."""
    rows = []
    for name, title in TITLES.items():
        if not (quick and name == FEATURES):
            found = in_fresh_process(measure, name, False, repeats, threads)
            plain = in_fresh_process(measure, name, True, repeats, threads) if name != "greedy" else ([], [])
            rows.append(row(title, "s", found[0], plain[0]))
            rows.append(row(f"peak memory, {title}", "MB", found[1], plain[1]))
    how = (
        f"{NUM_REGIONS} regions of {REGION_DIM} numbers, attention 256, LSTM and embedding 512, {NUM_WORDS:,} words, "
        f"captions of {SHORTEST} to {LONGEST} words; float32, threads: {threads}, wall time; median of {repeats} steps "
        "(least to greatest) after one that is not timed; plain: features computed again, padded batches, read word by "
        "word"
    )
    return report("seconds and peak memory of captioning at the paper's sizes", how, PLAIN, rows)


def measure(name: str, is_plain: bool, repeats: int, threads: int) -> tuple[list[float], list[float]]:
    """Seconds of each step, and by how many MB a step raises the peak of memory."""
    with reproducible(threads):
        step, before = step_of(name, is_plain), peak_memory()
        step()
        grown = peak_memory() - before
        return [seconds(step) for _ in range(repeats)], [max(grown, 1.0)] * repeats


def step_of(name: str, is_plain: bool) -> Callable[[], Any]:
    """The step that is timed, on random input made beforehand."""
    generator = torch.Generator().manual_seed(0)
    if name == FEATURES and not is_plain:
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            np.save(file.name, np.ones((FEATURE_BATCH, NUM_REGIONS, REGION_DIM), dtype=np.float16))
            kept = np.load(file.name, mmap_mode="r")
        return lambda: torch.from_numpy(np.array(kept)).float()
    if name == FEATURES:
        encoder = ENCODERS["efficientnet-lite0"]("")
        pictures = torch.randint(256, (FEATURE_BATCH, 224, 224, 3), generator=generator, dtype=torch.uint8)
        network = encoder.module.eval().to(memory_format=torch.channels_last)
        return torch.inference_mode()(lambda: network(encoder.prepare(pictures)))
    model = Captioner(CaptionModel(), (NUM_REGIONS, REGION_DIM), NUM_WORDS, generator)
    regions = torch.rand(BATCH, NUM_REGIONS, REGION_DIM, generator=generator)
    if name == "greedy":
        with torch.no_grad():
            model.output.bias[2] = -1e4  # no caption ends early
        names = torch.zeros(NUM_WORDS, 80)
        return torch.inference_mode()(lambda: greedy(model, model.regions(regions), "soft", LONGEST, names))
    tokens, optimizer = random_captions(BATCH), torch.optim.Adam(model.parameters())

    def train() -> None:
        loss = step_loss(name, is_plain, model, regions, tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return train


def random_captions(batch: int) -> Tensor:
    """Captions of all lengths: <start>, words, <end>, padding."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, NUM_WORDS, (batch, LONGEST + 2), generator=generator)
    end = torch.randint(SHORTEST, LONGEST + 1, (batch, 1), generator=generator) + 1
    place = torch.arange(LONGEST + 2)
    tokens = tokens.masked_fill(place > end, 0).masked_fill(place == end, 2)
    tokens[:, 0] = 1
    return tokens


def step_loss(name: str, is_plain: bool, model: Captioner, regions: Tensor, tokens: Tensor) -> Tensor:
    """The loss of one batch, packed as training computes it or by a plain loop."""
    real, place = real_words(tokens), torch.arange(len(tokens))
    quantiles = torch.rand(real.shape, generator=torch.Generator().manual_seed(0))
    context: Context = "soft" if name == "soft" else "drawn"
    # Told at every word that the word before is the caption's own, `read` goes word after word.
    given = torch.ones_like(real) if is_plain else None
    found: Reading = read(model, model.regions(regions), place, tokens, context, quantiles, given)
    if found.places is None:
        return cross_entropy(found.words, real)
    return reinforce_loss(found.words, found.places, rewards(found.words, "caption"), torch.zeros(real.shape[1]), real)

"""Captioning at the paper's sizes: features, greedy decoding and training steps, and the memory that each takes.

Regions and captions are random; captions have 6 to 15 words, as those of Flickr8k. Each measure runs in a fresh
process. The plain side computes the features again in every epoch, where the library reads them from disk; it pads each
caption to the batch's longest and reads word after word. Source of the sizes: arXiv 2307.13421, experiments on MSCOCO.
"""

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import in_fresh_process, peak_memory, row, seconds
from fcamlib.captioning.decoding import cross_entropy, greedy, read, real_words, reinforce_loss, rewards
from fcamlib.captioning.model import Captioner
from fcamlib.config import CaptionModel
from fcamlib.data.features import ENCODERS
from fcamlib.numerics import reproducible

NUM_REGIONS, REGION_DIM, NUM_WORDS, BATCH, FEATURE_BATCH = 196, 672, 2_216, 100, 8
SHORTEST, LONGEST = 6, 15  # words of a caption
TITLES = {
    "features": f"features of EfficientNet-Lite0, {FEATURE_BATCH} pictures",
    "greedy": f"greedy captions, {BATCH} pictures",
    "soft": f"training step, {BATCH} captions, soft",
    "hard": f"training step, {BATCH} captions, hard",
}


def benchmark(repeats: int, threads: int, quick: bool, **ignored: Any) -> dict[str, Any]:
    """Every row; on the CPU."""
    rows = []
    for name in list(TITLES)[quick:]:
        found = in_fresh_process(measured, name, False, repeats, threads)
        plain = in_fresh_process(measured, name, True, repeats, threads) if name != "greedy" else ([], [])
        rows.append(row(TITLES[name], "s", found[0], plain[0]))
        rows.append(row(f"peak memory, {TITLES[name]}", "MB", found[1], plain[1]))
    how = (
        f"{NUM_REGIONS} regions of {REGION_DIM} numbers, attention 256, LSTM and embedding 512, {NUM_WORDS:,} words, "
        f"captions of {SHORTEST} to {LONGEST} words; float32, steps after one not timed; plain: features computed "
        "again, padded batches, read word by word"
    )
    return {"what": "seconds and peak memory of captioning at the paper's sizes", "how": how, "rows": rows}


def measured(name: str, is_plain: bool, repeats: int, threads: int) -> tuple[list[float], list[float]]:
    """Seconds of each step, and by how many MB a step raises the peak of memory."""
    with reproducible(threads):
        step, before = step_of(name, is_plain), peak_memory()
        step()
        grown = peak_memory() - before
        return [seconds(step) for _ in range(repeats)], [max(grown, 1.0)] * repeats


def step_of(name: str, is_plain: bool) -> Callable[[], Any]:
    """The step that is timed, on random input made beforehand."""
    generator = torch.Generator().manual_seed(0)
    if name == "features" and not is_plain:
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            np.save(file.name, np.ones((FEATURE_BATCH, NUM_REGIONS, REGION_DIM), dtype=np.float16))
            kept = np.load(file.name, mmap_mode="r")
        return lambda: torch.from_numpy(np.array(kept)).float()
    if name == "features":
        encoder = ENCODERS["efficientnet-lite0"]("")
        pictures = torch.randint(256, (FEATURE_BATCH, 224, 224, 3), generator=generator, dtype=torch.uint8)
        network = encoder.module.eval().to(memory_format=torch.channels_last)
        return torch.inference_mode()(lambda: network(encoder.prepare(pictures)))
    model = Captioner(CaptionModel(), (NUM_REGIONS, REGION_DIM), NUM_WORDS, generator)
    regions = torch.rand(BATCH, NUM_REGIONS, REGION_DIM, generator=generator)
    if name == "greedy":
        torch.nn.init.constant_(model.output.bias[2], -1e4)  # no caption ends early
        categories = torch.zeros(NUM_WORDS, 80)
        return torch.inference_mode()(lambda: greedy(model, model.regions(regions), "soft", LONGEST, categories))
    tokens, optimizer = random_captions(BATCH), torch.optim.Adam(model.parameters())

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        step_loss(name, is_plain, model, regions, tokens).backward()
        optimizer.step()

    return train


def random_captions(batch: int) -> Tensor:
    """Captions of all lengths: <start>, words, <end>, padding."""
    draws = np.random.default_rng(0)
    lengths = draws.integers(SHORTEST, LONGEST + 1, batch)
    captions = [torch.tensor([1, *draws.integers(4, NUM_WORDS, length), 2]) for length in lengths]
    return torch.nn.utils.rnn.pad_sequence(captions, batch_first=True)


def step_loss(name: str, is_plain: bool, model: Captioner, regions: Tensor, tokens: Tensor) -> Tensor:
    """The loss of one batch, packed as training computes it or by a plain loop."""
    real, place = real_words(tokens), torch.arange(len(tokens))
    quantiles = torch.rand(real.shape, generator=torch.Generator().manual_seed(0))
    # Told at every word that the word before is the caption's own, `read` goes word after word.
    given = torch.ones_like(real) if is_plain else None
    found = read(model, model.regions(regions), place, tokens, "soft" if name == "soft" else "drawn", quantiles, given)
    if found.places is None:
        return cross_entropy(found.words, real)
    return reinforce_loss(found.words, found.places, rewards(found.words, "caption"), torch.zeros(real.shape[1]), real)

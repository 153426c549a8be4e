"""A training epoch on text beside plain padded passes: the same posts and weights, batches taken in turn.

Random posts have HateXplain's number, lengths and vocabulary. A plain side sends every place of a batch, padding
included, through the embedding, the focus network and, for HA and LVML, the classification network; the library sends
each distinct word of the batch once. One plain side pads to the longest post of all, the other to the batch's longest.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks import plain
from benchmarks.report import Row, report, row, table
from fcamlib.data.sdc import Bank, SDCData, SDCTask, distinct
from fcamlib.encoders import build_encoder
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import PLAIN, reproducible
from fcamlib.paradigms import PAPER

__all__ = ["benchmark", "table"]
NUM_POSTS, NUM_WORDS, NUM_CLASSES = 15_383, 24_991, 3  # of HateXplain's training posts
MEAN_LENGTH, SIGMA_LENGTH, LONGEST = 23.5, 0.6, 165
BATCH_SIZE, RATE, AIM = 256, 0.1, 5.0
Loss = Callable[[FCAM, SDCData, str], Tensor]


def benchmark(repeats: int, threads: int, quick: bool = False, **ignored: Any) -> dict[str, Any]:
    """Every row, for `benchmarks.report`."""
    posts, rows = random_posts(), list[Row]()
    steps = 3 if quick else NUM_POSTS // BATCH_SIZE
    with reproducible(threads):
        for paradigm in PAPER:
            times = [epoch(posts, paradigm, steps) for _ in range(repeats)]
            everywhere, batchwise, library = ([t[side] for t in times] for side in ("set", "batch", "library"))
            rows.append(row(f"padded to the longest post, {paradigm}", "s", library, everywhere, AIM))
            rows.append(row(f"padded to the batch's longest, {paradigm}", "s", library, batchwise))
    how = (
        f"{NUM_POSTS:,} random posts of HateXplain's lengths, {NUM_WORDS:,} words, batches of {BATCH_SIZE}, float32, "
        f"threads: {threads}, wall time; {steps} steps, each taken by all sides in turn; median of {repeats} (least to "
        "greatest)"
    )
    what = "seconds of training steps of the simple text model; ratios are plain over fcamlib"
    return report(what, how, PLAIN, rows)


def epoch(posts: SDCTask, paradigm: str, steps: int) -> dict[str, float]:
    """Seconds of `steps` training steps on each side."""
    data, model = posts.splits["train"], simple_model(posts)
    sides: dict[str, Loss] = {"set": plain_loss, "batch": plain_loss, "library": library_loss}
    models = {side: copy.deepcopy(model) for side in sides}
    optimizers = {side: torch.optim.SGD(m.parameters(), lr=RATE, momentum=0.9) for side, m in models.items()}
    elapsed = dict.fromkeys(sides, 0.0)
    for index in torch.from_numpy(np.random.default_rng(0).permutation(len(data))).split(BATCH_SIZE)[:steps]:
        for side, loss_of in sides.items():
            began = time.perf_counter()
            batch = data.take(index)
            loss = loss_of(models[side], batch if side == "set" else batch.trimmed(), paradigm)
            optimizers[side].zero_grad(set_to_none=True)
            loss.backward()
            optimizers[side].step()
            elapsed[side] += time.perf_counter() - began
    return elapsed


def plain_loss(model: FCAM, data: SDCData, paradigm: str) -> Float[Tensor, ""]:
    """The loss of a batch, every place evaluated."""
    mask = torch.ones_like(data.foreground) if data.mask is None else data.mask
    batch, num_segments = mask.shape
    words = data.bank.values[data.segments.long()]
    vectors = words if model.encoder is None else model.encoder(words)  # (B, M, D)
    flat = vectors.flatten(0, 1)  # (B M, D)
    log_alpha = model.focus_model(flat).view(batch, num_segments).masked_fill(~mask, -torch.inf).log_softmax(dim=1)
    if paradigm == "soft":
        mixture = (log_alpha.exp()[..., None] * vectors).sum(dim=1)  # (B, D)
        probability = model.classification_model(mixture).softmax(dim=-1)[:, None]
    else:
        probability = model.classification_model(flat).view(batch, num_segments, -1).softmax(dim=-1)  # (B, M, K)
    return plain.loss(log_alpha.exp(), probability, data.label, paradigm).mean()


def library_loss(model: FCAM, data: SDCData, paradigm: str) -> Float[Tensor, ""]:
    """The loss of a batch as training computes it."""
    rows, places = distinct(data.segments)
    segments = data.bank.rows(rows, next(model.parameters()).dtype)
    return model(segments, places, paradigm, data.mask).loss(paradigm, data.label)


def random_posts(seed: int = 0) -> SDCTask:
    """Posts of HateXplain's number, lengths and vocabulary, their words drawn by Zipf's law."""
    generator = np.random.default_rng(seed)
    drawn = generator.lognormal(np.log(MEAN_LENGTH) - SIGMA_LENGTH**2 / 2, SIGMA_LENGTH, NUM_POSTS)
    length = np.clip(drawn.round().astype(int), 2, LONGEST)
    frequency = 1.0 / np.arange(1, NUM_WORDS + 1)
    shape = (NUM_POSTS, int(length.max()))
    words = 1 + generator.choice(NUM_WORDS, size=shape, p=frequency / frequency.sum()).astype(np.int32)
    mask = torch.from_numpy(np.arange(shape[1]) < length[:, None])
    label = torch.from_numpy(generator.integers(NUM_CLASSES, size=NUM_POSTS))
    bank = Bank(torch.arange(NUM_WORDS + 1), words=True)
    data = SDCData(bank, torch.from_numpy(words) * mask, label, torch.zeros(shape, dtype=torch.bool), mask)
    return SDCTask({"train": data}, tuple("abc"), "random posts")


def simple_model(posts: SDCTask, seed: int = 0, dtype: torch.dtype = torch.float32) -> FCAM:
    """The paper's simple text model: an embedding, then dense focus and classification networks."""
    generator = torch.Generator().manual_seed(seed)
    encoder, shape = build_encoder("embedding", posts, generator, dtype)
    focus = focus_network("text200", shape, generator, dtype)
    return FCAM(focus, classification_network("text200", shape, len(posts.class_names), generator, dtype), encoder)

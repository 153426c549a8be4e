"""A training epoch on text beside plain padded passes: the same posts and weights, epochs taken in turn.

A plain side sends every place of a batch, padding included, through the embedding, the focus network and, for HA and
LVML, the classification network; the library sends each distinct word of the batch once.
"""

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.pictures import plain_loss
from benchmarks.report import compared, seconds
from fcamlib.cost import output
from fcamlib.data.sdc import Bank, SDCData, SDCTask
from fcamlib.fcam import FCAM
from fcamlib.networks import build_encoder, classification_network, focus_network
from fcamlib.numerics import reproducible
from fcamlib.paradigms import PAPER

NUM_POSTS, NUM_WORDS, NUM_CLASSES = 15_383, 24_991, 3  # of HateXplain's training posts
MEAN_LENGTH, SIGMA_LENGTH, LONGEST = 23.5, 0.6, 165
BATCH_SIZE, RATE = 256, 0.1
AIMS = {"padded to the longest post": 5.0, "padded to the batch's longest": None}


def benchmark(repeats: int, threads: int, quick: bool, **ignored: Any) -> dict[str, Any]:
    """Every row."""
    posts, rows, steps = random_posts(), [], 3 if quick else NUM_POSTS // BATCH_SIZE
    with reproducible(threads):
        for paradigm, (side, aim) in product(PAPER, AIMS.items()):
            measure = partial(epoch, posts, paradigm, steps, side == "padded to the longest post")
            rows.append(compared(f"{side}, {paradigm}", measure, repeats, aim))
    how = f"{NUM_POSTS:,} random posts of HateXplain's lengths, {NUM_WORDS:,} words, {steps} steps, float32"
    return {"what": "seconds of training steps of the simple text model", "how": how, "rows": rows}


def epoch(posts: SDCTask, paradigm: str, steps: int, is_longest: bool, is_plain: bool) -> float:
    """Seconds of `steps` training steps on one side, padded to the longest post of all or of the batch."""
    model, data = simple_model(posts), posts.splits["train"]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)

    def train() -> None:
        for index in torch.from_numpy(np.random.default_rng(0).permutation(NUM_POSTS)).split(BATCH_SIZE)[:steps]:
            batch = data.take(index) if is_plain and is_longest else data.take(index).trimmed()
            optimizer.zero_grad(set_to_none=True)
            if is_plain:
                padded_loss(model, batch, paradigm).backward()
            else:
                output("bank", model, batch, paradigm).loss(paradigm, batch.label).backward()
            optimizer.step()

    return seconds(train)


def padded_loss(model: FCAM, data: SDCData, paradigm: str) -> Float[Tensor, ""]:
    """The loss of a batch, every place evaluated."""
    assert model.encoder is not None and data.mask is not None
    vectors = model.encoder(data.bank.values[data.segments.long()])  # (B, M, D)
    scores = model.focus_model(vectors.flatten(0, 1)).view(data.mask.shape).masked_fill(~data.mask, -torch.inf)
    alpha = scores.softmax(dim=1)  # (B, M)
    classified = (alpha[..., None] * vectors).sum(dim=1, keepdim=True) if paradigm == "soft" else vectors
    logits = model.classification_model(classified.flatten(0, 1))
    return plain_loss(alpha, logits.view(*classified.shape[:2], -1).softmax(dim=-1), data.label, paradigm).mean()


def random_posts() -> SDCTask:
    """Posts of HateXplain's number, lengths and vocabulary, their words drawn by Zipf's law."""
    generator = np.random.default_rng(0)
    drawn = generator.lognormal(np.log(MEAN_LENGTH) - SIGMA_LENGTH**2 / 2, SIGMA_LENGTH, NUM_POSTS)
    length = np.clip(drawn.round().astype(int), 2, LONGEST)
    frequency, shape = 1.0 / np.arange(1, NUM_WORDS + 1), (NUM_POSTS, int(length.max()))
    words = 1 + generator.choice(NUM_WORDS, size=shape, p=frequency / frequency.sum()).astype(np.int32)
    mask = torch.from_numpy(np.arange(shape[1]) < length[:, None])
    label = torch.arange(NUM_POSTS) % NUM_CLASSES
    bank = Bank(torch.arange(NUM_WORDS + 1), words=True)
    data = SDCData(bank, torch.from_numpy(words) * mask, label, torch.zeros(shape, dtype=torch.bool), mask)
    return SDCTask({"train": data}, tuple("abc"), "random posts")


def simple_model(posts: SDCTask, dtype: torch.dtype = torch.float32) -> FCAM:
    """The paper's simple text model: an embedding, then dense focus and classification networks."""
    generator = torch.Generator().manual_seed(0)
    encoder, shape = build_encoder("embedding", posts, generator, dtype)
    focus = focus_network("text200", shape, generator, dtype)
    return FCAM(focus, classification_network("text200", shape, NUM_CLASSES, generator, dtype), encoder)

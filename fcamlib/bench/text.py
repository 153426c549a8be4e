"""Time of one training epoch on text against plain padded passes: same posts, same weights, in one run.

`python -m fcamlib.bench.text --dataset hatexplain` measures on HateXplain; without a data set, on random posts of the
same number, lengths and vocabulary. A plain side sends every place of a batch, padding included, through the
embedding, the focus network and, for HA and LVML, the classification network; the library sends each distinct word of
the batch once.

| side     | places of a batch                                        |
|----------|----------------------------------------------------------|
| set      | as many as the longest post of the set has               |
| batch    | as many as the longest post of the batch has             |
| library  | as many as the longest post of the batch has; each word evaluated once |

Every side has its own copy of one model and takes the same batches, in turn, so that whatever else the machine does
meets all of them. Axes: B batch, M segments, K classes, D features.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from fcamlib.bench.results import write_text
from fcamlib.computing import task
from fcamlib.config import experiment
from fcamlib.data.posts import Post
from fcamlib.data.sdc import SDCData, SDCTask, distinct
from fcamlib.data.text import as_segments, word_bank
from fcamlib.encoders import build_encoder
from fcamlib.fcam import FCAM
from fcamlib.heap import keep_freed_memory
from fcamlib.losses import hard_attention_loss, lvml_loss, soft_attention_loss
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import PLAIN, reproducible
from fcamlib.provenance import provenance

NUM_POSTS, NUM_WORDS, NUM_CLASSES = 15_383, 24_991, 3  # of HateXplain's training posts
MEAN_LENGTH, SIGMA_LENGTH, LONGEST = 23.5, 0.6, 165
BATCH_SIZE = 256
PARADIGMS = ("soft", "hard", "lvml")
Loss = Callable[[FCAM, SDCData, str], Tensor]


@dataclass(frozen=True)
class EpochTime:
    """Seconds of an epoch on each side; `loss_difference` is the largest between sides over all steps, in nats."""

    paradigm: str
    set: float
    batch: float
    library: float
    loss_difference: float


def plain_loss(model: FCAM, data: SDCData, paradigm: str) -> Float[Tensor, ""]:
    """The loss of a batch, every place evaluated. Source of the losses: arXiv 2307.13421, sec. 2."""
    mask = torch.ones_like(data.foreground) if data.mask is None else data.mask
    batch, num_segments = mask.shape
    words = data.bank.values[data.segments.long()]
    vectors = words if model.encoder is None else model.encoder(words)  # (B, M, D)
    flat = vectors.flatten(0, 1)  # (B M, D)
    log_alpha = model.focus_model(flat).view(batch, num_segments).masked_fill(~mask, -torch.inf).log_softmax(dim=1)
    if paradigm == "soft":
        mixture = (log_alpha.exp()[..., None] * vectors).sum(dim=1)  # (B, D)
        return soft_attention_loss(model.classification_model(mixture), data.label)
    log_prob = model.classification_model(flat).view(batch, num_segments, -1).log_softmax(dim=-1)  # (B, M, K)
    index = data.label[:, None, None].expand(batch, num_segments, 1)
    loss = hard_attention_loss if paradigm == "hard" else lvml_loss
    return loss(log_alpha, log_prob.gather(2, index).squeeze(2), mask=mask)


def library_loss(model: FCAM, data: SDCData, paradigm: str) -> Float[Tensor, ""]:
    """The loss of a batch as training computes it."""
    rows, places = distinct(data.segments)
    segments = data.bank.rows(rows, next(model.parameters()).dtype)
    return model(segments, places, paradigm, data.mask).loss(paradigm, data.label)


def random_posts(seed: int = 0) -> SDCTask:
    """Posts of HateXplain's number, lengths and vocabulary, their words drawn by Zipf's law."""
    generator = np.random.default_rng(seed)
    drawn = generator.lognormal(np.log(MEAN_LENGTH) - SIGMA_LENGTH**2 / 2, SIGMA_LENGTH, NUM_POSTS)
    lengths = np.clip(drawn.round().astype(int), 2, LONGEST)
    frequency = 1.0 / np.arange(1, NUM_WORDS + 1)
    words = generator.choice(NUM_WORDS, size=int(lengths.sum()), p=frequency / frequency.sum()).astype(str)
    labels = generator.integers(NUM_CLASSES, size=NUM_POSTS).tolist()
    parts = np.split(words, np.cumsum(lengths)[:-1])
    posts = [Post(tuple(part.tolist()), label) for part, label in zip(parts, labels, strict=True)]
    vocabulary = {str(word): word + 1 for word in range(NUM_WORDS)}
    data = as_segments(posts, vocabulary, word_bank(vocabulary))
    return SDCTask({"train": data}, tuple("abc"), "random posts")


def simple_model(posts: SDCTask, seed: int = 0, dtype: torch.dtype = torch.float32) -> FCAM:
    """The paper's simple variant for text: an embedding, then dense focus and classification networks."""
    generator = torch.Generator().manual_seed(seed)
    encoder, shape = build_encoder("embedding", posts, generator, dtype)
    focus = focus_network("text200", shape, generator, dtype)
    return FCAM(focus, classification_network("text200", shape, len(posts.class_names), generator, dtype), encoder)


def measure(
    posts: SDCTask, paradigm: str, learning_rate: float = 0.1, steps: int | None = None, seed: int = 0
) -> EpochTime:
    """Time an epoch, or `steps` of its batches scaled up to one, on all sides in turn."""
    data = posts.splits["train"]
    batches = torch.from_numpy(np.random.default_rng(seed).permutation(len(data))).split(BATCH_SIZE)
    sides: dict[str, Loss] = {"set": plain_loss, "batch": plain_loss, "library": library_loss}
    model = simple_model(posts, seed)
    models = {side: copy.deepcopy(model) for side in sides}
    optimizers = {
        side: torch.optim.SGD(copied.parameters(), lr=learning_rate, momentum=0.9) for side, copied in models.items()
    }
    seconds, difference = dict.fromkeys(sides, 0.0), 0.0
    for index in batches[:steps]:
        losses = {}
        for side, loss_of in sides.items():
            began = time.perf_counter()
            batch = data.take(index)
            loss = loss_of(models[side], batch if side == "set" else batch.trimmed(), paradigm)
            optimizers[side].zero_grad(set_to_none=True)
            loss.backward()
            optimizers[side].step()
            seconds[side] += time.perf_counter() - began
            losses[side] = loss.item()
        difference = max(difference, max(losses.values()) - min(losses.values()))
    scale = len(batches) / len(batches[:steps])
    return EpochTime(paradigm, **{side: value * scale for side, value in seconds.items()}, loss_difference=difference)


def table(times: list[EpochTime]) -> pd.DataFrame:
    """The measures as people read them; ratios are plain over library."""
    return pd.DataFrame(
        {
            "paradigm": t.paradigm,
            "padded to the set's longest": f"{t.set:.1f} s",
            "to the batch's": f"{t.batch:.1f} s",
            "fcamlib": f"{t.library:.1f} s",
            "ratios": f"{t.set / t.library:.1f}, {t.batch / t.library:.1f}",
            "loss difference": f"{t.loss_difference:.0e}",
        }
        for t in times
    )


@click.command()
@click.option("--dataset", default="", help="hatexplain, hatexplain:PATH or text:PATH; default random posts")
@click.option("--steps", type=click.IntRange(1), help="measure this many steps and scale up; default all")
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="CPU threads")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="write everything to FILE")  # fmt: skip
def main(dataset: str, steps: int | None, threads: int, json_path: Path | None) -> None:
    """Time one training epoch of the simple text variant against plain padded passes."""
    keep_freed_memory()
    posts = random_posts()
    if dataset:
        config = experiment({"dataset": dataset}).configs()[0]
        posts = task(config.data, config.seed)
    with reproducible(threads):
        times = [measure(posts, paradigm, steps=steps) for paradigm in PARADIGMS]
    train = posts.splits["train"]
    click.echo(f"{posts.title}: {len(train):,} posts, {len(posts.bank.values):,} words, at most {train.num_segments}")
    click.echo(table(times).to_string(index=False))
    if json_path is not None:
        content = {
            "what": "seconds of one training epoch of the simple text variant; ratios are plain over library",
            "how": (
                f"{posts.title}, {len(train):,} posts, batches of {BATCH_SIZE}, float32, threads: {threads}; "
                f"three sides take each batch in turn, {f'{steps} steps scaled up' if steps else 'a whole epoch'}, once"
            ),
            "provenance": provenance(PLAIN),
            "rows": [asdict(measured) for measured in times],
        }
        write_text(json_path, json.dumps(content, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()

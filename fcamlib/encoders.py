"""Encoders by name: they turn segments into the vectors that focus and classification models see.

A context-free encoder maps single segments, (N, ...) -> (N, D), and is called once per distinct segment of a batch.
Any other is called as `encoder(segments, mask)` on whole instances, (B, M, ...) -> (B, M, D). Initial weights are
drawn from the given generator. Axes: B batch, M segments, N distinct segments, D features.
Source: arXiv 2307.13421, experiments on HateXplain.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from fcamlib.data.sdc import Bank, SDCTask
from fcamlib.data.text import UNKNOWN
from fcamlib.errors import UserError

EMBEDDING_DIM = 100  # features of a word
NUM_HEADS = 2  # of size 50 each
WAVELENGTH = 10_000.0  # of the slowest sinusoid, over 2 pi


class Embedding(nn.Module):
    """One vector per word, (N,) -> (N, D), initially standard normal; the vector of unknown words starts at zero."""

    context_free = True
    segment_shape = (EMBEDDING_DIM,)

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(num_words, EMBEDDING_DIM)

    def reset(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.words.weight, generator=generator)
        with torch.no_grad():
            self.words.weight[UNKNOWN] = 0.0

    def forward(self, segments: Int[Tensor, ...]) -> Float[Tensor, "... D"]:
        return self.words(segments)


class Transformer(nn.Module):
    r"""Word vectors with positions, then one self-attention layer of two heads with a residual.

    $$h = e + p, \qquad \mathrm{out} = h + \mathrm{MultiHead}(h, h, h)$$

    Positions $p$ are sinusoids along the token axis, and padding is masked. The public scripts instead add positions
    along the batch axis and repeat the padding mask in the wrong order.
    """

    context_free = False
    segment_shape = (EMBEDDING_DIM,)

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.embedding = Embedding(num_words)
        self.attention = nn.MultiheadAttention(EMBEDDING_DIM, NUM_HEADS, batch_first=True)

    def reset(self, generator: torch.Generator) -> None:
        self.embedding.reset(generator)
        nn.init.xavier_uniform_(self.attention.in_proj_weight, generator=generator)
        nn.init.xavier_uniform_(self.attention.out_proj.weight, generator=generator)
        nn.init.zeros_(self.attention.in_proj_bias)
        nn.init.zeros_(self.attention.out_proj.bias)

    def forward(self, segments: Int[Tensor, ...], mask: Bool[Tensor, "B M"] | None = None) -> Float[Tensor, "B M D"]:
        words = self.embedding(segments)
        vectors = words + positions(segments.shape[1], EMBEDDING_DIM).to(words)  # (B, M, D)
        ignored = None if mask is None else ~mask
        attended, _ = self.attention(vectors, vectors, vectors, key_padding_mask=ignored, need_weights=False)
        return vectors + attended


def positions(num_places: int, num_features: int) -> Float[Tensor, "M D"]:
    r"""Sinusoids: feature 2i is $\sin(j / 10000^{2i/D})$, feature 2i + 1 the cosine, at place j from 0; D is even.

    Source: Vaswani et al., Attention Is All You Need, sec. 3.5.
    """
    place = torch.arange(num_places, dtype=torch.float64)[:, None]
    angle = place / WAVELENGTH ** (torch.arange(0, num_features, 2, dtype=torch.float64) / num_features)  # (M, D / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class FeatureMLP(nn.Sequential):
    """Two dense layers with ReLU, for vectors or anything that flattens to one: (N, ...) -> (N, 64)."""

    context_free = True
    segment_shape = (64,)

    def __init__(self, num_features: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(num_features, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())

    def reset(self, generator: torch.Generator) -> None:
        for layer in self:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight, generator=generator)
                nn.init.zeros_(layer.bias)


ENCODERS: dict[str, Callable[[Bank], Embedding | Transformer | FeatureMLP]] = {
    "embedding": lambda bank: Embedding(len(bank.values)),
    "transformer": lambda bank: Transformer(len(bank.values)),
    "mlp": lambda bank: FeatureMLP(prod(bank.segment_shape)),
}


def build_encoder(
    name: str, task: SDCTask, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, tuple[int, ...]]:
    """Encoder `name` of `ENCODERS` for the segments of `task`, and the shape of its output for one segment."""
    if name not in ENCODERS:
        raise UserError(f"encoder={name!r} is unknown: choose one of {', '.join(ENCODERS)}.")
    if task.bank.words == (name == "mlp"):
        needs, has = ("numbers", "words") if name == "mlp" else ("words", "none")
        raise UserError(f"encoder={name!r} needs {needs}, but this dataset has {has}: leave encoder out.")
    with torch.device("meta"):  # the constructors' own initial values would draw from the global generator
        encoder = ENCODERS[name](task.bank)
    encoder.to(dtype).to_empty(device="cpu")
    encoder.reset(generator)
    return encoder, encoder.segment_shape

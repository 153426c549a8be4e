"""Networks of the paper's experiments on text: dense, with one hidden layer, on a word's vector.

Input size is the encoder's, 100 in the paper. Focus networks map (N, D) to scores (N,), classification networks to
class logits (N, K). Source: arXiv 2307.13421, experiments on HateXplain (fc 100-200-1 and 100-50-1, fc 100-200-3).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from torch import nn

Shape = tuple[int, ...]


def _dense(shape: Shape, hidden_dim: int, out_dim: int) -> list[nn.Module]:
    return [nn.Linear(prod(shape), hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim)]


TEXT_FOCUS: dict[str, Callable[[Shape], list[nn.Module]]] = {
    "text200": lambda shape: [*_dense(shape, 200, 1), nn.Flatten(0)],
    "text50": lambda shape: [*_dense(shape, 50, 1), nn.Flatten(0)],
}
TEXT_CLASSIFIERS: dict[str, Callable[[Shape, int], list[nn.Module]]] = {
    "text200": lambda shape, num_classes: _dense(shape, 200, num_classes),
}

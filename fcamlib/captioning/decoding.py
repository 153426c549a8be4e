"""Greedy captions of pictures, in batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fcamlib.captioning.model import Captioner, Context, Regions
from fcamlib.data.vocabulary import END, PAD, START


@dataclass(frozen=True)
class Greedy:
    """Greedy captions, with the attention of each of their words.

    Parameters
    ----------
    tokens : (B, T) int
        Words, then <end> if the caption ends within T words, then <pad>.
    alpha : (B, T, L) float
        Attention weights; they sum to 1 over the regions, also behind the end.
    category_prob : (B, T, C) float
        Probability that the word names each category: the sum over the words that do.
    real : (B, T) bool
        True up to <end>, which is included.
    """

    tokens: Int[Tensor, "B T"]
    alpha: Float[Tensor, "B T L"]
    category_prob: Float[Tensor, "B T C"]
    real: Bool[Tensor, "B T"]


def greedy(model: Captioner, regions: Regions, context: Context, max_words: int, names: Float[Tensor, "V C"]) -> Greedy:
    """The most probable next word, one after the other, until <end> or `max_words` words, <end> not counted.

    `regions` has one picture a row; `context` is "soft" or "mode"; `names` is 1 where a word names a category.
    """
    batch, device = len(regions.values), regions.values.device
    state, word = model.start(regions.values), torch.full((batch,), START, device=device)
    ended = torch.zeros(batch, dtype=torch.bool, device=device)
    tokens, alphas, categories, reals = [], [], [], []
    for _ in range(max_words):
        log_prob, log_alpha, _, state = model.step(regions, state, word, context)
        word = sayable(log_prob).argmax(dim=1).masked_fill(ended, PAD)
        tokens.append(word)
        alphas.append(log_alpha.exp())
        categories.append(log_prob.exp() @ names)
        reals.append(~ended)
        ended = ended | (word == END)
        if bool(ended.all()):
            break
    return Greedy(*(torch.stack(values, dim=1) for values in (tokens, alphas, categories, reals)))


def sayable(log_prob: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """Rule out <pad> and <start>, which are no words."""
    ruled_out = torch.zeros_like(log_prob[0])
    ruled_out[[PAD, START]] = -torch.inf
    return log_prob + ruled_out

"""Captions of pictures: greedy, and by beam search; both in batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fcamlib.captioning.model import Captioner, Context, Regions
from fcamlib.data.vocabulary import END, PAD, START


@dataclass(frozen=True)
class Greedy:
    """Greedy captions, with what attention did at each of their words.

    Parameters
    ----------
    tokens : (B, T) int
        Words, then <end> if the caption ends within T words, then <pad>.
    log_prob : (B,) float
        Log probability of the caption, its <end> included.
    alpha : (B, T, L) float
        Attention weights; they sum to 1 over the regions, also behind the end.
    category_prob : (B, T, C) float
        Probability that the word names each category: the sum over the words that do.
    real : (B, T) bool
        True up to <end>, which is included.
    """

    tokens: Int[Tensor, "B T"]
    log_prob: Float[Tensor, " B"]
    alpha: Float[Tensor, "B T L"]
    category_prob: Float[Tensor, "B T C"]
    real: Bool[Tensor, "B T"]


def greedy(model: Captioner, regions: Regions, context: Context, max_words: int, names: Float[Tensor, "V C"]) -> Greedy:
    """The most probable next word, one after the other, until <end> or `max_words` words.

    Parameters
    ----------
    model : Captioner
    regions : Regions
        One picture's a row.
    context : "soft" or "mode"
    max_words : int
        <end> is not counted, and not asked for after the last word.
    names : (V, C) float
        1 where a word names a category.
    """
    batch, device = len(regions.values), regions.values.device
    state, word = model.start(regions.values), torch.full((batch,), START, device=device)
    ended = torch.zeros(batch, dtype=torch.bool, device=device)
    score = regions.values.new_zeros(batch)
    tokens, alphas, categories, reals = [], [], [], []
    for _ in range(max_words):
        log_prob, log_alpha, _, state = model.step(regions, state, word, context)
        best, word = sayable(log_prob).max(dim=1)
        score = score + best.masked_fill(ended, 0.0)
        word = word.masked_fill(ended, PAD)
        tokens.append(word)
        alphas.append(log_alpha.exp())
        categories.append(log_prob.exp() @ names)
        reals.append(~ended)
        ended = ended | (word == END)
        if bool(ended.all()):
            break
    stacked = [torch.stack(values, dim=1) for values in (tokens, alphas, categories, reals)]
    return Greedy(stacked[0], score, stacked[1], stacked[2], stacked[3])


def beam(
    model: Captioner, regions: Regions, context: Context, max_words: int, width: int
) -> tuple[Int[Tensor, "B T"], Float[Tensor, " B"]]:
    """The best of the captions that a beam of `width` holds: words as in `Greedy`, and their log probabilities.

    Captions are compared by their log probability, without regard to length; one that has ended keeps its place in the
    beam for as long as `width` others are not better. A width of 1 is greedy decoding.
    """
    batch, device = len(regions.values), regions.values.device
    rows = torch.arange(batch, device=device).repeat_interleave(width)  # picture of each caption
    state, regions = model.start(regions.values).take(rows), regions.take(rows)
    word = torch.full((batch * width,), START, device=device)
    score = regions.values.new_full((batch, width), -torch.inf)
    score[:, 0] = 0.0  # all captions of a picture begin alike: only the first is continued
    tokens = torch.empty(batch * width, 0, dtype=torch.long, device=device)
    ended = torch.zeros(batch * width, dtype=torch.bool, device=device)
    for _ in range(max_words):
        log_prob, _, _, state = model.step(regions, state, word, context)
        num_words = log_prob.shape[1]
        log_prob = _continued(sayable(log_prob), ended)
        total = (score.view(-1, 1) + log_prob).view(batch, width * num_words)
        score, place = total.topk(width, dim=1)  # (B, W)
        parent = (place // num_words + torch.arange(batch, device=device)[:, None] * width).flatten()
        word = (place % num_words).flatten()
        tokens = torch.cat([tokens[parent], word[:, None]], dim=1)
        ended = ended[parent] | (word == END)
        state = state.take(parent)
        if bool(ended.all()):
            break
    first = torch.arange(batch, device=device) * width  # topk sorts
    return tokens[first], score[:, 0]


def sayable(log_prob: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """The same with <pad> and <start>, which are no words, ruled out."""
    ruled_out = torch.zeros_like(log_prob[0])
    ruled_out[[PAD, START]] = -torch.inf
    return log_prob + ruled_out


def _continued(log_prob: Float[Tensor, "B V"], ended: Bool[Tensor, " B"]) -> Float[Tensor, "B V"]:
    """Let captions that have ended go on with <pad> alone, at no cost."""
    only_pad = torch.full_like(log_prob, -torch.inf)
    only_pad[:, PAD] = 0.0
    return torch.where(ended[:, None], only_pad, log_prob)

"""Captioning with attention over regions of a picture, attending anew for every word.

At each word the decoder scores the regions with its state, forms a context from them, feeds the context and the word
before it to an LSTM, and predicts the next word from the new state. The paradigms differ in the context alone:

| context of a word   | `soft`                        | `hard`                                                    |
|---------------------|-------------------------------|-----------------------------------------------------------|
| in training         | weighted sum of the regions   | one region, drawn from the attention weights              |
| at test time        | weighted sum of the regions   | the region with the largest weight                        |

Axes: P pictures, B captions, T words, L regions, D features of a region, V words of the vocabulary.
Sources: Xu et al., Show, Attend and Tell, ICML 2015; arXiv 2307.13421, experiments on MSCOCO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from fcamlib.captioning.networks import AdditiveAttention, StartState, State, caption_encoder, initialise
from fcamlib.config.caption_runs import CaptionModelConfig

Context = Literal["soft", "mode", "drawn", "given"]


@dataclass(frozen=True)
class Regions:
    """The regions of the pictures of a batch, with what attention makes of them once."""

    values: Float[Tensor, "B L D"]
    keys: Float[Tensor, "B L A"]

    def take(self, index: Int[Tensor, " b"]) -> Regions:
        """The regions at `index`, which may repeat."""
        return Regions(self.values[index], self.keys[index])


@dataclass(frozen=True)
class CaptionOutput:
    """What a pass over given captions yields for each of their words but the first.

    Parameters
    ----------
    log_prob : (B, T, V) float
        Log probability of each word of the vocabulary.
    log_alpha : (B, T, L) float
        Log attention weights.
    region : (B, T) int or None
        The region that each word was made from; None under soft attention.
    """

    log_prob: Float[Tensor, "B T V"]
    log_alpha: Float[Tensor, "B T L"]
    region: Int[Tensor, "B T"] | None


class Captioner(nn.Module):
    """Encoder, additive attention and LSTM decoder.

    Parameters
    ----------
    config : CaptionModelConfig
    segment_shape : tuple of int
        Of a picture, (3, S, S), or of its features, (L, D).
    num_words : int
        V.
    generator : torch.Generator
        Draws the initial weights.
    """

    def __init__(
        self, config: CaptionModelConfig, segment_shape: tuple[int, ...], num_words: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.encoder, region_dim = caption_encoder(config, segment_shape)
        self.state_sees = config.state_sees
        self.embedding = nn.Embedding(num_words, config.embedding_dim)
        self.attention = AdditiveAttention(region_dim, config.hidden_dim, config.attention_dim)
        self.start = StartState(config.start_state, region_dim, config.hidden_dim)
        self.cell = nn.LSTMCell(
            config.embedding_dim + (region_dim if config.state_sees == "region" else 0), config.hidden_dim
        )
        self.output = nn.Linear(config.hidden_dim + region_dim, num_words)
        initialise(self, generator)

    def encoder_parameters(self) -> list[nn.Parameter]:
        """Weights of the encoder; none of frozen features."""
        return list(self.encoder.parameters())

    def decoder_parameters(self) -> list[nn.Parameter]:
        """All other weights."""
        own = {id(weight) for weight in self.encoder.parameters()}
        return [weight for weight in self.parameters() if id(weight) not in own]

    def regions(self, pictures: Tensor) -> Regions:
        """Encode pictures (P, 3, S, S), or take their features (P, L, D)."""
        values = self.encoder(pictures)
        return Regions(values, self.attention.keys(values))

    def step(
        self, regions: Regions, state: State, word: Int[Tensor, " B"], context: Context, chosen: Tensor | None = None
    ) -> tuple[Float[Tensor, "B V"], Float[Tensor, "B L"], Tensor | None, State]:
        """Make one word: log probabilities of the next word, log attention, the region it is made from, new state.

        Parameters
        ----------
        regions : Regions
        state : State
        word : (B,) int
            The word before.
        context : "soft", "mode", "drawn" or "given"
            The weighted sum; the region of the largest weight; the region at the quantile `chosen` (B,) float of the
            attention weights, which is a draw from them where `chosen` is uniform on [0, 1); or the region `chosen`
            (B,) int.
        """
        log_alpha = self.attention(regions.keys, state.hidden)  # (B, L)
        if context == "soft":
            region = None
            attended = torch.bmm(log_alpha.exp()[:, None], regions.values).squeeze(1)  # (B, D)
        else:
            region = _region(log_alpha.detach(), context, chosen)
            attended = regions.values[torch.arange(len(word), device=word.device), region]  # (B, D)
        seen = self.embedding(word)
        if self.state_sees == "region":
            seen = torch.cat([seen, attended], dim=1)
        hidden, cell = self.cell(seen, (state.hidden, state.cell))
        logits = self.output(torch.cat([hidden, attended], dim=1))
        return logits.log_softmax(dim=1), log_alpha, region, State(hidden, cell)

    def forward(
        self,
        regions: Regions,
        tokens: Int[Tensor, "B T1"],
        context: Context,
        chosen: Tensor | None = None,
        given: Bool[Tensor, "B T"] | None = None,
    ) -> CaptionOutput:
        """Log probability of every word of given captions after their first, which is <start>.

        Parameters
        ----------
        regions : Regions
            Of each caption's picture.
        tokens : (B, T + 1) int
            Captions; whatever stands behind their end has no influence on what stands before.
        context : "soft", "mode", "drawn" or "given"
        chosen : (B, T), optional
            Quantiles or regions, see `step`.
        given : (B, T) bool, optional
            Whether the word before is the caption's own (teacher forcing) or the model's most probable one; by default
            always the caption's. The first word always is <start>.
        """
        state = self.start(regions.values)
        log_probs: list[Tensor] = []
        log_alphas: list[Tensor] = []
        places: list[Tensor | None] = []
        for t in range(tokens.shape[1] - 1):
            if given is not None and t > 0:
                before = torch.where(given[:, t], tokens[:, t], log_probs[-1].detach().argmax(dim=1))
            else:
                before = tokens[:, t]
            at = None if chosen is None else chosen[:, t]
            log_prob, log_alpha, region, state = self.step(regions, state, before, context, at)
            log_probs.append(log_prob)
            log_alphas.append(log_alpha)
            places.append(region)
        region = None if context == "soft" else torch.stack([place for place in places if place is not None], dim=1)
        return CaptionOutput(torch.stack(log_probs, dim=1), torch.stack(log_alphas, dim=1), region)


def context_at_test(paradigm: str) -> Context:
    """The context that a paradigm's model has at test time."""
    return "soft" if paradigm == "soft" else "mode"


def _region(log_alpha: Float[Tensor, "B L"], context: Context, chosen: Tensor | None) -> Int[Tensor, " B"]:
    """The region that a hard context takes."""
    if context == "mode":
        return log_alpha.argmax(dim=1)
    if chosen is None:
        raise ValueError(f"context={context!r} needs `chosen`: give a quantile or a region for each caption.")
    if context == "given":
        return chosen.long()
    below = log_alpha.exp().cumsum(dim=1) <= chosen[:, None].to(log_alpha.dtype)  # (B, L)
    return below.sum(dim=1).clamp(max=log_alpha.shape[1] - 1)

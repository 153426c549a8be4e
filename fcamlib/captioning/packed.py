r"""One pass over given captions at the least cost, for frozen features: the numbers of `Captioner.forward`, faster.

Captions are sorted by length, so that step t works on the captions that have a word there and padding costs nothing.
Everything that does not wait for the state is one product over all words: the embedded words' part of the LSTM, and the
output layer. Additive attention, whose tanh of all regions is the largest part of a step, is one operation:

$$v^\top \tanh(k_l + q) = \sum_a v_a - 2 \sum_a v_a r_{la}, \qquad r_{la} = \frac{1}{1 + e^{2 k_{la}} e^{2 q_a}},$$

so that $e^{2k}$ is computed once for all words and each step only multiplies and divides, a few pictures at a time,
within the processor's cache. The sum of v falls out in the softmax, and $\tanh' = 4 r (1 - r)$.
Source: this project's derivation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from fcamlib.captioning.losses import place_log_prob, real_words, word_log_prob
from fcamlib.captioning.model import Captioner, Context, Regions, region_taken

_CHUNK = 4  # pictures at a time: 196 regions x 256 units x 4 bytes are 200 kB
_LARGEST = 20.0  # of keys and queries: e^(2 k) e^(2 q) stays finite in float32, and tanh(20) is 1


@dataclass(frozen=True)
class Reading:
    """Log probabilities of given words and of the regions taken, 0 at padding; log attention, 0 at padding if packed.

    `places` is None under soft attention.
    """

    words: Float[Tensor, "B T"]
    places: Float[Tensor, "B T"] | None
    log_alpha: Float[Tensor, "B T L"]


def read(
    model: Captioner,
    regions: Regions,
    place: Int[Tensor, " B"],
    tokens: Int[Tensor, "B T1"],
    context: Context,
    chosen: Tensor | None = None,
    given: Bool[Tensor, "B T"] | None = None,
) -> Reading:
    """Read captions, each with the regions at its `place`; other arguments as of `Captioner.forward`.

    Packed for frozen features and teacher forcing. A trained encoder reads word after word: small pictures gain
    nothing, and recorded runs keep their bits.
    """
    real = real_words(tokens)
    if given is None and isinstance(model.encoder, nn.Identity):
        return _packed(model, regions, place, tokens, context, chosen, real)
    output = model(regions.take(place), tokens, context, chosen, given)
    places = None if output.region is None else place_log_prob(output, real)
    return Reading(word_log_prob(output.log_prob, tokens, real), places, output.log_alpha)


def _packed(
    model: Captioner,
    regions: Regions,
    place: Int[Tensor, " B"],
    tokens: Int[Tensor, "B T1"],
    context: Context,
    chosen: Tensor | None,
    real: Bool[Tensor, "B T"],
) -> Reading:
    order = real.sum(dim=1).argsort(descending=True, stable=True)  # longest first
    values, real_sorted = regions.values, real[order]
    if torch.is_autocast_enabled(values.device.type):
        values = values.to(torch.get_autocast_dtype(values.device.type))  # once, not at every step
    regions = Regions(values, regions.keys).take(place[order])
    step, row = real_sorted.T.nonzero(as_tuple=True)  # of each word, step after step: (N,)
    counts = real_sorted.sum(dim=0).tolist()
    embedding_dim, cell = model.embedding.embedding_dim, model.cell
    of_word, of_region = cell.weight_ih[:, :embedding_dim], cell.weight_ih[:, embedding_dim:]
    seen = functional.linear(model.embedding(tokens[order[row], step]), of_word, cell.bias_ih + cell.bias_hh)  # (N, 4H)
    recurrent = torch.cat([of_region, cell.weight_hh], dim=1)  # (4H, D + H)
    scores = _Scores(regions.keys, model.attention.score.weight[0])
    state = model.start(regions.values)
    hidden, memory = state.hidden, state.cell
    made, log_alphas, places = [], [], []
    for t, (number, own) in enumerate(zip(counts, seen.split(counts), strict=True)):
        hidden, memory = hidden[:number], memory[:number]
        log_alpha = scores(model.attention.of_state(hidden)).log_softmax(dim=1)
        if context == "soft":
            attended = torch.bmm(log_alpha.exp()[:, None], regions.values[:number]).squeeze(1)
        else:
            at = None if chosen is None else chosen[order[:number], t]
            region = region_taken(log_alpha.detach(), context, at)
            attended = regions.values[torch.arange(number, device=region.device), region]
            places.append(log_alpha.gather(1, region[:, None]).squeeze(1))
        above = torch.cat([attended, hidden], dim=1) if model.state_sees == "region" else hidden
        enter, forget, new, out = (own + functional.linear(above, recurrent)).chunk(4, dim=1)
        memory = forget.sigmoid() * memory + enter.sigmoid() * new.tanh()
        hidden = out.sigmoid() * memory.tanh()
        made.append(torch.cat([hidden, attended], dim=1))
        log_alphas.append(log_alpha)
    target = tokens[order[row], step + 1]
    words = -functional.cross_entropy(model.output(torch.cat(made)), target, reduction="none")

    def unpacked(values: Tensor) -> Tensor:
        full = values.new_zeros(*real.shape, *values.shape[1:])
        return full.index_put((order[row], step), values)

    return Reading(unpacked(words), unpacked(torch.cat(places)) if places else None, unpacked(torch.cat(log_alphas)))


class _Scores:
    """Scores of a batch's regions, step after step, up to a constant; keys get their gradient once, from all steps."""

    def __init__(self, keys: Float[Tensor, "B L A"], weight: Float[Tensor, " A"]) -> None:
        self.keys, self.weight = keys, weight
        self.dtype = torch.promote_types(keys.dtype, torch.float32)  # also under autocast
        self.growth = keys.detach().to(self.dtype).clamp(-_LARGEST, _LARGEST).mul_(2.0).exp_()  # e^(2 k)
        self.pending = 0  # steps whose gradient is to come
        self.gradient: Tensor | None = None  # of keys, summed over steps

    def __call__(self, query: Float[Tensor, "b A"]) -> Float[Tensor, "b L"]:
        """Scores of the first b captions' regions."""
        self.pending += 1
        scores: Tensor = _Score.apply(self.keys, query.to(self.dtype), self.weight, self)
        return scores


class _Score(torch.autograd.Function):
    """-2 r v for one step."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, query: Tensor, weight: Tensor, scores: _Scores) -> Tensor:
        growth = query.clamp(-_LARGEST, _LARGEST).mul_(2.0).exp_()
        ctx.scores = scores
        ctx.save_for_backward(growth, weight)
        found = growth.new_empty(len(query), keys.shape[1])
        for part, share in _shares(scores.growth, growth):
            torch.mv(share.flatten(0, 1), weight, out=found[part].view(-1))
        return found.mul_(-2.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        scores: _Scores = ctx.scores
        growth, weight = ctx.saved_tensors
        if scores.gradient is None:
            scores.gradient = torch.zeros_like(scores.growth)
        of_query, of_weight = torch.empty_like(growth), torch.zeros_like(weight)
        for part, share in _shares(scores.growth, growth):
            of_weight.addmv_(share.flatten(0, 1).T, gradient[part].reshape(-1), alpha=-2.0)
            slope = share.addcmul_(share, share, value=-1.0)  # r (1 - r)
            torch.bmm(gradient[part, None], slope, out=of_query[part, None])
            scores.gradient[part].addcmul_(slope, gradient[part, :, None])
        scores.pending -= 1
        of_keys = None if scores.pending else scores.gradient.mul_(4.0 * weight).to(scores.keys.dtype)
        return of_keys, of_query.mul_(4.0 * weight), of_weight, None


def _shares(of_keys: Float[Tensor, "B L A"], of_query: Float[Tensor, "b A"]) -> Any:
    """Yield slices of the first b captions with their r, in one buffer that is used again."""
    buffer = of_keys.new_empty(_CHUNK, *of_keys.shape[1:])
    for first in range(0, len(of_query), _CHUNK):
        part = slice(first, min(first + _CHUNK, len(of_query)))
        share = buffer[: part.stop - first]
        torch.mul(of_keys[part], of_query[part, None], out=share)
        yield part, share.add_(1.0).reciprocal_()

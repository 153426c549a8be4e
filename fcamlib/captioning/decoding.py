r"""The two passes of a captioning model, scoring given captions and generating captions, and the losses of the first.

| argument         | meaning                                                                                         |
|------------------|-------------------------------------------------------------------------------------------------|
| `word_log_prob`  | $\log p(w_t \mid w_{<t}, s_{\le t})$: log probability of each word of a caption, 0 at padding    |
| `place_log_prob` | $\log a_t(s_t)$: log attention weight of the region used for each word, 0 at padding              |
| `real`           | True at the words of a caption and its <end>, False at padding                                   |

Under hard attention the alignment $s = (s_1, \dots, s_T)$ is a sequence: each region changes the state, and therefore
all later attention weights. The expected loss $\mathbb E_s[-\log p(w \mid s)]$ sums over $L^T$ sequences; REINFORCE
estimates its gradient without bias.

Axes: B captions, T words, L regions, V words of the vocabulary. Source: Xu et al., ICML 2015, sec. 4.1; Williams, 1992.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from fcamlib.captioning.model import Attending, Captioner, Context, Regions, region_taken
from fcamlib.data.captions import END, PAD, START

Credit = Literal["caption", "rest"]


@dataclass(frozen=True)
class Reading:
    """Log probabilities of the given words and of the regions used, 0 at padding; log attention, valid at real words.

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
    quantiles: Float[Tensor, "B T"] | None = None,
    given: Bool[Tensor, "B T"] | None = None,
) -> Reading:
    """Read captions from <start>, each with the regions at its `place`; `quantiles` as in `Captioner.step`.

    `given` is whether the previous word is the caption's (teacher forcing, the default) or the model's most probable
    one. Frozen features with teacher forcing use a packed pass. With a trained encoder, words are read one by one:
    packing does not speed up small pictures and would change the bits of recorded runs.
    """
    if given is None and isinstance(model.encoder, nn.Identity):
        return _packed(model, regions, place, tokens, context, quantiles)
    real = real_words(tokens)
    regions, words, log_alphas, places = regions.take(place), list[Tensor](), list[Tensor](), list[Tensor]()
    state, guess = model.start(regions.values), tokens[:, 0]
    for t in range(real.shape[1]):
        before = tokens[:, t] if given is None or t == 0 else torch.where(given[:, t], tokens[:, t], guess)
        quantile = None if quantiles is None else quantiles[:, t]
        log_prob, log_alpha, region, state = model.step(regions, state, before, context, quantile)
        guess = log_prob.detach().argmax(dim=1)
        words.append(log_prob.gather(1, tokens[:, t + 1, None]).squeeze(1))
        log_alphas.append(log_alpha)
        if region is not None:
            places.append(log_alpha.gather(1, region[:, None]).squeeze(1))

    def unpadded(values: list[Tensor]) -> Tensor:
        return torch.stack(values, dim=1).masked_fill(~real, 0.0)

    return Reading(unpadded(words), unpadded(places) if places else None, torch.stack(log_alphas, dim=1))


def _packed(
    model: Captioner, regions: Regions, place: Tensor, tokens: Tensor, context: Context, quantiles: Tensor | None
) -> Reading:
    """Read captions sorted by length: step t covers only those with a word there, so padding costs nothing.

    Parts that do not depend on the state are one product over all words: the LSTM's word input and the output layer.
    """
    real = real_words(tokens)
    order = real.sum(dim=1).argsort(descending=True, stable=True)  # longest first
    step, row = real[order].T.nonzero(as_tuple=True)  # of each word, step after step: (N,)
    row = order[row]
    own, cell = regions.take(place[order]), model.cell
    values = own.values
    if torch.is_autocast_enabled(values.device.type):
        values = values.to(torch.get_autocast_dtype(values.device.type))  # once, not at every step
    of_word, of_region = cell.weight_ih.tensor_split([model.embedding.embedding_dim], dim=1)
    recurrent = torch.cat([of_region, cell.weight_hh], dim=1)  # (4H, D + H)
    seen = functional.linear(model.embedding(tokens[row, step]), of_word, cell.bias_ih + cell.bias_hh)  # (N, 4H)
    attend = Attending(model.attention, own.keys)
    hidden, memory = model.start(values)
    made, log_alphas, places = list[Tensor](), list[Tensor](), list[Tensor]()
    for t, gates in enumerate(seen.split(real.sum(dim=0).tolist())):
        number = len(gates)
        hidden, memory = hidden[:number], memory[:number]
        log_alpha = attend(hidden)
        if context == "soft":
            attended = torch.bmm(log_alpha.exp()[:, None], values[:number]).squeeze(1)
        else:
            quantile = None if quantiles is None else quantiles[order[:number], t]
            region = region_taken(log_alpha.detach(), context, quantile)
            attended = values[torch.arange(number, device=region.device), region]
            places.append(log_alpha.gather(1, region[:, None]).squeeze(1))
        above = torch.cat([attended, hidden], dim=1) if model.sees_region else hidden
        enter, forget, new, out = (gates + functional.linear(above, recurrent)).chunk(4, dim=1)
        memory = forget.sigmoid() * memory + enter.sigmoid() * new.tanh()
        hidden = out.sigmoid() * memory.tanh()
        made.append(torch.cat([hidden, attended], dim=1))
        log_alphas.append(log_alpha)

    def unpacked(found: Tensor) -> Tensor:
        return found.new_zeros(*real.shape, *found.shape[1:]).index_put((row, step), found)

    words = -functional.cross_entropy(model.output(torch.cat(made)), tokens[row, step + 1], reduction="none")
    return Reading(unpacked(words), unpacked(torch.cat(places)) if places else None, unpacked(torch.cat(log_alphas)))


@dataclass(frozen=True)
class Greedy:
    """Greedy captions with the attention at each word."""

    tokens: Int[Tensor, "B T"]  # words, then <end> if the caption ends within T words, then <pad>
    alpha: Float[Tensor, "B T L"]  # attention weights; they sum to 1 over the regions, also after <end>
    category_prob: Float[Tensor, "B T C"]  # that the word names each category, summed over all words that do
    real: Bool[Tensor, "B T"]  # True up to and including <end>


def greedy(model: Captioner, regions: Regions, context: Context, max_words: int, names: Float[Tensor, "V C"]) -> Greedy:
    """Generate the most probable next word until <end> or `max_words` words, not counting <end>.

    `regions` has one picture per row; `context` is "soft" or "mode"; `names` is 1 where a word names a category.
    """
    state, device = model.start(regions.values), regions.values.device
    word = torch.full((len(regions.values),), START, device=device)
    ended, columns = torch.zeros_like(word, dtype=torch.bool), list[tuple[Tensor, ...]]()
    unsayable = torch.tensor([PAD, START], device=device)  # no words
    attend = Attending(model.attention, regions.keys) if isinstance(model.encoder, nn.Identity) else None
    while len(columns) < max_words and not bool(ended.all()):
        log_prob, log_alpha, _, state = model.step(regions, state, word, context, attend=attend)
        with torch.autocast(device.type, enabled=False):  # sums of probabilities in full
            named = log_prob.exp().to(names.dtype) @ names
        said = log_prob.index_fill(1, unsayable, -torch.inf).argmax(dim=1)
        word = said.masked_fill(ended, PAD)
        columns.append((word, log_alpha.exp(), named, ~ended))
        ended = ended | (word == END)
    return Greedy(*(torch.stack(values, dim=1) for values in zip(*columns, strict=True)))


# --- losses -----------------------------------------------------------------------------------------------------------


def real_words(tokens: Int[Tensor, "B T1"]) -> Bool[Tensor, "B T"]:
    """Mask of the words to be predicted: all places after <start> except padding."""
    return tokens[:, 1:] != PAD


def cross_entropy(word_log_prob: Float[Tensor, "B T"], real: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    r"""Mean over all words of a batch: the training loss of soft attention, in nats per word, >= 0.

    $$\ell = -\frac{1}{\sum_b T_b} \sum_b \sum_{t \le T_b} \log p(w_{bt} \mid w_{b,<t})$$
    """
    return -word_log_prob.sum() / real.sum()


def rewards(word_log_prob: Float[Tensor, "B T"], credit: Credit) -> Float[Tensor, "B T"]:
    r"""Reward of each word's region: a sum of log probabilities of words.

    caption: over all words of the caption, as published. rest: over this word and later ones, which the region can
    influence; earlier words do not change the mean of the gradient and only add variance.
    """
    total = word_log_prob.detach()
    if credit == "caption":
        return total.sum(dim=1, keepdim=True).expand_as(total)
    return total.flip(1).cumsum(dim=1).flip(1)


def reinforce_loss(
    word_log_prob: Float[Tensor, "B T"],
    place_log_prob: Float[Tensor, "B T"],
    reward: Float[Tensor, "B T"],
    baseline: Float[Tensor, " T"],
    real: Bool[Tensor, "B T"],
) -> Float[Tensor, ""]:
    r"""A loss whose gradient, averaged over drawn regions, equals the gradient of the expected cross-entropy per word.

    $$\ell = -\frac{1}{\sum_b T_b} \sum_b \sum_{t \le T_b}
      \Big[\log p(w_{bt} \mid w_{b,<t}, s_{b,\le t}) + (R_{bt} - b_t) \log a_{bt}(s_{bt})\Big]$$

    No gradient flows through the reward. The baseline may depend on anything except the regions drawn for this loss; it
    does not change the mean of the gradient. The value of the loss has no meaning.
    """
    advantage = (reward.detach() - baseline).masked_fill(~real, 0.0)
    return -(word_log_prob + advantage * place_log_prob).sum() / real.sum()


def entropy_bonus(log_alpha: Float[Tensor, "B T L"], real: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean entropy of the attention weights over the words of a batch, in nats."""
    entropy = -(log_alpha.exp() * log_alpha).sum(dim=2)
    return entropy.masked_fill(~real, 0.0).sum() / real.sum()


def next_baseline(
    baseline: Float[Tensor, " T"], reward: Float[Tensor, "B T"], real: Bool[Tensor, "B T"], momentum: float
) -> tuple[Float[Tensor, " T"], Float[Tensor, " T"]]:
    """The baseline of a batch, and the moving average of rewards after it, at each place.

    The baseline is the average before the batch; where that is NaN, this is a place's first batch, which is its own
    baseline. The average is unchanged at places that no caption reaches.
    """
    count = real.sum(dim=0)
    mean = reward.masked_fill(~real, 0.0).sum(dim=0) / count.clamp(min=1)
    before = torch.where(baseline.isnan(), mean, baseline)
    return before, torch.where(count > 0, momentum * before + (1.0 - momentum) * mean, baseline)

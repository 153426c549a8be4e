r"""Losses of captioning, as pure functions that ignore padding exactly.

| here          | meaning                                                                                         |
|---------------|-------------------------------------------------------------------------------------------------|
| `word_log_prob` | $\log p(w_t \mid w_{<t}, s_{\le t})$: log probability of each word of a caption, 0 at padding |
| `place_log_prob` | $\log a_t(s_t)$: log attention weight of the region that each word was made from, 0 at padding |
| `real`        | True at the words of a caption and its <end>, False at padding                                   |

Under hard attention the alignment $s = (s_1, \dots, s_T)$ is a sequence: each region changes the state, and so every
later attention weight. The expected loss $\mathbb E_s[-\log p(w \mid s)]$ sums over $L^T$ sequences;
`enumerated_loss` does so where they are few, and REINFORCE estimates its gradient without bias everywhere else.

Axes: B captions, T words, L regions, V words of the vocabulary. Source: Xu et al., ICML 2015, sec. 4.1; Williams, 1992.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fcamlib.captioning.model import Captioner, CaptionOutput, Regions
from fcamlib.data.vocabulary import PAD

Credit = Literal["caption", "rest"]
MAX_SEQUENCES = 4096  # of regions, that `enumerated_loss` goes through


def real_words(tokens: Int[Tensor, "B T1"]) -> Bool[Tensor, "B T"]:
    """Which places of captions hold a word to be predicted: all after <start> but padding."""
    return tokens[:, 1:] != PAD


def word_log_prob(
    log_prob: Float[Tensor, "B T V"], tokens: Int[Tensor, "B T1"], real: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Log probability of each word of the captions; padding gets 0, and no gradient comes from there."""
    found = log_prob.gather(2, tokens[:, 1:, None]).squeeze(2)
    return found.masked_fill(~real, 0.0)


def cross_entropy(word_log_prob: Float[Tensor, "B T"], real: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    r"""Mean over all words of a batch.

    $$\ell = -\frac{1}{\sum_b T_b} \sum_b \sum_{t \le T_b} \log p(w_{bt} \mid w_{b,<t})$$

    The training loss of soft attention; in nats per word, >= 0.
    """
    return -word_log_prob.sum() / real.sum()


def rewards(word_log_prob: Float[Tensor, "B T"], credit: Credit) -> Float[Tensor, "B T"]:
    r"""What the region of each word is rewarded with: the log probability of words.

    caption: of all words of the caption, as published. rest: of this word and those after it, which a region can
    change; words before it add nothing to the gradient's mean, only to its variance.
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
    r"""A loss whose gradient, averaged over drawn regions, is that of the expected cross-entropy per word.

    $$\ell = -\frac{1}{\sum_b T_b} \sum_b \sum_{t \le T_b}
      \Big[\log p(w_{bt} \mid w_{b,<t}, s_{b,\le t}) + (R_{bt} - b_t) \log a_{bt}(s_{bt})\Big]$$

    The baseline is subtracted. It may depend on anything but the regions drawn for this loss; the mean of the gradient
    does not depend on it. The value of the loss means nothing.

    Parameters
    ----------
    word_log_prob, place_log_prob : (B, T) float
        Of the words, and of the regions that were drawn; 0 at padding.
    reward : (B, T) float
        See `rewards`; no gradient flows through it.
    baseline : (T,) float
        Subtracted from the rewards of each place.
    real : (B, T) bool
    """
    advantage = (reward.detach() - baseline).masked_fill(~real, 0.0)
    return -(word_log_prob + advantage * place_log_prob).sum() / real.sum()


def entropy_bonus(log_alpha: Float[Tensor, "B T L"], real: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean entropy of the attention weights over the words of a batch, in nats: what a weight times it is added for."""
    entropy = -(log_alpha.exp() * log_alpha).sum(dim=2)
    return entropy.masked_fill(~real, 0.0).sum() / real.sum()


def place_log_prob(output: CaptionOutput, real: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Log attention weight of the region that each word was made from; padding gets 0."""
    if output.region is None:
        raise ValueError("this pass was made with soft attention, which takes no single region: ask for 'drawn'.")
    return output.log_alpha.gather(2, output.region[..., None]).squeeze(2).masked_fill(~real, 0.0)


def next_baseline(
    baseline: Float[Tensor, " T"], reward: Float[Tensor, "B T"], real: Bool[Tensor, "B T"], momentum: float
) -> Float[Tensor, " T"]:
    """The moving average of rewards after a batch, place by place; a place that no caption reaches keeps its own."""
    count = real.sum(dim=0)
    mean = reward.masked_fill(~real, 0.0).sum(dim=0) / count.clamp(min=1)
    return torch.where(count > 0, momentum * baseline + (1.0 - momentum) * mean, baseline)


def enumerated_loss(model: Captioner, regions: Regions, tokens: Int[Tensor, "B T1"]) -> Float[Tensor, ""]:
    r"""The expected cross-entropy per word under hard attention, by going through all sequences of regions.

    $$-\frac{1}{\sum_b T_b} \sum_b \sum_{s \in \{1..L\}^T} \Big[\prod_{t \le T_b} a_{bt}(s_t)\Big]
      \sum_{t \le T_b} \log p(w_{bt} \mid w_{b,<t}, s_{\le t})$$

    Words are given (teacher forcing). Nothing is left out: the state, and so the later weights, follow each sequence.

    Raises
    ------
    ValueError
        Where there are more than `MAX_SEQUENCES` of them.
    """
    batch, length = tokens.shape[0], tokens.shape[1] - 1
    num_regions = regions.values.shape[1]
    if num_regions**length > MAX_SEQUENCES:
        raise ValueError(f"{num_regions}^{length} sequences of regions are too many: draw them instead.")
    sequences = torch.cartesian_prod(*[torch.arange(num_regions)] * length).reshape(-1, length)  # (S, T)
    number = len(sequences)
    captions = torch.arange(batch).repeat_interleave(number)
    tokens = tokens[captions]  # (B S, T + 1)
    real = real_words(tokens)
    output = model(regions.take(captions), tokens, "given", sequences.repeat(batch, 1))
    # Behind a caption's end the places go through all regions too, where their weights sum to 1.
    taken = output.log_alpha.gather(2, sequences.repeat(batch, 1)[..., None]).squeeze(2)  # (B S, T)
    loss = -word_log_prob(output.log_prob, tokens, real).sum(dim=1)
    return (taken.sum(dim=1).exp() * loss).sum() / (real.sum() / number)

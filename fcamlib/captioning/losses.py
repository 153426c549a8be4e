r"""Captioning losses as pure functions; padding has no effect.

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

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fcamlib.data.captions import PAD

Credit = Literal["caption", "rest"]


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
) -> Float[Tensor, " T"]:
    """The moving average of rewards at each place after a batch; places that no caption reaches are unchanged."""
    count = real.sum(dim=0)
    mean = reward.masked_fill(~real, 0.0).sum(dim=0) / count.clamp(min=1)
    return torch.where(count > 0, momentum * baseline + (1.0 - momentum) * mean, baseline)

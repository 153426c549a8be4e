r"""Losses of instances with very many segments that look at a few of them, with what that costs in exactness.

The exact losses of `fcamlib.losses` need the classification of every segment. Here it is asked for only a few: a
caller computes focus logits of all, draws or chooses segments, and classifies those alone.

| function           | classified            | value                   | gradient                       |
|--------------------|-----------------------|-------------------------|--------------------------------|
| `reinforce_loss`   | S drawn segments      | unbiased for HA         | unbiased for HA                |
| `straight_through` | one drawn segment     | unbiased for HA         | biased                         |
| `topk_lvml_loss`   | k of largest weights  | at least LVML, gap bounded | the value's; biased for LVML |

Axes: B batch, M segments, K classes, S samples, D features. `log_alpha` is a log-softmax of focus logits. Sources:
REINFORCE, Williams 1992; straight-through Gumbel-softmax, Jang, Gu and Poole 2017; top-k and its bound, this project.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fcamlib.errors import UserError
from fcamlib.losses import Reduction, reduced


def sample_segments(
    log_alpha: Float[Tensor, "B M"], num_samples: int, generator: torch.Generator
) -> Int[Tensor, "B S"]:
    """Segments drawn independently from the attention weights, with replacement; padding has none."""
    _require("num_samples", num_samples, 1)
    return torch.multinomial(log_alpha.detach().exp(), num_samples, replacement=True, generator=generator)


def reinforce_loss(
    log_alpha: Float[Tensor, "B M"],
    drawn: Int[Tensor, "B S"],
    log_likelihood: Float[Tensor, "B S"],
    reduction: Reduction = "mean",
) -> Float[Tensor, ""] | Float[Tensor, " B"]:
    r"""Hard attention's loss from drawn segments, with the score-function gradient and a leave-one-out baseline.

    With $\ell_s = -\log p_y(x_{j_s})$ and baseline $b_s$, the mean of the other samples' losses,

    $$\hat\ell = \frac{1}{S} \sum_s \ell_s, \qquad
    \widehat{\nabla \ell} = \frac{1}{S} \sum_s \big[\nabla \ell_s + (\ell_s - b_s) \nabla \log a_{j_s}\big]$$

    *Bias: none.* $E[\nabla \log a_j] = 0$ and $b_s$ is independent of sample s, so value and gradient have the
    expectation of `hard_attention_loss` and of its gradient. One sample has no baseline, and much more variance.

    Parameters
    ----------
    log_alpha : (B, M) float
        Log attention weights of all segments.
    drawn : (B, S) int
        What `sample_segments` gave.
    log_likelihood : (B, S) float
        Log probability of the true label from each drawn segment alone.
    reduction : "mean" or "none"

    Returns
    -------
    () or (B,) float: the value is the mean loss of the drawn segments.
    """
    num_samples = drawn.shape[1]
    losses = -log_likelihood  # (B, S)
    fixed = losses.detach()
    baseline = torch.zeros_like(fixed)
    if num_samples > 1:
        baseline = (fixed.sum(dim=1, keepdim=True) - fixed) / (num_samples - 1)
    score = log_alpha.gather(1, drawn)
    steering = (fixed - baseline) * (score - score.detach())  # zero, with the gradient of the score function
    return reduced((losses + steering).mean(dim=1), reduction)


def straight_through(
    log_alpha: Float[Tensor, "B M"], temperature: float, generator: torch.Generator
) -> Float[Tensor, "B M"]:
    r"""One-hot weights of a drawn segment whose gradient is that of a Gumbel-softmax.

    $$w = \operatorname{onehot}(\arg\max_j (\log a_j + g_j)), \qquad
    \nabla w := \nabla \operatorname{softmax}\big((\log a + g) / \tau\big)$$

    with $g_j$ standard Gumbel. Used as the attention weights of soft attention: forward, the classifier sees one drawn
    segment alone.

    *Bias.* The drawn segment has exactly the attention's distribution, so the loss is in expectation hard attention's.
    The gradient is biased: it is taken as if the classifier's loss were linear between segments and the draw soft. The
    bias stays as $\tau$ falls, where the variance grows without bound; a test measures it.

    Parameters
    ----------
    log_alpha : (B, M) float
    temperature : float, > 0
    generator : torch.Generator

    Returns
    -------
    (B, M) float, one-hot.
    """
    if not 0 < temperature < float("inf"):
        raise UserError(f"temperature={temperature} is not allowed: give more than 0.")
    uniform = torch.rand(log_alpha.shape, generator=generator, dtype=log_alpha.dtype, device=log_alpha.device)
    smallest = torch.finfo(log_alpha.dtype).tiny
    gumbel = -(-uniform.clamp(min=smallest).log()).clamp(min=smallest).log()
    perturbed = log_alpha + gumbel
    soft = (perturbed / temperature).softmax(dim=1)
    hard = torch.zeros_like(soft).scatter_(1, perturbed.argmax(dim=1, keepdim=True), 1.0)
    return hard + (soft - soft.detach())


@dataclass(frozen=True)
class TopK:
    """The segments of the largest attention weights, and the weight of all others."""

    index: Int[Tensor, "B k"]
    log_alpha: Float[Tensor, "B k"]
    log_rest: Float[Tensor, " B"]  # log of the weight that is not among them; -inf where nothing is left

    @classmethod
    def of(cls, log_alpha: Float[Tensor, "B M"], num_kept: int) -> TopK:
        """The `num_kept` largest; padding, whose log weight is -inf, comes last."""
        _require("num_kept", num_kept, 1)
        largest, index = log_alpha.topk(min(num_kept, log_alpha.shape[1]), dim=1)
        others = torch.ones_like(log_alpha, dtype=torch.bool).scatter_(1, index, False)
        rest = torch.logsumexp(log_alpha.detach().masked_fill(~others, -torch.inf), dim=1)
        return cls(index, largest, rest)


def topk_lvml_loss(
    kept: TopK, log_likelihood: Float[Tensor, "B k"], reduction: Reduction = "mean"
) -> Float[Tensor, ""] | Float[Tensor, " B"]:
    r"""LVML's loss from the k segments with the largest weights: an upper bound of the loss.

    $$\ell_k = -\log \sum_{j \in \text{top-}k} a_j\, p_y(x_j) \;\ge\; \ell_{LVML}$$

    *Bias.* The likelihood is a lower bound of the exact one, $L_k \le L \le L_k + \rho$ with $\rho$ the weight of all
    other segments, because no likelihood exceeds 1. Hence the gap is at most what `topk_gap_bound` gives,

    $$0 \le \ell_k - \ell_{LVML} \le \log(1 + \rho / L_k)$$

    Segments outside the k largest get gradient from the softmax alone: what they would have explained is
    not seen. With k = M it is the exact loss.

    Parameters
    ----------
    kept : TopK
    log_likelihood : (B, k) float
        Log probability of the true label from each kept segment alone.
    reduction : "mean" or "none"

    Returns
    -------
    () or (B,) float, >= the exact loss.
    """
    return reduced(-_log_sum(kept, log_likelihood), reduction)


def topk_gap_bound(kept: TopK, log_likelihood: Float[Tensor, "B k"]) -> Float[Tensor, " B"]:
    r"""The most by which `topk_lvml_loss` can exceed the exact loss: $\log(1 + \rho / L_k)$, in nats."""
    return torch.logaddexp(torch.zeros_like(kept.log_rest), kept.log_rest - _log_sum(kept, log_likelihood))


def _log_sum(kept: TopK, log_likelihood: Tensor) -> Tensor:
    padding = kept.log_alpha == -torch.inf
    return torch.logsumexp(kept.log_alpha + log_likelihood.masked_fill(padding, 0.0), dim=1)


def _require(name: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(f"{name}={value} is not allowed: give at least {least}.")

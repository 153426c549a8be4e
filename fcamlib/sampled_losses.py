r"""Losses that classify only a few of an instance's segments, with the bias of their values and gradients.

| function           | classified                      | value                                | gradient        |
|--------------------|---------------------------------|--------------------------------------|-----------------|
| `reinforce_loss`   | S drawn segments                | unbiased for HA                      | unbiased for HA |
| `straight_through` | one drawn segment               | unbiased for HA                      | biased          |
| `topk_lvml_loss`   | the k segments with the largest weights | at least LVML's, with a bounded gap | biased for LVML |

Axes: B batch, M segments, S samples. `log_alpha` is a log-softmax of focus logits, -inf at padding. Sources: REINFORCE,
Williams 1992; straight-through Gumbel-softmax, Jang, Gu and Poole 2017; top-k and its bound, this project.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sample_segments(
    log_alpha: Float[Tensor, "B M"], num_samples: int, generator: torch.Generator
) -> Int[Tensor, "B S"]:
    """Segments drawn independently from the attention weights, with replacement."""
    return torch.multinomial(log_alpha.detach().exp(), num_samples, replacement=True, generator=generator)


def reinforce_loss(
    log_alpha: Float[Tensor, "B M"], drawn: Int[Tensor, "B S"], log_likelihood: Float[Tensor, "B S"]
) -> Float[Tensor, " B"]:
    r"""Hard attention's loss from drawn segments, with the score-function gradient and a leave-one-out baseline.

    With $\ell_s = -\log p_y(x_{j_s})$ and the baseline $b_s$, the mean of the other samples' losses,

    $$\hat\ell = \frac{1}{S} \sum_s \ell_s, \qquad
    \widehat{\nabla \ell} = \frac{1}{S} \sum_s \big[\nabla \ell_s + (\ell_s - b_s) \nabla \log a_{j_s}\big]$$

    Value and gradient are unbiased: $E[\nabla \log a_j] = 0$ and $b_s$ is independent of sample s. A single sample has
    no baseline and a much larger variance. `log_likelihood` holds $\log p_y$ of the drawn segments.
    """
    losses, num_samples = -log_likelihood, drawn.shape[1]
    fixed = losses.detach()
    baseline = (fixed.sum(dim=1, keepdim=True) - fixed) / max(num_samples - 1, 1)
    score = log_alpha.gather(1, drawn)
    steering = (fixed - baseline) * (score - score.detach())  # zero, with the gradient of the score function
    return (losses + steering).mean(dim=1)


def straight_through(
    log_alpha: Float[Tensor, "B M"], temperature: float, generator: torch.Generator
) -> Float[Tensor, "B M"]:
    r"""One-hot weights of a drawn segment with the gradient of a Gumbel-softmax at `temperature` $\tau$ > 0.

    $$w = \operatorname{onehot}(\arg\max_j (\log a_j + g_j)), \qquad
    \nabla w := \nabla \operatorname{softmax}\big((\log a + g) / \tau\big)$$

    with $g_j$ standard Gumbel. With these weights in soft attention, the classifier sees only the drawn segment. The
    value is unbiased for hard attention's loss, since the segment is drawn from the attention weights. The gradient
    is biased: it treats the classifier's loss as linear between segments.
    """
    uniform = torch.rand(log_alpha.shape, generator=generator, dtype=log_alpha.dtype, device=log_alpha.device)
    smallest = torch.finfo(log_alpha.dtype).tiny
    perturbed = log_alpha - (-uniform.clamp(min=smallest).log()).log()  # a uniform number is below 1
    soft = (perturbed / temperature).softmax(dim=1)
    hard = torch.zeros_like(soft).scatter_(1, perturbed.argmax(dim=1, keepdim=True), 1.0)
    return hard + (soft - soft.detach())


def topk_lvml_loss(
    log_alpha: Float[Tensor, "B M"], log_likelihood: Float[Tensor, "B M"], num_kept: int
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    r"""LVML's loss from the k segments with the largest weights, and a bound on how far it exceeds the exact loss.

    $$0 \le \ell_k - \ell_{LVML} \le \log(1 + \rho / L_k), \qquad
    \ell_k = -\log L_k, \quad L_k = \sum_{j \in \text{top-}k} a_j\, p_y(x_j)$$

    where $\rho$ is the total weight of the other segments: $L_k \le L \le L_k + \rho$, since no likelihood exceeds 1.
    Only the kept entries of `log_likelihood` are used. With k = M the loss is exact.
    """
    kept, index = log_alpha.topk(min(num_kept, log_alpha.shape[1]), dim=1)
    chosen = log_likelihood.gather(1, index).masked_fill(kept == -torch.inf, 0.0)
    log_sum = torch.logsumexp(kept + chosen, dim=1)
    rest = torch.logsumexp(log_alpha.detach().scatter(1, index, -torch.inf), dim=1)
    return -log_sum, torch.logaddexp(torch.zeros_like(rest), rest - log_sum)


def largest_z(estimates: Float[Tensor, "n D"], truth: Tensor) -> float:
    """Largest deviation of the mean of n independent estimates from the true value, in standard errors."""
    error = estimates.std(dim=0) / len(estimates) ** 0.5
    return float(((estimates.mean(dim=0) - truth) / error).abs().max())

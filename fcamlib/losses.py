r"""Pure functions for the losses of the three attention paradigms, and the logit mixture, often mistaken for LVML.

| here             | paper             | meaning                                                            |
|------------------|-------------------|--------------------------------------------------------------------|
| `log_alpha`      | $\log a_j$        | log attention weight of segment j (log-softmax of focus logits)    |
| `log_likelihood` | $\log p_y(x_j)$   | log probability of the true label when only segment j is seen      |
| `segment_logits` | $g(x_j)$          | class logits of segment j alone                                    |
| `class_logits`   | $g(\sum_j a_j x_j)$ | class logits of the attention-weighted sum of the segments       |
| `y`              | $y$               | true label                                                         |

Axes: B batch, M segments, K classes. Losses are in nats: the mean over the batch, or one per instance with
`reduction="none"`. `mask` is True for real segments: padding contributes nothing to a loss or a gradient, and the
exponentials of `log_alpha` sum to 1 over the real segments. Source of the definitions: arXiv 2307.13421, sec. 2.
Jensen's inequality gives LVML <= HA on every instance; both agree when M = 1 or alpha is one-hot.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

Reduction = Literal["mean", "none"]


def soft_attention_loss(
    class_logits: Float[Tensor, "B K"], y: Int[Tensor, " B"], reduction: Reduction = "mean"
) -> Float[Tensor, ""] | Float[Tensor, " B"]:
    r"""Cross-entropy of the prediction made from the attention-weighted sum of the segments.

    $$\ell_{SA} = -\log p_y\Big(\sum_j a_j x_j\Big)$$

    Source: arXiv 2307.13421, sec. 2.
    """
    return reduced(functional.cross_entropy(class_logits, y, reduction="none"), reduction)


def hard_attention_loss(
    log_alpha: Float[Tensor, "B M"],
    log_likelihood: Float[Tensor, "B M"],
    reduction: Reduction = "mean",
    mask: Bool[Tensor, "B M"] | None = None,
) -> Float[Tensor, ""] | Float[Tensor, " B"]:
    r"""Expected cross-entropy when one segment is drawn from the attention weights and classified.

    $$\ell_{HA} = -\sum_j a_j \log p_y(x_j)$$

    Source: arXiv 2307.13421, sec. 2.
    """
    log_alpha, log_likelihood = _drop_padding(log_alpha, log_likelihood, mask)
    return reduced(-(log_alpha.exp() * log_likelihood).sum(dim=1), reduction)


def lvml_loss(
    log_alpha: Float[Tensor, "B M"],
    log_likelihood: Float[Tensor, "B M"],
    reduction: Reduction = "mean",
    mask: Bool[Tensor, "B M"] | None = None,
) -> Float[Tensor, ""] | Float[Tensor, " B"]:
    r"""Latent-variable marginal likelihood: the unknown foreground segment is marginalised out.

    $$\ell_{LVML} = -\log \sum_j a_j\, p_y(x_j) = -\operatorname{logsumexp}_j(\log a_j + \log p_y(x_j))$$

    Its gradient is $-\sum_j r_j \nabla[\log a_j + \log p_y(x_j)]$ with the posterior responsibilities
    $r_j = a_j p_y(x_j) / \sum_l a_l p_y(x_l)$ in place of hard attention's prior weights $a_j$
    (this project's derivation).

    Source: arXiv 2307.13421, sec. 2.
    """
    log_alpha, log_likelihood = _drop_padding(log_alpha, log_likelihood, mask)
    return reduced(-torch.logsumexp(log_alpha + log_likelihood, dim=1), reduction)


def logit_mixture(
    log_alpha: Float[Tensor, "B M"],
    segment_logits: Float[Tensor, "B M K"],
    mask: Bool[Tensor, "B M"] | None = None,
) -> Float[Tensor, "B K"]:
    r"""Attention-weighted sum of the segments' class logits. Its cross-entropy is often mistaken for the LVML loss.

    $$\ell = -\log \operatorname{softmax}_y\Big(\sum_j a_j\, g(x_j)\Big)$$

    LVML averages probabilities; this averages logits, which is a geometric mean of probabilities. The loss equals
    soft attention's if the classifier is linear, and all three losses if M = 1 or alpha is one-hot. The paper's public
    script for HateXplain trains it under the name LVML; it is kept here for comparison.

    Source: the public scripts of arXiv 2307.13421; the statements about other losses are this project's derivation.
    """
    if mask is not None:
        log_alpha = log_alpha.masked_fill(~mask, -torch.inf)
        segment_logits = segment_logits.masked_fill(~mask[..., None], 0.0)
    return torch.einsum("bm,bmk->bk", log_alpha.exp(), segment_logits)


def _drop_padding(log_alpha: Tensor, log_likelihood: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Give padded segments zero weight and a finite likelihood, so they affect neither values nor gradients."""
    if mask is None:
        return log_alpha, log_likelihood
    return log_alpha.masked_fill(~mask, -torch.inf), log_likelihood.masked_fill(~mask, 0.0)


def reduced(loss: Float[Tensor, " B"], reduction: Reduction) -> Tensor:
    """The mean of the instances' losses, or the losses themselves."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "none":
        return loss
    raise ValueError(f"reduction={reduction!r} is unknown: use 'mean' or 'none'.")

"""Gradients and measures of linear classification models at fixed attention, written out.

For a linear network without bias, a step of all members is three products of matrices; automatic differentiation would
cost several times as much. Axes as in `fcamlib.theory.ensemble`: R seeds, G members, K classes, D features, B
instances, M segments, N distinct segments. All gradients are of the mean over instances.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def soft_gradient(
    weights: Float[Tensor, "R G K D"], mixture: Float[Tensor, "R G B D"], label: Int[Tensor, "R B"]
) -> Float[Tensor, "R G K D"]:
    """Soft attention: probabilities less truth, times the weighted sums."""
    excess = (mixture @ weights.mT).softmax(dim=3)  # (R, G, B, K)
    truth = label[:, None, :, None].expand(*excess.shape[:3], 1)
    excess.scatter_add_(3, truth, torch.full_like(excess[..., :1], -1.0))
    return excess.mT @ mixture / label.shape[1]


def segment_gradient(
    weights: Float[Tensor, "R G K D"],
    segments: Float[Tensor, "R N D"],
    attention: Float[Tensor, "R G B M"],
    num_hard: int,
    places: Int[Tensor, "R B M"],
    label: Int[Tensor, "R B"],
) -> Float[Tensor, "R G K D"]:
    """Hard attention and LVML: each segment's cross-entropy, weighted with its prior or posterior weight.

    Parameters
    ----------
    weights : of the networks
    segments : the distinct segments
    attention : the fixed attention weights
    num_hard : how many members, the first ones, train with hard attention; the others with LVML
    places : each segment's place among the distinct ones
    label : true labels
    """
    seeds, members, classes, features = weights.shape
    rows = segments.shape[1]
    logits = weights.view(seeds, members * classes, features) @ segments.mT
    logits = logits.view(seeds, members, classes, rows)
    top = logits.amax(dim=2, keepdim=True)
    likelihood = (logits - top).exp_()  # times `total`
    total = likelihood.sum(dim=2)  # (R, G, N)
    row = places.flatten(1)[:, None].expand(-1, members, -1)  # (R, G, BM)
    entry = (label[:, :, None] * rows + places).flatten(1)[:, None].expand(-1, members, -1)
    responsibility = attention.flatten(2)
    if num_hard < members:
        normaliser = (top[:, num_hard:, 0] + total[:, num_hard:].log()).gather(2, row[:, num_hard:])
        own = logits[:, num_hard:].flatten(2).gather(2, entry[:, num_hard:]) - normaliser
        posterior = (attention[:, num_hard:].log() + own.view_as(attention[:, num_hard:])).softmax(dim=3)
        responsibility = torch.cat([responsibility[:, :num_hard], posterior.flatten(2)], dim=1)
    received = torch.zeros_like(total).scatter_add_(2, row, responsibility)  # of each distinct segment
    excess = likelihood.mul_((received / total)[:, :, None])
    excess.view(seeds, members, classes * rows).scatter_add_(2, entry, -responsibility)
    flat = excess.view(seeds, members * classes, rows) @ segments / label.shape[1]
    return flat.view_as(weights)


def soft_measures(
    weights: Float[Tensor, "R G K D"],
    foreground: Float[Tensor, "R B D"],
    background: Float[Tensor, "R B D"],
    label: Int[Tensor, "R B"],
    alpha: Float[Tensor, " G"],
    shift: Float[Tensor, " G"],
) -> Float[Tensor, "3 R G"]:
    """Sums over instances of loss, measured incentive and exact incentive; the logits are linear in alpha."""
    seeds, members, classes, features = weights.shape
    matrix = weights.view(seeds, members * classes, features)
    gap = (matrix @ (foreground - background).mT).view(seeds, members, classes, -1)  # (R, G, K, B)
    logits = (matrix @ background.mT).view_as(gap) + alpha[:, None, None] * gap
    log_prob, moved = logits.log_softmax(dim=2), (logits + shift[:, None, None] * gap).log_softmax(dim=2)
    truth = label[:, None, None].expand(seeds, members, 1, -1)
    own, own_moved, own_gap = (table.gather(2, truth).double().sum(dim=(2, 3)) for table in (log_prob, moved, gap))
    expected_gap = (log_prob.exp() * gap).double().sum(dim=(2, 3))
    return torch.stack([-own, (own_moved - own) / shift.double(), own_gap - expected_gap])

"""The three losses against values worked out by hand, their gradients, and the inequalities between them."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from fcamlib.fcam import log_attention
from fcamlib.losses import hard_attention_loss, lvml_loss, soft_attention_loss

SEGMENT_LOSSES = [hard_attention_loss, lvml_loss]
# B = 2, M = 3, all powers of two.
ALPHA = torch.tensor([[1 / 2, 1 / 4, 1 / 4], [1 / 8, 1 / 8, 3 / 4]], dtype=torch.float64)
LIKELIHOOD = torch.tensor([[1 / 2, 1 / 4, 1 / 8], [1 / 16, 1 / 2, 1 / 4]], dtype=torch.float64)
# 2^-2 + 2^-4 + 2^-5 and 2^-7 + 2^-4 + 3 * 2^-4
MARGINAL = torch.tensor([11 / 32, 33 / 128], dtype=torch.float64)
# K = 5: softmax gives [1, 2, 3, 4, 6] / 16 and [1, 1, 2, 2, 10] / 16.
CLASS_LOGITS = torch.tensor([[1, 2, 3, 4, 6], [1, 1, 2, 2, 10]], dtype=torch.float64).log()
Y = torch.tensor([3, 0])

logits = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(-30, 30))


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_case(num_instances: int = 2, num_segments: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    focus_logits, scores = torch.randn(2, num_instances, num_segments, dtype=torch.float64, generator=generator)
    return log_attention(3 * focus_logits), torch.nn.functional.logsigmoid(3 * scores)


def test_soft_attention_by_hand() -> None:
    assert_close(soft_attention_loss(CLASS_LOGITS, Y, "none"), vector(log(4), log(16)))
    assert_close(soft_attention_loss(CLASS_LOGITS, Y), torch.tensor(3 * log(2), dtype=torch.float64))
    # Only differences of class logits count.
    assert_close(soft_attention_loss(CLASS_LOGITS + vector(7, -9)[:, None], Y, "none"), vector(log(4), log(16)))


def test_hard_attention_by_hand() -> None:
    per_instance = hard_attention_loss(ALPHA.log(), LIKELIHOOD.log(), "none")
    assert_close(per_instance, vector(1.75 * log(2), 2.125 * log(2)))
    assert_close(hard_attention_loss(ALPHA.log(), LIKELIHOOD.log()), torch.tensor(1.9375 * log(2)).double())


def test_lvml_by_hand() -> None:
    assert_close(lvml_loss(ALPHA.log(), LIKELIHOOD.log(), "none"), vector(log(32 / 11), log(128 / 33)))
    assert_close(
        lvml_loss(ALPHA.log(), LIKELIHOOD.log()), torch.tensor((log(32 / 11) + log(128 / 33)) / 2, dtype=torch.float64)
    )


@pytest.mark.parametrize("loss", SEGMENT_LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradcheck_of_segment_losses(loss: Callable[..., Tensor], reduction: str) -> None:
    log_alpha, log_likelihood = random_case()
    mask = torch.tensor([[True, True, False], [True, True, True]])
    log_alpha.requires_grad_(), log_likelihood.requires_grad_()
    assert gradcheck(lambda a, p: loss(a, p, reduction), (log_alpha, log_likelihood))
    assert gradcheck(lambda a, p: loss(a, p, reduction, mask), (log_alpha, log_likelihood))


def test_gradcheck_of_soft_attention() -> None:
    assert gradcheck(lambda g: soft_attention_loss(g, Y, "none"), CLASS_LOGITS.clone().requires_grad_())


def test_soft_attention_gradient_is_probability_less_truth() -> None:
    class_logits = CLASS_LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(soft_attention_loss(class_logits, Y), class_logits)
    expected = torch.tensor([[1, 2, 3, 4 - 16, 6], [1 - 16, 1, 2, 2, 10]], dtype=torch.float64) / 16
    assert_close(gradient, expected / 2)


def test_lvml_gradient_is_the_posterior_and_hard_attention_the_prior() -> None:
    log_alpha, log_likelihood = ALPHA.log().requires_grad_(), LIKELIHOOD.log().requires_grad_()
    responsibilities = ALPHA * LIKELIHOOD / MARGINAL[:, None]
    assert_close(responsibilities.sum(dim=1), vector(1, 1))
    by_alpha, by_likelihood = torch.autograd.grad(lvml_loss(log_alpha, log_likelihood), (log_alpha, log_likelihood))
    assert_close(by_alpha, -responsibilities / 2)
    assert_close(by_likelihood, -responsibilities / 2)
    by_alpha, by_likelihood = torch.autograd.grad(
        hard_attention_loss(log_alpha, log_likelihood), (log_alpha, log_likelihood)
    )
    assert_close(by_alpha, -ALPHA * LIKELIHOOD.log() / 2)
    assert_close(by_likelihood, -ALPHA / 2)


def test_focus_gradients_in_closed_form() -> None:
    """LVML: alpha - r.  HA: -alpha (log p - sum_j alpha_j log p_j)."""
    focus_logits = ALPHA.log().add(5.0).requires_grad_()
    log_likelihood = LIKELIHOOD.log()
    (lvml,) = torch.autograd.grad(lvml_loss(log_attention(focus_logits), log_likelihood, "none").sum(), focus_logits)
    assert_close(lvml, ALPHA - ALPHA * LIKELIHOOD / MARGINAL[:, None])
    (hard,) = torch.autograd.grad(
        hard_attention_loss(log_attention(focus_logits), log_likelihood, "none").sum(), focus_logits
    )
    mean = vector(-1.75 * log(2), -2.125 * log(2))[:, None]
    assert_close(hard, -ALPHA * (log_likelihood - mean))


@given(logits, st.data())
def test_lvml_is_at_most_hard_attention(focus_logits: np.ndarray, data: st.DataObject) -> None:
    log_likelihood = -data.draw(arrays(np.float64, focus_logits.shape, elements=st.floats(0, 60)))
    pair = log_attention(torch.from_numpy(focus_logits)), torch.from_numpy(log_likelihood)
    hard, lvml = hard_attention_loss(*pair, "none"), lvml_loss(*pair, "none")
    assert bool((lvml <= hard + 1e-10).all())
    assert bool((lvml >= -1e-10).all())


def test_lvml_is_strictly_below_where_likelihoods_differ() -> None:
    pair = ALPHA.log(), LIKELIHOOD.log()
    assert bool((lvml_loss(*pair, "none") < hard_attention_loss(*pair, "none") - 0.1).all())
    even = torch.full_like(LIKELIHOOD, 1 / 8).log()  # where they do not differ, Jensen is an equality
    assert_close(lvml_loss(ALPHA.log(), even, "none"), vector(log(8), log(8)))
    assert_close(hard_attention_loss(ALPHA.log(), even, "none"), vector(log(8), log(8)))


@given(arrays(np.float64, (2, 5), elements=st.floats(-30, 30)))
def test_one_segment_makes_all_three_equal(class_logits: np.ndarray) -> None:
    both = torch.from_numpy(class_logits)
    soft = soft_attention_loss(both, Y, "none")
    log_likelihood = both.log_softmax(dim=1).gather(1, Y[:, None])  # (B, 1)
    for loss in SEGMENT_LOSSES:
        assert_close(loss(torch.zeros(2, 1, dtype=torch.float64), log_likelihood, "none"), soft)


def test_one_hot_attention_picks_one_likelihood() -> None:
    place = torch.tensor([2, 0])
    log_alpha = torch.full((2, 3), -torch.inf, dtype=torch.float64)
    log_alpha[torch.arange(2), place] = 0.0
    for loss in SEGMENT_LOSSES:
        assert_close(loss(log_alpha, LIKELIHOOD.log(), "none"), vector(log(8), log(16)))


@pytest.mark.parametrize("loss", SEGMENT_LOSSES)
@pytest.mark.parametrize("rubbish", [0.0, 5.0, torch.nan, -torch.inf])
def test_masked_equals_removed(loss: Callable[..., Tensor], rubbish: float) -> None:
    log_alpha, log_likelihood = random_case(num_segments=3)
    wide_alpha, wide_likelihood = torch.full((2, 2, 5), rubbish, dtype=torch.float64)
    kept = torch.tensor([[0, 2, 4], [1, 2, 3]])
    wide_alpha.scatter_(1, kept, log_alpha), wide_likelihood.scatter_(1, kept, log_likelihood)
    mask = torch.zeros(2, 5, dtype=torch.bool).scatter_(1, kept, True)
    tensors = [log_alpha, log_likelihood, wide_alpha, wide_likelihood]
    for tensor in tensors:
        tensor.requires_grad_()
    removed = loss(log_alpha, log_likelihood, "none")
    masked = loss(wide_alpha, wide_likelihood, "none", mask)
    assert_close(masked, removed)
    weights = vector(0.3, 0.7)
    narrow = torch.autograd.grad(removed @ weights, tensors[:2])
    wide = torch.autograd.grad(masked @ weights, tensors[2:])
    for expected, found in zip(narrow, wide, strict=True):
        assert_close(found, torch.zeros(2, 5, dtype=torch.float64).scatter_(1, kept, expected))


def test_extreme_logits_do_not_overflow() -> None:
    focus_logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    log_likelihood = torch.tensor([[-1e4, 0.0, 0.0]], requires_grad=True)
    log_alpha = log_attention(focus_logits)
    # log alpha = (0, -2e4, -1e4): LVML sums e^-1e4 twice, where log(sum + eps) would see zero.
    lvml, hard = lvml_loss(log_alpha, log_likelihood), hard_attention_loss(log_alpha, log_likelihood)
    assert_close(lvml, torch.tensor(1e4 - log(2)))
    assert_close(hard, torch.tensor(1e4))
    gradient = torch.autograd.grad(lvml, log_likelihood, retain_graph=True)[0]
    assert_close(gradient, torch.tensor([[-0.5, 0.0, -0.5]]), atol=1e-3, rtol=0)  # float32 resolves 1e4 to 1e-3
    assert bool(torch.isfinite(torch.autograd.grad(hard, focus_logits)[0]).all())
    assert_close(soft_attention_loss(torch.tensor([[1e4, 0.0, -1e4]]), torch.tensor([2])), torch.tensor(2e4))

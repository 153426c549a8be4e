"""The losses against values worked out by hand, their gradients, and the inequalities between them."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from fcamlib.fcam import log_attention
from fcamlib.losses import Reduction, hard_attention_loss, logit_mixture, lvml_loss, soft_attention_loss

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


B, M, K, D = 2, 3, 5, 7
LABEL = torch.tensor([4, 1])


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def logit_mixture_loss(
    log_alpha: Tensor, logits: Tensor, y: Tensor, reduction: Reduction = "mean", mask: Tensor | None = None
) -> Tensor:
    return soft_attention_loss(logit_mixture(log_alpha, logits, mask), y, reduction)


def test_logit_mixture_by_hand() -> None:
    log_alpha, logits = drawn(B, M).log_softmax(1), drawn(B, M, K)
    wanted = []
    for a, g, y in zip(log_alpha.exp().numpy(), logits.numpy(), LABEL.tolist(), strict=True):
        wanted.append(-log_softmax(sum(a[j] * g[j] for j in range(M)))[y])
    assert_close(logit_mixture_loss(log_alpha, logits, LABEL, "none"), torch.tensor(np.array(wanted)))
    assert_close(logit_mixture_loss(log_alpha, logits, LABEL), torch.tensor(np.mean(wanted)))


def test_logit_mixture_of_two_segments_sure_of_different_classes() -> None:
    """LVML is sure that one of both is right; averaged logits are sure of neither."""
    logits = torch.tensor([[[20.0, 0.0], [0.0, 20.0]]], dtype=torch.float64)
    log_alpha = torch.tensor([[0.9, 0.1]], dtype=torch.float64).log()
    y = torch.tensor([1])
    log_likelihood = logits.log_softmax(2)[:, :, 1]
    assert float(lvml_loss(log_alpha, log_likelihood)) == pytest.approx(-log(0.1), abs=1e-6)
    assert float(logit_mixture_loss(log_alpha, logits, y)) == pytest.approx(16.0, abs=1e-6)


def test_logit_mixture_is_soft_attention_of_an_affine_classifier() -> None:
    segments, weight, bias = drawn(B, M, D), drawn(K, D), drawn(K)
    log_alpha = drawn(B, M).log_softmax(1)
    mixture = torch.einsum("bm,bmd->bd", log_alpha.exp(), segments)
    soft = soft_attention_loss(mixture @ weight.T + bias, LABEL, "none")
    assert_close(logit_mixture_loss(log_alpha, segments @ weight.T + bias, LABEL, "none"), soft)


@pytest.mark.parametrize("one_hot", [False, True])
def test_logit_mixture_equals_the_others_where_one_segment_has_all_weight(one_hot: bool) -> None:
    num_segments = M if one_hot else 1
    logits = drawn(B, num_segments, K)
    log_alpha = torch.full((B, num_segments), -torch.inf, dtype=torch.float64)
    log_alpha[:, 0] = 0.0
    log_likelihood = logits.log_softmax(2)[torch.arange(B), :, LABEL]
    wanted = lvml_loss(log_alpha, log_likelihood, "none")
    assert_close(logit_mixture_loss(log_alpha, logits, LABEL, "none"), wanted)
    assert_close(hard_attention_loss(log_alpha, log_likelihood, "none"), wanted)


def test_gradient_and_padding_of_the_logit_mixture() -> None:
    mask = torch.tensor([[True, True, False], [True, True, True]])
    focus, logits = drawn(B, M).requires_grad_(), drawn(B, M, K).requires_grad_()

    def loss(focus: Tensor, logits: Tensor) -> Tensor:
        log_alpha = focus.masked_fill(~mask, -torch.inf).log_softmax(1)
        return logit_mixture_loss(log_alpha, logits, LABEL, mask=mask)

    assert gradcheck(loss, (focus, logits))
    spoiled = logits.detach().masked_fill(~mask[..., None], torch.nan)
    log_alpha = focus.detach().masked_fill(~mask, -torch.inf).log_softmax(1)
    wanted = torch.stack([a[m].exp() @ g[m] for a, g, m in zip(log_alpha, logits.detach(), mask, strict=True)])
    assert_close(logit_mixture(log_alpha.masked_fill(~mask, 5.0), spoiled, mask), wanted)
    assert_close(loss(focus, spoiled), loss(focus, logits))
    grads = torch.autograd.grad(loss(focus, logits), (focus, logits))
    assert float(grads[0][0, 2]) == 0.0 and float(grads[1][0, 2].abs().sum()) == 0.0

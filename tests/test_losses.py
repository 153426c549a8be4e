"""The losses against values worked out by hand, their gradients, and the inequalities between them."""

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
from fcamlib.losses import Reduction, hard_attention_loss, logit_mixture, lvml_loss, soft_attention_loss

SEGMENT_LOSSES = [hard_attention_loss, lvml_loss]
B, M, K, D = 2, 3, 5, 7
# All powers of two.
ALPHA = torch.tensor([[1 / 2, 1 / 4, 1 / 4], [1 / 8, 1 / 8, 3 / 4]], dtype=torch.float64)
LIKELIHOOD = torch.tensor([[1 / 2, 1 / 4, 1 / 8], [1 / 16, 1 / 2, 1 / 4]], dtype=torch.float64)
# 2^-2 + 2^-4 + 2^-5 and 2^-7 + 2^-4 + 3 * 2^-4
MARGINAL = torch.tensor([11 / 32, 33 / 128], dtype=torch.float64)
# softmax gives [1, 2, 3, 4, 6] / 16 and [1, 1, 2, 2, 10] / 16.
CLASS_LOGITS = torch.tensor([[1, 2, 3, 4, 6], [1, 1, 2, 2, 10]], dtype=torch.float64).log()
# Log odds whose mean by ALPHA is log 8 and log 4: 3/2 + 1 + 1/2 and 1/8 - 1/8 + 3/4 * 8/3, in units of log 2.
LOG_ODDS = torch.tensor([[3, 4, 2], [1, -1, 8 / 3]], dtype=torch.float64) * log(2)
Y = torch.tensor([3, 0])
MASK = torch.tensor([[True, True, False], [True, True, True]])


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def mixture_loss(
    log_alpha: Tensor, logits: Tensor, reduction: Reduction = "mean", mask: Tensor | None = None, y: Tensor = Y
) -> Tensor:
    return soft_attention_loss(logit_mixture(log_alpha, logits, mask), y, reduction)


@pytest.mark.parametrize(
    ("loss", "arguments", "expected"),
    [
        (soft_attention_loss, (CLASS_LOGITS, Y), (log(4), log(16))),
        (soft_attention_loss, (CLASS_LOGITS + vector(7, -9)[:, None], Y), (log(4), log(16))),  # differences alone count
        (hard_attention_loss, (ALPHA.log(), LIKELIHOOD.log()), (1.75 * log(2), 2.125 * log(2))),
        (lvml_loss, (ALPHA.log(), LIKELIHOOD.log()), (log(32 / 11), log(128 / 33))),
    ],
)
def test_losses_by_hand(loss: Callable[..., Tensor], arguments: tuple[Tensor, Tensor], expected: tuple) -> None:
    assert_close(loss(*arguments, "none"), vector(*expected))
    assert_close(loss(*arguments), torch.tensor(sum(expected) / 2, dtype=torch.float64))


def test_logit_mixture_by_hand() -> None:
    logits = torch.stack([LOG_ODDS, torch.zeros_like(LOG_ODDS)], dim=2)
    assert_close(logit_mixture(ALPHA.log(), logits), torch.stack([vector(log(8), log(4)), vector(0, 0)], dim=1))
    wrong, right = torch.tensor([1, 1]), torch.tensor([0, 0])
    assert_close(mixture_loss(ALPHA.log(), logits, "none", y=wrong), vector(log(9), log(5)))
    assert_close(mixture_loss(ALPHA.log(), logits, "none", y=right), vector(log(9 / 8), log(5 / 4)))


def test_lvml_is_sure_of_one_of_two_segments_where_averaged_logits_are_sure_of_neither() -> None:
    logits = torch.tensor([[[20.0, 0.0], [0.0, 20.0]]], dtype=torch.float64)
    log_alpha = torch.tensor([[0.9, 0.1]], dtype=torch.float64).log()
    assert lvml_loss(log_alpha, logits.log_softmax(2)[:, :, 1]).item() == pytest.approx(-log(0.1), abs=1e-6)
    assert mixture_loss(log_alpha, logits, y=torch.tensor([1])).item() == pytest.approx(16.0, abs=1e-6)


@pytest.mark.parametrize("mask", [None, MASK])
def test_gradcheck(mask: Tensor | None) -> None:
    assert gradcheck(lambda g: soft_attention_loss(g, Y, "none"), CLASS_LOGITS.clone().requires_grad_())
    focus, score, logits = (drawn(*shape).requires_grad_() for shape in ((B, M), (B, M), (B, M, K)))
    for loss in SEGMENT_LOSSES:
        assert gradcheck(lambda f, s, of=loss: of(log_attention(f, mask), s, "none", mask), (focus, score))
    assert gradcheck(lambda f, g: mixture_loss(log_attention(f, mask), g, "mean", mask), (focus, logits))


def test_gradients_in_closed_form() -> None:
    """By log-likelihoods: minus the posterior r for LVML, minus the prior alpha for HA.

    By focus logits: alpha - r for LVML, -alpha (log p - sum_j alpha_j log p_j) for HA.
    """
    focus, log_likelihood = ALPHA.log().add(5.0).requires_grad_(), LIKELIHOOD.log().requires_grad_()
    posterior = ALPHA * LIKELIHOOD / MARGINAL[:, None]
    mean = vector(-1.75 * log(2), -2.125 * log(2))[:, None]
    for loss, by_focus, weight in (
        (lvml_loss, ALPHA - posterior, posterior),
        (hard_attention_loss, -ALPHA * (LIKELIHOOD.log() - mean), ALPHA),
    ):
        found = torch.autograd.grad(loss(log_attention(focus), log_likelihood), (focus, log_likelihood))
        assert_close(found, (by_focus / 2, -weight / 2))


@given(arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(-30, 30)), st.data())
def test_lvml_is_at_most_hard_attention(focus_logits: np.ndarray, data: st.DataObject) -> None:
    log_likelihood = -data.draw(arrays(np.float64, focus_logits.shape, elements=st.floats(0, 60)))
    pair = log_attention(torch.from_numpy(focus_logits)), torch.from_numpy(log_likelihood)
    hard, lvml = hard_attention_loss(*pair, "none"), lvml_loss(*pair, "none")
    assert bool((lvml <= hard + 1e-10).all()) and bool((lvml >= -1e-10).all())
    level = log_likelihood[:, :1] + np.zeros_like(log_likelihood)  # where segments do not differ, Jensen is an equality
    even = pair[0], torch.from_numpy(level)
    assert_close(lvml_loss(*even, "none"), hard_attention_loss(*even, "none"))


@pytest.mark.parametrize("num_segments", [1, M])
def test_all_losses_agree_where_one_segment_has_all_the_attention(num_segments: int) -> None:
    logits, place = drawn(B, num_segments, K), torch.tensor([num_segments - 1, 0])
    log_alpha = torch.full((B, num_segments), -torch.inf, dtype=torch.float64)
    log_alpha[torch.arange(B), place] = 0.0
    log_likelihood = logits.log_softmax(2)[torch.arange(B), :, Y]
    expected = soft_attention_loss(logits[torch.arange(B), place], Y, "none")
    assert_close(mixture_loss(log_alpha, logits, "none"), expected)
    for loss in SEGMENT_LOSSES:
        assert_close(loss(log_alpha, log_likelihood, "none"), expected)


@pytest.mark.parametrize("loss", [*SEGMENT_LOSSES, mixture_loss])
@pytest.mark.parametrize("rubbish", [0.0, 5.0, torch.nan, -torch.inf])
def test_masked_equals_removed(loss: Callable[..., Tensor], rubbish: float) -> None:
    """Values, and gradients, which are zero at padding whatever stands there."""
    kept, rest = torch.tensor([[0, 2, 4], [1, 2, 3]]), (K,) if loss is mixture_loss else ()
    narrow = drawn(B, M).log_softmax(1), drawn(B, M, *rest) - 5
    wide = torch.full((B, 5), rubbish, dtype=torch.float64), torch.full((B, 5, *rest), rubbish, dtype=torch.float64)
    every = torch.arange(B)[:, None]
    for tensor, values in zip(wide, narrow, strict=True):
        tensor[every, kept] = values
    for tensor in (*narrow, *wide):
        tensor.requires_grad_()
    removed = loss(*narrow, "none")
    masked = loss(*wide, "none", torch.zeros(B, 5, dtype=torch.bool).scatter_(1, kept, True))
    assert_close(masked, removed)
    found, expected = (
        torch.autograd.grad(each @ vector(0.3, 0.7), of) for each, of in ((masked, wide), (removed, narrow))
    )
    for whole, part in zip(found, expected, strict=True):
        placed = torch.zeros_like(whole)
        placed[every, kept] = part
        assert_close(whole, placed)


def test_extreme_logits_do_not_overflow() -> None:
    focus_logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    log_likelihood = torch.tensor([[-1e4, 0.0, 0.0]], requires_grad=True)
    log_alpha = log_attention(focus_logits)
    # log alpha = (0, -2e4, -1e4): LVML sums e^-1e4 twice, where log(sum + eps) would see zero.
    lvml, hard = lvml_loss(log_alpha, log_likelihood), hard_attention_loss(log_alpha, log_likelihood)
    assert_close((lvml, hard), (torch.tensor(1e4 - log(2)), torch.tensor(1e4)))
    gradient = torch.autograd.grad(lvml, log_likelihood, retain_graph=True)[0]
    assert_close(gradient, torch.tensor([[-0.5, 0.0, -0.5]]), atol=1e-3, rtol=0)  # float32 resolves 1e4 to 1e-3
    assert bool(torch.isfinite(torch.autograd.grad(hard, focus_logits)[0]).all())
    assert_close(soft_attention_loss(torch.tensor([[1e4, 0.0, -1e4]]), torch.tensor([2])), torch.tensor(2e4))

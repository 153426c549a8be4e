"""The loss that is easily taken for LVML: what it equals, and where it differs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from fcamlib.losses import Reduction, hard_attention_loss, logit_mixture, lvml_loss, soft_attention_loss

B, M, K, D = 2, 3, 5, 7
Y = torch.tensor([4, 1])


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def logit_mixture_loss(
    log_alpha: Tensor, logits: Tensor, y: Tensor, reduction: Reduction = "mean", mask: Tensor | None = None
) -> Tensor:
    return soft_attention_loss(logit_mixture(log_alpha, logits, mask), y, reduction)


def test_equals_the_definition_by_hand() -> None:
    log_alpha, logits = random(B, M).log_softmax(1), random(B, M, K)
    wanted = []
    for a, g, y in zip(log_alpha.exp().numpy(), logits.numpy(), Y.tolist(), strict=True):
        wanted.append(-log_softmax(sum(a[j] * g[j] for j in range(M)))[y])
    assert_close(logit_mixture_loss(log_alpha, logits, Y, "none"), torch.tensor(np.array(wanted)))
    assert_close(logit_mixture_loss(log_alpha, logits, Y), torch.tensor(np.mean(wanted)))


def test_two_segments_sure_of_different_classes() -> None:
    """LVML is sure that one of both is right; averaged logits are sure of neither."""
    logits = torch.tensor([[[20.0, 0.0], [0.0, 20.0]]], dtype=torch.float64)
    log_alpha = torch.tensor([[0.9, 0.1]], dtype=torch.float64).log()
    y = torch.tensor([1])
    log_likelihood = logits.log_softmax(2)[:, :, 1]
    assert float(lvml_loss(log_alpha, log_likelihood)) == pytest.approx(-np.log(0.1), abs=1e-6)
    assert float(logit_mixture_loss(log_alpha, logits, y)) == pytest.approx(16.0, abs=1e-6)


def test_equals_soft_attention_of_an_affine_classifier() -> None:
    segments, weight, bias = random(B, M, D), random(K, D), random(K)
    log_alpha = random(B, M).log_softmax(1)
    mixture = torch.einsum("bm,bmd->bd", log_alpha.exp(), segments)
    soft = soft_attention_loss(mixture @ weight.T + bias, Y, "none")
    assert_close(logit_mixture_loss(log_alpha, segments @ weight.T + bias, Y, "none"), soft)


@pytest.mark.parametrize("one_hot", [False, True])
def test_equals_the_others_where_one_segment_has_all_weight(one_hot: bool) -> None:
    num_segments = M if one_hot else 1
    logits = random(B, num_segments, K)
    log_alpha = torch.full((B, num_segments), -torch.inf, dtype=torch.float64)
    log_alpha[:, 0] = 0.0
    log_likelihood = logits.log_softmax(2)[torch.arange(B), :, Y]
    wanted = lvml_loss(log_alpha, log_likelihood, "none")
    assert_close(logit_mixture_loss(log_alpha, logits, Y, "none"), wanted)
    assert_close(hard_attention_loss(log_alpha, log_likelihood, "none"), wanted)


def test_gradient_and_padding() -> None:
    mask = torch.tensor([[True, True, False], [True, True, True]])
    focus, logits = random(B, M).requires_grad_(), random(B, M, K).requires_grad_()

    def loss(focus: Tensor, logits: Tensor) -> Tensor:
        log_alpha = focus.masked_fill(~mask, -torch.inf).log_softmax(1)
        return logit_mixture_loss(log_alpha, logits, Y, mask=mask)

    assert gradcheck(loss, (focus, logits))
    spoiled = logits.detach().masked_fill(~mask[..., None], torch.nan)
    assert_close(loss(focus, spoiled), loss(focus, logits))
    grads = torch.autograd.grad(loss(focus, logits), (focus, logits))
    assert float(grads[0][0, 2]) == 0.0 and float(grads[1][0, 2].abs().sum()) == 0.0

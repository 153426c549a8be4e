"""Fixed focus in closed form: against an ODE solver, automatic differentiation and its own equations."""

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from torch import Tensor

from fcamlib.losses import hard_attention_loss, lvml_loss, soft_attention_loss
from fcamlib.theory import fixed_focus
from fcamlib.theory.fixed_focus import LAWS, incentive, loss, margin

PARADIGMS = ("soft", "hard", "lvml")
alphas = st.one_of(st.floats(0, 1), st.floats(0, 1e-6))
times = st.one_of(st.just(0.0), st.floats(-8, 12).map(lambda exponent: 10**exponent))
classes = st.one_of(st.integers(2, 50), st.integers(2, 1_000_000))


def library_loss(paradigm: str, mu: Tensor, alpha: Tensor, num_classes: int, num_segments: int = 3) -> Tensor:
    """The loss of one instance of class 0 from whole logits, by the library's losses: no closed form."""
    logits = torch.cat([mu[None], torch.zeros(num_classes - 1, dtype=torch.float64)])
    weights = torch.cat([alpha[None], ((1 - alpha) / (num_segments - 1)).expand(num_segments - 1)])[None]
    label = torch.tensor([0])
    if paradigm == "soft":
        return soft_attention_loss((alpha * logits)[None], label)  # background is zero
    own = logits.log_softmax(dim=0)[:1]
    likelihood = torch.cat([own, torch.full_like(weights[0, 1:], -log(num_classes))])[None]
    return {"hard": hard_attention_loss, "lvml": lvml_loss}[paradigm](weights.log(), likelihood)


def scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("paradigm", PARADIGMS)
@pytest.mark.parametrize(("alpha", "num_classes"), [(0.05, 7), (0.4, 2), (1.0, 7)])
def test_margin_is_that_of_an_independent_ode(paradigm: str, alpha: float, num_classes: int) -> None:
    """From the library's losses alone: a class's own column moves by the mean over C classes.

    The margin moves by the difference of two entries, which share the gradient in the proportion 1 : -1/(C-1).
    """

    def velocity(t: float, state: np.ndarray) -> list[float]:
        mu = scalar(float(state[0]))
        (slope,) = torch.autograd.grad(library_loss(paradigm, mu, scalar(alpha).detach(), num_classes), mu)
        return [-slope.item() * (1 + 1 / (num_classes - 1)) / num_classes]

    t = np.array([0.0, 0.3, 4.0, 60.0])
    solved = solve_ivp(velocity, (0, 60), [0.0], t_eval=t, rtol=1e-8, atol=1e-10)
    assert_allclose(margin(paradigm, alpha, t, num_classes), solved.y[0], rtol=1e-6, atol=1e-8)


@given(st.sampled_from(PARADIGMS), alphas, times, classes)
def test_margin_satisfies_its_equation(paradigm: str, alpha: float, t: float, c: int) -> None:
    mu, n = float(margin(paradigm, alpha, t, c)), c - 1
    if paradigm == "soft":  # e^mu alone may overflow
        left, right = np.expm1(alpha * mu) + n * alpha * mu, alpha**2 * t
    elif paradigm == "hard":
        left, right = np.expm1(mu) + n * mu, alpha * t
    else:
        growth, decay = np.expm1(mu), -np.expm1(-mu)
        left = alpha * (growth + n * mu) + (1 - alpha) / c * (growth + 2 * n * mu + n**2 * decay)
        right = alpha * t
    assert mu >= 0
    assert_allclose(left, right, rtol=1e-10, atol=1e-290)


@given(st.sampled_from(PARADIGMS), alphas, times, classes)
def test_closed_forms_are_finite_and_ordered(paradigm: str, alpha: float, t: float, c: int) -> None:
    early, late = (float(loss(paradigm, alpha, time, c)) for time in (t, 2 * t))
    assert 0 <= late <= early * (1 + 1e-12) <= log(c) * (1 + 1e-10)
    assert 0 <= float(incentive(paradigm, alpha, t, c)) < np.inf
    mu = margin("hard", alpha, t, c)
    assert float(margin("lvml", alpha, t, c)) >= float(mu) * (1 - 1e-9)  # r >= alpha: LVML is the faster one
    # Jensen at the same classifier.
    assert fixed_focus.loss_at("lvml", mu, alpha, c) <= fixed_focus.loss_at("hard", mu, alpha, c) + 1e-12


@pytest.mark.parametrize("paradigm", PARADIGMS)
@pytest.mark.parametrize("alpha", [0.2, 0.7, 1.0])
@pytest.mark.parametrize("t", [0.0, 5.0, 800.0])
def test_loss_and_incentive_by_automatic_differentiation(paradigm: str, alpha: float, t: float) -> None:
    mu = float(margin(paradigm, alpha, t, 6))
    at = scalar(min(alpha, 1 - 1e-12))  # the losses take the logarithm of the background's weight
    value = library_loss(paradigm, torch.tensor(mu, dtype=torch.float64), at, 6)
    (slope,) = torch.autograd.grad(value, at)
    assert_allclose(loss(paradigm, alpha, t, 6), value.item(), rtol=1e-9)
    assert_allclose(incentive(paradigm, alpha, t, 6), -slope.item(), rtol=1e-8, atol=1e-12)


def test_binary_case_by_hand() -> None:
    """C = 2: the logistic loss. With alpha mu = 1, SA needs alpha^2 t = e; HA at mu = 1 needs alpha t = e.

    LVML at alpha = 1/2: e^mu - 1 + mu + (e^mu - 1 + 2 mu + 1 - e^-mu)/2 = t.
    """
    e = np.e
    for function, paradigm, t, expected in (
        (margin, "soft", 4 * e, 2.0),
        (margin, "hard", 2 * e, 1.0),
        (margin, "lvml", e + (e + 2 - 1 / e) / 2, 1.0),
        (loss, "soft", 4 * e, np.log1p(1 / e)),
        (loss, "hard", 2 * e, (np.log1p(1 / e) + log(2)) / 2),
        (incentive, "soft", 4 * e, 2 / (e + 1)),
        (incentive, "hard", 2 * e, log(2 * e / (e + 1))),
    ):
        assert_allclose(function(paradigm, 0.5, t, 2), expected, rtol=1e-14)


def test_limits_of_alpha() -> None:
    t = np.array([0.0, 1.0, 1e4])
    for paradigm in PARADIGMS:
        assert_allclose(margin(paradigm, 0.0, t, 20), 0.0, atol=0)
        assert_allclose(loss(paradigm, 0.0, t, 20), log(20), rtol=1e-12)
        assert_allclose(margin(paradigm, 1e-9, t, 20), 1e-9 * t / 20, rtol=1e-4)  # first order, alike for all
        assert_allclose(margin(paradigm, 1.0, t, 20), margin("hard", 1.0, t, 20), rtol=1e-13)
        assert_allclose(loss(paradigm, 1.0, t, 20), loss("soft", 1.0, t, 20), rtol=1e-12)
    assert margin("lvml", 0.3, 0.0, 5) == 0.0


def test_incentives_part_at_second_order() -> None:
    """I = (N/C) mu + kappa mu^2, with the stated kappas (F6)."""
    c, n, mu = 5, 4, 1e-4
    for alpha in (0.0, 0.3, 1.0):
        kappa = {
            "soft": -alpha * n / c**2,
            "hard": -n / (2 * c**2),
            "lvml": n * (c - 2) / (2 * c**2) - alpha * n**2 / c**2,
        }
        for paradigm, expected in kappa.items():
            second = (LAWS[paradigm].pull(np, mu, alpha, n)[1] - n / c * mu) / mu**2
            assert_allclose(second, expected, atol=1e-4)


def test_arguments_broadcast() -> None:
    alpha, t, classes = np.array([[0.2], [1.0]]), np.array([0.0, 3.0, 50.0]), np.array([20, 20, 7])
    for function in (margin, loss, incentive):
        each = [[function("lvml", a, *rest) for rest in zip(t, classes, strict=True)] for a in (0.2, 1.0)]
        assert_allclose(function("lvml", alpha, t, classes), each, rtol=1e-13)

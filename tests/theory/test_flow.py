"""The gradient flow against stated numbers, against itself by other routes, and against training written out anew."""

import re
from collections.abc import Callable
from itertools import product
from math import log
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad, solve_ivp
from torch import Tensor

from fcamlib.errors import UserError
from fcamlib.losses import hard_attention_loss, lvml_loss, soft_attention_loss
from fcamlib.theory import flow
from fcamlib.theory.fixed_focus import incentive, loss_at
from fcamlib.theory.hessian import hessian_spectrum
from fcamlib.theory.special import exp_remainder, hard_integral, invert_exp_linear, probability

PARADIGMS = ("soft", "hard", "lvml")
counts = st.one_of(st.integers(2, 50), st.integers(2, 1_000_000))
STATED = {  # (m, C, t): mu and nu, solved independently by the project's derivation
    ("soft", 20, 20, 1e3): (6.314014, 5.543136),
    ("hard", 20, 20, 1e3): (5.756755, 6.812058),
    ("lvml", 20, 20, 1e3): (6.329378, 6.162965),
    ("soft", 100, 1000, 4e5): (12.649239, 8.858826),
    ("hard", 100, 1000, 4e5): (12.468108, 12.111196),
    ("lvml", 100, 1000, 4e5): (12.662795, 10.353217),
}


@pytest.mark.parametrize(("case", "stated"), STATED.items())
def test_stated_ends_of_the_trajectories(case: tuple[str, int, int, float], stated: tuple[float, float]) -> None:
    paradigm, num_segments, num_classes, time = case
    end = flow.trajectory(paradigm, num_segments, num_classes, [0.0, time])
    assert_allclose((end.mu[1], end.nu[1]), stated, rtol=0, atol=1e-6)
    assert end.mu[0] == end.nu[0] == 0.0
    if paradigm == "lvml":
        assert_allclose(end.score, end.alpha * end.beta + (1 - end.alpha) / num_classes, rtol=1e-12)
    assert_allclose(end.loss[0], log(num_classes), rtol=1e-15)
    assert_allclose((end.alpha[0], end.beta[0]), (1 / num_segments, 1 / num_classes), rtol=1e-15)


@pytest.mark.parametrize("paradigm", PARADIGMS)
@pytest.mark.parametrize("num_segments", [2, 20, 1_000_000])
@pytest.mark.parametrize("num_classes", [2, 3, 1000, 1_000_000])
def test_solver_lies_on_the_closed_form_curve(paradigm: str, num_segments: int, num_classes: int) -> None:
    times = np.concatenate([[0.0], np.geomspace(1e-6, 1e12, 40)])
    solved = flow.trajectory(paradigm, num_segments, num_classes, times)
    for rising in (solved.mu, solved.nu, solved.alpha, solved.beta, -solved.loss):
        assert bool((np.diff(rising) >= 0).all()) and bool(np.isfinite(rising).all())
    assert_allclose(solved.loss, loss_at(paradigm, solved.mu, solved.alpha, num_classes), rtol=1e-12)
    curve = flow.phase_curve(paradigm, solved.mu, num_segments, num_classes)
    assert_allclose(solved.nu, curve, rtol=0, atol=1e-8)
    # Time by one integral along the curve (G12), between the points by a Gauss-Legendre rule.
    (nodes, weights), widths = np.polynomial.legendre.leggauss(40), np.diff(solved.mu)
    s = solved.mu[:-1, None] + widths[:, None] * (nodes + 1) / 2
    along = flow.phase_curve(paradigm, s, num_segments, num_classes)
    speed, _ = flow.derivatives(paradigm, s, along, num_segments, num_classes)
    assert_allclose(np.cumsum(widths / 2 * (1 / speed @ weights)), times[1:], rtol=1e-7)


def test_dilogarithm_form_and_small_arguments() -> None:
    def integrand(s: float, c: int) -> float:
        return (np.exp(s) + c - 1) * -np.log1p((c - 1) * np.expm1(-s) / c) / c

    for c, mu in product((2, 10, 10**6), (1e-8, 0.9999, 1.0001, 12.0, 30.0)):
        expected, _ = quad(integrand, 0, mu, (c,), epsabs=0, epsrel=1e-12, limit=200)
        assert_allclose(float(hard_integral(mu, c)), expected, rtol=1e-10)
    tiny, x = np.array([-1e-9, 0.0, 1e-9]), np.array([-600.0, -3.0, -0.5, 0.5, 4.0, 600.0])
    assert_allclose(exp_remainder(tiny), tiny**2 / 2, rtol=1e-8)
    assert_allclose(exp_remainder(x), np.expm1(x) - x, rtol=1e-13)


@given(st.floats(1, 1e6), st.just(0.0) | st.floats(1e-290, 1e300))  # x itself has to be a normal number
def test_inversion_by_wright_omega(n: float, y: float) -> None:
    x = float(invert_exp_linear(n, y))
    assert_allclose(np.expm1(x) + n * x, y, rtol=1e-11)  # e^x magnifies the rounding of x by up to 700


def test_first_steps_do_not_depend_on_the_paradigm() -> None:
    """At small mu the three curves are nu = (m - 1)/m N mu^2 / 2C."""
    mu = np.array([1e-7, 1e-6])
    for paradigm in PARADIGMS:
        assert_allclose(flow.phase_curve(paradigm, mu, 7, 11), 6 / 7 * 10 / 11 * mu**2 / 2, rtol=1e-6)
    far = {p: np.asarray(flow.phase_curve(p, [599, 600], 7, 11)) for p in ("hard", "lvml")}
    assert_allclose(far["hard"] - 599, log(6 * log(11) / 11) + np.arange(2), atol=1e-8)
    assert_allclose(far["lvml"] - 599, log(6 * 10 / 121) + np.arange(2), atol=1e-8)


def population_loss(paradigm: str, weights: Tensor, focus: Tensor, num_segments: int) -> Tensor:
    """The mean loss over classes of the task without noise, by the library's losses from whole logits (G1)."""
    num_classes = len(focus)
    label = torch.arange(num_classes)
    focus_logits = torch.cat([focus[:, None], torch.zeros(num_classes, num_segments - 1, dtype=torch.float64)], dim=1)
    log_alpha = focus_logits.log_softmax(dim=1)  # (C, m)
    logits = weights.T  # foreground of class k is e_k: its logits are column k
    if paradigm == "soft":
        return soft_attention_loss(log_alpha.exp()[:, :1] * logits, label)
    background = torch.full((num_classes, num_segments - 1), -log(num_classes), dtype=torch.float64)
    own = logits.log_softmax(dim=1).diagonal()[:, None]
    loss = {"hard": hard_attention_loss, "lvml": lvml_loss}[paradigm]
    return loss(log_alpha, torch.cat([own, background], dim=1))


def symmetric(mu: float, nu: float, num_classes: int) -> tuple[Tensor, Tensor]:
    weights = mu * (torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes)
    return weights, torch.full((num_classes,), nu, dtype=torch.float64)


@pytest.mark.parametrize("paradigm", PARADIGMS)
@pytest.mark.parametrize(("mu", "nu"), [(0.0, 0.0), (0.7, -0.4), (2.5, 3.0)])
def test_velocities_are_gradients_of_the_loss(paradigm: str, mu: float, nu: float) -> None:
    m, c = 5, 4
    weights, focus = (value.requires_grad_() for value in symmetric(mu, nu, c))
    loss = population_loss(paradigm, weights, focus, m)
    assert_allclose(loss.item(), loss_at(paradigm, mu, probability(nu, m), c), rtol=1e-12)
    by_weights, by_focus = torch.autograd.grad(loss, [weights, focus])
    velocities = (by_weights[1, 0] - by_weights[0, 0]).item(), -by_focus[0].item()
    assert_allclose(velocities, flow.derivatives(paradigm, mu, nu, m, c), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("paradigm", PARADIGMS)
@pytest.mark.parametrize(("m", "num_classes"), [(2, 2), (4, 5)])
@pytest.mark.parametrize(("mu", "nu"), [(0.0, 0.0), (0.3, 0.1), (3.0, 2.0), (5.0, -1.0)])
def test_spectrum_is_that_of_the_whole_hessian(paradigm: str, m: int, num_classes: int, mu: float, nu: float) -> None:
    size = num_classes**2

    def loss(parameters: Tensor) -> Tensor:
        weights = parameters[:size].view(num_classes, num_classes)
        return population_loss(paradigm, weights, parameters[size:], m)

    point = torch.cat([value.flatten() for value in symmetric(mu, nu, num_classes)])
    whole = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, point)).numpy()
    times = [num_classes * (num_classes - 2), *[num_classes] * 3]  # of each eigenvalue
    found = np.repeat(hessian_spectrum(paradigm, mu, nu, m, num_classes), times)
    assert_allclose(np.sort(found), whole, rtol=1e-9, atol=1e-14)


def test_spectrum_along_a_trajectory_keeps_points_apart() -> None:
    path = flow.trajectory("lvml", 20, 20, np.geomspace(1, 1e4, 7))
    alone = [hessian_spectrum("lvml", mu, nu, 20, 20) for mu, nu in zip(path.mu, path.nu, strict=True)]
    assert_allclose(hessian_spectrum("lvml", path.mu, path.nu, 20, 20), alone)
    assert not hessian_spectrum("soft", 3000.0, 1.0, 4, 3).any()  # as sure as floats can be


@given(st.one_of(st.just(0.0), st.floats(1e-100, 40)), st.floats(-5, 40), counts, counts)
def test_rates_are_ratios_of_the_velocities(mu: float, nu: float, m: int, c: int) -> None:
    of_hard = np.array(flow.derivatives("hard", mu, nu, m, c))
    for paradigm in ("soft", "lvml"):
        ratios = np.array(flow.rates(paradigm, mu, nu, m, c))
        assert_allclose(ratios * of_hard, flow.derivatives(paradigm, mu, nu, m, c), rtol=1e-10)
        assert ratios[0] >= 1 - 1e-12
    assert_allclose(flow.rates("lvml", [0.0, 1e-9], 0.0, 20, 20), 1.0, atol=1e-8)
    assert_allclose(flow.rates("soft", [0.0, 1e-9], 0.0, 20, 20), 1.0, atol=1e-7)


def test_rates_by_hand_and_the_threshold_of_the_attention() -> None:
    """m = 2, C = 3, e^mu = 2, alpha = 1/2: beta = 1/2, Z = 5/12."""
    mu_ratio, nu_ratio = flow.rates("lvml", log(2), 0.0, 2, 3)
    assert_allclose((mu_ratio, nu_ratio), (6 / 5, (1 / 6) / (5 / 12 * log(1.5))), rtol=1e-14)
    for c in (3, 20, 1000):
        threshold = 1 / log(c) - 1 / (c - 1)
        for alpha, is_faster in ((threshold - 1e-4, True), (threshold + 1e-4, False)):
            nu = log(alpha / (1 - alpha) * 6)  # of 7 segments
            assert (flow.rates("lvml", 40.0, nu, 7, c)[1] > 1) == is_faster


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        (flow.trajectory, ("sotf", 5, 5, [1.0]), "paradigm='sotf' is unknown: choose one of soft, hard, lvml."),
        (flow.trajectory, ("soft", 2.5, 5, [1]), "num_segments=2.5 is not allowed: give whole numbers of at least 2."),
        (flow.trajectory, ("soft", 5, 5, [0, -1]), "times=-1 is not allowed: give finite numbers of at least 0."),
        (flow.trajectory, ("soft", 5, 5, [0, 3, 2]), "times=2 comes after 3: give times in ascending order."),
        (flow.trajectory, ("soft", 5, 5, []), "times has the shape (0,): give a list with at least one time."),
        (flow.phase_curve, ("hard", [0.0, 601], 3, 4), "mu=601 is not allowed: give finite numbers from 0 to 600."),
        (flow.phase_curve, ("hard", 1, 3, 4, (1.5, 0.3)), "mu=1 is not allowed: give finite numbers from 1.5 to 600."),
        (flow.phase_curve, ("hard", 1, 3, 4, (0.5, 601)), "start=601 is not allowed: give finite numbers from 0 to"),
        (flow.rates, ("lvml", -1, 0.0, 3, 4), "mu=-1 is not allowed: give finite numbers from 0 to 600."),
        (hessian_spectrum, ("hard", 1, 0, 2, 1), "num_classes=1 is not allowed: give whole numbers of at least 2."),
        (incentive, ("soft", [0.2, -0.1], 1, 5), "alpha=-0.1 is not allowed: give finite numbers from 0 to 1."),
        (incentive, ("hard", 0.5, float("inf"), 5), "t=inf is not allowed: give finite numbers of at least 0."),
    ],
)
def test_wrong_inputs_are_one_sentence(function: Callable[..., Any], arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}"):
        function(*arguments)


HYBRIDS = {  # (m, C, t, switch / t): alpha and score at the end, stated by the project's derivation
    (20, 20, 1e3, 0.6): (0.9811, 0.9495),
    (5, 3, 200.0, 0.25): (0.9804, 0.9889),
    (100, 1000, 4e5, 0.25): (0.9995, 0.9962),
}


def independent_hybrid(m: int, c: int, end: float, switch: float) -> tuple[float, float]:
    """(mu, nu) by another solver, from the equations of the two phases as they stand in the book."""

    def velocity(t: float, state: np.ndarray) -> tuple[float, float]:
        (mu, nu), n = state, c - 1
        alpha = np.exp(nu) / (np.exp(nu) + m - 1)
        if t < switch:
            total, incentive = np.exp(alpha * mu) + n, n * mu / (np.exp(alpha * mu) + n)
        else:
            total, incentive = np.exp(mu) + n, np.log(c * np.exp(mu) / (np.exp(mu) + n))
        return alpha / total, alpha * (1 - alpha) * incentive / c

    state = np.zeros(2)
    for span in ((0.0, np.nextafter(switch, 0)), (switch, end)):
        solved = solve_ivp(velocity, span, state, method="DOP853", rtol=1e-11, atol=1e-13)
        assert solved.success
        state = solved.y[:, -1]
    return float(state[0]), float(state[1])


@pytest.mark.parametrize(("case", "stated"), HYBRIDS.items())
def test_hybrid_against_another_solver_and_its_closed_form(
    case: tuple[int, int, float, float], stated: tuple[float, float]
) -> None:
    m, c, end, share = case
    switch = share * end
    path = flow.hybrid(m, c, [0.0, switch / 2, switch, (switch + end) / 2, end], switch)
    assert_allclose((path.alpha[-1], path.score[-1]), stated, atol=5e-5)
    assert_allclose((path.mu[-1], path.nu[-1]), independent_hybrid(m, c, end, switch), rtol=1e-8)
    soft = flow.trajectory("soft", m, c, path.times[:3])
    assert_allclose((path.mu[:3], path.nu[:3]), (soft.mu, soft.nu), rtol=1e-9)
    assert_allclose(path.loss[:3], soft.loss, rtol=1e-9)
    assert_allclose(path.loss[3:], loss_at("hard", path.mu[3:], path.alpha[3:], c), rtol=1e-12)
    start = float(path.mu[2]), float(path.nu[2])
    assert_allclose(path.nu[2:], flow.phase_curve("hard", path.mu[2:], m, c, start), rtol=1e-8)
    # (G19) as it stands, and (G20): at one margin the hybrid never focuses better than HA, and its gain is time.
    rise = hard_integral(path.mu[3:], c) - hard_integral(start[0], c)
    left = (np.exp(path.nu[3:]) - np.exp(start[1])) / (m - 1) + path.nu[3:] - start[1]
    assert_allclose(left, rise, rtol=1e-7)
    assert bool((path.nu[2:] <= flow.phase_curve("hard", path.mu[2:], m, c) + 1e-9).all())


def test_hybrid_at_its_ends_is_hard_or_soft_attention_and_times_may_repeat() -> None:
    for name, switch in (("hard", 0.0), ("soft", 40.0)):
        other, path = flow.trajectory(name, 5, 3, [0.0, 7.0, 40.0, 40.0]), flow.hybrid(5, 3, [0.0, 7.0, 40.0], switch)
        assert_allclose((path.mu, path.nu), (other.mu[:3], other.nu[:3]), rtol=1e-10)
        assert other.mu[2] == other.mu[3] and flow.trajectory(name, 5, 3, [0.0]).nu.tolist() == [0.0]


def test_best_switch_is_better_than_its_neighbours() -> None:
    best = flow.best_switch(5, 3, 200.0)
    assert best / 200 == pytest.approx(0.243, abs=5e-4)

    def product(switch: float) -> float:
        end = flow.hybrid(5, 3, [200.0], switch)
        return float(end.alpha[0] * end.beta[0])

    assert product(best) > max(product(best - 2), product(best + 2), product(0), product(200))
    assert flow.best_switch(5, 3, 20.0) == pytest.approx(20, rel=1e-5), "too short a time for HA"
    assert flow.best_switch(5, 3, 1e5) == pytest.approx(66.74, abs=0.3), "in the first of its coarse steps"

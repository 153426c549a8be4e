r"""Closed forms for a fixed focus: attention is held at alpha, the classification model follows the gradient flow.

Linear orthogonal task, zero weights at t = 0, unit learning rate, mean loss over classes; attention is alpha on the
foreground and (1 - alpha)/(m - 1) on each background segment, which carries no information about the class. The number
of segments does not matter. For names and symbols see `fcamlib.theory.special`; time t is the learning rate times the
number of steps, see F7 for momentum. A paradigm is soft, hard or lvml, alpha is in [0, 1], C is at least 2, and arrays
broadcast. `fcamlib.theory.sweep` trains such models.
Source: arXiv 2307.13421, sec. 3; the closed forms are this project's derivation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcamlib.theory.special import Array, Values, entry, gain, invert_exp_linear, numbers

MAX_ITERATIONS = 200  # of the bracketed root search; about ten are needed


@dataclass(frozen=True)
class Law:
    r"""A paradigm's equations at margin mu, attention alpha and N = C - 1 wrong classes.

    `pull` gives the speed of the margin $\mu'$ and the incentive $I = -\partial L/\partial\alpha$ (F5, G4 to G6). Its
    first argument is numpy, or for plain floats the module math, which is much faster in a solver.
    """

    loss: Callable[[Array, Array, Array], Array]  # (mu, alpha, n) -> population loss in nats (G3)
    pull: Callable[[Any, Any, Any, Any], tuple[Any, Any]]  # (numpy or math, mu, alpha, n)
    margin: Callable[[Array, Array, Array], Array]  # (alpha, t, n) -> margin at time t at a fixed alpha (F1 to F3)


def _soft_loss(mu: Array, alpha: Array, n: Array) -> Array:
    return np.log1p(n * np.exp(-alpha * mu))


def _soft_pull(xp: Any, mu: Any, alpha: Any, n: Any) -> tuple[Any, Any]:
    decay = xp.exp(-alpha * mu)
    wrong = decay / (1.0 + n * decay)  # probability of one wrong class
    return alpha * wrong, n * mu * wrong


def _soft_margin(alpha: Array, t: Array, n: Array) -> Array:
    scaled = invert_exp_linear(n, alpha**2 * t)  # alpha mu
    return np.where(alpha > 0, scaled / np.where(alpha > 0, alpha, 1.0), 0.0)


def _hard_loss(mu: Array, alpha: Array, n: Array) -> Array:
    return alpha * np.log1p(n * np.exp(-mu)) + (1.0 - alpha) * np.log(n + 1.0)


def _hard_pull(xp: Any, mu: Any, alpha: Any, n: Any) -> tuple[Any, Any]:
    decay = xp.exp(-mu)
    return alpha * decay / (1.0 + n * decay), -xp.log1p(n * xp.expm1(-mu) / (n + 1.0))


def _hard_margin(alpha: Array, t: Array, n: Array) -> Array:
    return invert_exp_linear(n, alpha * t)


def _lvml_loss(mu: Array, alpha: Array, n: Array) -> Array:
    return np.log(n + 1.0) - np.log1p(alpha * (n + 1.0) * gain(mu, n + 1.0))  # C Z = 1 + alpha (C beta - 1)


def _lvml_pull(xp: Any, mu: Any, alpha: Any, n: Any) -> tuple[Any, Any]:
    decay = xp.exp(-mu)
    beta = 1.0 / (1.0 + n * decay)
    marginal = alpha * beta + (1.0 - alpha) / (n + 1.0)  # Z
    return alpha * beta / marginal * beta * decay, n * -xp.expm1(-mu) * beta / (n + 1.0) / marginal


def _lvml_margin(alpha: Array, t: Array, n: Array) -> Array:
    """Newton steps on (F3), replaced by bisection if they would leave the bracket."""
    weight = (1.0 - alpha) / (n + 1.0)
    low, high = np.zeros_like(t), invert_exp_linear(n, t)  # the margin at alpha = 1 is an upper bound
    mu = np.minimum(high, alpha * t / (n + 1.0))  # first order in t
    for _ in range(MAX_ITERATIONS):
        growth, decay = np.expm1(mu), -np.expm1(-mu)
        excess = alpha * (growth + n * mu) + weight * (growth + 2.0 * n * mu + n**2 * decay) - alpha * t
        slope = (growth + n + 1.0) * (alpha + weight * (1.0 + n * (1.0 - decay)))
        low, high = np.where(excess <= 0, mu, low), np.where(excess >= 0, mu, high)
        step = mu - excess / slope
        following = np.where((step >= low) & (step <= high), step, (low + high) / 2.0)
        if bool(np.all(np.abs(following - mu) <= 4e-16 * mu)):
            return following
        mu = following
    return mu


LAWS = {
    "soft": Law(_soft_loss, _soft_pull, _soft_margin),
    "hard": Law(_hard_loss, _hard_pull, _hard_margin),
    "lvml": Law(_lvml_loss, _lvml_pull, _lvml_margin),
}


def margin(paradigm: str, alpha: Values, t: Values, num_classes: Values) -> Array:
    r"""The margin mu at time t (F1 to F3); 0 at alpha = 0, where nothing is learned.

    SA: $e^{\alpha\mu} - 1 + N\alpha\mu = \alpha^2 t$. HA: $e^\mu - 1 + N\mu = \alpha t$. LVML:
    $\alpha[e^\mu - 1 + N\mu] + \frac{1-\alpha}{C}[e^\mu - 1 + 2N\mu + N^2(1 - e^{-\mu})] = \alpha t$.

    Solved with the Wright omega function (SA, HA) or a bracketed root search. Source: this project's derivation.
    """
    law, classes = entry(LAWS, paradigm), numbers("num_classes", num_classes, 2, whole=True)
    return law.margin(*np.broadcast_arrays(numbers("alpha", alpha, 0, 1), numbers("t", t, 0), classes - 1.0))


def loss(paradigm: str, alpha: Values, t: Values, num_classes: Values) -> Array:
    r"""The population loss L(alpha, t) in nats (F4), $\log C$ at t = 0.

    SA: $\log(1 + Ne^{-\alpha\mu})$; HA: $\alpha\log(1 + Ne^{-\mu}) + (1-\alpha)\log C$;
    LVML: $-\log Z$, $Z = \alpha\beta + (1-\alpha)/C$.
    """
    return loss_at(paradigm, margin(paradigm, alpha, t, num_classes), alpha, num_classes)


def incentive(paradigm: str, alpha: Values, t: Values, num_classes: Values) -> Array:
    r"""The focus-improvement incentive $I = -\partial L/\partial\alpha$ for the classifier trained to (alpha, t) (F5).

    SA: $\mu N/(e^{\alpha\mu} + N)$; HA: $\log(C\beta)$; LVML: $(\beta - 1/C)/Z$.
    """
    mu = margin(paradigm, alpha, t, num_classes)
    return LAWS[paradigm].pull(np, mu, np.asarray(alpha), np.asarray(num_classes) - 1.0)[1]


def loss_at(paradigm: str, mu: Values, alpha: Values, num_classes: Values) -> Array:
    """The loss at a margin and an attention weight (G3), without validation of inputs."""
    mu, alpha, classes = (np.asarray(value, dtype=np.float64) for value in (mu, alpha, num_classes))
    return entry(LAWS, paradigm).loss(mu, alpha, classes - 1.0)

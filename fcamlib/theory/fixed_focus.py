r"""Fixed-focus analysis in closed form: attention held at alpha, the classification model trained by gradient flow.

Linear orthogonal task, weights zero at t = 0, unit learning rate, mean loss over classes; attention is alpha on the
foreground and (1 - alpha)/(m - 1) on each background segment, which by itself says nothing about the class.

| here        | book           | meaning                                                                   |
|-------------|----------------|---------------------------------------------------------------------------|
| `alpha`     | $\alpha$       | attention weight of the foreground                                        |
| `t`         | $t$            | time: learning rate times steps, see F7 for momentum                      |
| `margin`    | $\mu$          | margin that the classification model has reached                          |
| `loss`      | $L(\alpha, t)$ | population loss in nats                                                   |
| `incentive` | $I$            | $-\partial L/\partial\alpha$ at the same classifier: what attention gains |

All functions broadcast. The number of segments does not matter. Labels F1 to F5 are those of the book's page
"Derivations"; training itself is in `fcamlib.theory.sweep`.
Source: arXiv 2307.13421, sec. 3; the closed forms are this project's derivation.
"""

from __future__ import annotations

import numpy as np

from fcamlib.theory.closed_forms import (
    Array,
    Values,
    check_alpha,
    check_classes,
    check_nonnegative,
    check_paradigm,
    gain,
    invert_exp_linear,
    log_gain,
    true_probability,
)
from fcamlib.theory.gradient_flow import loss_at

MAX_ITERATIONS = 200  # of the bracketed root; about ten are needed


def margin(paradigm: str, alpha: Values, t: Values, num_classes: Values) -> Array:
    r"""The margin mu at time t (F1 to F3), with $N = C - 1$.

    SA: $e^{\alpha\mu} - 1 + N\alpha\mu = \alpha^2 t$. HA: $e^\mu - 1 + N\mu = \alpha t$. LVML:
    $\alpha[e^\mu - 1 + N\mu] + \frac{1-\alpha}{C}[e^\mu - 1 + 2N\mu + N^2(1 - e^{-\mu})] = \alpha t$.

    The first two by the Wright omega function, the third by a bracketed root. At alpha = 0 nothing is learnt: mu = 0.

    Parameters
    ----------
    paradigm : "soft", "hard" or "lvml"
    alpha : array in [0, 1]
    t : array, finite, at least 0
    num_classes : int or array, at least 2
        2 is the binary problem.

    Raises
    ------
    UserError
        One sentence where a value is out of range.

    Source: this project's derivation.
    """
    check_paradigm(paradigm)
    alpha, t, classes = np.broadcast_arrays(check_alpha(alpha), check_nonnegative("t", t), check_classes(num_classes))
    if paradigm == "hard":
        return invert_exp_linear(classes - 1.0, alpha * t)
    if paradigm == "soft":
        scaled = invert_exp_linear(classes - 1.0, alpha**2 * t)  # alpha mu
        return np.where(alpha > 0, scaled / np.where(alpha > 0, alpha, 1.0), 0.0)
    return _lvml_margin(alpha, t, classes)


def _lvml_margin(alpha: Array, t: Array, classes: Array) -> Array:
    """Newton's steps on (F3), replaced by bisection wherever they would leave the bracket."""
    n, weight = classes - 1.0, (1.0 - alpha) / classes
    low, high = np.zeros_like(t), invert_exp_linear(n, t)  # no weight above alpha = 1, where the second term is gone
    mu = np.minimum(high, alpha * t / classes)  # the first order in t
    for _ in range(MAX_ITERATIONS):
        growth, decay = np.expm1(mu), -np.expm1(-mu)
        excess = alpha * (growth + n * mu) + weight * (growth + 2.0 * n * mu + n**2 * decay) - alpha * t
        total = growth + classes  # e^mu + N
        slope = total * (alpha + weight * (1.0 + n * (1.0 - decay)))
        low, high = np.where(excess <= 0, mu, low), np.where(excess >= 0, mu, high)
        step = mu - excess / slope
        following = np.where((step >= low) & (step <= high), step, (low + high) / 2.0)
        if bool(np.all(np.abs(following - mu) <= 4e-16 * mu)):
            return following
        mu = following
    return mu


def loss(paradigm: str, alpha: Values, t: Values, num_classes: Values) -> Array:
    r"""The population loss L(alpha, t) in nats (F4).

    SA: $\log(1 + Ne^{-\alpha\mu})$; HA: $\alpha\log(1 + Ne^{-\mu}) + (1-\alpha)\log C$;
    LVML: $-\log Z$, $Z = \alpha\beta + (1-\alpha)/C$. Parameters as of `margin`; $\log C$ at t = 0.
    """
    return loss_at(paradigm, margin(paradigm, alpha, t, num_classes), alpha, num_classes)


def incentive(paradigm: str, alpha: Values, t: Values, num_classes: Values) -> Array:
    r"""The focus-improvement incentive $-\partial L/\partial\alpha$ at the classifier of (alpha, t) (F5).

    SA: $\mu N/(e^{\alpha\mu} + N)$; HA: $\log(C\beta)$; LVML: $(\beta - 1/C)/Z$. Parameters as of `margin`; 0 at t = 0.
    """
    return incentive_at(paradigm, margin(paradigm, alpha, t, num_classes), alpha, num_classes)


def incentive_at(paradigm: str, mu: Values, alpha: Values, num_classes: Values) -> Array:
    """The incentive of a classification model with margin mu under attention alpha (F5), inputs taken as they are."""
    mu, alpha, classes = (np.asarray(value, dtype=np.float64) for value in (mu, alpha, num_classes))
    n = classes - 1.0
    if paradigm == "soft":
        return mu * n * np.exp(-alpha * mu) * true_probability(alpha * mu, classes)
    if paradigm == "hard":
        return log_gain(mu, classes) + 0.0 * alpha
    return gain(mu, classes) / (alpha * true_probability(mu, classes) + (1.0 - alpha) / classes)

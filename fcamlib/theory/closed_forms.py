r"""Pieces that the closed forms of the theory share, accurate from tiny to huge arguments, and checks of its inputs.

| here           | book          | meaning                                                             |
|----------------|---------------|---------------------------------------------------------------------|
| `num_classes`  | $C$           | number of classes; $N = C - 1$ is the number of wrong ones           |
| `num_segments` | $m$           | segments of an instance, one of them foreground                     |
| `mu`           | $\mu$         | margin: the true class's logit less a wrong one's, on the foreground |
| `nu`           | $\nu$         | the foreground's focus logit less the background's                  |
| `alpha`        | $\alpha$      | attention weight of the foreground                                  |
| `beta`         | $\beta$       | probability of the true class on the foreground alone               |

Equation labels (G1, F1, ...) are those of the page "Derivations" of the book.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import spence, wrightomega

from fcamlib.errors import UserError

Array = NDArray[np.float64] | np.float64  # numpy makes a scalar of what has no axis
Vector = NDArray[np.float64]
Values = int | float | np.generic | NDArray[Any] | Sequence[Any]  # what becomes an array of floats
PARADIGMS = ("soft", "hard", "lvml")
NEWTON_STEPS = 3
SMALL_MU = 1.0  # below it the hard paradigm's integral is summed, above it written by the dilogarithm


def check_paradigm(paradigm: str, known: Sequence[str] = PARADIGMS) -> None:
    """Refuse a paradigm that the theory does not have."""
    if paradigm not in known:
        raise UserError(f"paradigm={paradigm!r} is unknown: choose one of {', '.join(known)}.")


def check_count(name: str, value: Values, about: str) -> Array:
    """A number of segments or classes, or an array of them, as floats: whole and at least 2."""
    counts = _numbers(name, value)
    allowed = np.isfinite(counts) & (counts >= 2) & (counts == np.floor(counts))
    if not bool(np.all(allowed)):
        shown = _first_bad(counts, allowed)
        raise UserError(f"{name}={shown} is not allowed: give a whole number of at least 2 ({about}).")
    return counts


def check_segments(num_segments: Values) -> Array:
    """`num_segments` as floats, at least 2."""
    return check_count("num_segments", num_segments, "one foreground segment and some background")


def check_classes(num_classes: Values) -> Array:
    """`num_classes` as floats, at least 2."""
    return check_count("num_classes", num_classes, "classes to tell apart")


def check_alpha(alpha: Values) -> Array:
    """Attention weights as floats in [0, 1]."""
    values = _numbers("alpha", alpha)
    allowed = (values >= 0) & (values <= 1)
    if not bool(np.all(allowed)):
        raise UserError(f"alpha={_first_bad(values, allowed)} is not allowed: give an attention weight from 0 to 1.")
    return values


def check_nonnegative(name: str, value: Values) -> Array:
    """Times or margins as finite floats of at least 0."""
    values = _numbers(name, value)
    allowed = np.isfinite(values) & (values >= 0)
    if not bool(np.all(allowed)):
        raise UserError(f"{name}={_first_bad(values, allowed)} is not allowed: give finite numbers of at least 0.")
    return values


def check_times(times: Values) -> Vector:
    """Times (T,) as floats: finite, at least 0, in ascending order."""
    values = np.asarray(check_nonnegative("times", times))
    if values.ndim != 1 or values.size == 0:
        raise UserError(f"times has the shape {values.shape}: give a list of at least one time.")
    if not bool(np.all(np.diff(values) >= 0)):
        place = int(np.argmax(np.diff(values) < 0))
        raise UserError(f"times={values[place + 1]:g} comes after {values[place]:g}: give times in ascending order.")
    return values


def _numbers(name: str, value: Values) -> Array:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name}={value!r} is not allowed: give numbers.") from None


def _first_bad(values: Array, allowed: NDArray[np.bool_] | np.bool_) -> str:
    return f"{np.atleast_1d(values)[~np.atleast_1d(allowed)][0]:g}"


def invert_exp_linear(n: Values, y: Values) -> Array:
    r"""The x >= 0 with $e^x - 1 + n x = y$ (G11).

    $$x = \frac{1+y}{n} - \omega\Big(\frac{1+y}{n} - \log n\Big)$$

    with the Wright omega function; where that difference cancels, $x = \log(n\,\omega)$ is the same. Newton steps then
    remove what rounding has left, so that the relative error is that of a few roundings for every y.

    Parameters
    ----------
    n : array, >= 1
    y : array, >= 0, finite
        Broadcasts with `n`.

    Source: this project's derivation, from arXiv 2307.13421, sec. 4.
    """
    n, y = np.broadcast_arrays(np.asarray(n, dtype=np.float64), np.asarray(y, dtype=np.float64))
    scaled = (1.0 + y) / n
    omega = wrightomega(scaled - np.log(n))
    x = np.maximum(np.where(omega > 1.0, np.log(n * omega), scaled - omega), 0.0)
    for _ in range(NEWTON_STEPS):
        growth = np.expm1(x)
        x = np.maximum(x - (growth + n * x - y) / (growth + 1.0 + n), 0.0)
    return x


def attention(nu: Values, num_segments: Values) -> Array:
    r"""The foreground's attention weight $\alpha = e^\nu / (e^\nu + m - 1)$ (G2)."""
    return 1.0 / (1.0 + (np.asarray(num_segments) - 1.0) * np.exp(-np.asarray(nu)))


def inattention(nu: Values, num_segments: Values) -> Array:
    r"""$1 - \alpha$, the background's attention weights together, to full relative accuracy (G2)."""
    decay = (np.asarray(num_segments) - 1.0) * np.exp(-np.asarray(nu))
    return decay / (1.0 + decay)


def true_probability(mu: Values, num_classes: Values) -> Array:
    r"""The true class's probability $\beta = e^\mu / (e^\mu + C - 1)$ (G2)."""
    return 1.0 / (1.0 + (np.asarray(num_classes) - 1.0) * np.exp(-np.asarray(mu)))


def log_gain(mu: Values, num_classes: Values) -> Array:
    r"""$\log(C\beta)$: how much likelier the true class is on the foreground than on background."""
    classes = np.asarray(num_classes, dtype=np.float64)
    return -np.log1p((classes - 1.0) * np.expm1(-np.asarray(mu)) / classes)


def gain(mu: Values, num_classes: Values) -> Array:
    r"""$\beta - 1/C$, without the cancellation of the two."""
    classes = np.asarray(num_classes, dtype=np.float64)
    decay = np.exp(-np.asarray(mu))
    return (classes - 1.0) * -np.expm1(-np.asarray(mu)) / (classes * (1.0 + (classes - 1.0) * decay))


def exp_remainder(x: Values) -> Array:
    r"""$e^x - 1 - x$, by its series where the difference cancels."""
    x = np.asarray(x, dtype=np.float64)
    small = np.where(np.abs(x) < 0.5, x, 0.0)
    series = np.zeros_like(small)
    for order in range(16, 1, -1):  # Horner: x^2/2 (1 + x/3 (1 + x/4 (...)))
        series = (1.0 + series) * small / order
    return np.where(np.abs(x) < 0.5, series * small, np.expm1(x) - x)


def hard_integral(mu: Values, num_classes: Values) -> Array:
    r"""$R_{HA}(\mu) = \frac1C\int_0^\mu (e^s+N)\log\frac{C e^s}{e^s+N}\,ds$ (G9), for 0 <= mu <= 700.

    $$C R_{HA} = e^\mu\log(C\beta) - N\log\frac{e^\mu+N}{C}
      + N\Big[\mu\log\frac CN + \frac{\mu^2}2 + \mathrm{Li}_2\big(-\tfrac{e^\mu}N\big)
      - \mathrm{Li}_2\big(-\tfrac1N\big)\Big]$$

    The terms cancel to second order in mu; below mu = 1 the integral is taken by Gauss-Legendre's rule instead, whose
    20 nodes are exact to rounding there because the integrand's nearest singularity lies at a distance of pi.
    """
    mu, classes = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(num_classes, dtype=np.float64))
    n = classes - 1.0
    nodes, weights = np.polynomial.legendre.leggauss(20)
    s = np.minimum(mu, SMALL_MU)[..., None] * (nodes + 1.0) / 2.0
    integrand = (np.exp(s) + n[..., None]) * log_gain(s, classes[..., None])
    summed = np.minimum(mu, SMALL_MU) / 2.0 * (integrand @ weights)
    growth = np.exp(mu)
    dilogarithms = spence(1.0 + growth / n) - spence(1.0 + 1.0 / n)  # scipy's spence(1 + x) is Li2(-x)
    bracket = mu * np.log1p(1.0 / n) + mu**2 / 2.0 + dilogarithms
    written = growth * log_gain(mu, classes) - n * np.log1p(np.expm1(mu) / classes) + n * bracket
    return np.where(mu < SMALL_MU, summed, written) / classes

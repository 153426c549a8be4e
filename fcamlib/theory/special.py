r"""Functions shared by the closed forms, accurate from tiny to huge arguments, and validation of their inputs.

| here           | book     | meaning                                                              |
|----------------|----------|----------------------------------------------------------------------|
| `num_classes`  | $C$      | number of classes, of which $N = C - 1$ are wrong                    |
| `num_segments` | $m$      | segments of an instance, one of them foreground                      |
| `mu`           | $\mu$    | margin: the true class's logit minus a wrong class's, on the foreground |
| `nu`           | $\nu$    | the foreground's focus logit minus the background's                  |
| `alpha`        | $\alpha$ | attention weight of the foreground                                   |
| `beta`         | $\beta$  | probability of the true class given only the foreground              |

Labels (G1, F1, ...) refer to the book's page "Derivations".
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import hyp1f1, spence, wrightomega

from fcamlib.errors import UserError

Array = NDArray[np.float64] | np.float64  # numpy turns arrays without axes into scalars
Values = int | float | np.generic | NDArray[Any] | Sequence[Any]  # anything that converts to an array of floats
Entry = TypeVar("Entry")
NEWTON_STEPS = 3
SMALL_MU = 1.0  # R_HA is integrated numerically below it, expressed by dilogarithms above it


def entry(table: Mapping[str, Entry], paradigm: str) -> Entry:
    """The table's entry for a paradigm; `UserError` if the theory does not cover it."""
    if paradigm not in table:
        raise UserError(f"paradigm={paradigm!r} is unknown: choose one of {', '.join(table)}.")
    return table[paradigm]


def numbers(name: str, value: Values, low: int | float, high: int | float = math.inf, whole: bool = False) -> Array:
    """`value` as floats; each must be finite, in [`low`, `high`], and an integer if `whole`."""
    try:
        given = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name}={reprlib.repr(value)} is not allowed: give numbers.") from None
    allowed = np.isfinite(given) & (given >= low) & (given <= high) & (not whole or given == np.floor(given))
    if not np.all(allowed):
        kind = "whole" if whole else "finite"
        span = f"of at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        raise UserError(f"{name}={given[~allowed][0]:g} is not allowed: give {kind} numbers {span}.")
    return given


def invert_exp_linear(n: Values, y: Values) -> Array:
    r"""The x >= 0 with $e^x - 1 + n x = y$, for n >= 1 and finite y >= 0 (G11).

    $$x = \frac{1+y}{n} - \omega = \log(n\,\omega), \quad \omega = \omega\Big(\frac{1+y}{n} - \log n\Big)$$

    with the Wright omega function. Newton steps remove the rounding error.

    Source: this project's derivation, from arXiv 2307.13421, sec. 4.
    """
    n, y = np.broadcast_arrays(np.asarray(n, dtype=np.float64), np.asarray(y, dtype=np.float64))
    x = np.maximum(np.log(n * wrightomega((1.0 + y) / n - np.log(n))), 0.0)
    for _ in range(NEWTON_STEPS):
        growth = np.expm1(x)
        x = np.maximum(x - (growth + n * x - y) / (growth + 1.0 + n), 0.0)
    return x


def probability(logit: Values, number: Values) -> Array:
    r"""Softmax of one logit beside `number` - 1 zeros: $\alpha$ from nu and m, $\beta$ from mu and C (G2)."""
    return 1.0 / (1.0 + (np.asarray(number) - 1.0) * np.exp(-np.asarray(logit)))


def complement(logit: Values, number: Values) -> Array:
    """1 minus `probability`, to full relative accuracy: the background's attention, the wrong classes' probability."""
    decay = (np.asarray(number) - 1.0) * np.exp(-np.asarray(logit))
    return decay / (1.0 + decay)


def log_gain(mu: Values, num_classes: Values) -> Array:
    r"""$\log(C\beta)$: log ratio of the true class's probability on the foreground to that on background."""
    classes = np.asarray(num_classes, dtype=np.float64)
    return -np.log1p((classes - 1.0) * np.expm1(-np.asarray(mu)) / classes)


def gain(mu: Values, num_classes: Values) -> Array:
    r"""$\beta - 1/C$ without cancellation."""
    n = np.asarray(num_classes, dtype=np.float64) - 1.0
    return n * -np.expm1(-np.asarray(mu)) / ((n + 1.0) * (1.0 + n * np.exp(-np.asarray(mu))))


def exp_remainder(x: Values) -> Array:
    r"""$e^x - 1 - x = \frac{x^2}{2}\, {}_1F_1(1; 3; x)$ without cancellation."""
    x = np.asarray(x, dtype=np.float64)
    return x**2 / 2.0 * hyp1f1(1.0, 3.0, x)


def hard_integral(mu: Values, num_classes: Values) -> Array:
    r"""$R_{HA}(\mu) = \frac1C\int_0^\mu (e^s+N)\log\frac{C e^s}{e^s+N}\,ds$ for 0 <= mu <= 600 (G9).

    $$C R_{HA} = e^\mu\log(C\beta) - N\log\frac{e^\mu+N}{C}
      + N\Big[\mu\log\frac CN + \frac{\mu^2}2 + \mathrm{Li}_2\big(-\tfrac{e^\mu}N\big)
      - \mathrm{Li}_2\big(-\tfrac1N\big)\Big]$$

    The terms cancel to second order in mu, so the integral below mu = 1 is computed by a Gauss-Legendre rule with 20
    nodes. It is exact up to rounding, since the integrand's nearest singularity is at a distance of pi.
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

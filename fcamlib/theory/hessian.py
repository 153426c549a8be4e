r"""Spectrum of the loss's Hessian at the symmetric point of the linear orthogonal task.

The parameters are the C x C entries of the classification model on the foreground's features and the C entries of the
focus model on them, C(C + 1) in total. (Without noise, parameters on the background's axis have neither gradient nor
curvature.) Column k of the classifier and entry k of the focus model occur only in the term of class k, so the Hessian
consists of C equal blocks; the symmetry of the wrong classes splits each block further (G15 to G18).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from fcamlib.theory.special import (
    Array,
    Values,
    attention,
    entry,
    gain,
    inattention,
    log_gain,
    numbers,
    true_probability,
)


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of the Hessian, ascending at each point, and their multiplicities, which sum to C (C + 1)."""

    eigenvalues: Float64[np.ndarray, "*points 4"]
    multiplicity: Int64[np.ndarray, "*points 4"]


def hessian_spectrum(
    paradigm: str, mu: Values, nu: Values, num_segments: int | float, num_classes: int | float
) -> Spectrum:
    """All eigenvalues of the loss's Hessian at (mu, nu), which broadcast; mu is at least 0 (G15 to G18).

    Differences of wrong classes give one eigenvalue of multiplicity C (C - 2), the common shift of all logits gives 0
    with multiplicity C, and margin and focus give two of multiplicity C. A negative eigenvalue means that focus and
    classification model still reinforce each other. Source: this project's derivation.
    """
    curvatures, m = entry(_CURVATURES, paradigm), numbers("num_segments", num_segments, 2, whole=True)
    classes = float(numbers("num_classes", num_classes, 2, whole=True))
    mu, nu = np.broadcast_arrays(numbers("mu", mu, 0), np.asarray(nu, dtype=np.float64))
    transverse, mumu, munu, nunu = curvatures(mu, attention(nu, m), inattention(nu, m), classes)
    margin = classes / (classes - 1.0)  # a unit step along the margin's direction moves mu by its square root
    first, mixed, last = margin * mumu, np.sqrt(margin) * munu, nunu
    centre, radius = (first + last) / 2.0, np.hypot((first - last) / 2.0, mixed)
    product = first * last - mixed**2
    outer = centre + np.where(centre < 0, -radius, radius)  # the root without cancellation
    inner = np.where(outer == 0, 0.0, product / np.where(outer == 0, 1.0, outer))
    values = np.stack([transverse, np.zeros_like(mu), inner, outer], axis=-1) / classes
    order = np.argsort(values, axis=-1, kind="stable")
    counts = np.array([classes * (classes - 2), classes, classes, classes], dtype=np.int64)
    return Spectrum(np.take_along_axis(values, order, axis=-1), counts[order])


def _soft(mu: Array, alpha: Array, rest: Array, classes: float) -> tuple[Array, Array, Array, Array]:
    """Second derivatives of one class's term: transverse, (mu, mu), (mu, nu) and (nu, nu) (G16, G18)."""
    n, right, spread = classes - 1.0, true_probability(alpha * mu, classes), alpha * rest
    wrong = n * np.exp(-alpha * mu) * right  # q
    munu = spread * wrong * (alpha * mu * right - 1.0)
    nunu = spread * mu * wrong * (spread * mu * right - (rest - alpha))
    return alpha**2 * wrong / n, alpha**2 * wrong * right, munu, nunu


def _hard(mu: Array, alpha: Array, rest: Array, classes: float) -> tuple[Array, Array, Array, Array]:
    n, beta, spread = classes - 1.0, true_probability(mu, classes), alpha * rest
    wrong = n * np.exp(-mu) * beta  # 1 - beta
    nunu = -spread * (rest - alpha) * log_gain(mu, classes)
    return alpha * wrong / n, alpha * beta * wrong, -spread * wrong, nunu


def _lvml(mu: Array, alpha: Array, rest: Array, classes: float) -> tuple[Array, Array, Array, Array]:
    n, beta, spread = classes - 1.0, true_probability(mu, classes), alpha * rest
    wrong = n * np.exp(-mu) * beta  # 1 - beta
    marginal = alpha * beta + rest / classes  # Z
    by_mu, by_nu = alpha * beta * wrong / marginal, spread * gain(mu, classes) / marginal
    mumu = by_mu**2 - by_mu * (1.0 - 2.0 * beta)
    munu = by_mu * by_nu - spread * beta * wrong / marginal
    nunu = by_nu**2 - by_nu * (rest - alpha)
    return alpha * beta / marginal * wrong / n, mumu, munu, nunu


_CURVATURES = {"soft": _soft, "hard": _hard, "lvml": _lvml}

r"""Spectrum of the loss's Hessian at the symmetric point of the linear orthogonal task.

The parameters are the C x C entries of the classification model on the foreground's features and the C entries of the
focus model on them, C(C + 1) in total. (Without noise, parameters on the background's axis have neither gradient nor
curvature.) Column k of the classifier and entry k of the focus model occur only in the term of class k, so the Hessian
consists of C equal blocks; the symmetry of the wrong classes splits each block further (G15 to G18).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from fcamlib.theory.special import Array, Values, complement, entry, gain, log_gain, numbers, probability


def hessian_spectrum(
    paradigm: str, mu: Values, nu: Values, num_segments: int | float, num_classes: int | float
) -> Float64[np.ndarray, "*points 4"]:
    """All eigenvalues of the loss's Hessian at (mu, nu), which broadcast; mu is at least 0 (G15 to G18).

    In this order: that of differences of wrong classes, of multiplicity C (C - 2); 0 for the common shift of all
    logits, of multiplicity C; two for margin and focus, of multiplicity C each. A negative eigenvalue means that focus
    and classification model still reinforce each other. Source: this project's derivation.
    """
    curvatures, m = entry(_CURVATURES, paradigm), numbers("num_segments", num_segments, 2, whole=True)
    classes = float(numbers("num_classes", num_classes, 2, whole=True))
    mu, nu = np.broadcast_arrays(numbers("mu", mu, 0), np.asarray(nu, dtype=np.float64))
    transverse, mumu, munu, nunu = curvatures(mu, probability(nu, m), complement(nu, m), classes)
    margin = classes / (classes - 1.0)  # a unit step along the margin's direction moves mu by its square root
    first, mixed, last = margin * mumu, np.sqrt(margin) * munu, nunu
    centre, radius = (first + last) / 2.0, np.hypot((first - last) / 2.0, mixed)
    product = first * last - mixed**2
    outer = centre + np.where(centre < 0, -radius, radius)  # the root without cancellation
    inner = np.divide(product, outer, out=np.zeros_like(outer), where=outer != 0)
    return np.stack([transverse, np.zeros_like(mu), inner, outer], axis=-1) / classes


def _soft(mu: Array, alpha: Array, rest: Array, classes: float) -> tuple[Array, Array, Array, Array]:
    """Second derivatives of one class's term: transverse, (mu, mu), (mu, nu) and (nu, nu) (G16, G18)."""
    right, wrong, spread = probability(alpha * mu, classes), complement(alpha * mu, classes), alpha * rest
    munu = spread * wrong * (alpha * mu * right - 1.0)
    nunu = spread * mu * wrong * (spread * mu * right - (rest - alpha))
    return alpha**2 * wrong / (classes - 1.0), alpha**2 * wrong * right, munu, nunu


def _hard(mu: Array, alpha: Array, rest: Array, classes: float) -> tuple[Array, Array, Array, Array]:
    beta, wrong, spread = probability(mu, classes), complement(mu, classes), alpha * rest
    nunu = -spread * (rest - alpha) * log_gain(mu, classes)
    return alpha * wrong / (classes - 1.0), alpha * beta * wrong, -spread * wrong, nunu


def _lvml(mu: Array, alpha: Array, rest: Array, classes: float) -> tuple[Array, Array, Array, Array]:
    beta, wrong, spread = probability(mu, classes), complement(mu, classes), alpha * rest
    marginal = alpha * beta + rest / classes  # Z
    by_mu, by_nu = alpha * beta * wrong / marginal, spread * gain(mu, classes) / marginal
    mumu = by_mu**2 - by_mu * (1.0 - 2.0 * beta)
    munu = by_mu * by_nu - spread * beta * wrong / marginal
    nunu = by_nu**2 - by_nu * (rest - alpha)
    return alpha * beta / marginal * wrong / (classes - 1.0), mumu, munu, nunu


_CURVATURES = {"soft": _soft, "hard": _hard, "lvml": _lvml}

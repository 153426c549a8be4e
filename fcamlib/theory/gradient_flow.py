r"""Joint gradient flow of focus and classification model on the linear orthogonal task.

Foreground of class k is the unit vector $e_k$, background is zero; focus and classification model are linear and start
at zero. Symmetry then leaves two numbers that move, on the population loss with unit learning rates (G1):

| here           | book                        | meaning                                                          |
|----------------|-----------------------------|------------------------------------------------------------------|
| `num_classes`  | $C$, $N = C - 1$            | classes                                                          |
| `num_segments` | $m$                         | segments, one of them foreground                                 |
| `times`        | $t$                         | time of the flow: learning rate times steps, see F7 for momentum |
| `mu`           | $\mu = w_{kk} - w_{kj}$     | margin of the classification model                               |
| `nu`           | $\nu$                       | the foreground's focus logit less the background's               |
| `alpha`        | $\alpha = e^\nu/(e^\nu+m-1)$ | attention weight of the foreground                              |
| `beta`         | $\beta = e^\mu/(e^\mu+N)$   | probability of the true class on the foreground                  |
| Z, r           | $Z = \alpha\beta+(1-\alpha)/C$, $r = \alpha\beta/Z$ | marginal likelihood, posterior responsibility |

`phase_curve` and `time_along` are exact and independent of `trajectory`, which solves the differential equations. None
overflows for m, C up to 1e6 and t up to 1e12. Labels G1 to G18 are those of the book's page "Derivations".
Source: arXiv 2307.13421, sec. 4; the closed forms are this project's derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.integrate import odeint

from fcamlib.errors import UserError
from fcamlib.theory.closed_forms import (
    PARADIGMS,
    Array,
    Values,
    Vector,
    attention,
    check_classes,
    check_nonnegative,
    check_paradigm,
    check_segments,
    check_times,
    exp_remainder,
    gain,
    hard_integral,
    inattention,
    invert_exp_linear,
    log_gain,
    true_probability,
)
from fcamlib.theory.hessian import Spectrum, hessian_spectrum

RTOL = 1e-11  # relative tolerance of the solver
ATOL = 1e-13  # absolute tolerance of the solver
MAX_STEPS = 100_000  # of the solver between two times
LARGE_MU = 600.0  # above it e^mu is left out of sight of a float: leading terms in logarithms
TINY_MU = 1e-150
PANEL = 0.1  # greatest width in mu of a panel of the quadrature
NODES = 10  # of Gauss-Legendre's rule in each panel


@dataclass(frozen=True)
class Trajectory:
    """A paradigm's flow at given times; all arrays have the shape (T,)."""

    paradigm: str
    num_segments: int
    num_classes: int
    times: Float64[np.ndarray, " T"]
    mu: Float64[np.ndarray, " T"]
    nu: Float64[np.ndarray, " T"]
    alpha: Float64[np.ndarray, " T"]
    beta: Float64[np.ndarray, " T"]
    loss: Float64[np.ndarray, " T"]


@dataclass(frozen=True)
class Rates:
    """Velocities of two paradigms at the same (mu, nu), divided (G14); 1 where they move alike."""

    responsibility: Array  # r, the posterior weight of the foreground under LVML
    mu_lvml_over_hard: Array  # r / alpha >= 1
    nu_lvml_over_hard: Array
    mu_soft_over_hard: Array  # >= 1
    nu_soft_over_hard: Array


def derivatives(
    paradigm: str, mu: Values, nu: Values, num_segments: Values, num_classes: Values
) -> tuple[Array, Array]:
    r"""The velocities $(\mu', \nu')$ of the flow (G4 to G6).

    | paradigm | $\mu'$ | $\nu'$ |
    |---|---|---|
    | soft | $\alpha/(e^{\alpha\mu}+N)$ | $\alpha(1-\alpha) N\mu / (C(e^{\alpha\mu}+N))$ |
    | hard | $\alpha/(e^\mu+N)$ | $\alpha(1-\alpha)\log(C\beta)/C$ |
    | lvml | $r/(e^\mu+N)$ | $\alpha(1-\alpha)(\beta-1/C)/(CZ)$ |

    Parameters
    ----------
    paradigm : "soft", "hard" or "lvml"
    mu, nu : arrays, broadcast
    num_segments, num_classes : int, at least 2

    Source: arXiv 2307.13421, sec. 4.
    """
    check_paradigm(paradigm)
    mu, nu = np.asarray(mu, dtype=np.float64), np.asarray(nu, dtype=np.float64)
    m, classes = check_segments(num_segments), check_classes(num_classes)
    alpha, rest, n = attention(nu, m), inattention(nu, m), classes - 1.0
    spread = alpha * rest / classes
    if paradigm == "soft":
        wrong = np.exp(-alpha * mu) / (1.0 + n * np.exp(-alpha * mu))  # probability of one wrong class
        return alpha * wrong, spread * n * mu * wrong
    wrong = np.exp(-mu) / (1.0 + n * np.exp(-mu))
    if paradigm == "hard":
        return alpha * wrong, spread * log_gain(mu, classes)
    beta = true_probability(mu, classes)
    marginal = alpha * beta + rest / classes
    return alpha * beta / marginal * wrong, spread * gain(mu, classes) / marginal


def joint_loss(paradigm: str, mu: Values, nu: Values, num_segments: Values, num_classes: Values) -> Array:
    r"""The population loss at (mu, nu) in nats (G3).

    SA: $\log(1+Ne^{-\alpha\mu})$; HA: $\alpha\log(1+Ne^{-\mu}) + (1-\alpha)\log C$; LVML: $-\log Z$.
    """
    check_paradigm(paradigm)
    alpha = attention(nu, check_segments(num_segments))
    return loss_at(paradigm, mu, alpha, check_classes(num_classes))


def loss_at(paradigm: str, mu: Values, alpha: Values, num_classes: Values) -> Array:
    """The loss at a margin and an attention weight (G3), inputs taken as they are."""
    mu, alpha, classes = (np.asarray(value, dtype=np.float64) for value in (mu, alpha, num_classes))
    n = classes - 1.0
    if paradigm == "soft":
        return np.log1p(n * np.exp(-alpha * mu))
    if paradigm == "hard":
        return alpha * np.log1p(n * np.exp(-mu)) + (1.0 - alpha) * np.log(classes)
    return np.log(classes) - np.log1p(alpha * classes * gain(mu, classes))  # C Z = 1 + alpha (C beta - 1)


def trajectory(paradigm: str, num_segments: int | float, num_classes: int | float, times: Values) -> Trajectory:
    """The flow from zero weights at the given times.

    Solved by LSODA (scipy's odeint) with relative tolerance 1e-11 and absolute tolerance 1e-13 in the time scale
    t = m C (e^tau - 1) (G13), in which the slow beginning, of length m C, and the logarithmic end are of order one.

    Parameters
    ----------
    paradigm : "soft", "hard" or "lvml"
    num_segments, num_classes : int, at least 2
    times : (T,) float, ascending, at least 0
        Learning rate times steps of plain gradient descent; see `fcamlib.theory.sweep.flow_time` for momentum.

    Raises
    ------
    UserError
        One sentence where an input is out of range, not a number, or the times are not in order.

    Source: arXiv 2307.13421, sec. 4.
    """
    check_paradigm(paradigm)
    m, classes = float(check_segments(num_segments)), float(check_classes(num_classes))
    asked = check_times(times)
    scale = m * classes
    tau = np.log1p(asked / scale)
    solved, report = odeint(
        _system(paradigm, m, classes), (0.0, 0.0), np.append(0.0, tau), tfirst=True, full_output=True,
        rtol=RTOL, atol=ATOL, mxstep=MAX_STEPS,
    )  # fmt: skip
    if report["message"] != "Integration successful.":
        raise UserError(f"times={asked[-1]:g}: the {paradigm} flow was not solved ({report['message']}).")
    mu, nu = np.maximum(solved[1:], 0.0).T
    alpha, beta = np.asarray(attention(nu, m)), np.asarray(true_probability(mu, classes))
    loss = np.asarray(loss_at(paradigm, mu, alpha, classes))
    return Trajectory(paradigm, int(m), int(classes), asked, mu, nu, alpha, beta, loss)


def _system(paradigm: str, m: float, classes: float) -> Callable[[float, Vector], tuple[float, float]]:
    """The right-hand side in the solver's time, in plain floats: the solver calls it a thousand times."""
    n, scale, exp = classes - 1.0, m * classes, math.exp

    def soft(tau: float, state: Vector) -> tuple[float, float]:
        mu, nu = state.tolist()
        others = (m - 1.0) * exp(-nu)
        alpha = 1.0 / (1.0 + others)
        decay = exp(-alpha * mu)
        velocity = scale * exp(tau) * alpha * decay / (1.0 + n * decay)
        return velocity, velocity * others * alpha * n * mu / classes

    def hard(tau: float, state: Vector) -> tuple[float, float]:
        mu, nu = state.tolist()
        others = (m - 1.0) * exp(-nu)
        alpha = 1.0 / (1.0 + others)
        decay = exp(-mu)
        velocity = scale * exp(tau) * alpha
        rise = -math.log1p(n * math.expm1(-mu) / classes)
        return velocity * decay / (1.0 + n * decay), velocity * others * alpha * rise / classes

    def lvml(tau: float, state: Vector) -> tuple[float, float]:
        mu, nu = state.tolist()
        others = (m - 1.0) * exp(-nu)
        alpha = 1.0 / (1.0 + others)
        decay = exp(-mu)
        beta = 1.0 / (1.0 + n * decay)
        velocity = scale * exp(tau) / (beta + others / classes)  # t-scale times alpha / Z
        rise = n * -math.expm1(-mu) * beta / classes
        return velocity * beta * beta * decay, velocity * others * alpha * rise / classes

    return {"soft": soft, "hard": hard, "lvml": lvml}[paradigm]


def phase_curve(paradigm: str, mu: Values, num_segments: Values, num_classes: Values) -> Array:
    r"""The nu at which the flow from zero meets each mu, in closed form (G7, G11).

    $$\frac{e^\nu-1}{m-1} + \nu = R(\mu)$$

    with $R_{SA} = N\mu^2/(2C)$ (G8), $R_{HA}$ by dilogarithms (G9) and
    $R_{LVML} = \frac{N}{C^2}\{(e^\mu-1-\mu) + N(e^{-\mu}-1+\mu)\}$ (G10), inverted with the Wright omega function.

    Parameters
    ----------
    paradigm : "soft", "hard" or "lvml"
    mu : array, finite, at least 0
    num_segments, num_classes : int or array, at least 2

    Source: this project's derivation.
    """
    check_paradigm(paradigm)
    mu, m = check_nonnegative("mu", mu), check_segments(num_segments)
    return _curve(paradigm, mu, m, check_classes(num_classes))


def _curve(paradigm: str, mu: Array, m: Array, classes: Array) -> Array:
    n = classes - 1.0
    if paradigm == "soft":
        return invert_exp_linear(m - 1.0, (m - 1.0) * n * mu**2 / (2.0 * classes))
    held = np.minimum(mu, LARGE_MU)  # beyond, nu grows by exactly as much as mu
    if paradigm == "hard":
        integral = hard_integral(held, classes)
    else:
        integral = n / classes**2 * (exp_remainder(held) + n * exp_remainder(-held))
    return invert_exp_linear(m - 1.0, (m - 1.0) * integral) + (mu - held)


def time_along(paradigm: str, mu: Values, num_segments: int | float, num_classes: int | float) -> Array:
    r"""The time at which the flow from zero reaches each mu, by quadrature along the phase curve (G12).

    $$t(\mu) = \int_0^\mu \frac{ds}{\mu'(s, \nu(s))}$$

    Gauss-Legendre's rule with 10 nodes in panels of at most 0.1; infinite where the time exceeds a float.

    Parameters
    ----------
    paradigm : "soft", "hard" or "lvml"
    mu : array, finite, at least 0, any order and shape
    num_segments, num_classes : int, at least 2

    Source: this project's derivation.
    """
    check_paradigm(paradigm)
    mu, m, classes = check_nonnegative("mu", mu), check_segments(num_segments), check_classes(num_classes)
    asked, places = np.unique(np.append(mu.ravel(), 0.0), return_inverse=True)  # ascending, from 0
    panels = np.maximum(np.ceil(np.diff(asked) / PANEL), 1.0).astype(np.int64)
    places_within = np.arange(panels.sum()) - np.repeat(np.cumsum(panels) - panels, panels)
    widths = np.repeat(np.diff(asked) / panels, panels)
    starts = np.repeat(asked[:-1], panels) + widths * places_within
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    s = starts[:, None] + widths[:, None] * (nodes + 1.0) / 2.0  # (panels, nodes)
    with np.errstate(over="ignore"):
        pieces = widths / 2.0 * (_slowness(paradigm, s, m, classes) @ weights)
        passed = np.concatenate([[0.0], np.cumsum(pieces)])
    ends = np.concatenate([[0], np.cumsum(panels)])
    return passed[ends][places[:-1]].reshape(mu.shape)


def _slowness(paradigm: str, mu: Array, m: Array, classes: Array) -> Array:
    """1 / mu' on the phase curve."""
    inverse_alpha = 1.0 + (m - 1.0) * np.exp(-_curve(paradigm, mu, m, classes))
    if paradigm == "soft":
        return inverse_alpha * (np.exp(mu / inverse_alpha) + classes - 1.0)
    total = np.exp(mu) + classes - 1.0
    if paradigm == "hard":
        return inverse_alpha * total
    return total * (1.0 + (inverse_alpha - 1.0) / (classes * true_probability(mu, classes)))


def rates(mu: Values, nu: Values, num_segments: Values, num_classes: Values) -> Rates:
    r"""How fast the paradigms move at one and the same (mu, nu), each against hard attention (G14).

    $$\frac{\mu'_{LVML}}{\mu'_{HA}} = \frac r\alpha = \frac\beta Z \ge 1, \qquad
      \frac{\nu'_{LVML}}{\nu'_{HA}} = \frac{\beta-1/C}{Z\log(C\beta)}$$

    Parameters
    ----------
    mu : array, at least 0
    nu : array
    num_segments, num_classes : int, at least 2

    Source: this project's derivation.
    """
    mu, nu = np.broadcast_arrays(check_nonnegative("mu", mu), np.asarray(nu, dtype=np.float64))
    m, classes = check_segments(num_segments), check_classes(num_classes)
    alpha, beta, n = attention(nu, m), true_probability(mu, classes), classes - 1.0
    rest = inattention(nu, m)
    marginal = alpha * beta + rest / classes
    rise = log_gain(mu, classes)
    moved = mu > TINY_MU  # below it both velocities are zero to rounding, and alike
    per_rise = np.where(moved, 1.0, 0.0) / np.where(moved, rise, 1.0)
    scaled = np.exp(-alpha * mu) / (1.0 + n * np.exp(-alpha * mu))
    return Rates(
        responsibility=alpha * beta / marginal,
        mu_lvml_over_hard=beta / marginal,
        nu_lvml_over_hard=np.where(moved, gain(mu, classes) / marginal * per_rise, 1.0),
        mu_soft_over_hard=np.exp(rest * mu) * (1.0 + n * np.exp(-mu)) / (1.0 + n * np.exp(-alpha * mu)),
        nu_soft_over_hard=np.where(moved, n * mu * scaled * per_rise, 1.0),
    )


__all__ = [
    "PARADIGMS",
    "Rates",
    "Spectrum",
    "Trajectory",
    "derivatives",
    "hessian_spectrum",
    "joint_loss",
    "loss_at",
    "phase_curve",
    "rates",
    "time_along",
    "trajectory",
]

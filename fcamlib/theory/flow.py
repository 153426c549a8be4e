r"""Joint gradient flow of focus and classification model on the linear orthogonal task.

The foreground of class k is the unit vector $e_k$, the background is zero; focus and classification model are linear
with zero initial weights. By symmetry, the flow on the population loss with unit learning rates (G1) has two variables:
the margin mu and the focus logit nu, which determine the attention alpha and the probability beta. A paradigm is soft,
hard or lvml, m and C are at least 2, and arrays broadcast. Names and symbols are defined in `fcamlib.theory.special`;
in addition,

| here     | book                                                | meaning                                        |
|----------|-----------------------------------------------------|------------------------------------------------|
| `times`  | $t$                                                 | learning rate times steps, see F7 for momentum |
| Z, r     | $Z = \alpha\beta+(1-\alpha)/C$, $r = \alpha\beta/Z$ | marginal likelihood, posterior responsibility  |
| `switch` | $t_0$                                               | time at which the hybrid switches to HA        |
| `start`  | $(\mu_0, \nu_0)$                                    | starting point of a curve                      |

`phase_curve` is exact and independent of `trajectory` and `hybrid`, which solve the differential equations. None
overflows for m, C up to 1e6 and t up to 1e12.

The hybrid's flow is SA's (G4) until $t_0$ and HA's (G5) afterwards. At equal margin its focus is never better than
HA's, and worse the later it switches (G20); its advantage is time, since SA's margin never grows more slowly than HA's.

Labels G1 to G20 refer to the book's page "Derivations", which has all derivations.
Source: arXiv 2307.13421, sec. 4; the closed forms are this project's derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.integrate import odeint
from scipy.optimize import minimize_scalar

from fcamlib.errors import UserError
from fcamlib.theory.fixed_focus import LAWS, loss_at
from fcamlib.theory.special import (
    Array,
    Values,
    complement,
    entry,
    exp_remainder,
    hard_integral,
    invert_exp_linear,
    numbers,
    probability,
)

RTOL = 1e-11  # relative tolerance of the solver
ATOL = 1e-13  # absolute tolerance of the solver
MAX_STEPS = 100_000  # of the solver between two times
MAX_MU = 600.0  # above it e^mu overflows
Vector = NDArray[np.float64]
Point = tuple[int | float, int | float]  # mu, nu


@dataclass(frozen=True)
class Trajectory:
    """A paradigm's flow at given times; all arrays have the shape (T,)."""

    paradigm: str
    times: Float64[np.ndarray, " T"]
    mu: Float64[np.ndarray, " T"]
    nu: Float64[np.ndarray, " T"]
    alpha: Float64[np.ndarray, " T"]
    beta: Float64[np.ndarray, " T"]
    loss: Float64[np.ndarray, " T"]

    @property
    def score(self) -> Float64[np.ndarray, " T"]:
        """Test-time score of the true label: of the mixture (SA), the foreground (HA, hybrid), or marginal (LVML)."""
        return self.beta if self.paradigm in ("hard", "hybrid") else np.exp(-self.loss)


def derivatives(
    paradigm: str, mu: Values, nu: Values, num_segments: Values, num_classes: Values
) -> tuple[Array, Array]:
    r"""The velocities $(\mu', \nu')$ of the flow (G4 to G6); $\nu' = \alpha(1-\alpha) I / C$.

    | paradigm | $\mu'$ | $\nu'$ |
    |---|---|---|
    | soft | $\alpha/(e^{\alpha\mu}+N)$ | $\alpha(1-\alpha) N\mu / (C(e^{\alpha\mu}+N))$ |
    | hard | $\alpha/(e^\mu+N)$ | $\alpha(1-\alpha)\log(C\beta)/C$ |
    | lvml | $r/(e^\mu+N)$ | $\alpha(1-\alpha)(\beta-1/C)/(CZ)$ |

    Source: arXiv 2307.13421, sec. 4.
    """
    law, m, classes = entry(LAWS, paradigm), *_counts(num_segments, num_classes)
    mu, alpha = np.asarray(mu, dtype=np.float64), probability(nu, m)
    speed, incentive = law.pull(np, mu, alpha, classes - 1.0)
    return speed, alpha * complement(nu, m) / classes * incentive


def trajectory(paradigm: str, num_segments: int | float, num_classes: int | float, times: Values) -> Trajectory:
    """The flow from zero weights at the given times (T,), ascending and at least 0.

    Solved by LSODA (scipy's odeint) with relative tolerance 1e-11 and absolute tolerance 1e-13 in the variable tau of
    t = m C (e^tau - 1) (G13), in which the slow start, of length m C, and the logarithmic end are of order one.

    Source: arXiv 2307.13421, sec. 4.
    """
    entry(LAWS, paradigm)
    (m, classes), asked = map(float, _counts(num_segments, num_classes)), _ascending(times)
    mu, nu = _solved(paradigm, m, classes, asked)
    return _described(paradigm, m, classes, asked, mu, nu, loss_at(paradigm, mu, probability(nu, m), classes))


def hybrid(num_segments: int | float, num_classes: int | float, times: Values, switch: int | float) -> Trajectory:
    """SA's flow until the time `switch`, then HA's from the point reached (G19, G20); otherwise as `trajectory`."""
    (m, classes), asked = map(float, _counts(num_segments, num_classes)), _ascending(times)
    turn = float(numbers("switch", switch, 0))
    early = asked <= turn
    first = _solved("soft", m, classes, np.append(asked[early], turn))
    second = _solved("hard", m, classes, asked[~early], turn, (first[0, -1], first[1, -1]))
    mu, nu = np.concatenate([first[:, :-1], second], axis=1)
    alpha = probability(nu, m)
    loss = np.where(early, loss_at("soft", mu, alpha, classes), loss_at("hard", mu, alpha, classes))
    return _described("hybrid", m, classes, asked, mu, nu, loss)


def best_switch(num_segments: int, num_classes: int, end: int | float) -> float:
    """The switch time that maximises alpha times score of a hybrid that ends at `end`.

    This product is the probability that a segment drawn by attention is the foreground and that a label drawn from the
    classification model is correct: the share of correct focus with correct prediction.
    """

    def missed(share: float) -> float:
        path = hybrid(num_segments, num_classes, [end], share * end)
        return -float(path.alpha[0] * path.score[0])

    coarse = np.linspace(0.0, 1.0, 41)
    best = int(np.argmin([missed(share) for share in coarse]))
    around = coarse[max(best - 1, 0)], coarse[min(best + 1, 40)]
    return end * float(minimize_scalar(missed, bounds=around, method="bounded", options={"xatol": 1e-6}).x)


def _counts(num_segments: Values, num_classes: Values) -> tuple[Array, Array]:
    """m and C as checked floats."""
    return numbers("num_segments", num_segments, 2, whole=True), numbers("num_classes", num_classes, 2, whole=True)


def _ascending(times: Values) -> Vector:
    """Checked times (T,)."""
    values = np.asarray(numbers("times", times, 0))
    if values.ndim != 1 or values.size == 0:
        raise UserError(f"times has the shape {values.shape}: give a list with at least one time.")
    if not bool(np.all(np.diff(values) >= 0)):
        place = int(np.argmax(np.diff(values) < 0))
        raise UserError(f"times={values[place + 1]:g} comes after {values[place]:g}: give times in ascending order.")
    return values


def _solved(
    paradigm: str, m: float, classes: float, times: Vector, began: float = 0.0, start: Point = (0.0, 0.0)
) -> Float64[np.ndarray, "2 T"]:
    """mu and nu at ascending times, from `start` at the time `began`."""
    tau = np.log1p(np.append(began, times) / (m * classes))
    if tau[-1] == tau[0]:
        return np.repeat(np.array(start)[:, None], len(times), axis=1)
    solved, report = odeint(
        _system(paradigm, m, classes), start, tau, tfirst=True, full_output=True,
        rtol=RTOL, atol=ATOL, mxstep=MAX_STEPS,
    )  # fmt: skip
    if report["message"] != "Integration successful.":
        raise UserError(f"times={times[-1]:g}: the solver failed on the {paradigm} flow ({report['message']}).")
    return np.maximum(solved[1:], 0.0).T


def _system(paradigm: str, m: float, classes: float) -> Callable[[float, Vector], tuple[float, float]]:
    """The right-hand side in the solver's time, in plain floats for speed: the solver calls it a thousand times."""
    pull, n, scale, exp = LAWS[paradigm].pull, classes - 1.0, m * classes, math.exp

    def velocity(tau: float, state: Vector) -> tuple[float, float]:
        mu, nu = state.tolist()
        others = (m - 1.0) * exp(-nu)
        alpha = 1.0 / (1.0 + others)
        speed, incentive = pull(math, mu, alpha, n)
        stretched = scale * exp(tau)
        return stretched * speed, stretched * others * alpha * alpha * incentive / classes

    return velocity


def _described(
    paradigm: str, m: float, classes: float, times: Vector, mu: Vector, nu: Vector, loss: Array
) -> Trajectory:
    alpha, beta = np.asarray(probability(nu, m)), np.asarray(probability(mu, classes))
    return Trajectory(paradigm, times, mu, nu, alpha, beta, np.asarray(loss))


INTEGRALS: dict[str, Callable[[Array, Array], Array]] = {  # R of (G8) to (G10), by mu and C
    "soft": lambda mu, c: (c - 1.0) * mu**2 / (2.0 * c),
    "hard": hard_integral,
    "lvml": lambda mu, c: (c - 1.0) / c**2 * (exp_remainder(mu) + (c - 1.0) * exp_remainder(-mu)),
}


def phase_curve(
    paradigm: str, mu: Values, num_segments: Values, num_classes: Values, start: Point = (0.0, 0.0)
) -> Array:
    r"""The nu at which the flow from `start` meets each mu, in closed form (G7, G11, G19).

    $$\frac{e^\nu-e^{\nu_0}}{m-1} + \nu - \nu_0 = R(\mu) - R(\mu_0)$$

    with $R_{SA} = N\mu^2/(2C)$ (G8), $R_{HA}$ by dilogarithms (G9) and
    $R_{LVML} = \frac{N}{C^2}\{(e^\mu-1-\mu) + N(e^{-\mu}-1+\mu)\}$ (G10), inverted with the Wright omega function.
    `mu` ranges from the mu of `start`, a point (mu, nu), to 600. The hybrid's curve is "hard" from its switch point.

    Source: this project's derivation.
    """
    integral, m, classes = entry(INTEGRALS, paradigm), *_counts(num_segments, num_classes)
    first, risen = (float(numbers("start", value, 0, MAX_MU)) for value in start)
    rise = integral(numbers("mu", mu, first, MAX_MU), classes) - integral(np.float64(first), classes)
    return invert_exp_linear(m - 1.0, (m - 1.0) * (np.maximum(rise, 0.0) + risen) + np.expm1(risen))


def rates(paradigm: str, mu: Values, nu: Values, num_segments: Values, num_classes: Values) -> tuple[Array, Array]:
    r"""Speeds of mu and nu relative to hard attention's at the same (mu, nu) (G14), mu from 0 to 600; 1 at mu = 0.

    $$\frac{\mu'_{LVML}}{\mu'_{HA}} = \frac r\alpha = \frac\beta Z \ge 1, \qquad
      \frac{\nu'_{LVML}}{\nu'_{HA}} = \frac{\beta-1/C}{Z\log(C\beta)}$$

    Source: this project's derivation.
    """
    law, (m, classes) = entry(LAWS, paradigm), _counts(num_segments, num_classes)
    mu, alpha, n = np.broadcast_arrays(numbers("mu", mu, 0, MAX_MU), probability(nu, m), classes - 1.0)
    speed, incentive = law.pull(np, mu, alpha, n)
    speed_of_hard, of_hard = LAWS["hard"].pull(np, mu, alpha, n)
    return speed / speed_of_hard, np.divide(incentive, of_hard, out=np.ones_like(alpha), where=of_hard > 0)

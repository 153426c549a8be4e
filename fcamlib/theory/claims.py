r"""The paper's explanation as tests on numbers: incentives at fixed focus, and the order of the trajectories.

As in `fcamlib.claims`, a criterion is a number per seed and the bound that it has to exceed, and the bounds are fixed
here beforehand. Trainings have seeds, and a claim about them holds when every 95 % t-interval lies above its bound. The
gradient flow has none: its numbers are exact to the solver's tolerance, so each criterion holds or fails by itself.

| claim  | criterion                                                                                             |
|--------|-------------------------------------------------------------------------------------------------------|
| I1     | SA: incentive at one attention less that at the next larger one; the smallest of these falls, above 0 |
| I2     | HA: incentive at one attention less that at the next smaller one; the smallest of these, above 0      |
| I3     | LVML's incentive less HA's at the smallest attention, LVML's less SA's at the largest, both above 0   |
| D1     | mean focus logit over the first fifth of the time, SA over HA, above 1; gain in the second half, HA - SA |
| D2     | the first of D1, and the final focus logit, HA - SA                                                   |
| D3     | mean focus logit over the first fifth, LVML over HA, above 1; final focus logit, LVML - SA            |
| D4     | time until half of the smallest final margin is reached, SA's over LVML's and HA's over LVML's, above 1 |

The claims are quoted in arXiv 2307.13421's order; how each is put into numbers is this project's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from fcamlib.claims import Criterion, Verdict

EARLY = 0.2  # the first fifth of the time
LATE = 0.5  # gains are counted from the middle
FRACTION = 0.5  # of the smallest final margin, to which convergence is timed
Incentives = Mapping[str, Float[np.ndarray, "R A"]]


@dataclass(frozen=True)
class ExactCriterion(Criterion):
    """A criterion on one number without chance in it."""

    def verdict(self) -> Verdict:
        """On which side of the bound the number lies."""
        (value,) = self.values
        return "holds" if value > self.bound else "fails"


@dataclass(frozen=True)
class Paths:
    """Trajectories of the paradigms at the same rising times.

    Parameters
    ----------
    times : (T,) float
        From 0 or shortly after it to the end.
    mu, nu : paradigm -> (R, T)
        Margin and focus logit, one row per seed; a single row for the gradient flow.
    is_exact : bool
        Whether they are the gradient flow, which has no seeds.
    """

    times: Float[np.ndarray, " T"]
    mu: Mapping[str, Float[np.ndarray, "R T"]]
    nu: Mapping[str, Float[np.ndarray, "R T"]]
    is_exact: bool = False

    def criterion(self, name: str, values: Float[np.ndarray, " R"], bound: float = 0.0) -> Criterion:
        """A criterion of the kind that these paths call for."""
        return (ExactCriterion if self.is_exact else Criterion)(name, values, bound)


def incentive_criteria(claim: str, incentives: Incentives) -> list[Criterion]:
    """Criteria of I1, I2 or I3 on the incentives after training; none where a paradigm is missing.

    Parameters
    ----------
    claim : "I1", "I2" or "I3"
    incentives : paradigm -> (R, A)
        One row per seed, one column per attention on the foreground, rising, at least two.
    """
    if not set(NEEDED[claim]) <= set(incentives):
        return []
    if claim == "I1":
        falls = -np.diff(incentives["soft"], axis=1).max(axis=1)
        return [Criterion("SA: smallest fall from one alpha to the next", falls)]
    if claim == "I2":
        return [
            Criterion("HA: smallest rise from one alpha to the next", np.diff(incentives["hard"], axis=1).min(axis=1))
        ]
    soft, hard, lvml = (incentives[name] for name in ("soft", "hard", "lvml"))
    return [
        Criterion("at the smallest alpha, LVML - HA", lvml[:, 0] - hard[:, 0]),
        Criterion("at the largest alpha, LVML - SA", lvml[:, -1] - soft[:, -1]),
    ]


def path_criteria(claim: str, paths: Paths) -> list[Criterion]:
    """Criteria of D1 to D4 on trajectories; none where a paradigm is missing."""
    return _PATH_CRITERIA[claim](paths) if set(NEEDED[claim]) <= set(paths.nu) else []


def time_to(level: float, times: Float[np.ndarray, " T"], values: Float[np.ndarray, "R T"]) -> Float[np.ndarray, " R"]:
    """When each row first reaches a level, linearly between times; the last time where it never does."""
    found = []
    for row in values:
        reached = np.flatnonzero(row >= level)
        if len(reached) == 0 or reached[0] == 0:
            found.append(times[-1] if len(reached) == 0 else times[0])
            continue
        after = reached[0]
        share = (level - row[after - 1]) / (row[after] - row[after - 1])
        found.append(times[after - 1] + share * (times[after] - times[after - 1]))
    return np.array(found)


def _early(paths: Paths, name: str) -> Float[np.ndarray, " R"]:
    """Mean focus logit over the first fifth of the time, or at its first moment after 0 where that is later."""
    times = paths.times
    chosen = (times > 0) & (times <= max(EARLY * times[-1], times[times > 0][0]))
    return paths.nu[name][:, chosen].mean(axis=1)


def _late_gain(paths: Paths, name: str) -> Float[np.ndarray, " R"]:
    """Final focus logit less that at half of the time."""
    middle = int(np.searchsorted(paths.times, LATE * paths.times[-1]))
    return paths.nu[name][:, -1] - paths.nu[name][:, middle]


def _soft_then_stalls(paths: Paths) -> list[Criterion]:
    late = _late_gain(paths, "hard") - _late_gain(paths, "soft")
    return [_soft_leads(paths), paths.criterion("gain in the second half, HA - SA", late)]


def _hard_overtakes(paths: Paths) -> list[Criterion]:
    final = paths.nu["hard"][:, -1] - paths.nu["soft"][:, -1]
    return [_soft_leads(paths), paths.criterion("final focus logit, HA - SA", final)]


def _soft_leads(paths: Paths) -> Criterion:
    return paths.criterion("early focus logit, SA / HA", _early(paths, "soft") / _early(paths, "hard"), 1.0)


def _lvml_combines(paths: Paths) -> list[Criterion]:
    final = paths.nu["lvml"][:, -1] - paths.nu["soft"][:, -1]
    return [
        paths.criterion("early focus logit, LVML / HA", _early(paths, "lvml") / _early(paths, "hard"), 1.0),
        paths.criterion("final focus logit, LVML - SA", final),
    ]


def _lvml_is_first(paths: Paths) -> list[Criterion]:
    level = FRACTION * min(float(mu[:, -1].min()) for mu in paths.mu.values())
    times = {name: time_to(level, paths.times, mu) for name, mu in paths.mu.items()}
    return [
        paths.criterion(f"time to half the margin, {label} / LVML", times[name] / times["lvml"], 1.0)
        for name, label in (("soft", "SA"), ("hard", "HA"))
    ]


_PATH_CRITERIA: dict[str, Callable[[Paths], list[Criterion]]] = {
    "D1": _soft_then_stalls,
    "D2": _hard_overtakes,
    "D3": _lvml_combines,
    "D4": _lvml_is_first,
}
NEEDED = {
    "I1": ("soft",),
    "I2": ("hard",),
    "I3": ("soft", "hard", "lvml"),
    "D1": ("soft", "hard"),
    "D2": ("soft", "hard"),
    "D3": ("soft", "hard", "lvml"),
    "D4": ("soft", "hard", "lvml"),
}

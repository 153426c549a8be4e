r"""The paper's claims as tests on numbers: measured criteria in, a verdict out.

A criterion is a number per seed and the bound that it has to exceed. A claim **holds** when every criterion's
95 % t-interval over seeds lies above its bound, **fails** when one lies below, and is **undecided** otherwise,
which includes a single seed, since it has no interval. Bounds are fixed here, before any test data are seen:
differences count from `MARGIN` (one percentage point) and shares from one half.

The claims are quoted in arXiv 2307.13421's order; how each is put into numbers is this project's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from fcamlib.metrics import t_interval

Verdict = Literal["holds", "fails", "undecided", "not run"]
Seeds = Float[np.ndarray, " R"]
MARGIN = 0.01  # how much less still counts as "at least"
EARLY = 0.2  # the first fifth of the epochs
LATE = 0.5  # gains are counted from the middle of training


@dataclass(frozen=True)
class Criterion:
    """One measured quantity of a claim.

    Parameters
    ----------
    name : str
        What is measured, in words.
    values : (R,) float
        One number per seed.
    bound : float
        What it has to exceed.
    """

    name: str
    values: Seeds
    bound: float = 0.0

    def verdict(self) -> Verdict:
        """Where the interval lies with respect to the bound."""
        _, low, high = t_interval(self.values)
        return "holds" if low > self.bound else "fails" if high < self.bound else "undecided"


@dataclass(frozen=True)
class Evidence:
    """What the claims look at, per paradigm: arrays over seeds in the same order for all paradigms.

    Parameters
    ----------
    accuracy, saif : paradigm -> (R,)
        On test data after training.
    focus_accuracy : paradigm -> (R, T)
        On test data after each epoch.
    histogram : paradigm -> (R, 5, 5)
        Percent per [a_z bin, s_y bin] on test data after training.
    """

    accuracy: Mapping[str, Float[np.ndarray, " R"]]
    saif: Mapping[str, Float[np.ndarray, " R"]]
    focus_accuracy: Mapping[str, Float[np.ndarray, "R T"]]
    histogram: Mapping[str, Float[np.ndarray, "R A S"]]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper and how it is measured."""

    id: str
    statement: str
    paradigms: tuple[str, ...]
    criteria: Callable[[Evidence], list[Criterion]]

    def measure(self, evidence: Evidence) -> list[Criterion]:
        """The claim's criteria on these runs; none where a paradigm that it speaks of was not run."""
        return self.criteria(evidence) if set(self.paradigms) <= set(evidence.accuracy) else []


def verdict(criteria: list[Criterion]) -> Verdict:
    """A claim fails with any of its criteria, and holds with all of them."""
    verdicts = {criterion.verdict() for criterion in criteria}
    if not verdicts:
        return "not run"
    if "fails" in verdicts:
        return "fails"
    return "holds" if verdicts == {"holds"} else "undecided"


def _early(curves: NDArray[np.float64]) -> Seeds:
    """Mean over the first epochs: how fast a quantity rises."""
    return curves[:, : max(1, round(EARLY * curves.shape[1]))].mean(axis=1)


def _late_gain(curves: NDArray[np.float64]) -> Seeds:
    """Last epoch less the middle of training."""
    return curves[:, -1] - curves[:, max(0, round(LATE * curves.shape[1]) - 1)]


def _unsure(histogram: NDArray[np.float64]) -> Seeds:
    """Share with a confident prediction of the true label (s_y > 0.8) but without confident focus (a_z <= 0.8)."""
    return histogram[:, :4, 4].sum(axis=1) / 100


def _outer_focus(histogram: NDArray[np.float64]) -> Seeds:
    """Share whose focus is confidently right or wrong: a_z below 0.2 or above 0.8."""
    return histogram[:, (0, 4), :].sum(axis=(1, 2)) / 100


def _outer_prediction(histogram: NDArray[np.float64]) -> Seeds:
    """Share whose prediction score is below 0.2 or above 0.8."""
    return histogram[:, :, (0, 4)].sum(axis=(1, 2)) / 100


def _soft_is_fast_then_stalls(e: Evidence) -> list[Criterion]:
    soft, hard = e.focus_accuracy["soft"], e.focus_accuracy["hard"]
    return [
        Criterion("early focus accuracy, SA - HA", _early(soft) - _early(hard)),
        Criterion("late gain in focus accuracy, HA - SA", _late_gain(hard) - _late_gain(soft)),
    ]


def _hard_is_slow_then_overtakes(e: Evidence) -> list[Criterion]:
    soft, hard = e.focus_accuracy["soft"], e.focus_accuracy["hard"]
    return [
        Criterion("early focus accuracy, SA - HA", _early(soft) - _early(hard)),
        Criterion("final focus accuracy, HA - SA", hard[:, -1] - soft[:, -1]),
    ]


def _lvml_combines(e: Evidence) -> list[Criterion]:
    soft, hard, lvml = (e.focus_accuracy[name] for name in ("soft", "hard", "lvml"))
    return [
        Criterion("early focus accuracy, LVML - HA", _early(lvml) - _early(hard)),
        Criterion("final focus accuracy, LVML - SA", lvml[:, -1] - soft[:, -1]),
    ]


def _hybrid_wins(e: Evidence) -> list[Criterion]:
    best_accuracy = np.maximum(e.accuracy["soft"], e.accuracy["hard"])
    return [
        Criterion("SAIF, hybrid - SA", e.saif["hybrid"] - e.saif["soft"], -MARGIN),
        Criterion("SAIF, hybrid - HA", e.saif["hybrid"] - e.saif["hard"], -MARGIN),
        Criterion("accuracy, hybrid - better of SA and HA", e.accuracy["hybrid"] - best_accuracy, -MARGIN),
    ]


def _soft_predicts_without_focus(e: Evidence) -> list[Criterion]:
    soft, lvml = e.histogram["soft"], e.histogram["lvml"]
    return [
        Criterion("SA's share with s_y > 0.8", soft[:, :, 4].sum(axis=1) / 100, 0.5),
        Criterion("share with s_y > 0.8 and a_z <= 0.8, SA - LVML", _unsure(soft) - _unsure(lvml)),
    ]


def _hard_focus_is_outer(e: Evidence) -> list[Criterion]:
    hard, soft = _outer_focus(e.histogram["hard"]), _outer_focus(e.histogram["soft"])
    return [
        Criterion("HA's share with a_z < 0.2 or > 0.8", hard, 0.5),
        Criterion("that share, HA - SA", hard - soft),
    ]


def _lvml_is_sure_of_both(e: Evidence) -> list[Criterion]:
    lvml, soft = e.histogram["lvml"], e.histogram["soft"]
    return [
        Criterion("LVML's share with a_z < 0.2 or > 0.8", _outer_focus(lvml), 0.5),
        Criterion("LVML's share with s_y < 0.2 or > 0.8", _outer_prediction(lvml), 0.5),
        Criterion("the share by a_z, LVML - SA", _outer_focus(lvml) - _outer_focus(soft)),
    ]


CLAIMS = {
    claim.id: claim
    for claim in (
        Claim("D1", "under SA the focus improves first, then stalls", ("soft", "hard"), _soft_is_fast_then_stalls),
        Claim("D2", "under HA the focus starts slowly, then overtakes", ("soft", "hard"), _hard_is_slow_then_overtakes),
        Claim("D3", "LVML combines both", ("soft", "hard", "lvml"), _lvml_combines),
        Claim(
            "S1", "SA predicts confidently, its focus is often unsure", ("soft", "lvml"), _soft_predicts_without_focus
        ),
        Claim("S2", "HA's focus is confidently right or confidently wrong", ("soft", "hard"), _hard_focus_is_outer),
        Claim("S3", "LVML is confident in both", ("soft", "lvml"), _lvml_is_sure_of_both),
        Claim(
            "H1",
            "the hybrid's SAIF is at least SA's and HA's at no loss of accuracy",
            ("soft", "hard", "hybrid"),
            _hybrid_wins,
        ),
    )
}

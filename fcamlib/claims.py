r"""The paper's claims as tests on numbers: measured criteria in, a verdict out.

A criterion is a number per seed and the bound that it has to exceed. A claim **holds** when every criterion's
95 % t-interval over seeds lies above its bound, **fails** when one lies below, and is **undecided** otherwise,
which includes a single seed, since it has no interval. The gradient flow has no seeds: its numbers are exact to the
solver's tolerance, so each criterion holds or fails by itself. Bounds are fixed here, before any test data are seen:
differences count from `MARGIN` (one percentage point) and shares from one half.

| claim  | criterion on trajectories of the theory, and on incentives at fixed focus                              |
|--------|-------------------------------------------------------------------------------------------------------|
| D1     | mean focus logit over the first fifth of the time, SA over HA, above 1; gain in the second half, HA - SA |
| D2     | the first of D1, and the final focus logit, HA - SA                                                   |
| D3     | mean focus logit over the first fifth, LVML over HA, above 1; final focus logit, LVML - SA            |
| D4     | time until half of the smallest final margin is reached, SA's over LVML's and HA's over LVML's, above 1 |
| I1     | SA: incentive at one attention less that at the next larger one; the smallest of these falls, above 0 |
| I2     | HA: incentive at one attention less that at the next smaller one; the smallest of these, above 0      |
| I3     | LVML's incentive less HA's at the smallest attention, LVML's less SA's at the largest, both above 0   |

The claims are quoted in arXiv 2307.13421's order; how each is put into numbers is this project's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import NDArray

from fcamlib.metrics import t_interval

Verdict = Literal["holds", "fails", "undecided", "not run"]
Seeds = Float[np.ndarray, " R"]
MARGIN = 0.01  # how much less still counts as "at least"
EARLY = 0.2  # the first fifth of the epochs
LATE = 0.5  # gains are counted from the middle of training
FRACTION = 0.5  # of the smallest final margin, to which convergence is timed


@dataclass(frozen=True)
class Criterion:
    """One measured quantity of a claim.

    Parameters
    ----------
    name : str
        The quantity in words.
    values : (R,) float
        One number per seed.
    bound : float
        What it has to exceed.
    is_exact : bool
        Whether its one number has no chance in it.
    """

    name: str
    values: Seeds
    bound: float = 0.0
    is_exact: bool = False

    def verdict(self) -> Verdict:
        """Where the interval, or the exact number, lies with respect to the bound."""
        _, low, high = (float(self.values[0]),) * 3 if self.is_exact else t_interval(self.values)
        if self.is_exact:
            return "holds" if low > self.bound else "fails"
        return "holds" if low > self.bound else "fails" if high < self.bound else "undecided"


@dataclass(frozen=True)
class Evidence:
    """Runs of one task, per paradigm: arrays over seeds in the same order for all paradigms.

    Parameters
    ----------
    accuracy, saif : paradigm -> (R,)
        On test data after training; of captions BLEU-4 / 100 takes the place of accuracy.
    focus_accuracy : paradigm -> (R, T)
        On test data after each epoch.
    histogram : paradigm -> (R, 5, 5)
        Percent per [a_z bin, s_y bin] on test data after training.
    """

    accuracy: Mapping[str, Float[np.ndarray, " R"]]
    saif: Mapping[str, Float[np.ndarray, " R"]]
    focus_accuracy: Mapping[str, Float[np.ndarray, "R T"]]
    histogram: Mapping[str, Float[np.ndarray, "R A S"]]

    @property
    def paradigms(self) -> set[str]:
        """The paradigms that were run."""
        return set(self.accuracy)


@dataclass(frozen=True)
class Incentives:
    """Incentives after training at fixed focus: paradigm -> (R, A), one column per rising attention, at least two."""

    of: Mapping[str, Float[np.ndarray, "R A"]]

    @property
    def paradigms(self) -> set[str]:
        """The paradigms that were trained."""
        return set(self.of)


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
        return Criterion(name, values, bound, self.is_exact)

    @property
    def paradigms(self) -> set[str]:
        """The paradigms that moved."""
        return set(self.nu)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and how each kind of evidence measures it: kind -> (paradigms needed, criteria)."""

    id: str
    statement: str
    measured: Mapping[type, tuple[tuple[str, ...], Callable[[Any], list[Criterion]]]] = field(default_factory=dict)

    def measure(self, evidence: Evidence | Incentives | Paths) -> list[Criterion]:
        """The claim's criteria on this evidence; none where a paradigm that it speaks of is missing."""
        needed, criteria = self.measured[type(evidence)]
        return criteria(evidence) if set(needed) <= evidence.paradigms else []


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


def _early_logit(paths: Paths, name: str) -> Float[np.ndarray, " R"]:
    """Mean focus logit over the first fifth of the time, or at its first moment after 0 where that is later."""
    times = paths.times
    chosen = (times > 0) & (times <= max(EARLY * times[-1], times[times > 0][0]))
    return paths.nu[name][:, chosen].mean(axis=1)


def _late_gain_of_logit(paths: Paths, name: str) -> Float[np.ndarray, " R"]:
    """Final focus logit less that at half of the time."""
    middle = int(np.searchsorted(paths.times, LATE * paths.times[-1]))
    return paths.nu[name][:, -1] - paths.nu[name][:, middle]


def _soft_then_stalls(paths: Paths) -> list[Criterion]:
    late = _late_gain_of_logit(paths, "hard") - _late_gain_of_logit(paths, "soft")
    return [_soft_leads(paths), paths.criterion("gain in the second half, HA - SA", late)]


def _hard_overtakes(paths: Paths) -> list[Criterion]:
    final = paths.nu["hard"][:, -1] - paths.nu["soft"][:, -1]
    return [_soft_leads(paths), paths.criterion("final focus logit, HA - SA", final)]


def _soft_leads(paths: Paths) -> Criterion:
    return paths.criterion("early focus logit, SA / HA", _early_logit(paths, "soft") / _early_logit(paths, "hard"), 1.0)


def _lvml_combines_in_theory(paths: Paths) -> list[Criterion]:
    final = paths.nu["lvml"][:, -1] - paths.nu["soft"][:, -1]
    return [
        paths.criterion("early focus logit, LVML / HA", _early_logit(paths, "lvml") / _early_logit(paths, "hard"), 1.0),
        paths.criterion("final focus logit, LVML - SA", final),
    ]


def _lvml_is_first(paths: Paths) -> list[Criterion]:
    level = FRACTION * min(float(mu[:, -1].min()) for mu in paths.mu.values())
    times = {name: time_to(level, paths.times, mu) for name, mu in paths.mu.items()}
    return [
        paths.criterion(f"time to half the margin, {label} / LVML", times[name] / times["lvml"], 1.0)
        for name, label in (("soft", "SA"), ("hard", "HA"))
    ]


def _falls_under_soft(e: Incentives) -> list[Criterion]:
    falls = -np.diff(e.of["soft"], axis=1).max(axis=1)
    return [Criterion("SA: smallest fall from one alpha to the next", falls)]


def _rises_under_hard(e: Incentives) -> list[Criterion]:
    return [Criterion("HA: smallest rise from one alpha to the next", np.diff(e.of["hard"], axis=1).min(axis=1))]


def _lvml_is_above_both(e: Incentives) -> list[Criterion]:
    soft, hard, lvml = (e.of[name] for name in ("soft", "hard", "lvml"))
    return [
        Criterion("at the smallest alpha, LVML - HA", lvml[:, 0] - hard[:, 0]),
        Criterion("at the largest alpha, LVML - SA", lvml[:, -1] - soft[:, -1]),
    ]


_TWO, _THREE, _LVML = ("soft", "hard"), ("soft", "hard", "lvml"), ("soft", "lvml")
CLAIMS = {
    claim.id: claim
    for claim in (
        Claim("D1", "under SA the focus improves first, then stalls",
              {Evidence: (_TWO, _soft_is_fast_then_stalls), Paths: (_TWO, _soft_then_stalls)}),
        Claim("D2", "under HA the focus starts slowly, then overtakes",
              {Evidence: (_TWO, _hard_is_slow_then_overtakes), Paths: (_TWO, _hard_overtakes)}),
        Claim("D3", "LVML combines both",
              {Evidence: (_THREE, _lvml_combines), Paths: (_THREE, _lvml_combines_in_theory)}),
        Claim("D4", "the classification model converges faster under LVML than under SA and HA",
              {Paths: (_THREE, _lvml_is_first)}),
        Claim("S1", "SA predicts confidently, its focus is often unsure",
              {Evidence: (_LVML, _soft_predicts_without_focus)}),
        Claim("S2", "HA's focus is confidently right or confidently wrong", {Evidence: (_TWO, _hard_focus_is_outer)}),
        Claim("S3", "LVML is confident in both", {Evidence: (_LVML, _lvml_is_sure_of_both)}),
        Claim("H1", "the hybrid's SAIF is at least SA's and HA's at no loss of accuracy",
              {Evidence: (("soft", "hard", "hybrid"), _hybrid_wins)}),
        Claim("I1", "SA's incentive to focus falls with the attention on the foreground",
              {Incentives: (("soft",), _falls_under_soft)}),
        Claim("I2", "HA's incentive rises with it", {Incentives: (("hard",), _rises_under_hard)}),
        Claim("I3", "LVML's incentive is above HA's at little attention and above SA's at much",
              {Incentives: (_THREE, _lvml_is_above_both)}),
    )
}  # fmt: skip


def measure(claims: Iterable[str], evidence: Evidence | Incentives | Paths) -> dict[str, list[Criterion]]:
    """Claim -> its criteria, of those of the claims that this kind of evidence speaks of."""
    return {name: CLAIMS[name].measure(evidence) for name in claims if type(evidence) in CLAIMS[name].measured}


# --- the hybrid's gain, from the rows of a study ---------------------------------------------------------------------


def gain_frame(history: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """What the hybrid gains on SA and HA for each combination of `by`, from a study's rows: for `plots.gain_heatmap`.

    A gain is the hybrid's measure less the better of SA's and HA's with the same seed; seeds in which one of the three
    diverged are left out. Where a hybrid's `soft_share` tells combinations apart, SA and HA count for each.

    Returns
    -------
    One row per combination: mean and 95 % t-interval of the gain in SAIF and in accuracy, the verdict on the claim H1
    and n, the number of seeds.
    """
    rows = []
    for key, wide in hybrid_pairs(history, by):
        row: dict[str, Any] = dict(zip(by, key, strict=True))
        for metric in ("saif", "accuracy"):
            gain = (wide[metric]["hybrid"] - np.maximum(wide[metric]["soft"], wide[metric]["hard"])).to_numpy(
                dtype=np.float64
            )
            interval = t_interval(gain) if len(gain) else (np.nan, np.nan, np.nan)
            row |= dict(zip((metric, f"{metric}_low", f"{metric}_high"), interval, strict=True))
        rows.append(row | {"verdict": verdict(_gain_criteria(wide)), "n": len(wide)})
    return pd.DataFrame(rows)


def gain_criteria(history: pd.DataFrame, by: Sequence[str]) -> list[Criterion]:
    """The criteria of H1 for each combination of `by`, one after the other; the combination stands before the name."""
    return [
        replace(c, name=", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in key) + f": {c.name}")
        for key, wide in hybrid_pairs(history, by)
        for c in _gain_criteria(wide)
    ]


def hybrid_pairs(history: pd.DataFrame, by: Sequence[str]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """For each combination of `by`: measures by paradigm, a row a seed in which SA, HA and hybrid all finished."""
    if "soft_share" in by:
        shares = np.sort(history.loc[history["paradigm"] == "hybrid", "soft_share"].unique())
        others = history[history["paradigm"] != "hybrid"]
        parts = [others.assign(soft_share=share) for share in shares]
        history = pd.concat([history[history["paradigm"] == "hybrid"], *parts])
    three = history[history["paradigm"].isin(["soft", "hard", "hybrid"])]
    return [
        (key, group.pivot(index="seed", columns="paradigm", values=["saif", "accuracy"]).dropna())
        for key, group in three.groupby(list(by), sort=False)
    ]


def _gain_criteria(wide: pd.DataFrame) -> list[Criterion]:
    columns = {m: {str(p): wide[m][p].to_numpy(dtype=np.float64) for p in wide[m]} for m in ("accuracy", "saif")}
    return CLAIMS["H1"].measure(Evidence(columns["accuracy"], columns["saif"], {}, {})) if len(wide) else []

r"""From numbers per seed to one of four states: criteria, their intervals, and the verdict on a claim.

A criterion is a number per seed and the bound that its mean has to exceed. Its 95 % interval is Student's t, or a BCa
bootstrap where there are ten seeds or more and the numbers are shares near 0 or 1 or fall into two groups; fewer than
`LEAST_SEEDS` seeds have no interval. A criterion is

| state        | where                                                                                               |
|--------------|-----------------------------------------------------------------------------------------------------|
| supported    | the interval lies above the bound                                                                   |
| contradicted | it lies below, after Holm's correction over the criteria of the claim, since one of them suffices   |
| inconclusive | otherwise, and with fewer than five seeds                                                           |
| not tested   | what it needs was not measured, or the training ended before what it speaks of                      |

A claim is supported with all of its criteria, which needs no correction, and contradicted with any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import stdtr, stdtrit

State = Literal["supported", "contradicted", "inconclusive", "not tested"]
Seeds = Float[np.ndarray, " R"]
CONFIDENCE = 0.95
LEAST_SEEDS = 5  # for an interval, and so for a verdict
LEAST_BOOTSTRAP = 10  # for a bootstrap interval
NEAR = 0.05  # of 0 or 1, where shares are skewed
BIMODAL = 5 / 9  # Sarle's coefficient of a uniform distribution
LEAST_REPEATS = 6  # for a two-sided Wilcoxon test to reach p < 0.05
MOST_SEEDS = 1000  # that a power column counts up to


@dataclass(frozen=True)
class Criterion:
    """One measured quantity of a claim.

    Parameters
    ----------
    name : str
        The quantity in words.
    values : (R,) float
        One number per seed; empty where it was not recorded.
    bound : float
        What the mean has to exceed.
    is_share, is_exact : bool
        Whether the values are shares in [0, 1]; whether the one value has no chance in it.
    untested : str
        Why the criterion is not judged; empty where it is.
    is_judged : bool
        False for what is shown beside the criteria and decides nothing.
    """

    name: str
    values: Seeds
    bound: float = 0.0
    is_share: bool = False
    is_exact: bool = False
    untested: str = ""
    is_judged: bool = True

    @property
    def is_open(self) -> bool:
        """Whether it takes part in the verdict."""
        return self.is_judged and not self.untested and len(self.values) > 0

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean; None with fewer than five seeds."""
        return self.at(1 - CONFIDENCE)

    def at(self, alpha: float) -> tuple[float, float] | None:
        """The interval that misses the mean with probability `alpha`."""
        if self.is_exact:
            return float(self.values[0]), float(self.values[0])
        return interval(self.values, alpha, self.is_share)

    @property
    def seeds_needed(self) -> int | None:
        """How many seeds would decide it with the present mean and spread; None where that is not known."""
        if self.is_exact or not self.is_open or len(self.values) < 2:
            return None
        apart, deviation = abs(float(self.values.mean()) - self.bound), float(self.values.std(ddof=1))
        n = np.arange(LEAST_SEEDS, MOST_SEEDS + 1)
        enough = n[stdtrit(n - 1, 0.5 + CONFIDENCE / 2) * deviation / np.sqrt(n) < apart]
        return int(enough[0]) if len(enough) else MOST_SEEDS + 1


def interval(values: Seeds, alpha: float = 1 - CONFIDENCE, is_share: bool = False) -> tuple[float, float] | None:
    """Interval of the mean over seeds, Student's t or BCa bootstrap as the module says; None with fewer than five."""
    n = len(values)
    if n < LEAST_SEEDS:
        return None
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    is_near = is_share and min(mean, 1 - mean) < NEAR
    if n >= LEAST_BOOTSTRAP and deviation > 0 and (is_near or bimodality(values) > BIMODAL):
        from scipy.stats import bootstrap  # slow to import, so only where needed

        rng = np.random.default_rng(0)
        found = bootstrap((values,), np.mean, confidence_level=1 - alpha, method="BCa", rng=rng).confidence_interval
        return float(found.low), float(found.high)
    half = float(stdtrit(n - 1, 1 - alpha / 2)) * deviation / np.sqrt(n)
    return mean - half, mean + half


def bimodality(values: Seeds) -> float:
    """Sarle's coefficient with the correction for small samples: 5/9 if uniform, above it with two groups, up to 1."""
    n, z = len(values), (values - np.mean(values)) / np.std(values)
    skewness = np.mean(z**3) * np.sqrt(n * (n - 1)) / (n - 2)
    kurtosis = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * (np.mean(z**4) - 3) + 6)
    return float((skewness**2 + 1) / (kurtosis + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3))))


def states(criteria: Sequence[Criterion]) -> list[State]:
    """The state of each criterion of a claim; "not tested" also for what is shown beside them."""
    open_ = [c for c in criteria if c.is_open]
    refuted: list[Criterion] = []
    for place, c in enumerate(sorted(open_, key=_p_below)):  # Holm: the smallest p first, until one is too large
        limits = c.at((1 - CONFIDENCE) / (len(open_) - place))
        if limits is None or not (limits[1] < c.bound or (c.is_exact and limits[1] <= c.bound)):
            break
        refuted.append(c)
    return [_state(c, any(c is other for other in refuted)) for c in criteria]


def _state(c: Criterion, is_refuted: bool) -> State:
    if not c.is_open:
        return "not tested"
    limits = c.interval
    return "contradicted" if is_refuted else "supported" if limits and limits[0] > c.bound else "inconclusive"


def _p_below(c: Criterion) -> float:
    """One-sided p of a mean above the bound or at it, by which Holm's order goes."""
    n, deviation = len(c.values), 0.0 if len(c.values) < 2 else float(c.values.std(ddof=1))
    if c.is_exact or deviation == 0:
        return float(c.values[0] > c.bound if c.is_exact else np.mean(c.values) >= c.bound)
    return float(stdtr(n - 1, (c.values.mean() - c.bound) / deviation * np.sqrt(n)))


def verdict(criteria: Sequence[Criterion]) -> State:
    """Contradicted with any criterion, supported with all; not tested where one that is left was not."""
    found = {state for c, state in zip(criteria, states(criteria), strict=True) if c.is_judged}
    if "contradicted" in found:
        return "contradicted"
    if not found or "not tested" in found:
        return "not tested"
    return "supported" if found == {"supported"} else "inconclusive"


# --- as readers see it ----------------------------------------------------------------------------------------------


def interval_text(values: Seeds, digits: int = 3, is_share: bool = False, sign: str = "") -> str:
    """A mean with its interval in brackets; with fewer than five seeds their range, in parentheses; one alone."""
    mean, limits = _number(float(np.mean(values)), digits, sign), interval(values, is_share=is_share)
    if limits:
        return f"{mean} [{_number(limits[0], digits, sign)}, {_number(limits[1], digits, sign)}]"
    if len(values) == 1:
        return mean
    return f"{mean} ({_number(float(np.min(values)), digits, sign)} to {_number(float(np.max(values)), digits, sign)})"


def _number(value: float, digits: int, sign: str = "") -> str:
    """No minus before a zero."""
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"


def claims_table(measured: Mapping[str, Mapping[str, Sequence[Criterion]]]) -> pd.DataFrame:
    """Source -> claim -> criteria as a table: each claim's verdict on each source, and a row a criterion.

    A criterion's state, what was measured, what it needs, the number of seeds, and how many would decide it.
    """
    rows: list[tuple[str, ...]] = []
    for claim in dict.fromkeys(name for found in measured.values() for name in found):
        for source, found in measured.items():
            criteria = found.get(claim, ())
            for c, state in zip(criteria, states(criteria), strict=True):
                mark = state if c.is_judged else "beside"
                rows.append((claim, source, verdict(criteria), c.name, mark, *criterion_text(c, state)))
            if claim in found and not criteria:
                rows.append((claim, source, "not tested", "a paradigm or the foreground is not known", *[""] * 5))
    columns = ["id", "on", "verdict", "measured", "criterion", "value", "needs", "n", "n needed"]
    return pd.DataFrame(rows, columns=columns).set_index(["id", "on", "verdict"])


def criterion_text(c: Criterion, state: State) -> tuple[str, str, str, str]:
    """Value with interval, bound, number of seeds, and how many would decide what is inconclusive."""
    if len(c.values) == 0:
        return c.untested or "not recorded", "", "0", ""
    value = f"{c.values[0]:.3f}" if c.is_exact else interval_text(c.values, is_share=c.is_share)
    needed = c.seeds_needed if state == "inconclusive" else None
    seeds = "" if needed is None else f"more than {MOST_SEEDS:,}" if needed > MOST_SEEDS else str(needed)
    bound = f"> {c.bound:g}" if c.is_judged else ""
    return (
        value + (f"; {c.untested}" if c.untested else ""),
        bound,
        "exact" if c.is_exact else str(len(c.values)),
        seeds,
    )


# --- paired tests over folds ----------------------------------------------------------------------------------------


class PairedTest(NamedTuple):
    """Mean difference over folds, its 95 % interval and p-value, and Wilcoxon's p over repeats where it is defined."""

    difference: float
    low: float
    high: float
    p: float
    p_wilcoxon: float | None


def corrected_t_test(
    difference: Float[np.ndarray, " J"], test_share: float, repeat_means: Float[np.ndarray, " R"]
) -> PairedTest:
    r"""The corrected resampled t-test of zero mean difference; folds share training data, which it takes into account.

    $$\mathrm{Var} = \Bigl(\frac1J + \frac{n_\mathrm{test}}{n_\mathrm{train}}\Bigr) s^2$$

    is the variance of the mean over J folds, where s² is that of the folds' differences. The Wilcoxon signed-rank test
    over the means of the repeats needs six of them to reach p < 0.05.
    Source: Nadeau and Bengio 2003; for repeated cross-validation Bouckaert and Frank 2004.

    Parameters
    ----------
    difference : (J,) float
        One per repeat and fold, at least two.
    test_share : float
        n_test / n_train, in (0, inf).
    repeat_means : (R,) float
        Mean difference of each repeat.
    """
    count = len(difference)
    mean, deviation = float(difference.mean()), float(difference.std(ddof=1))
    error = np.sqrt(1 / count + test_share) * deviation
    half = float(stdtrit(count - 1, 0.975) * error)
    p = 2 * float(stdtr(count - 1, -abs(mean) / error)) if error > 0 else (1.0 if mean == 0 else 0.0)
    from scipy.stats import wilcoxon  # slow to import, so only where needed

    enough = len(repeat_means) >= LEAST_REPEATS and np.any(repeat_means != 0)
    return PairedTest(mean, mean - half, mean + half, p, float(wilcoxon(repeat_means).pvalue) if enough else None)


def paired_test(history: pd.DataFrame, measure: str, first: str, second: str) -> PairedTest:
    """The test of `first` less `second` over the folds that both have."""
    wide = history.pivot(index=["repeat", "fold"], columns="method", values=measure)[[first, second]].dropna()
    difference = wide[first] - wide[second]
    sizes = history[history["method"] == first].groupby("repeat")["n"]
    num_test, num_bags = float(sizes.mean().mean()), float(sizes.sum().mean())
    by_repeat = difference.groupby("repeat").mean().to_numpy(dtype=np.float64)
    return corrected_t_test(difference.to_numpy(dtype=np.float64), num_test / (num_bags - num_test), by_repeat)

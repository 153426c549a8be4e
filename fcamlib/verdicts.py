r"""From numbers per seed to one of four states: criteria, their intervals, and the verdict on a claim.

A criterion is a number per seed and a bound that its mean must exceed. Its 95% confidence interval is Student's t,
truncated to [0, 1] for shares, or a BCa bootstrap with ten or more seeds if the numbers are shares near 0 or 1 or are
bimodal; with fewer than `LEAST_SEEDS` seeds there is no interval. A criterion is

| state        | if                                                                                                  |
|--------------|-----------------------------------------------------------------------------------------------------|
| supported    | the interval is above the bound                                                                     |
| contradicted | the interval is below the bound, after Holm's correction over the criteria of the claim             |
| inconclusive | neither is the case, or there are fewer than five seeds                                             |
| not tested   | its data were not measured, or training ended before the period that it concerns                    |

A claim is supported if all of its criteria are, which needs no correction, and contradicted if any is.
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
LEAST_SEEDS = 5  # for an interval, and thus for a verdict
LEAST_BOOTSTRAP = 10  # seeds for a bootstrap interval
NEAR = 0.05  # distance from 0 or 1 within which shares are skewed
BIMODAL = 5 / 9  # Sarle's coefficient of a uniform distribution
LEAST_REPEATS = 6  # for a two-sided Wilcoxon test to reach p < 0.05
MOST_SEEDS = 1000  # largest number in the column of seeds needed


@dataclass(frozen=True)
class Criterion:
    """A quantity in words, its value per seed (empty if not recorded), and the bound that its mean must exceed.

    `is_share`: the values are shares in [0, 1]. `is_exact`: the single value is deterministic. `untested`: why the
    criterion is not judged. A criterion with `is_judged=False` is shown but does not affect the verdict.
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
        """The 95% confidence interval of the mean; None with fewer than five seeds."""
        return self.at(1 - CONFIDENCE)

    def at(self, alpha: float) -> tuple[float, float] | None:
        """The confidence interval at level 1 - `alpha`."""
        if self.is_exact:
            return float(self.values[0]), float(self.values[0])
        return interval(self.values, alpha, self.is_share)

    def is_refuted(self, alpha: float) -> bool:
        """Whether the interval is below the bound, or an exact value is not above it."""
        limits = self.at(alpha)
        return bool(limits and (limits[1] < self.bound or (self.is_exact and limits[1] == self.bound)))

    @property
    def seeds_needed(self) -> int | None:
        """How many seeds, more than now, would decide it alone at the present mean and spread; None if not known."""
        if self.is_exact or not self.is_open or len(self.values) < 2:
            return None
        n = np.arange(max(LEAST_SEEDS, len(self.values) + 1), MOST_SEEDS + 1)
        half = stdtrit(n - 1, 0.5 + CONFIDENCE / 2) * self.values.std(ddof=1) / np.sqrt(n)
        enough = n[half < abs(self.values.mean() - self.bound)]
        return int(enough[0]) if len(enough) else MOST_SEEDS + 1


def interval(values: Seeds, alpha: float = 1 - CONFIDENCE, is_share: bool = False) -> tuple[float, float] | None:
    """Interval of the mean over seeds, Student's t or BCa bootstrap (see the module); None with fewer than five."""
    n = len(values)
    if n < LEAST_SEEDS:
        return None
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    is_near = is_share and min(mean, 1 - mean) < NEAR
    if n >= LEAST_BOOTSTRAP and np.ptp(values) > 0 and (is_near or bimodality(values) > BIMODAL):
        from scipy.stats import bootstrap  # slow to import, so only where needed

        rng = np.random.default_rng(0)
        found = bootstrap((values,), np.mean, confidence_level=1 - alpha, method="BCa", rng=rng).confidence_interval
        return float(found.low), float(found.high)
    half = float(stdtrit(n - 1, 1 - alpha / 2)) * deviation / np.sqrt(n)
    return (max(mean - half, 0.0), min(mean + half, 1.0)) if is_share else (mean - half, mean + half)


def bimodality(values: Seeds) -> float:
    """Sarle's coefficient with the correction for small samples: 5/9 if uniform, above it with two groups, up to 1."""
    n, sample = len(values), pd.Series(values, dtype=np.float64)
    skewness, excess = float(sample.skew()), float(sample.kurt())  # type: ignore[arg-type]
    return (skewness**2 + 1) / (excess + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3)))


def states(criteria: Sequence[Criterion]) -> list[State]:
    """The state of each criterion of a claim; those that are not judged are "not tested"."""
    open_ = [place for place, c in enumerate(criteria) if c.is_open]
    refuted: list[int] = []
    while more := [  # Holm: each refuted criterion relaxes the test of the remaining ones
        place
        for place in open_
        if place not in refuted and criteria[place].is_refuted((1 - CONFIDENCE) / (len(open_) - len(refuted)))
    ]:
        refuted += more
    found: list[State] = ["not tested"] * len(criteria)
    for place in open_:
        limits = criteria[place].interval
        is_above = limits is not None and limits[0] > criteria[place].bound
        found[place] = "contradicted" if place in refuted else "supported" if is_above else "inconclusive"
    return found


def verdict(criteria: Sequence[Criterion]) -> State:
    """Contradicted if any criterion is, supported if all are; otherwise not tested if any is not, or inconclusive."""
    found = {state for c, state in zip(criteria, states(criteria), strict=True) if c.is_judged}
    if "contradicted" in found:
        return "contradicted"
    if not found or "not tested" in found:
        return "not tested"
    return "supported" if found == {"supported"} else "inconclusive"


def interval_text(values: Seeds, digits: int = 3, is_share: bool = False, sign: str = "") -> str:
    """A mean with its interval in brackets, or with fewer than five seeds their range in parentheses."""
    limits = interval(values, is_share=is_share)
    shown = (float(np.mean(values)), *(limits or (float(np.min(values)), float(np.max(values)))))
    mean, low, high = (f"{round(x, digits) + 0.0:{sign}.{digits}f}" for x in shown)  # no minus before a zero
    if limits:
        return f"{mean} [{low}, {high}]"
    return mean if len(values) == 1 else f"{mean} ({low} to {high})"


def claims_table(measured: Mapping[str, Mapping[str, Sequence[Criterion]]]) -> pd.DataFrame:
    """Source -> claim -> criteria as a table: each claim's verdict on each source, with one row per criterion."""
    rows: list[tuple[str, ...]] = []
    for claim in dict.fromkeys(name for found in measured.values() for name in found):
        for source, found in measured.items():
            criteria = found.get(claim, ())
            for c, state in zip(criteria, states(criteria), strict=True):
                mark = state if c.is_judged else "shown only"
                rows.append((claim, source, verdict(criteria), c.name, mark, *criterion_text(c, state)))
            if claim in found and not criteria:
                rows.append(
                    (claim, source, "not tested", "a paradigm was not run, or the foreground is not known", *[""] * 5)
                )
    columns = ["id", "on", "verdict", "measured", "criterion", "value", "needs", "n", "n needed"]
    return pd.DataFrame(rows, columns=columns).set_index(["id", "on", "verdict", "measured"])


def criterion_text(c: Criterion, state: State) -> tuple[str, str, str, str]:
    """Value with interval, bound, number of seeds, and the number of seeds that would decide an inconclusive one."""
    if len(c.values) == 0:
        return c.untested or "not recorded", "", "0", ""
    value = f"{c.values[0]:.3f}" if c.is_exact else interval_text(c.values, is_share=c.is_share)
    needed = c.seeds_needed if state == "inconclusive" else None
    seeds = "" if needed is None else f"more than {MOST_SEEDS:,}" if needed > MOST_SEEDS else str(needed)
    number = "exact" if c.is_exact else str(len(c.values))
    return value + (f"; {c.untested}" if c.untested else ""), f"> {c.bound:g}" if c.is_judged else "", number, seeds


class PairedTest(NamedTuple):
    """Mean difference over folds, its 95% confidence interval and p-value, and Wilcoxon's p over repeats if defined."""

    difference: float
    low: float
    high: float
    p: float
    p_wilcoxon: float | None


def corrected_t_test(
    difference: Float[np.ndarray, " J"], test_share: float, repeat_means: Float[np.ndarray, " R"]
) -> PairedTest:
    r"""The corrected resampled t-test of zero mean difference, which accounts for training data shared between folds.

    $$\mathrm{Var} = \Bigl(\frac1J + \frac{n_\mathrm{test}}{n_\mathrm{train}}\Bigr) s^2$$

    is the variance of the mean over J >= 2 folds, where s² is the variance of their differences and `test_share` is
    n_test / n_train. The Wilcoxon signed-rank test over the means of the repeats needs six of them to reach p < 0.05.
    Source: Nadeau and Bengio 2003; for repeated cross-validation Bouckaert and Frank 2004.
    """
    from scipy.stats import wilcoxon  # slow to import, so only where needed

    count, mean = len(difference), float(difference.mean())
    error = float(np.sqrt(1 / count + test_share) * difference.std(ddof=1))
    half = float(stdtrit(count - 1, 0.975)) * error
    p = 2 * float(stdtr(count - 1, -abs(mean) / error)) if error > 0 else float(mean == 0)
    enough = len(repeat_means) >= LEAST_REPEATS and np.any(repeat_means != 0)
    return PairedTest(mean, mean - half, mean + half, p, float(wilcoxon(repeat_means).pvalue) if enough else None)


def paired_test(history: pd.DataFrame, measure: str, first: str, second: str) -> PairedTest:
    """The test of `first` minus `second` over the folds that both have."""
    wide = history.pivot(index=["repeat", "fold"], columns="method", values=measure)[[first, second]].dropna()
    difference = wide[first] - wide[second]
    sizes = history[history["method"] == first].groupby("repeat")["n"]
    num_test, num_bags = float(sizes.mean().mean()), float(sizes.sum().mean())
    by_repeat = difference.groupby("repeat").mean().to_numpy(dtype=np.float64)
    return corrected_t_test(difference.to_numpy(dtype=np.float64), num_test / (num_bags - num_test), by_repeat)

"""Verdicts follow from numbers: states, intervals, power and paired tests, by hand and by simulation."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_seeds import seeds
from scipy import stats

from fcamlib.tables import paired_table
from fcamlib.verdicts import (
    Criterion,
    bimodality,
    claims_table,
    corrected_t_test,
    criterion_text,
    interval,
    interval_text,
    paired_test,
    states,
    verdict,
)

SKEWED = np.array([1.0] * 9 + [0.9])
EDGE = np.linspace(0.932, 0.972, 10)
GROUPS = np.array([0.1, 0.11, 0.12, 0.1, 0.12, 0.9, 0.91, 0.92, 0.9, 0.92])


def on(values: np.ndarray, bound: float = 0.0, **given: Any) -> Criterion:
    return Criterion("", values, bound, **given)


def student(values: np.ndarray) -> Any:
    """Student's 95 % interval by another route."""
    return pytest.approx(stats.ttest_1samp(values, 0).confidence_interval())


def bca(values: np.ndarray, level: float = 0.95) -> Any:
    found = stats.bootstrap((values,), np.mean, confidence_level=level, method="BCa", rng=np.random.default_rng(0))
    return pytest.approx(found.confidence_interval)


# --- states -----------------------------------------------------------------------------------------------------------


def test_intervals_against_bounds_by_hand() -> None:
    # mean 0.1, variance 1e-4 (4 + 1 + 0 + 1 + 4) / 4 = 2.5e-4; half-width 2.7764 * 0.015811 / 2.2361 = 0.019632
    assert interval(seeds(0.1)) == pytest.approx((0.080368, 0.119632), abs=1e-6)
    for bound, expected in ((0.0803, "supported"), (0.0804, "inconclusive"), (0.1196, "inconclusive")):
        assert states([on(seeds(0.1), bound)]) == [expected]
    assert verdict([on(seeds(0.1), 0.1197)]) == "contradicted"
    assert interval(seeds(0.99), is_share=True) == (pytest.approx(0.970368, abs=1e-6), 1.0), "no share is above 1"
    assert interval(seeds(0.01), is_share=True) == (0.0, pytest.approx(0.029632, abs=1e-6))
    assert interval(seeds(0.1)[:4]) is None and verdict([on(seeds(0.1)[:4])]) == "inconclusive"
    exact = [on(np.array([value]), 1.0, is_exact=True) for value in (1.0 + 1e-9, 1.0)]  # it has to exceed its bound
    assert [states([c])[0] for c in exact] == ["supported", "contradicted"]
    equal = on(np.full(5, 1.0), 1.0)
    assert equal.interval == (1, 1) and states([equal]) == ["inconclusive"]


def test_a_claim_needs_all_its_criteria_and_one_refutes_it() -> None:
    good, bad, open_ = (on(seeds(value)) for value in (1.0, -1.0, 0.0))
    late, gone, beside = on(seeds(1.0), untested="too short"), on(np.array([])), on(seeds(-1.0), is_judged=False)
    for criteria, expected in (
        ([good, good], "supported"),
        ([good, open_], "inconclusive"),
        ([open_, bad], "contradicted"),
        ([good, late], "not tested"),
        ([bad, late], "contradicted"),
        ([good, gone], "not tested"),
        ([], "not tested"),
        ([good, beside], "supported"),
    ):
        assert verdict(criteria) == expected
    assert states([good, beside, late, gone]) == ["supported"] + ["not tested"] * 3


def test_holm_corrects_what_refutes_a_claim() -> None:
    """Half-widths of five seeds in spreads: 1.963 at 95 %, 2.472 at 97.5 %, 2.798 at 98.33 %."""
    below, far, above = on(seeds(-0.022)), on(seeds(-0.0265)), on(seeds(1.0))
    assert states([below]) == ["contradicted"] and states([below, above]) == ["inconclusive", "supported"]
    assert below.seeds_needed == 6, "more than there are, since these leave it open beside the other"
    assert states([far, above]) == ["contradicted", "supported"]
    assert states([below, far]) == ["contradicted"] * 2 == states([far, below])  # the one opens the way for the other
    assert states([below, below]) == ["inconclusive"] * 2
    assert states([below, far, above]) == ["inconclusive", "inconclusive", "supported"]
    assert states([below, far, on(seeds(-0.03))]) == ["contradicted"] * 3
    assert states([far, on(seeds(1.0), untested="short")]) == ["contradicted", "not tested"], "what is open counts"


@pytest.mark.parametrize(
    ("draw", "number"),
    [
        (lambda rng, n: rng.normal(0.3, 0.1, n), 5),
        (lambda rng, n: rng.beta(30, 20, n), 30),
        (lambda rng, n: np.maximum(*rng.normal(0.3, 0.1, (2, n))), 5),  # the better of two
    ],
)
def test_intervals_cover_the_mean_as_often_as_they_say(draw: Callable[..., np.ndarray], number: int) -> None:
    rng, true = np.random.default_rng(number), float(draw(np.random.default_rng(1), 1_000_000).mean())
    limits = [interval(draw(rng, number)) or (np.nan, np.nan) for _ in range(2000)]
    assert 0.93 <= np.mean([low <= true <= high for low, high in limits]) <= 0.97


def test_shares_near_the_edge_and_two_groups_are_bootstrapped_from_ten_seeds_on() -> None:
    assert interval(SKEWED, is_share=True) == bca(SKEWED) and interval(1 - SKEWED, is_share=True) == bca(1 - SKEWED)
    assert interval(GROUPS) == bca(GROUPS) and interval(GROUPS[1:]) == student(GROUPS[1:])
    assert interval(GROUPS, alpha=0.2) == bca(GROUPS, level=0.8)
    assert interval(SKEWED[1:]) == student(SKEWED[1:])
    assert on(EDGE, is_share=True).interval == bca(EDGE)
    assert interval(EDGE, is_share=True) == bca(EDGE) != student(EDGE) == interval(EDGE)
    assert interval(EDGE - 0.004, is_share=True) == student(EDGE - 0.004)
    on_edge = 0.05 + 0.02 * np.linspace(-1, 1, 11)
    assert on_edge.mean() == 0.05 and interval(on_edge, is_share=True) == student(on_edge), "near is below the edge"
    apart = np.concatenate([np.linspace(0, 1, 5), np.linspace(4.5, 5.5, 5)])
    assert 0.5 < bimodality(apart) < 5 / 9 and interval(apart) == student(apart) != bca(apart)
    for same in (1.0, 0.97):  # the standard deviation of equal numbers may be rounding
        assert interval(np.full(10, same), is_share=True) == pytest.approx((same, same))
    for values in (SKEWED, GROUPS, np.random.default_rng(0).normal(size=50)):
        n, skewness, excess = len(values), stats.skew(values, bias=False), stats.kurtosis(values, bias=False)
        expected = (skewness**2 + 1) / (excess + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3)))
        assert bimodality(values) == pytest.approx(expected)


def test_the_seeds_that_an_open_row_would_need() -> None:
    for effect in (0.0021, 0.0037, 0.0062, 0.01, 0.0131):
        found = on(seeds(effect)).seeds_needed
        assert found is not None
        widths = [stats.t.ppf(0.975, n - 1) * seeds(0.0).std(ddof=1) / np.sqrt(n) for n in (found - 1, found)]
        assert widths[1] < effect <= widths[0]
    found = on(seeds(0.01)).seeds_needed
    assert on(seeds(0.31), bound=0.3).seeds_needed == found == on(seeds(0.29), bound=0.3).seeds_needed
    assert on(seeds(0.0)).seeds_needed == 1001 and on(seeds(1.0, number=2)).seeds_needed == 5
    last = on(seeds(0.00098125))
    assert last.seeds_needed == 1000 and criterion_text(last, "inconclusive")[3] == "1000", "the last that is counted"
    for unknown in (on(np.array([1.0])), on(seeds(0.01), untested="short"), on(seeds(0.01), is_exact=True)):
        assert unknown.seeds_needed is None


@pytest.mark.parametrize(("number", "effect"), [(5, 1.0), (9, 2.0)])
def test_a_claim_true_by_construction_is_supported_and_its_opposite_contradicted(number: int, effect: float) -> None:
    """As often as the noncentral t distribution says, for an effect in standard deviations."""
    drawn = np.random.default_rng(0).normal(effect, 1.0, (1000, number))
    power = stats.nct.sf(stats.t.ppf(0.975, number - 1), number - 1, effect * number**0.5)
    for sign, expected in ((1, "supported"), (-1, "contradicted")):
        found = [verdict([on(sign * values)]) for values in drawn]
        assert np.mean([state == expected for state in found]) == pytest.approx(power, abs=0.05)
        assert np.mean([state not in (expected, "inconclusive") for state in found]) < 0.005


def test_text_shows_intervals_ranges_and_single_values() -> None:
    assert interval_text(seeds(0.1)) == "0.100 [0.080, 0.120]"
    assert interval_text(seeds(0.1)[:3]) == "0.090 (0.080 to 0.100)"
    assert interval_text(seeds(0.1), 2, sign="+") == "+0.10 [+0.08, +0.12]"
    assert interval_text(np.array([-0.0001]), 2) == "0.00"
    low, high = interval(EDGE, is_share=True) or (0.0, 0.0)
    edge = f"0.952 [{low:.3f}, {high:.3f}]"
    assert interval_text(EDGE, is_share=True) == edge != interval_text(EDGE)
    criteria = [
        on(seeds(0.0)),
        on(np.array([])),
        on(EDGE, is_share=True, untested="too short"),
        on(np.array([2.0]), 1.02, is_exact=True),
        on(seeds(0.01), is_judged=False),
        on(seeds(0.01), -0.01),
        on(seeds(0.01)),
    ]
    measured = {"a": {"H1": criteria, "D1": []}, "b": {"D1": [on(seeds(1.0))]}, "c": {"D1": [on(seeds(-1.0))]}}
    table = claims_table(measured).reset_index()
    assert table[["id", "on", "verdict"]].agg("/".join, axis=1).tolist() == [
        *["H1/a/not tested"] * 7, "D1/a/not tested", "D1/b/supported", "D1/c/contradicted"
    ]  # fmt: skip
    shown = table[["criterion", "value", "needs", "n", "n needed"]].agg("|".join, axis=1).tolist()
    assert shown == [
        "inconclusive|0.000 [-0.020, 0.020]|> 0|5|more than 1,000",
        "not tested|not recorded||0|",
        f"not tested|{edge}; too short|> 0|10|",
        "supported|2.000|> 1.02|exact|",
        "shown only|0.010 [-0.010, 0.030]||5|",
        "supported|0.010 [-0.010, 0.030]|> -0.01|5|",
        f"inconclusive|0.010 [-0.010, 0.030]|> 0|5|{criteria[-1].seeds_needed}",
        "||||",
        "supported|1.000 [0.980, 1.020]|> 0|5|",
        "contradicted|-1.000 [-1.020, -0.980]|> 0|5|",
    ]


# --- paired tests over folds ------------------------------------------------------------------------------------------


def test_the_corrected_t_test_is_the_formula_and_without_correction_scipys() -> None:
    difference = np.array([0.1, -0.05, 0.2, 0.0, 0.15, 0.05])
    plain, expected = corrected_t_test(difference, 0.0, np.zeros(3)), stats.ttest_1samp(difference, 0)
    assert (plain.p, plain.low, plain.high) == pytest.approx((expected.pvalue, *expected.confidence_interval()))
    found = corrected_t_test(-difference, 1 / 9, np.array([0.1, 0.2, 0.3, 0.4, 0.5]))
    error = np.sqrt((1 / 6 + 1 / 9) * difference.var(ddof=1))
    half = stats.t.ppf(0.975, 5) * error
    assert found.p == pytest.approx(2 * stats.t.sf(difference.mean() / error, 5)) and found.p > plain.p
    assert (found.difference, found.low, found.high) == pytest.approx((-0.075, -0.075 - half, -0.075 + half))
    assert found.p_wilcoxon is None, "five repeats cannot reach p < 0.05"
    for repeats in (6, 7):  # of one sign, which is one of 2^n
        means = np.arange(1, repeats + 1) / 10
        assert corrected_t_test(means, 0.1, means).p_wilcoxon == pytest.approx(2 / 2**repeats)
    assert corrected_t_test(np.zeros(4), 0.1, np.zeros(6))[:] == (0, 0, 0, 1, None)
    assert corrected_t_test(np.ones(4), 0.1, np.zeros(6)).p == 0


def test_paired_tests_take_the_folds_that_both_methods_have() -> None:
    values = {"hybrid": [0.5, 1.0, 0.75, 1.0], "soft": [0.25, 1.0, 1.0, 0.5], "other": [0.0, 0.0, 0.0, 0.0]}
    rows = pd.DataFrame(
        {"repeat": place // 2, "fold": place % 2, "method": method, "n": size, "accuracy": column[place]}
        for method, column in values.items()
        for place, size in enumerate([8, 2, 4, 6])
    ).sample(frac=1, random_state=0)
    found = paired_test(rows, "accuracy", "hybrid", "soft")
    # Ten bags a repeat, five a fold; means of the repeats 0.125.
    assert found == corrected_t_test(np.array([0.25, 0, -0.25, 0.5]), 5 / 5, np.array([0.125, 0.125]))
    unknown: Any = SimpleNamespace(config=SimpleNamespace(repeats=2, methods=()), summary={"title": ""}, folder=Path())
    unknown.history = rows.assign(auc=np.nan)  # of folds of one bag each
    assert paired_table([unknown], "auc").empty and len(paired_table([unknown])) == 1
    rows.loc[(rows["method"] == "hybrid") & (rows["fold"] == 0), "accuracy"] = None
    assert paired_test(rows, "accuracy", "hybrid", "soft").difference == pytest.approx(0.25)
    many = pd.concat([rows.assign(repeat=rows["repeat"] + 2 * number, fold=rows["fold"]) for number in range(3)])
    many["accuracy"] = np.random.default_rng(0).random(len(many))
    wide = many.pivot(index=["repeat", "fold"], columns="method", values="accuracy")
    means = (wide["hybrid"] - wide["soft"]).groupby("repeat").mean()
    assert paired_test(many, "accuracy", "hybrid", "soft").p_wilcoxon == pytest.approx(stats.wilcoxon(means).pvalue)

"""Verdicts follow from numbers: states, intervals and power by hand and by simulation; claims on data made for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcamlib.claims import CLAIMS, Evidence, Incentives, Paths, at_end, hybrid_gains, is_flat, time_to
from fcamlib.verdicts import Criterion, bimodality, claims_table, interval, interval_text, states, verdict

SEEDS = 5


def seeds(value: float, spread: float = 0.01, number: int = SEEDS) -> np.ndarray:
    """Equally spaced seeds around a value; of five the t-interval has half-width 1.963 spreads."""
    return value + spread * np.linspace(-2, 2, number)


# --- states -----------------------------------------------------------------------------------------------------------


def test_intervals_against_bounds_by_hand() -> None:
    # mean 0.1, variance 1e-4 (4 + 1 + 0 + 1 + 4) / 4 = 2.5e-4; half-width 2.7764 * 0.015811 / 2.2361 = 0.019632
    assert interval(seeds(0.1)) == pytest.approx((0.080368, 0.119632), abs=1e-6)
    for bound, expected in ((0.0803, "supported"), (0.0804, "inconclusive"), (0.1196, "inconclusive")):
        assert states([Criterion("", seeds(0.1), bound)]) == [expected]
    assert verdict([Criterion("", seeds(0.1), 0.1197)]) == "contradicted"
    assert interval(seeds(0.1)[:4]) is None and verdict([Criterion("", seeds(0.1)[:4])]) == "inconclusive"
    assert states([Criterion("", np.array([b]), 1.0, is_exact=True) for b in (1.0 + 1e-9,)]) == ["supported"]
    assert states([Criterion("", np.array([1.0]), 1.0, is_exact=True)]) == [
        "contradicted"
    ]  # it has to exceed its bound


def test_a_claim_needs_all_its_criteria_and_one_refutes_it() -> None:
    good, bad, open_ = (Criterion("", seeds(value)) for value in (1.0, -1.0, 0.0))
    late = Criterion("", seeds(1.0), untested="too short")
    gone, beside = Criterion("", np.array([])), Criterion("", seeds(-1.0), is_judged=False)
    assert [verdict(c) for c in ([good, good], [good, open_], [open_, bad])] == [
        "supported",
        "inconclusive",
        "contradicted",
    ]
    assert [verdict(c) for c in ([good, late], [bad, late], [good, gone], [])] == ["not tested", "contradicted"] + [
        "not tested"
    ] * 2
    assert verdict([good, beside]) == "supported" and states([good, beside]) == ["supported", "not tested"]


def test_holm_corrects_what_refutes_a_claim() -> None:
    """Half-widths of five seeds: 1.963 spreads at 95 %, 2.472 at 97.5 %: -0.022 refutes alone, not beside another."""
    below, far, above = Criterion("", seeds(-0.022)), Criterion("", seeds(-0.03)), Criterion("", seeds(1.0))
    assert states([below]) == ["contradicted"] and states([below, above]) == ["inconclusive", "supported"]
    assert states([far, above]) == ["contradicted", "supported"]
    assert states([below, far]) == ["contradicted"] * 2  # the smaller p opens the way
    assert states([below, below]) == ["inconclusive"] * 2


@pytest.mark.parametrize("number", [5, 30])
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.normal(0.3, 0.1, n),
        lambda rng, n: rng.beta(30, 20, n),
        lambda rng, n: np.maximum(*rng.normal(0.3, 0.1, (2, n))),  # the better of two
    ],
)
def test_intervals_cover_the_mean_as_often_as_they_say(draw: Callable[..., np.ndarray], number: int) -> None:
    rng, true = np.random.default_rng(number), float(draw(np.random.default_rng(1), 2_000_000).mean())
    limits = [interval(draw(rng, number)) or (np.nan, np.nan) for _ in range(3000)]
    assert 0.93 <= np.mean([low <= true <= high for low, high in limits]) <= 0.97


def test_shares_near_the_edge_and_two_groups_are_bootstrapped() -> None:
    skewed = np.array([1.0] * 9 + [0.9])
    groups = np.array([0.1, 0.11, 0.12, 0.1, 0.12, 0.9, 0.91, 0.92, 0.9, 0.92])
    expected, of_groups = (
        stats.bootstrap((values,), np.mean, method="BCa", rng=np.random.default_rng(0)).confidence_interval
        for values in (skewed, groups)
    )
    assert interval(skewed, is_share=True) == pytest.approx(tuple(expected))
    assert interval(groups) == pytest.approx(tuple(of_groups))
    assert expected.high <= 1 < skewed.mean() + 2.2622 * stats.sem(skewed)  # Student's interval leaves the range
    assert bimodality(groups) > 5 / 9 > bimodality(np.random.default_rng(0).normal(size=50))
    skewness, excess = stats.skew(skewed, bias=False), stats.kurtosis(skewed, bias=False)
    assert bimodality(skewed) == pytest.approx((skewness**2 + 1) / (excess + 3 * 9**2 / (8 * 7)))
    assert interval(np.full(12, 1.0), is_share=True) == (1.0, 1.0)


def test_the_seeds_that_an_open_row_would_need() -> None:
    found = Criterion("", seeds(0.01)).seeds_needed
    deviation = seeds(0.0).std(ddof=1)
    assert found is not None
    widths = [stats.t.ppf(0.975, n - 1) * deviation / np.sqrt(n) for n in (found - 1, found)]
    assert widths[1] < 0.01 <= widths[0]
    assert Criterion("", seeds(0.31), bound=0.3).seeds_needed == found
    assert Criterion("", seeds(0.0)).seeds_needed == 1001 and Criterion("", seeds(1.0, number=2)).seeds_needed == 5
    assert Criterion("", np.array([1.0])).seeds_needed is None


@pytest.mark.parametrize(("number", "effect"), [(5, 1.0), (5, 2.0), (10, 1.0), (9, 2.0)])
def test_a_claim_true_by_construction_is_supported_and_its_opposite_contradicted(number: int, effect: float) -> None:
    """As often as the noncentral t distribution says, for an effect in standard deviations."""
    drawn = np.random.default_rng(0).normal(effect, 1.0, (2000, number))
    power = stats.nct.sf(stats.t.ppf(0.975, number - 1), number - 1, effect * number**0.5)
    for sign, expected in ((1, "supported"), (-1, "contradicted")):
        found = [verdict([Criterion("", sign * values)]) for values in drawn]
        assert np.mean([state == expected for state in found]) == pytest.approx(power, abs=0.04)
        assert np.mean([state not in (expected, "inconclusive") for state in found]) < 0.005


def test_text_shows_intervals_ranges_and_single_values() -> None:
    assert (
        interval_text(seeds(0.1)) == "0.100 [0.080, 0.120]"
        and interval_text(seeds(0.1)[:3]) == "0.090 (0.080 to 0.100)"
    )
    assert (
        interval_text(np.array([-0.0001]), 2) == "0.00"
        and interval_text(seeds(0.1), 2, sign="+") == "+0.10 [+0.08, +0.12]"
    )
    table = claims_table(
        {"a": {"H1": [Criterion("x", seeds(0.0)), Criterion("y", np.array([]))], "D1": []}}
    ).reset_index()
    assert table["verdict"].tolist() == ["not tested"] * 3 and table["criterion"].tolist()[:2] == [
        "inconclusive",
        "not tested",
    ]
    assert table["n needed"].tolist()[0] == "more than 1,000" and table["value"].tolist()[1] == "not recorded"
    skewed = np.array([1.0] * 9 + [0.9])
    low, high = interval(skewed, is_share=True) or (0.0, 0.0)
    late = claims_table({"a": {"H1": [Criterion("x", skewed, is_share=True, untested="too short")]}})
    assert late["value"].tolist() == [f"0.990 [{low:.3f}, {high:.3f}]; too short"]


# --- claims on runs ---------------------------------------------------------------------------------------------------


def curves(*points: float) -> np.ndarray:
    """A measure over twenty epochs, alike in shape for all seeds, linear between the first, tenth and last epoch."""
    return np.interp(np.arange(20), [0, 9, 19], points) + seeds(0.0, 0.001)[:, None]


def cells(**percent: float) -> np.ndarray:
    """Percent per [max a, max p] with the named cells, keys like a4p4, the rest empty."""
    grid = np.zeros((SEEDS, 5, 5))
    for key, value in percent.items():
        grid[:, int(key[1]), int(key[3])] = value + seeds(0.0, 0.1)
    return grid


def evidence(unfinished: str = "", **changes: dict[str, np.ndarray]) -> Evidence:
    """Numbers on which every claim is supported, with some of them replaced."""
    found = {
        "accuracy": {name: seeds(0.9, 0.001) for name in ("soft", "hard", "lvml", "hybrid")},
        "saif": {"soft": seeds(0.5), "hard": seeds(0.6), "lvml": seeds(0.7), "hybrid": seeds(0.8)},
        "a_z": {"soft": curves(0.4, 0.6, 0.61), "hard": curves(0.2, 0.4, 0.8), "lvml": curves(0.4, 0.7, 0.8)},
        "confidence": {
            "soft": cells(a2p4=60, a4p4=20, a2p1=20),
            "hard": cells(a4p1=30, a4p4=60, a2p2=10),
            "lvml": cells(a4p4=80, a2p2=20),
            "hybrid": cells(a4p4=100),
        },
    }
    for name, change in changes.items():
        found[name] = found[name] | change
    over = {"a_z": found["a_z"], "focus_accuracy": {name: 1 - values for name, values in found["a_z"].items()}}
    reasons = {name: unfinished for name in found["accuracy"]}
    return Evidence(found["accuracy"], found["saif"], over, found["confidence"], reasons)


ON_RUNS = [name for name, claim in CLAIMS.items() if Evidence in claim.measured]


@pytest.mark.parametrize("name", ON_RUNS)
def test_every_claim_is_supported_by_numbers_made_for_it(name: str) -> None:
    assert verdict(CLAIMS[name].measure(evidence())) == "supported"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("D1", {"a_z": {"hard": curves(0.5, 0.5, 0.9)}}),  # HA is not slower at first
        ("D1", {"a_z": {"soft": curves(0.4, 0.5, 0.95)}}),  # SA does not stall
        ("D2", {"a_z": {"hard": curves(0.2, 0.3, 0.5)}}),  # HA does not overtake
        ("D3", {"a_z": {"lvml": curves(0.4, 0.5, 0.55)}}),  # LVML ends below SA
        ("D3", {"a_z": {"lvml": curves(0.1, 0.2, 0.9)}}),  # LVML begins below HA
        ("S1", {"confidence": {"soft": cells(a4p1=50, a4p4=50)}}),  # the focus is surer than the prediction
        (
            "S1",
            {"confidence": {"soft": cells(a0p4=100), "lvml": cells(a2p4=40, a4p4=60)}},
        ),  # sure of nothing, not unsure
        ("S2", {"confidence": {"hard": cells(a2p4=80, a4p4=20)}}),  # HA's focus is in the middle
        ("S2", {"confidence": {"hard": cells(a0p4=60, a4p4=40)}}),  # spread evenly over many segments
        ("S3", {"confidence": {"lvml": cells(a4p2=90, a4p4=10)}}),  # a sure focus, an unsure prediction
        ("S3", {"confidence": {"soft": cells(a4p4=100)}}),
        ("H1", {"saif": {"hybrid": seeds(0.55)}}),  # below HA's
        ("H1", {"saif": {"soft": seeds(0.9)}}),
        ("H1", {"accuracy": {"hybrid": seeds(0.85, 0.001)}}),  # a loss of accuracy
    ],
)
def test_claims_are_contradicted_by_numbers_against_them(name: str, changes: dict) -> None:
    assert verdict(CLAIMS[name].measure(evidence(**changes))) == "contradicted"


def test_criteria_by_hand() -> None:
    soft, hard = np.array([[0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9]]), np.array([np.linspace(0.1, 1.0, 10)])
    over = {"a_z": {"soft": soft, "hard": hard}}
    early, late = CLAIMS["D1"].measure(Evidence(dict.fromkeys(("soft", "hard"), np.zeros(1)), {}, over))
    assert early.values == pytest.approx([0.25 - 0.15])  # the first two of ten epochs
    # the last five less the five that end in the middle: HA 0.8 - 0.3, SA 0.88 - 0.46
    assert late.values == pytest.approx([(0.8 - 0.3) - (0.88 - 0.46)])
    assert at_end(hard).tolist() == pytest.approx([0.8]) and at_end(hard[:, :2]).tolist() == pytest.approx([0.15])
    saif = {"soft": np.array([0.5, 0.7]), "hard": np.array([0.6, 0.4]), "hybrid": np.array([0.62, 0.65])}
    found = CLAIMS["H1"].measure(
        Evidence({name: values / 2 for name, values in saif.items()}, saif, accuracy_name="BLEU")
    )
    assert found[0].values == pytest.approx([0.02, -0.05]) and found[1].values == pytest.approx([0.01, -0.025])
    assert [c.bound for c in found] == [-0.01, -0.02] and found[1].name.startswith("BLEU, hybrid")


def test_what_is_late_waits_for_the_end_of_training_and_what_is_missing_is_not_tested() -> None:
    short = evidence("the loss still falls")
    assert [verdict(CLAIMS[name].measure(short)) for name in ("D1", "D2", "D3", "S1", "H1")] == (
        ["not tested"] * 3 + ["supported"] * 2
    )
    wrong = evidence("the loss still falls", a_z={"hard": curves(0.5, 0.5, 0.9)})
    assert verdict(CLAIMS["D1"].measure(wrong)) == "contradicted"  # already by its beginning
    whole = evidence()
    bare = Evidence(whole.accuracy, whole.saif, {"focus_accuracy": whole.curves["a_z"]})
    assert verdict(CLAIMS["S2"].measure(bare)) == "not tested" and verdict(CLAIMS["D2"].measure(bare)) == "supported"
    without = Evidence({n: v for n, v in whole.accuracy.items() if n != "hybrid"}, whole.saif, whole.curves)
    assert CLAIMS["H1"].measure(without) == [] and verdict([]) == "not tested"
    epochs = np.arange(50)
    assert is_flat(np.exp(-epochs / 5)) and not is_flat(1 - epochs / 50) and not is_flat(np.exp(-epochs / 40))
    assert not is_flat(np.array([1.0, 0.0, 0.0]))  # too few epochs to say


def test_gains_of_a_study_are_those_of_the_same_seed_and_switch() -> None:
    rows = [
        {"seed": s, "paradigm": p, "soft_share": share, "saif": value + 0.1 * s, "accuracy": 0.9}
        for s in (0, 1)
        for p, share, value in (("soft", 1.0, 0.3), ("hard", 0.0, 0.4), ("hybrid", 0.2, 0.5), ("hybrid", 0.8, 0.35))
    ]
    rows[-1]["saif"] = np.nan  # diverged
    found = hybrid_gains(pd.DataFrame(rows), ["soft_share"])
    assert [key for (key,) in found] == [0.2, 0.8]
    assert found[(0.2,)][0].values == pytest.approx([0.1, 0.1]) and found[(0.8,)][0].values == pytest.approx([-0.05])


# --- claims on the theory ---------------------------------------------------------------------------------------------

TIMES = np.linspace(0.0, 10.0, 101)
ALPHAS = np.array([0.2, 0.6, 1.0])


def incentives(**changes: list[float]) -> Incentives:
    means = {"soft": [3.0, 1.0, 0.1], "hard": [1.0, 2.0, 2.5], "lvml": [4.0, 2.0, 1.0]} | changes
    return Incentives(ALPHAS, {name: np.array(row) + seeds(0.0, 0.001)[:, None] for name, row in means.items()})


def paths(exact: bool = False, **changes: tuple[float, ...]) -> Paths:
    """Focus logits and margins (mu_*) through their values at t = 2, 5 and 10; m = 5, so alpha = 1/2 at log 4."""
    means: dict[str, tuple[float, ...]]
    margins: dict[str, tuple[float, ...]]
    means = {"soft": (1.6, 3.0, 3.5), "hard": (0.5, 2.0, 5.0), "lvml": (1.8, 3.5, 4.5), "hybrid": (1.6, 4.0, 5.2)}
    margins = {"soft": (1.0, 3.0, 8.0), "hard": (0.9, 2.5, 8.0), "lvml": (2.0, 6.0, 8.0), "hybrid": (1.0, 3.0, 8.0)}
    margins |= {name.removeprefix("mu_"): row for name, row in changes.items() if name.startswith("mu_")}
    spread = np.zeros((1, 1)) if exact else seeds(0.0, 0.001)[:, None]

    def path(row: tuple[float, ...]) -> np.ndarray:
        return np.interp(TIMES, [0, 2, 5, 10], [0.01, *row]) + spread

    nu = {name: path(changes.get(name, row)) for name, row in means.items()}
    return Paths(TIMES, {name: path(row) for name, row in margins.items()}, nu, 5, 3, exact)


THEORY = [("I1", incentives()), ("I2", incentives()), ("I3", incentives())] + [
    (name, paths(exact)) for name in ("D1", "D2", "D3", "D4", "H1") for exact in (True, False)
]


@pytest.mark.parametrize(("claim", "found"), THEORY)
def test_claims_of_the_theory_are_supported_by_numbers_made_for_them(claim: str, found: Incentives | Paths) -> None:
    assert verdict(CLAIMS[claim].measure(found)) == "supported"


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("D1", {"soft": (0.3, 2.0, 3.5)}),  # SA is not ahead
        ("D1", {"soft": (0.5, 2.01, 3.5)}),  # by less than 2 %
        ("D1", {"hard": (0.5, 4.8, 5.0)}),  # HA stalls, SA does not
        ("D2", {"hard": (0.5, 2.0, 3.0)}),  # HA does not overtake
        ("D3", {"lvml": (0.3, 1.9, 4.5)}),
        ("D3", {"lvml": (1.8, 3.0, 3.2)}),
        ("D4", {"mu_soft": (3.0, 7.0, 8.0)}),  # SA is first
        ("D4", {"mu_hard": (3.0, 7.0, 8.0)}),
        ("H1", {"hybrid": (1.6, 3.0, 3.5)}),  # an attention of 0.89 beside HA's 0.97
        ("H1", {"mu_hybrid": (1.0, 2.0, 2.0)}),
    ],
)
def test_claims_of_the_flow_are_contradicted_by_numbers_against_them(claim: str, changes: dict, exact: bool) -> None:
    assert verdict(CLAIMS[claim].measure(paths(exact, **changes))) == "contradicted"


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("I1", {"soft": [1.0, 1.1, 1.2]}),
        ("I1", {"soft": [1.0, 1.5, 0.1]}),  # falls only towards alpha = 1, which no classifier saw backgrounds at
        ("I2", {"hard": [1.0, 0.8, 0.5]}),
        ("I3", {"lvml": [0.9, 2.0, 1.0]}),  # below HA's where there is little attention
        ("I3", {"lvml": [4.0, 2.0, 0.05]}),  # below SA's where there is much
    ],
)
def test_claims_on_incentives_are_contradicted_by_numbers_against_them(claim: str, changes: dict) -> None:
    assert verdict(CLAIMS[claim].measure(incentives(**changes))) == "contradicted"


def test_criteria_of_the_theory_by_hand() -> None:
    found = {
        "soft": np.array([[5.0, 3.0, 2.5]]),
        "hard": np.array([[1.0, 1.25, 3.0]]),
        "lvml": np.array([[4.0, 2.0, 1.0]]),
    }
    whole, inner, ends = CLAIMS["I2"].measure(Incentives(ALPHAS, found))
    assert whole.values == pytest.approx([2.5]) and inner.values == pytest.approx([0.625]) and ends.values == [2.0]
    assert not ends.is_judged and CLAIMS["I1"].measure(Incentives(ALPHAS, found))[0].values == pytest.approx([3.125])
    assert [c.values.tolist() for c in CLAIMS["I3"].measure(Incentives(ALPHAS, found))] == [[3.0], [-1.5]]
    soft, hard = CLAIMS["D4"].measure(paths(exact=True))
    # level 4: LVML passes it at 2 + 3 * 2/4 = 3.5, SA at 5 + 5 * 1/5 = 6, HA at 5 + 5 * 1.5/5.5
    assert soft.values == pytest.approx([6 / 3.5]) and hard.values == pytest.approx([(5 + 7.5 / 5.5) / 3.5], rel=1e-3)
    lead, _ = CLAIMS["D1"].measure(paths(exact=True))
    level = np.log(4)  # HA at 2 + 3 (level - 0.5)/1.5, SA at 2 (level - 0.01)/1.59
    assert (
        lead.values == pytest.approx([(2 + 2 * (level - 0.5)) / (2 * (level - 0.01) / 1.59)], rel=1e-3)
        and lead.bound == 1.02
    )
    attention, score = CLAIMS["H1"].measure(paths(exact=True))
    at_the_end = [1 / (1 + 4 * np.exp(-nu)) for nu in (3.5, 5.0, 5.2)]
    assert attention.values == pytest.approx([at_the_end[2] - at_the_end[1]])
    assert score.values == pytest.approx([0.0], abs=1e-12)  # beta at 8, beside HA's, above SA's mixture
    unreached = CLAIMS["D1"].measure(paths(exact=True, hard=(0.1, 0.2, 0.3)))
    assert states(unreached)[0] == "not tested" and "not reached" in unreached[0].untested


def test_time_to_a_level_at_the_ends() -> None:
    rows = np.array([[0.0, 1.0, 2.0], [0.0, 0.1, 0.2], [3.0, 4.0, 5.0]])
    assert time_to(0.5, np.array([1.0, 2.0, 4.0]), rows).tolist() == [1.5, 4.0, 1.0]

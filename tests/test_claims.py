"""Verdicts follow from numbers: each claim holds, fails or stays undecided on data made for it."""

from __future__ import annotations

import numpy as np
import pytest

from fcamlib.claims import CLAIMS, Criterion, Evidence, verdict

SEEDS = 3
ON_RUNS = [name for name, claim in CLAIMS.items() if Evidence in claim.measured]


def seeds(value: float, spread: float = 0.01) -> np.ndarray:
    """Three seeds around a value; their t-interval has half-width 2.48 spreads (4.303 * spread / sqrt(3))."""
    return value + spread * np.array([-1.0, 0.0, 1.0])


def curves(*points: float) -> np.ndarray:
    """Focus accuracy over ten epochs, alike in shape for all seeds, linear between first, fifth and tenth epoch."""
    course = np.interp(np.arange(1, 11), [1, 5, 10], points)
    return course + seeds(0.0, 0.001)[:, None]


def cells(**percent: float) -> np.ndarray:
    """Histograms with the named cells: keys like a4s4, the rest empty."""
    grid = np.zeros((SEEDS, 5, 5))
    for key, value in percent.items():
        grid[:, int(key[1]), int(key[3])] = value + seeds(0.0, 0.1)
    return grid


def evidence(**changes: dict[str, np.ndarray]) -> Evidence:
    """Numbers on which every claim holds, with some of them replaced."""
    measures = {
        "accuracy": {name: seeds(0.9, 0.0001) for name in ("soft", "hard", "lvml", "hybrid")},
        "saif": {"soft": seeds(0.5), "hard": seeds(0.6), "lvml": seeds(0.7), "hybrid": seeds(0.8)},
        "focus_accuracy": {
            "soft": curves(0.4, 0.6, 0.61),
            "hard": curves(0.2, 0.4, 0.8),
            "lvml": curves(0.4, 0.7, 0.8),
            "hybrid": curves(0.4, 0.6, 0.9),
        },
        "histogram": {
            "soft": cells(a2s4=60, a4s4=40),
            "hard": cells(a0s4=30, a4s4=60, a2s2=10),
            "lvml": cells(a4s4=80, a0s0=10, a2s2=10),
            "hybrid": cells(a4s4=90, a0s0=10),
        },
    }
    for name, change in changes.items():
        measures[name] = measures[name] | change
    return Evidence(**measures)


def verdict_on(name: str, found: Evidence) -> str:
    return verdict(CLAIMS[name].measure(found))


@pytest.mark.parametrize("name", ON_RUNS)
def test_every_claim_holds_on_numbers_made_for_it(name: str) -> None:
    assert verdict_on(name, evidence()) == "holds"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("D1", {"focus_accuracy": {"hard": curves(0.5, 0.5, 0.9)}}),  # HA is not slower at first
        ("D1", {"focus_accuracy": {"soft": curves(0.4, 0.5, 0.95)}}),  # SA does not stall
        ("D2", {"focus_accuracy": {"hard": curves(0.2, 0.3, 0.5)}}),  # HA does not overtake
        ("D3", {"focus_accuracy": {"lvml": curves(0.4, 0.5, 0.55)}}),  # LVML ends below SA
        ("D3", {"focus_accuracy": {"lvml": curves(0.1, 0.2, 0.9)}}),  # LVML begins below HA
        ("S1", {"histogram": {"soft": cells(a2s4=5, a4s4=95), "lvml": cells(a2s4=20, a4s4=80)}}),  # surer than LVML
        ("S2", {"histogram": {"hard": cells(a2s4=80, a4s4=20)}}),  # HA's focus is in the middle
        ("S3", {"histogram": {"lvml": cells(a2s2=90, a4s4=10)}}),
        ("H1", {"saif": {"hybrid": seeds(0.55)}}),  # below HA's
        ("H1", {"saif": {"soft": seeds(0.9)}}),
        ("H1", {"accuracy": {"hybrid": seeds(0.85, 0.0001)}}),  # a loss of accuracy
    ],
)
def test_claims_fail_where_numbers_contradict_them(name: str, changes: dict) -> None:
    assert verdict_on(name, evidence(**changes)) == "fails"


def test_one_seed_decides_nothing() -> None:
    whole = evidence()
    one = Evidence(**{n: {p: a[:1] for p, a in getattr(whole, n).items()} for n in Evidence.__dataclass_fields__})
    assert {verdict_on(name, one) for name in ON_RUNS} == {"undecided"}


def test_a_missing_paradigm_is_not_run() -> None:
    whole = evidence()
    some = Evidence(
        **{n: {p: a for p, a in getattr(whole, n).items() if p != "hybrid"} for n in Evidence.__dataclass_fields__}
    )
    assert verdict_on("H1", some) == "not run"
    assert verdict_on("D1", some) == "holds"


def test_interval_against_bound_by_hand() -> None:
    # mean 0.1, sd 0.01, n = 3: half-width 4.3027 * 0.01 / 1.7321 = 0.02484
    assert Criterion("", seeds(0.1), 0.075).verdict() == "holds"
    assert Criterion("", seeds(0.1), 0.076).verdict() == "undecided"
    assert Criterion("", seeds(0.1), 0.124).verdict() == "undecided"
    assert Criterion("", seeds(0.1), 0.125).verdict() == "fails"


def test_one_failing_criterion_fails_a_claim_and_one_open_leaves_it_open() -> None:
    holds, fails, open_ = Criterion("", seeds(1.0)), Criterion("", seeds(-1.0)), Criterion("", seeds(0.0))
    assert verdict([holds, holds]) == "holds"
    assert verdict([holds, open_]) == "undecided"
    assert verdict([open_, fails]) == "fails"
    assert verdict([]) == "not run"

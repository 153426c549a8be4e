"""Verdicts on the paper's explanation follow from numbers, with seeds and without."""

from __future__ import annotations

import numpy as np
import pytest

from fcamlib.claims import CLAIMS, Criterion, Incentives, Paths, time_to, verdict

TIMES = np.linspace(0.0, 10.0, 11)
NEEDED = {
    n: needed for n, c in CLAIMS.items() for kind, (needed, _) in c.measured.items() if kind in (Incentives, Paths)
}
SEEDS = 0.001 * np.array([[-1.0], [0.0], [1.0]])


def incentive_criteria(claim: str, found: dict[str, np.ndarray]) -> list[Criterion]:
    return CLAIMS[claim].measure(Incentives(found))


def path_criteria(claim: str, found: Paths) -> list[Criterion]:
    return CLAIMS[claim].measure(found)


def incentives(**changes: list[float]) -> dict[str, np.ndarray]:
    """Incentives at three attention weights on which all claims hold, three seeds, with some of them replaced."""
    means = {"soft": [3.0, 1.0, 0.1], "hard": [1.0, 2.0, 2.5], "lvml": [4.0, 2.0, 1.0]} | changes
    return {name: np.array(row) + SEEDS for name, row in means.items()}


def paths(exact: bool = False, **changes: tuple[float, float, float]) -> Paths:
    """Focus logits through their values at t = 2, 5 and 10, margins alike, on which all claims hold."""
    means = {"soft": (1.0, 3.0, 3.5), "hard": (0.5, 2.0, 5.0), "lvml": (1.2, 3.5, 4.5)}
    spread = np.zeros((1, 1)) if exact else SEEDS
    nu = {n: np.interp(TIMES, [0, 2, 5, 10], [0.01, *(means | changes)[n]]) + spread for n in means}
    margins = {"soft": (1.0, 3.0, 8.0), "hard": (0.9, 2.5, 8.0), "lvml": (2.0, 6.0, 8.0)}
    margins |= {name.removeprefix("mu_"): row for name, row in changes.items() if name.startswith("mu_")}
    mu = {n: np.interp(TIMES, [0, 2, 5, 10], [0, *row]) + spread for n, row in margins.items()}
    return Paths(TIMES, mu, nu, exact)


@pytest.mark.parametrize("claim", ["I1", "I2", "I3"])
def test_incentive_claims_hold_on_numbers_made_for_them(claim: str) -> None:
    assert verdict(incentive_criteria(claim, incentives())) == "holds"


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("I1", {"soft": [3.0, 1.0, 1.2]}),  # rises once
        ("I1", {"soft": [0.9, 1.0, 0.1]}),
        ("I2", {"hard": [1.0, 0.8, 2.5]}),
        ("I3", {"lvml": [0.9, 2.0, 1.0]}),  # below HA's where there is little attention
        ("I3", {"lvml": [4.0, 2.0, 0.05]}),  # below SA's where there is much
    ],
)
def test_incentive_claims_fail_where_numbers_contradict_them(claim: str, changes: dict) -> None:
    assert verdict(incentive_criteria(claim, incentives(**changes))) == "fails"


def test_incentive_criteria_by_hand() -> None:
    found = {
        "soft": np.array([[5.0, 3.0, 2.5]]),
        "hard": np.array([[1.0, 1.25, 3.0]]),
        "lvml": np.array([[4.0, 2.0, 1.0]]),
    }
    assert [c.values.tolist() for c in incentive_criteria("I1", found)] == [[0.5]]
    assert [c.values.tolist() for c in incentive_criteria("I2", found)] == [[0.25]]
    assert [c.values.tolist() for c in incentive_criteria("I3", found)] == [[3.0], [-1.5]]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("claim", ["D1", "D2", "D3", "D4"])
def test_path_claims_hold_on_numbers_made_for_them(claim: str, exact: bool) -> None:
    assert verdict(path_criteria(claim, paths(exact))) == "holds"


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("D1", {"soft": (0.3, 3.0, 3.5)}),  # SA is not ahead at first
        ("D1", {"hard": (0.5, 4.8, 5.0)}),  # HA stalls, SA does not
        ("D2", {"hard": (0.5, 2.0, 3.0)}),  # HA does not overtake
        ("D3", {"lvml": (0.3, 3.5, 4.5)}),
        ("D3", {"lvml": (1.2, 3.0, 3.2)}),
        ("D4", {"mu_soft": (3.0, 7.0, 8.0)}),  # SA is first
        ("D4", {"mu_hard": (3.0, 7.0, 8.0)}),
    ],
)
def test_path_claims_fail_where_numbers_contradict_them(claim: str, changes: dict, exact: bool) -> None:
    assert verdict(path_criteria(claim, paths(exact, **changes))) == "fails"


def test_convergence_is_timed_to_half_of_the_smallest_final_margin() -> None:
    soft, hard = path_criteria("D4", paths(exact=True))
    # level 4: LVML passes it at 2 + 3 * 2/4 = 3.5, SA at 5 + 5 * 1/5 = 6, HA at 5 + 5 * 1.5/5.5
    assert soft.values[0] == pytest.approx(6 / 3.5)
    assert hard.values[0] == pytest.approx((5 + 7.5 / 5.5) / 3.5, rel=1e-2)  # sampled at whole times
    assert soft.bound == hard.bound == 1.0


def test_time_to_a_level_at_the_ends() -> None:
    rows = np.array([[0.0, 1.0, 2.0], [0.0, 0.1, 0.2], [3.0, 4.0, 5.0]])
    assert time_to(0.5, np.array([1.0, 2.0, 4.0]), rows).tolist() == [1.5, 4.0, 1.0]


def test_one_seed_decides_nothing_but_an_exact_number_does() -> None:
    one = {name: row[:1] for name, row in incentives().items()}
    assert {verdict(incentive_criteria(claim, one)) for claim in ("I1", "I2", "I3")} == {"undecided"}
    assert Criterion("", np.array([1.0]), 1.0, is_exact=True).verdict() == "fails"  # it has to exceed its bound
    assert Criterion("", np.array([1.0 + 1e-9]), 1.0, is_exact=True).verdict() == "holds"


def test_a_missing_paradigm_is_not_run() -> None:
    whole = paths()
    for claim, needed in NEEDED.items():
        for name in needed:
            if claim.startswith("I"):
                found = incentive_criteria(claim, {n: v for n, v in incentives().items() if n != name})
            else:
                rest = {n: v for n, v in whole.nu.items() if n != name}
                found = path_criteria(claim, Paths(whole.times, whole.mu, rest))
            assert verdict(found) == "not run"

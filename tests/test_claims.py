"""Claims: criteria by hand, on numbers made for them and against them."""

import numpy as np
import pandas as pd
import pytest
from made_seeds import SEEDS, seeds

from fcamlib.claims import CLAIMS, Evidence, Incentives, Paths, at_end, hybrid_gains, is_flat, measure, time_to
from fcamlib.errors import UserError
from fcamlib.verdicts import criterion_text, states, verdict

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


def test_criteria_by_hand() -> None:
    expected = dict.fromkeys(("D1", "D2", "D3", "S1", "S2", "S3", "H1"), "supported")
    assert {name: verdict(found) for name, found in measure(CLAIMS, evidence()).items()} == expected
    soft, hard = np.array([[0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9]]), np.array([np.linspace(0.1, 1.0, 10)])
    over = {"a_z": {"soft": soft, "hard": hard}, "focus_accuracy": {"soft": hard, "hard": soft}}
    none = dict.fromkeys(("soft", "hard"), np.zeros(1))
    given = Evidence(none, {}, over)
    found = CLAIMS["D1"].measure(given)
    # Early: the first two of ten epochs. Late: the last five less the five that end in the middle, HA 0.8 - 0.3.
    early, late = 0.25 - 0.15, (0.8 - 0.3) - (0.88 - 0.46)
    assert np.concatenate([c.values for c in found]) == pytest.approx([early, -early, late, -late])
    assert [c.is_judged for c in found] == [True, False] * 2 and {c.bound for c in found} == {0}
    assert CLAIMS["D2"].measure(given)[2].values == pytest.approx([-0.08])
    third = {**over["a_z"], "lvml": soft**2}
    found = CLAIMS["D3"].measure(Evidence(dict.fromkeys(third, np.zeros(1)), {}, {"a_z": third}))
    squares = [(0.04 + 0.09) / 2, (0.64 + 4 * 0.81) / 5]
    assert [float(c.values[0]) for c in found] == pytest.approx([squares[0] - 0.15, squares[1] - 0.88])
    assert at_end(hard[:, :2]).tolist() == pytest.approx([0.15])
    for epochs, gaps in (([0.5], [-0.5, 0.0]), ([0.5, 0.3], [-0.5, -0.1])):  # the first is early, and the middle
        twice = {"soft": np.array([epochs]), "hard": 2 * np.array([epochs])}
        short = CLAIMS["D1"].measure(Evidence(none, {}, {"a_z": twice}))
        assert [float(c.values[0]) for c in short] == pytest.approx(gaps)
        assert [c.untested for c in short] == ["fewer than five epochs are measured", ""]
    saif = {"soft": np.array([0.5, 0.7]), "hard": np.array([0.6, 0.4]), "hybrid": np.array([0.62, 0.65])}
    half = {name: values / 2 for name, values in saif.items()}
    found = CLAIMS["H1"].measure(Evidence(half, saif, accuracy_name="BLEU"))
    assert found[0].values == pytest.approx([0.02, -0.05]) and found[1].values == pytest.approx([0.01, -0.025])
    assert [(c.bound, c.is_exact) for c in found] == [(-0.01, False), (-0.02, False)]
    assert found[1].name.startswith("BLEU, hybrid")


def test_shares_by_hand() -> None:
    """Cells of attention (rows) and probability in percent; sure is the last fifth, unsure the three in the middle."""
    prime = np.array([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97])
    other = np.arange(25) ** 2 % 7
    cells = {"soft": prime.reshape(1, 5, 5) / 10, "hard": other.reshape(1, 5, 5) / 10, "lvml": other.reshape(1, 5, 5)}
    given = Evidence(dict.fromkeys(cells, np.zeros(1)), {}, confidence=cells)
    focus, prediction = 73 + 79 + 83 + 89 + 97, 11 + 29 + 47 + 71 + 97
    others = other.reshape(5, 5)
    sums = others[4].sum(), others[:, 4].sum(), others[1:4, 4].sum()
    expected = {
        "S1": [(prediction - focus) / 1000, (29 + 47 + 71) / 1000 - sums[2] / 100],
        "S2": [sums[0] / 1000, (sums[0] - focus) / 1000],
        "S3": [sums[0] / 100, sums[1] / 100, sums[0] / 100 - focus / 1000],
    }
    for claim, values in expected.items():
        found = CLAIMS[claim].measure(given)
        assert [float(c.values[0]) for c in found] == pytest.approx(values)
        for c in found:
            assert (c.bound, c.is_share) == ((0.5, True) if "'s share" in c.name else (0, False))


def test_what_is_late_waits_for_the_end_of_training_and_what_is_missing_is_not_tested() -> None:
    short = evidence("the loss still falls")
    found = [verdict(CLAIMS[name].measure(short)) for name in ("D1", "D2", "D3", "S1", "H1")]
    assert found == ["not tested"] * 3 + ["supported"] * 2
    wrong = evidence("the loss still falls", a_z={"hard": curves(0.5, 0.5, 0.9)})
    assert verdict(CLAIMS["D1"].measure(wrong)) == "contradicted"  # already by its beginning
    whole = evidence()
    bare = Evidence(whole.accuracy, whole.saif, {"focus_accuracy": whole.curves["a_z"]}, unfinished={"lvml": "short"})
    states = [verdict(CLAIMS[name].measure(bare)) for name in ("S2", "D2", "D3")]
    assert states == ["not tested", "supported", "not tested"]
    without = Evidence({n: v for n, v in whole.accuracy.items() if n != "hybrid"}, whole.saif, whole.curves)
    assert CLAIMS["H1"].measure(without) == []


def test_a_loss_is_flat_whose_last_fifth_adds_little_to_its_fall() -> None:
    epochs = np.arange(50)
    assert is_flat(np.exp(-epochs / 5)) and not is_flat(1 - epochs / 50) and not is_flat(np.exp(-epochs / 40))
    for times in (1, 2):  # of ten or twenty epochs the last fifth is at 0, that before at 0.05 or 0.06 of a fall of 1
        assert is_flat(np.repeat([1, 0.05, 0], [6 * times, 2 * times, 2 * times]))
        assert not is_flat(np.repeat([1, 0.06, 0], [6 * times, 2 * times, 2 * times]))
    assert not is_flat(np.array([2, 1.9, 1.9, 1.9, 1.9, 1.9, 1.06, 1.06, 1, 1])) and is_flat(np.ones(5))
    assert is_flat(np.array([1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.04, 0.04, 0, 0])), "of the whole fall, from the first epoch"
    assert not is_flat(np.array([1.0, 0.0, 0.0, 0.0])) and not is_flat(np.ones(1))  # too few epochs to say


def test_gains_of_a_study_are_those_of_the_same_seed_and_switch() -> None:
    rows = [
        {"seed": s, "paradigm": p, "soft_share": share, "saif": value + 0.1 * s, "accuracy": 0.9, "auc": None}
        for s in (0, 1)
        for p, share, value in (
            ("soft", 1.0, 0.3), ("hard", 0.0, 0.4), ("hybrid", 0.8, 0.35), ("hybrid", 0.2, 0.5), ("lvml", None, 0.9)
        )
    ]  # fmt: skip
    rows[-3]["saif"] = np.nan  # diverged
    found = hybrid_gains(pd.DataFrame(rows), ["soft_share"])
    assert {key: c[0].values.round(9).tolist() for (key,), c in found.items()} == {0.8: [-0.05], 0.2: [0.1, 0.1]}
    assert [c.values.tolist() for c in found[(0.2,)][1:]] == [[0, 0]]
    without = pd.DataFrame(rows).query("paradigm in ['soft', 'hard']").assign(focus="linear")
    with pytest.raises(UserError, match=r"^rows at one focus differ in other settings: give one value of each"):
        hybrid_gains(pd.concat([without, without.assign(num_segments=20)]), ["focus"])
    for by in ("focus", "soft_share"):
        assert {verdict(c) for c in hybrid_gains(without, [by]).values()} == {"not tested"}


# --- claims on the theory ---------------------------------------------------------------------------------------------

TIMES = np.linspace(0.0, 10.0, 101)
ALPHAS = np.array([0.2, 0.6, 1.0])


def incentives(**changes: list[float]) -> Incentives:
    means = {"soft": [3.0, 1.0, 0.1], "hard": [1.0, 2.0, 2.5], "lvml": [4.0, 2.0, 1.0]} | changes
    return Incentives(ALPHAS, {name: np.array(row) + seeds(0.0, 0.001)[:, None] for name, row in means.items()})


def paths(exact: bool = False, num_segments: int = 5, **changes: tuple[float, ...]) -> Paths:
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
    return Paths(TIMES, {name: path(row) for name, row in margins.items()}, nu, num_segments, 3, exact)


def test_claims_of_the_theory_are_supported_by_numbers_made_for_them() -> None:
    for found, names in ((incentives(), "I1 I2 I3"), (paths(True), "D1 D2 D3 D4 H1"), (paths(), "D1 D2 D3 D4 H1")):
        assert {n: verdict(c) for n, c in measure(CLAIMS, found).items()} == dict.fromkeys(names.split(), "supported")


@pytest.mark.parametrize(
    ("claim", "against"),
    [
        ("D1", evidence(a_z={"hard": curves(0.5, 0.5, 0.9)})),  # HA is not slower at first
        ("D1", evidence(a_z={"soft": curves(0.4, 0.5, 0.95)})),  # SA does not stall
        ("D3", evidence(a_z={"lvml": curves(0.4, 0.5, 0.55)})),  # LVML ends below SA
        ("S1", evidence(confidence={"soft": cells(a0p4=100), "lvml": cells(a2p4=40, a4p4=60)})),  # sure of nothing
        ("S2", evidence(confidence={"hard": cells(a2p4=80, a4p4=20)})),  # HA's focus is in the middle
        ("S3", evidence(confidence={"lvml": cells(a4p2=90, a4p4=10)})),  # a sure focus, an unsure prediction
        ("H1", evidence(accuracy={"hybrid": seeds(0.85, 0.001)})),  # a loss of accuracy
        ("D1", paths(soft=(0.5, 2.01, 3.5))),  # SA is ahead by less than 2 %
        ("D4", paths(exact=True, mu_soft=(3.0, 7.0, 8.0))),  # SA is first
        ("H1", paths(hybrid=(1.6, 3.0, 3.5))),  # an attention of 0.89 beside HA's 0.97
        ("I1", incentives(soft=[1.0, 1.5, 0.1])),  # falls only towards alpha = 1, where there was no background
        ("I3", incentives(lvml=[4.0, 2.0, 0.05])),  # below SA's where there is much attention
    ],
)
def test_claims_are_contradicted_by_numbers_against_them(claim: str, against: Evidence | Incentives | Paths) -> None:
    assert verdict(CLAIMS[claim].measure(against)) == "contradicted"


def test_criteria_of_the_theory_by_hand() -> None:
    rows = {"soft": [[5.0, 3.0, 2.5]], "hard": [[1.0, 1.25, 3.0]], "lvml": [[4.0, 2.0, 1.0]]}
    found = Incentives(ALPHAS, {name: np.array(row) for name, row in rows.items()})
    values = {name: [float(c.values[0]) for c in criteria] for name, criteria in measure(CLAIMS, found).items()}
    expected = {"I1": [3.125, 5.0, 2.5], "I2": [2.5, 0.625, 2.0], "I3": [3.0, -1.5]}
    assert values == {name: pytest.approx(row) for name, row in expected.items()}
    assert [c.is_judged for c in CLAIMS["I1"].measure(found)] == [True, True, False]
    for alphas in (ALPHAS / 2, np.array([0.2, 1.0])):  # all below 1; one below
        part = Incentives(alphas, {"hard": np.array([[1.0, 1.25, 3.0]])[:, : len(alphas)]})
        assert len(CLAIMS["I2"].measure(part)) == 2
    one = Incentives(np.array([0.5]), {name: np.array([[1.0]]) for name in rows})
    for name in ("I1", "I2", "I3"):
        alone = CLAIMS[name].measure(one)
        assert verdict(alone) == "not tested" and criterion_text(alone[0], "not tested")[0].endswith("is one alpha")
    # D4, level 4: LVML passes it at 2 + 3 * 2/4 = 3.5, SA at 5 + 5 * 1/5 = 6, HA at 5 + 5 * 1.5/5.5.
    # D1, level log 4: HA passes it at 2 + 3 (level - 0.5)/1.5, SA at 2 (level - 0.01)/1.59.
    level, alpha = np.log(4), [1 / (1 + 4 * np.exp(-nu)) for nu in (3.5, 5.0, 5.2)]
    exact = paths(exact=True)
    flow: dict[str, list[float]] = {
        "D1": [(2 + 2 * (level - 0.5)) / (2 * (level - 0.01) / 1.59), (5.0 - 2.0) - (3.5 - 3.0)],
        "D2": [(2 + 2 * (level - 0.5)) / (2 * (level - 0.01) / 1.59), 5.0 - 3.5],
        "D3": [(2 + 2 * (level - 0.5)) / (2 * (level - 0.01) / 1.79), 4.5 - 3.5],
        "D4": [6 / 3.5, (5 + 7.5 / 5.5) / 3.5],
        "H1": [alpha[2] - alpha[1], 0.0],  # the label's probability at a margin of 8 is beside HA's
    }
    for name, row in flow.items():
        assert [float(c.values[0]) for c in CLAIMS[name].measure(exact)] == pytest.approx(row, rel=1e-3, abs=1e-12)
        assert all(c.is_exact for c in CLAIMS[name].measure(exact))
    assert {c.bound for c in CLAIMS["D4"].measure(exact)} == {1.02}
    assert [c.bound for c in CLAIMS["H1"].measure(exact)] == [-0.01, -0.02]
    probability = CLAIMS["H1"].measure(paths(exact=True, mu_hard=(1, 1, 1), mu_hybrid=(1, 2, 2)))[1]
    by_soft, by_hybrid = (1 / (1 + 2 * np.exp(-margin)) for margin in (8 * alpha[0], 2))  # SA predicts from its mixture
    assert probability.values == pytest.approx([by_hybrid - by_soft])


def test_times_that_are_not_reached_or_hold_from_the_start_are_not_judged() -> None:
    for never in (paths(exact=True, hard=(0.1, 0.2, 0.3)), paths(exact=True, soft=(0.1, 0.2, 0.3))):
        unreached = CLAIMS["D1"].measure(never)
        assert states(unreached)[0] == "not tested" and "not reached" in unreached[0].untested
    (start, _) = CLAIMS["D1"].measure(paths(exact=True, num_segments=2))
    assert start.values.tolist() == [1] and start.untested == "it holds from the start"
    rows = np.array([[0.0, 1.0, 2.0], [0.0, 0.1, 0.2], [3.0, 4.0, 5.0], [0.0, 0.5, 0.1], [0.2, 0.4, 0.8]])
    assert time_to(0.5, np.array([1.0, 2.0, 4.0]), rows).tolist() == [1.5, 4.0, 1.0, 2.0, 2.5]

"""Measures, agreement with rationales and faithfulness against values counted by hand and passes over single posts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from torch import Tensor, nn
from toys import LinearFocus

from fcamlib.data.sdc import Bank, SDCData
from fcamlib.evaluation import agreement, auprc, evaluate, token_f1
from fcamlib.fcam import FCAM
from fcamlib.metrics import (
    HISTOGRAM_EDGES,
    SAIF_TAUS,
    SAIF_THRESHOLD,
    attention_entropy,
    auc,
    calibration_error,
    focus_prediction_histogram,
    outcome_fractions,
    saif,
    saif_curve,
)
from fcamlib.numerics import Numerics
from fcamlib.paradigms import PAPER

A_Z = np.array([0.9, 0.9, 0.8, 0.1, 1.0, 0.0, 0.85])
S_Y = np.array([0.95, 0.2, 0.9, 0.9, 1.0, 0.0, 0.81])
unit = st.floats(0, 1) | st.sampled_from([0.0, 0.2, 0.35, 0.57, 0.6, 0.8, 1.0])
scores = arrays(np.float64, st.tuples(st.just(2), st.integers(1, 20)), elements=unit)


def test_saif_by_hand() -> None:
    assert SAIF_THRESHOLD == 0.8 and saif(A_Z, S_Y) == 3 / 7  # the third instance's a_z is 0.8, not above it
    counts = {0.0: 6, 0.15: 5, 0.85: 2, 1.0: 0}
    assert {tau: round(7 * saif(A_Z, S_Y, tau)) for tau in counts} == counts


def test_saif_curve_by_hand() -> None:
    assert_allclose(SAIF_TAUS, np.arange(101) / 100, atol=1e-12)
    curve = saif_curve(np.array([0.305, 0.9, 0.6]), np.array([0.7, 0.505, 0.205]))  # the weaker: .305, .505, .205
    expected = np.repeat([1, 2 / 3, 1 / 3, 0], [21, 10, 20, 50])
    assert_allclose(curve, expected, atol=1e-12)


def test_outcome_fractions_by_hand() -> None:
    focus = np.array([True] * 4 + [False] * 3 + [True] * 2 + [False])
    prediction = np.array([True] * 7 + [False] * 3)
    assert outcome_fractions(focus, prediction) == {"ftpt": 0.4, "ffpt": 0.3, "ftpf": 0.2, "ffpf": 0.1}


def test_histogram_by_hand() -> None:
    expected = np.zeros((5, 5))
    expected[4, 4], expected[4, 1], expected[0, 4], expected[0, 0] = 4, 1, 1, 1  # [a_z bin, s_y bin]
    assert_allclose(focus_prediction_histogram(A_Z, S_Y), 100 * expected / 7)


def test_histogram_bins_hold_their_lower_edge() -> None:
    assert HISTOGRAM_EDGES == (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    below = np.nextafter(HISTOGRAM_EDGES[1:-1], 0)
    for value, place in zip([*HISTOGRAM_EDGES, *below], [0, 1, 2, 3, 4, 4, 0, 1, 2, 3], strict=True):
        found = focus_prediction_histogram(np.array([value]), np.array([0.5]))
        assert np.argwhere(found).tolist() == [[place, 2]]


@given(scores)
def test_curve_and_histogram_agree_with_saif(pair: np.ndarray) -> None:
    a_z, s_y = pair
    assert_allclose(saif_curve(a_z, s_y), [saif(a_z, s_y, float(tau)) for tau in SAIF_TAUS], atol=1e-12)
    histogram = focus_prediction_histogram(a_z, s_y)
    assert histogram.sum() == pytest.approx(100)
    assert histogram[4, 4] >= 100 * saif(a_z, s_y) - 1e-9
    assert_allclose(histogram.T, focus_prediction_histogram(s_y, a_z))


def test_scores_just_past_one_by_rounding_count_as_one() -> None:
    beyond = np.array([1 + 1e-6, -1e-6])
    assert saif(beyond, beyond, tau=0.99) == 0.5
    assert_allclose(np.diag(focus_prediction_histogram(beyond, beyond)), [50, 0, 0, 0, 50])


@pytest.mark.parametrize("wrong", [np.nan, 1.002, -0.002, np.inf])
def test_values_that_are_no_probabilities_are_refused(wrong: float) -> None:
    good, bad = np.array([0.5, 0.5]), np.array([0.5, wrong])
    for measure in (saif, saif_curve, focus_prediction_histogram):
        for name, pair in (("a_z", (bad, good)), ("s_y", (good, bad))):
            with pytest.raises(ValueError, match=rf"^{name} has values outside \[0, 1\] or NaN: give probabilities\.$"):
                measure(*pair)


def test_auc_counts_pairs_in_the_right_order_ties_half() -> None:
    positive = np.array([0.9, 0.4, 0.4, 0.2, 0.7])
    label = np.array([1, 1, 0, 0, 0])
    prob = np.stack([1 - positive, positive], axis=1)
    assert auc(prob, label) == pytest.approx((3 + 0.5 + 1) / 6)  # .9 beats three; .4 ties one, beats one, loses to .7
    assert auc(prob, np.ones(5, dtype=int)) is None
    three = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.6, 0.3], [0.5, 0.1, 0.4]])
    # class 0: .6 above all others; class 1: .5 loses to .6, beats .3 and .1; class 2: (.3, .4) against (.1, .3)
    assert auc(three, np.array([0, 1, 2, 2])) == pytest.approx((1 + 2 / 3 + (1.5 + 2) / 4) / 3)
    assert auc(three, np.array([0, 1, 1, 0])) is None


def test_calibration_error_is_the_weighted_gap_of_each_bin() -> None:
    prob = np.array([[0.95, 0.05], [0.08, 0.92], [0.35, 0.65], [0.39, 0.61], [0.31, 0.69], [1.0, 0.0], [0.5, 0.5]])
    prob, label = np.concatenate([prob, [[0.85, 0.15]]]), np.array([0, 1, 1, 0, 1, 1, 0, 0])
    # From 0.9 on too sure, from 0.6 to 0.7 not sure enough, 0.5 and 0.85 alone: gaps of opposite sign do not cancel.
    high, middle, low = (0.95 - 1) + (0.92 - 1) + (1.0 - 0), (0.65 - 1) + (0.61 - 0) + (0.69 - 1), 0.5 - 1
    assert calibration_error(prob, label) == pytest.approx((high - middle - low + (1 - 0.85)) / 8)
    assert calibration_error(np.eye(2)[[0, 1, 1]], np.array([0, 1, 1])) == 0
    assert calibration_error(np.array([[1 + 1e-7, 0.0]]), np.array([0])) == 0, "past one by rounding"


def test_attention_entropy_is_in_units_of_the_bags_largest_and_leaves_bags_of_one_out() -> None:
    entropy, sizes = np.array([np.log(4), 0.0, np.log(2)]), np.array([4, 1, 8])
    assert attention_entropy(entropy, sizes) == pytest.approx((1 + 1 / 3) / 2)
    assert attention_entropy(np.zeros(2), np.ones(2, dtype=int)) is None
    rounded = np.array([np.log(2) * (1 + 1e-7), -1e-9])
    assert attention_entropy(rounded, np.array([2, 2])) == 0.5, "past both ends by rounding"


DOUBLE = Numerics(torch.device("cpu"), torch.float64)
ALPHA = np.array([[0.5, 0.2, 0.2, 0.1, 0.0], [0.1, 0.6, 0.3, 0.0, 0.0]])
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], dtype=bool)
RATIONALE = np.array([[1, 0, 0, 1, 0], [0, 0, 1, 0, 0]], dtype=bool)


def fcam() -> FCAM:
    generator = torch.Generator().manual_seed(1)
    classifier = nn.Linear(4, 3, dtype=torch.float64)
    for parameter in classifier.parameters():
        nn.init.normal_(parameter, generator=generator)
    return FCAM(LinearFocus(torch.randn(4, dtype=torch.float64, generator=generator)), classifier)


def data() -> SDCData:
    """Posts of 7, 1, 3 and 2 segments; the second and the last have no known foreground."""
    values = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([7, 1, 3, 2])
    mask = torch.arange(7) < lengths[:, None]
    segments = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [8] * 7, [2, 7, 4, 0, 0, 0, 0], [3, 1, 5, 5, 5, 5, 5]])
    foreground = torch.zeros(4, 7, dtype=torch.bool)
    foreground[0, 2:4] = foreground[2, 0] = True
    return SDCData(Bank(values), segments.int(), torch.tensor([2, 0, 1, 1]), foreground, mask)


def test_token_f1_by_hand() -> None:
    # post 1: {0, 1} of {0, 3}: P = R = 1/2; post 2: {1, 2} of {2}: P = 1/2, R = 1
    assert token_f1(ALPHA, RATIONALE, MASK, top_k=2) == pytest.approx((1 / 2 + 2 / 3) / 2)
    # ties go to the earlier place: {0, 1, 2} and all three words
    assert token_f1(ALPHA, RATIONALE, MASK, top_k=3) == pytest.approx((2 / 5 + 1 / 2) / 2)
    assert token_f1(ALPHA, RATIONALE, MASK, top_k=9) == pytest.approx((4 / 6 + 1 / 2) / 2)


def test_auprc_by_hand_and_blind_to_padding() -> None:
    # post 1: hits at ranks 1 and 4: (1/2) 1 + (1/2) 2/4; post 2: a hit at rank 2: 1/2
    assert auprc(ALPHA, RATIONALE, MASK) == pytest.approx((3 / 4 + 1 / 2) / 2)
    wide = [np.pad(value, ((0, 0), (0, 6))) for value in (ALPHA, RATIONALE, MASK)]
    assert auprc(*wide) == pytest.approx(auprc(ALPHA, RATIONALE, MASK))
    zero = np.array([[1.0, 0.0, 0.0]])  # words without any weight still rank above padding
    marks, mask = np.array([[False, True, False]]), np.array([[True, True, False]])
    assert auprc(zero, marks, mask) == pytest.approx(1 / 2)
    assert (
        auprc(np.full((1, 4), 0.25), RATIONALE[:1, :4], np.ones((1, 4), dtype=bool)) == RATIONALE[0, :4].mean()
    )  # ties


@pytest.mark.parametrize("paradigm", PAPER)
def test_faithfulness_equals_passes_over_shortened_posts(paradigm: str) -> None:
    model, posts, top_k = fcam(), data(), 2
    drops = []
    for row in (0, 2, 3):  # the second post has one word
        words = posts.segments[row][posts.mask[row]]  # type: ignore[index]
        alpha = torch.softmax(model.focus_model(posts.bank.values[words.long()]), dim=0)
        attended = alpha.argsort(descending=True)[: min(top_k, len(words) - 1)]
        rest = torch.tensor([i for i in range(len(words)) if i not in attended])
        probs = [_probabilities(model, posts, words[part], paradigm) for part in (slice(None), rest, attended)]
        predicted = int(np.argmax(probs[0]))
        drops.append([probs[0][predicted] - probs[1][predicted], probs[0][predicted] - probs[2][predicted]])
    found = agreement(model, posts, paradigm, top_k, DOUBLE)
    assert (found["num_faithfulness"], found["num_rationales"]) == (3, 2)
    assert found["comprehensiveness"] == pytest.approx(np.mean(drops, axis=0)[0], abs=1e-12)
    assert found["sufficiency"] == pytest.approx(np.mean(drops, axis=0)[1], abs=1e-12)


def _probabilities(model: FCAM, posts: SDCData, words: Tensor, paradigm: str) -> np.ndarray:
    """Class probabilities of one post with these words alone."""
    one = SDCData(posts.bank, words[None], torch.tensor([0]), torch.zeros(1, len(words), dtype=torch.bool))
    return evaluate(model, one, [paradigm], DOUBLE)[paradigm].prob[0]


def test_agreement_is_that_of_the_models_weights_over_posts_with_a_rationale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcamlib.numerics.ROWS", 3)  # a pass over two posts with a rationale, and one over the third
    model, posts = fcam(), data()
    posts.foreground[3, 1] = True
    alphas = []
    for row in (0, 2, 3):
        words = posts.segments[row][posts.mask[row]].long()  # type: ignore[index]
        weights = torch.softmax(model.focus_model(posts.bank.values[words]), dim=0)
        alphas.append(np.pad(weights.detach().numpy(), (0, 7 - len(words))))
    marks = posts.foreground[[0, 2, 3]].numpy(), posts.mask[[0, 2, 3]].numpy()  # type: ignore[index]
    found = agreement(model, posts, "lvml", numerics=DOUBLE)
    assert found["token_f1"] == pytest.approx(token_f1(np.array(alphas), *marks, top_k=5))
    assert found["auprc"] == pytest.approx(auprc(np.array(alphas), *marks))
    nothing = agreement(model, posts.take(torch.tensor([1])), "soft", numerics=DOUBLE)  # one word, no rationale
    assert list(nothing.values()) == [None, None, None, None, 0, 0]

"""Rationale agreement and faithfulness against counts by hand and passes over single posts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fcamlib.data.sdc import Bank, SDCData
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics
from fcamlib.paradigms import PAPER
from fcamlib.rationales import agreement, auprc, token_f1

DOUBLE = Numerics(torch.device("cpu"), torch.float64)
ALPHA = np.array([[0.5, 0.2, 0.2, 0.1, 0.0], [0.1, 0.6, 0.3, 0.0, 0.0]])
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], dtype=bool)
RATIONALE = np.array([[1, 0, 0, 1, 0], [0, 0, 1, 0, 0]], dtype=bool)


class Focus(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, segments: Tensor) -> Tensor:
        return segments @ self.weight


def fcam() -> FCAM:
    generator = torch.Generator().manual_seed(1)
    classifier = nn.Linear(4, 3, dtype=torch.float64)
    for parameter in classifier.parameters():
        nn.init.normal_(parameter, generator=generator)
    return FCAM(Focus(torch.randn(4, dtype=torch.float64, generator=generator)), classifier)


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
    each = [replace(one, label=torch.tensor([label])) for label in range(3)]
    return np.array([evaluate(model, part, [paradigm], DOUBLE)[paradigm].s_y[0] for part in each])


def test_agreement_is_that_of_the_models_weights_over_posts_with_a_rationale() -> None:
    model, posts = fcam(), data()
    alphas = []
    for row in (0, 2):
        words = posts.segments[row][posts.mask[row]].long()  # type: ignore[index]
        weights = torch.softmax(model.focus_model(posts.bank.values[words]), dim=0)
        alphas.append(np.pad(weights.detach().numpy(), (0, 7 - len(words))))
    marks = posts.foreground[[0, 2]].numpy(), posts.mask[[0, 2]].numpy()  # type: ignore[index]
    found = agreement(model, posts, "lvml", numerics=DOUBLE)
    assert found["token_f1"] == pytest.approx(token_f1(np.array(alphas), *marks, top_k=5))
    assert found["auprc"] == pytest.approx(auprc(np.array(alphas), *marks))
    nothing = agreement(model, posts.take(torch.tensor([1])), "soft", numerics=DOUBLE)  # one word, no rationale
    assert list(nothing.values()) == [None, None, None, None, 0, 0]

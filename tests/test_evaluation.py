"""One pass gives the scores that the definitions give, whatever shortcut it takes."""

from dataclasses import fields, replace
from math import log

import numpy as np
import pytest
import torch
import toys
from numpy.testing import assert_allclose
from scipy import special
from torch import Tensor, nn
from toys import Centred, mlp

from fcamlib import metrics
from fcamlib.data.sdc import Bank, SDCData, every_occurrence
from fcamlib.evaluation import EPOCH_MEASURES, Meter, Scores, bag_measures, evaluate, evaluating
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics
from fcamlib.paradigms import PAPER, PARADIGMS

FLOAT64 = Numerics(torch.device("cpu"), torch.float64)
N, M, K, D = 11, 3, 5, 7


class Column(nn.Module):
    """Reads focus or class logits off the segments themselves."""

    def __init__(self, columns: int | slice) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, segments: Tensor) -> Tensor:
        return segments[:, self.columns]


def vectors(masked: bool = False) -> SDCData:
    return toys.vectors(23, M, N, D, K, masked)


def model_of(encoder: nn.Module | None = None) -> FCAM:
    return mlp(D, K, encoder, seed=3)


def plain(model: FCAM, data: SDCData, paradigm: str) -> dict[str, np.ndarray]:
    """Every occurrence of every segment through the model, scores from the definitions in numpy."""
    rows, index = every_occurrence(data.segments)
    with torch.no_grad():
        output = model.eval()(data.bank.rows(rows, torch.float64), index, paradigm, data.mask)
        alpha = output.log_alpha.exp().numpy()
        probability = output.log_prob(paradigm).exp().numpy()
        loss = output.loss(paradigm, data.label, "none").numpy()
    each = np.arange(len(data))
    foreground, label = data.foreground.numpy(), data.label.numpy()
    return {
        "a_z": np.where(foreground, alpha, 0).sum(axis=1),
        "s_y": probability[each, label],
        "focus_hit": foreground[each, alpha.argmax(axis=1)],
        "prediction_hit": probability.argmax(axis=1) == label,
        "prediction": probability.argmax(axis=1),
        "loss": loss,
        "has_foreground": (foreground if data.mask is None else foreground & data.mask.numpy()).any(axis=1),
        "entropy": special.entr(alpha).sum(axis=1),
        "max_attention": alpha.max(axis=1),
        "prob": probability,
    }


def assert_same(scores: Scores, expected: dict[str, np.ndarray] | Scores) -> None:
    for field in fields(Scores):
        wanted = expected[field.name] if isinstance(expected, dict) else getattr(expected, field.name)
        assert_allclose(getattr(scores, field.name), wanted, rtol=0, atol=1e-12, err_msg=field.name)


def test_scores_by_hand() -> None:
    """Two instances whose segments hold log attention and log probabilities of two classes."""
    alpha = [[1 / 2, 1 / 4, 1 / 4], [1 / 8, 1 / 8, 3 / 4]]
    p_first = [[1 / 4, 3 / 4, 1 / 2], [1 / 2, 3 / 4, 1 / 4]]
    weight, p = (torch.tensor(v, dtype=torch.float64).flatten() for v in (alpha, p_first))
    bank = Bank(torch.stack([weight, p, 1 - p], dim=1).log())
    foreground = torch.tensor([[False, True, False], [True, False, True]])
    segments = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    model, data = FCAM(Column(0), Column(slice(1, 3))), SDCData(bank, segments, torch.tensor([0, 1]), foreground)
    scores = evaluate(model, data, numerics=FLOAT64)
    for found in scores.values():
        assert_allclose(found.a_z, [1 / 4, 7 / 8])  # the second instance has two foreground segments
        assert found.focus_hit.tolist() == [False, True]
    assert_allclose(scores["hard"].s_y, [1 / 4, 3 / 4])
    first = -(log(1 / 4) / 2 + log(3 / 4) / 4 + log(1 / 2) / 4)
    second = -(log(1 / 2) / 8 + log(1 / 4) / 8 + 3 * log(3 / 4) / 4)
    assert_allclose(scores["hard"].loss, [first, second])
    assert scores["hard"].prediction.tolist() == [1, 1]
    assert_allclose(scores["lvml"].s_y, [7 / 16, 21 / 32])  # 1/8 + 3/16 + 1/8 and 1/16 + 1/32 + 9/16
    assert_allclose(scores["lvml"].loss, [log(16 / 7), log(32 / 21)])
    # Weighted sums of log probabilities: odds 3^(-1/2 + 1/4) of the first class, 3^(3/4 - 1/8) of the second.
    assert_allclose(scores["soft"].s_y, [1 / (1 + 3**0.25), 1 / (1 + 3**-0.625)])
    assert_allclose(scores["soft"].loss, [log(1 + 3**0.25), log(1 + 3**-0.625)])
    for paradigm in PAPER:
        assert scores[paradigm].prediction_hit.tolist() == [False, True]


def test_summary_by_hand() -> None:
    given = {
        "a_z": np.array([0.9, 0.8, 0.1, 0.2, 1.0]),  # 0.8 is not above the threshold
        "s_y": np.array([0.9, 0.95, 0.9, 0.1, 0.8]),
        "focus_hit": np.array([True, True, False, False, True]),
        "prediction_hit": np.array([True, False, True, False, True]),
        "loss": np.arange(5.0),
        "has_foreground": np.ones(5, dtype=bool),
        "prediction": np.zeros(5, dtype=np.int64),
        "prob": np.full((5, 2), 0.5),
    }
    scores = Scores(**given, entropy=np.zeros(5), max_attention=np.ones(5))
    expected = {"loss": 2.0, "accuracy": 0.6, "focus_accuracy": 0.6, "saif": 0.2, "a_z": 3.0 / 5, "a_z_high": 0.4}
    outcomes = {"ftpt": 0.4, "ffpt": 0.2, "ftpf": 0.2, "ffpf": 0.2}
    assert scores.summary() == pytest.approx(expected | outcomes)
    # Where only the first two have a known foreground, focus and outcomes are theirs; accuracy and loss are all five's.
    two = replace(scores, has_foreground=np.array([True, True, False, False, False]))
    expected = {"loss": 2.0, "accuracy": 0.6, "focus_accuracy": 1.0, "saif": 0.5, "a_z": 1.7 / 2, "a_z_high": 0.5}
    assert two.summary() == pytest.approx(expected | {"ftpt": 0.5, "ffpt": 0.0, "ftpf": 0.5, "ffpf": 0.0})
    none = replace(scores, has_foreground=np.zeros(5, dtype=bool))
    assert none.summary() == pytest.approx({"loss": 2.0, "accuracy": 0.6})
    for whole in (scores, two, none):  # in training they are added up batch by batch
        meter = Meter(torch.device("cpu"))
        for part in (slice(2), slice(2, None)):
            meter.add(Scores(**{f.name: torch.from_numpy(getattr(whole, f.name)[part]) for f in fields(Scores)}))
        summary = whole.summary()
        assert meter.means() == pytest.approx({name: summary[name] for name in EPOCH_MEASURES if name in summary})


@pytest.mark.parametrize("masked", [False, True])
def test_bags_are_measured_by_their_labels_and_by_their_number_of_real_segments(masked: bool) -> None:
    data = vectors(masked=masked)
    scores, label = evaluate(model_of(), data, ["hard"], FLOAT64)["hard"], data.label.numpy()
    sizes = np.full(len(data), M) if data.mask is None else data.mask.numpy().sum(axis=1)
    found, several = bag_measures(scores, data), sizes > 1
    shares = scores.entropy[several] / np.log(sizes[several])
    assert found["attention_entropy"] == pytest.approx(np.mean(shares))
    assert found["auc"] is not None and found["auc"] == metrics.auc(scores.prob, label)
    assert found["calibration_error"] == metrics.calibration_error(scores.prob, label)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("encoder", [None, nn.Tanh(), Centred(2)], ids=["bare", "context-free", "contextual"])
def test_deduplicated_equals_plain(encoder: nn.Module | None, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcamlib.numerics.ROWS", 5)  # divides neither the segments nor the instances
    monkeypatch.setattr("fcamlib.numerics.BUDGET", 5_000)  # tables of class logits, and few instances at once
    model, data = model_of(encoder), vectors(masked=masked)
    together = evaluate(model, data, tuple(PARADIGMS), FLOAT64)
    for paradigm in PARADIGMS:
        expected = plain(model, data, paradigm)
        assert_same(together[paradigm], expected)
        assert_same(evaluate(model, data, [paradigm], FLOAT64)[paradigm], expected)
        assert 0.1 < together[paradigm].focus_hit.mean() < 0.9  # the case has both outcomes


def test_modes_are_restored_and_dropout_is_off() -> None:
    data, model = vectors(), model_of(nn.Dropout(0.5))
    model.train()
    model.classification_model.eval()  # one part is frozen
    modes = [module.training for module in model.modules()]
    first, second = (evaluate(model, data, ["soft"], FLOAT64)["soft"] for _ in range(2))
    assert first.loss.tolist() == second.loss.tolist()
    with pytest.raises(RuntimeError, match="inside"), evaluating(model):
        assert not any(module.training for module in model.modules())
        assert torch.is_inference_mode_enabled()
        raise RuntimeError("inside")
    assert [module.training for module in model.modules()] == modes


def test_each_distinct_segment_is_seen_once() -> None:
    data, model, seen = vectors(), model_of(), []
    model.focus_model.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    evaluate(model, data, ["hard", "lvml"], FLOAT64)
    assert sum(seen) == len(torch.unique(data.segments))


def test_bfloat16_scores_are_float32_and_near() -> None:
    model, data = model_of().float(), vectors()
    exact = evaluate(model, data)
    near = evaluate(model, data, numerics=Numerics(torch.device("cpu"), torch.float32, autocast=True))
    for paradigm in PAPER:
        assert near[paradigm].s_y.dtype == near[paradigm].a_z.dtype == np.float32
        assert_allclose(near[paradigm].s_y, exact[paradigm].s_y, atol=0.1)
        assert not np.array_equal(near[paradigm].s_y, exact[paradigm].s_y)

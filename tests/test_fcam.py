"""The model against plain loops over segments written in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.testing import assert_close

from fcamlib.data.sdc import distinct, every_occurrence
from fcamlib.fcam import FCAM, FCAMOutput, log_attention, weighted_sum
from fcamlib.paradigms import PAPER

B, M, K, D, N = 2, 3, 5, 7, 6
Y = torch.tensor([4, 1])
INDEX = torch.tensor([[5, 0, 5], [2, 3, 1]])  # one segment occurs twice in an instance, one row is not used


class LinearFocus(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, segments: Tensor) -> Tensor:
        return segments @ self.weight


class Centred(nn.Module):
    """Subtracts an instance's mean: a segment's code depends on its neighbours."""

    context_free = False

    def forward(self, segments: Tensor, mask: Tensor | None) -> Tensor:
        assert segments.shape[:2] == (B, M)
        weight = torch.ones(segments.shape[:2], dtype=segments.dtype) if mask is None else mask.to(segments.dtype)
        mean = torch.einsum("bmd,bm->bd", segments, weight) / weight.sum(dim=1, keepdim=True)
        return segments - mean[:, None]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.fixture
def model() -> FCAM:
    classifier = nn.Linear(D, K, dtype=torch.float64)
    with torch.no_grad():
        classifier.weight.copy_(random(K, D))
        classifier.bias.copy_(random(K))
    return FCAM(LinearFocus(random(D)), classifier)


def plain(model: FCAM, instances: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Loss (B,) and class probabilities (B, K) of each paradigm, straight from the definitions."""
    (weight,) = (p.detach().numpy() for p in model.focus_model.parameters())
    matrix, bias = (p.detach().numpy() for p in model.classification_model.parameters())
    losses: dict[str, list[float]] = {p: [] for p in PAPER}
    predictions: dict[str, list[np.ndarray]] = {p: [] for p in PAPER}
    for segments, y in zip(instances, Y.numpy(), strict=True):
        alpha = softmax(segments @ weight)
        mixture = sum(a * x for a, x in zip(alpha, segments, strict=True))
        p_mixture = softmax(matrix @ mixture + bias)
        p_single = np.array([softmax(matrix @ x + bias) for x in segments])
        losses["soft"].append(-np.log(p_mixture[y]))
        losses["hard"].append(-sum(a * np.log(p[y]) for a, p in zip(alpha, p_single, strict=True)))
        losses["lvml"].append(-np.log(sum(a * p[y] for a, p in zip(alpha, p_single, strict=True))))
        predictions["soft"].append(p_mixture)
        predictions["hard"].append(p_single[np.argmax(alpha)])
        predictions["lvml"].append(alpha @ p_single)
    return {p: (np.array(losses[p]), np.array(predictions[p])) for p in PAPER}


@pytest.mark.parametrize("paradigm", PAPER)
def test_losses_and_predictions_equal_plain_loops(model: FCAM, paradigm: str) -> None:
    table = random(N, D)
    loss, prediction = plain(model, table[INDEX].numpy())[paradigm]
    output = model(table, INDEX, paradigm)
    assert_close(output.loss(paradigm, Y, "none"), torch.from_numpy(loss))
    assert_close(output.loss(paradigm, Y), torch.tensor(loss.mean()))
    assert_close(output.log_prob(paradigm).exp(), torch.from_numpy(prediction))
    (weight,) = (p.detach().numpy() for p in model.focus_model.parameters())
    assert_close(output.log_alpha, torch.from_numpy(log_softmax(table[INDEX].numpy() @ weight, axis=1)))


@pytest.mark.parametrize("paradigm", PAPER)
def test_distinct_segments_give_what_every_occurrence_gives(model: FCAM, paradigm: str) -> None:
    table = random(N, D)
    outputs = []
    for rows_of in (distinct, every_occurrence):
        rows, index = rows_of(INDEX)
        loss = model(table[rows], index, paradigm).loss(paradigm, Y)
        outputs.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    assert_close(outputs[0], outputs[1])


@pytest.mark.parametrize("paradigm", PAPER)
def test_segment_order_does_not_matter(model: FCAM, paradigm: str) -> None:
    table, order = random(N, D), torch.tensor([2, 0, 1])
    before, after = model(table, INDEX, paradigm), model(table, INDEX[:, order], paradigm)
    assert_close(after.log_alpha, before.log_alpha[:, order])
    assert_close(after.log_prob(paradigm), before.log_prob(paradigm))
    assert_close(after.loss(paradigm, Y), before.loss(paradigm, Y))


@pytest.mark.parametrize("paradigm", PAPER)
@pytest.mark.parametrize("contextual", [False, True])
def test_masked_equals_removed(model: FCAM, paradigm: str, contextual: bool) -> None:
    model.encoder = Centred() if contextual else None
    table = 3 * random(N, D)
    mask = torch.tensor([[True, False, True], [True, True, True]])
    masked = model(table, INDEX, paradigm, mask)
    assert_close(masked.log_alpha[0, 1].exp(), torch.tensor(0.0).double())
    loss, prediction = masked.loss(paradigm, Y, "none"), masked.log_prob(paradigm)
    model.encoder = None
    removed = table[INDEX[0, [0, 2]]][None]
    if contextual:
        removed = removed - removed.mean(dim=1, keepdim=True)
    alone = model(removed[0], torch.tensor([[0, 1]]), paradigm)
    assert_close(loss[:1], alone.loss(paradigm, Y[:1], "none"))
    assert_close(prediction[:1], alone.log_prob(paradigm))


@pytest.mark.parametrize("num_segments", [1, M])
def test_paradigms_agree_where_one_segment_has_all_the_attention(model: FCAM, num_segments: int) -> None:
    table, index = random(N, D), INDEX[:, :num_segments].clone()
    if num_segments > 1:
        index[0, 2] = 4  # no tie
        table[[0, 1]] += (
            1e4 * next(model.focus_model.parameters()).detach()
        )  # the middle place of one, the last of the other
    losses = torch.stack([model(table, index, p).loss(p, Y, "none") for p in PAPER])
    assert_close(losses, losses[:1].expand(3, B))
    predictions = torch.stack([model(table, index, p).log_prob(p) for p in PAPER])
    assert_close(predictions, predictions[:1].expand(3, B, K))


def test_contextual_encoder_equals_encoding_each_instance_first(model: FCAM) -> None:
    table = random(N, D)
    instances = table[INDEX]
    expected = plain(model, (instances - instances.mean(dim=1, keepdim=True)).numpy())
    model.encoder = Centred()
    assert not model.context_free
    for paradigm in PAPER:
        output = model(table, INDEX, paradigm)
        assert_close(output.loss(paradigm, Y, "none"), torch.from_numpy(expected[paradigm][0]))
        assert_close(output.log_prob(paradigm).exp(), torch.from_numpy(expected[paradigm][1]))


def test_context_free_encoder_is_applied_before_both_models(model: FCAM) -> None:
    table = random(N, D)
    expected = plain(model, np.tanh(table[INDEX].numpy()))
    model.encoder = nn.Tanh()
    assert model.context_free
    for paradigm in PAPER:
        assert_close(model(table, INDEX, paradigm).loss(paradigm, Y, "none"), torch.from_numpy(expected[paradigm][0]))


@pytest.mark.parametrize("channels_last", [False, True])
def test_weighted_sum_equals_einsum(channels_last: bool) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    pictures = random(N, 3, 4, 5).contiguous(memory_format=layout)
    alpha = random(B, M).softmax(dim=1)
    total = weighted_sum(pictures, INDEX, alpha)
    assert_close(total, torch.einsum("bmchw,bm->bchw", pictures[INDEX], alpha))
    assert total.is_contiguous(memory_format=layout)


def test_gradcheck_of_the_weighted_sum() -> None:
    segments, alpha = random(N, D).requires_grad_(), random(B, M).requires_grad_()
    assert gradcheck(lambda x, a: weighted_sum(x, INDEX, a), (segments, alpha))


@pytest.mark.parametrize("paradigm", PAPER)
def test_gradcheck_of_the_whole_model(model: FCAM, paradigm: str) -> None:
    table = random(N, D)
    parameters = tuple(model.parameters())
    names = [name for name, _ in model.named_parameters()]

    def loss(*values: Tensor) -> Tensor:
        output = functional_call(model, dict(zip(names, values, strict=True)), (table, INDEX, paradigm))
        return output.loss(paradigm, Y)

    assert gradcheck(loss, parameters)


def test_log_attention_keeps_masked_places_out() -> None:
    focus_logits = torch.tensor([[1.0, torch.nan, 2.0]], requires_grad=True)
    log_alpha = log_attention(focus_logits, torch.tensor([[True, False, True]]))
    sigmoid = 1 / (1 + np.exp(-1.0))
    assert_close(log_alpha.exp(), torch.tensor([[1 - sigmoid, 0, sigmoid]], dtype=torch.float32))
    (gradient,) = torch.autograd.grad(log_alpha[0, 0], focus_logits)
    assert_close(gradient, torch.tensor([[sigmoid, 0, -sigmoid]], dtype=torch.float32))


def test_sixteen_bit_logits_are_normalised_in_float32() -> None:
    logits = torch.tensor([[1.0, 3.0]], dtype=torch.bfloat16)
    assert_close(log_attention(logits), logits.float().log_softmax(dim=1))
    model = FCAM(nn.Identity(), nn.Identity())
    assert_close(model.class_logits(logits), logits.float())


def test_asking_a_pass_for_what_it_has_not_made_is_an_error(model: FCAM) -> None:
    table = random(N, D)
    with pytest.raises(ValueError, match="ask the model for paradigm 'soft'"):
        model(table, INDEX, "lvml").loss("soft", Y)
    with pytest.raises(ValueError, match="ask the model for 'hard' or 'lvml'"):
        model(table, INDEX, "soft").log_prob("hard")


def test_hard_prediction_takes_the_first_of_equal_weights() -> None:
    logits = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    output = FCAMOutput(torch.tensor([[0.5, 0.5]]).log(), segment_logits=logits)
    assert_close(output.log_prob("hard"), logits[:, 0].log_softmax(dim=1))

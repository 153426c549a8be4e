"""The model against plain loops over segments written in numpy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.testing import assert_close
from toys import Centred, LinearFocus

from fcamlib.data.sdc import distinct, every_occurrence
from fcamlib.fcam import FCAM, FCAMOutput, log_attention, weighted_sum
from fcamlib.paradigms import PARADIGMS

B, M, K, D, N = 2, 3, 5, 7, 6
Y = torch.tensor([4, 1])
INDEX = torch.tensor([[5, 0, 5], [2, 3, 1]])  # one segment occurs twice in an instance, one row is not used
each_paradigm = pytest.mark.parametrize("paradigm", PARADIGMS)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.fixture
def model() -> FCAM:
    classifier = nn.Linear(D, K, dtype=torch.float64)
    with torch.no_grad():
        classifier.weight.copy_(random(K, D))
        classifier.bias.copy_(random(K))
    return FCAM(LinearFocus(random(D)), classifier)


def plain(model: FCAM, instances: np.ndarray, paradigm: str) -> tuple[Tensor, Tensor, Tensor]:
    """Loss (B,), class probabilities (B, K) and attention (B, M), straight from the definitions."""
    weight, matrix, bias = (p.detach().numpy() for p in model.parameters())
    alpha = softmax(instances @ weight, axis=1)
    single = softmax(instances @ matrix.T + bias, axis=2)  # (B, M, K)
    losses, predictions = [], []
    for segments, a, p, y in zip(instances, alpha, single, Y.tolist(), strict=True):
        if paradigm in ("soft", "logit_mixture"):  # the same where the classifier is linear
            predictions.append(softmax(matrix @ sum(a[j] * segments[j] for j in range(M)) + bias))
            losses.append(-np.log(predictions[-1][y]))
        elif paradigm == "hard":
            predictions.append(p[np.argmax(a)])
            losses.append(-sum(a[j] * np.log(p[j, y]) for j in range(M)))
        else:
            predictions.append(sum(a[j] * p[j] for j in range(M)))
            losses.append(-np.log(predictions[-1][y]))
    return torch.tensor(np.array(losses)), torch.tensor(np.array(predictions)), torch.from_numpy(alpha)


@each_paradigm
@pytest.mark.parametrize(
    ("encoder", "encode"),
    [
        (None, lambda instances: instances),
        (nn.Tanh(), np.tanh),
        (Centred(), lambda instances: instances - instances.mean(axis=1, keepdims=True)),
    ],
    ids=["bare", "context-free", "contextual"],
)
@pytest.mark.parametrize("rows_of", [distinct, every_occurrence])
def test_losses_and_predictions_equal_plain_loops(
    model: FCAM, paradigm: str, encoder: nn.Module | None, encode: Callable[[np.ndarray], np.ndarray], rows_of: Callable
) -> None:
    table, (rows, index) = random(N, D), rows_of(INDEX)
    loss, prediction, alpha = plain(model, encode(table[INDEX].numpy()), paradigm)
    model.encoder = encoder
    output = model(table[rows], index, paradigm)
    assert model.context_free == (not isinstance(encoder, Centred))
    assert_close((output.loss(paradigm, Y, "none"), output.loss(paradigm, Y)), (loss, loss.mean()))
    assert_close((output.log_prob(paradigm).exp(), output.log_alpha.exp()), (prediction, alpha))


@each_paradigm
def test_distinct_segments_give_the_gradients_of_every_occurrence_in_any_order(model: FCAM, paradigm: str) -> None:
    table, order, outputs = random(N, D), torch.tensor([2, 0, 1]), []
    for rows, index in (distinct(INDEX), every_occurrence(INDEX), distinct(INDEX[:, order])):
        loss = model(table[rows], index, paradigm).loss(paradigm, Y)
        outputs.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    assert_close(outputs[0], outputs[1])
    assert_close(outputs[0], outputs[2])


@each_paradigm
@pytest.mark.parametrize("contextual", [False, True])
@pytest.mark.parametrize("padded", [0, 1])
def test_masked_equals_removed(model: FCAM, paradigm: str, contextual: bool, padded: int) -> None:
    model.encoder = Centred() if contextual else None
    table = 3 * random(N, D)
    mask = torch.arange(B * M).view(B, M) != padded  # a place of the first instance
    masked = model(table, INDEX, paradigm, mask)
    assert masked.log_alpha[0, padded].exp().item() == 0
    loss, prediction = masked.loss(paradigm, Y, "none"), masked.log_prob(paradigm)
    model.encoder = None
    removed = table[INDEX[0, mask[0]]]
    alone = model(removed - removed.mean(dim=0) if contextual else removed, torch.tensor([[0, 1]]), paradigm)
    assert_close((loss[:1], prediction[:1]), (alone.loss(paradigm, Y[:1], "none"), alone.log_prob(paradigm)))


@pytest.mark.parametrize("channels_last", [False, True])
def test_weighted_sum_equals_einsum(channels_last: bool) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    pictures = random(N, 3, 4, 5).contiguous(memory_format=layout)
    alpha = random(B, M).softmax(dim=1)
    total = weighted_sum(pictures, INDEX, alpha)
    assert_close(total, torch.einsum("bmchw,bm->bchw", pictures[INDEX], alpha))
    assert total.is_contiguous(memory_format=layout)


@each_paradigm
def test_gradcheck_of_the_whole_model(model: FCAM, paradigm: str) -> None:
    table, names = random(N, D).requires_grad_(), [name for name, _ in model.named_parameters()]

    def loss(table: Tensor, *values: Tensor) -> Tensor:
        output = functional_call(model, dict(zip(names, values, strict=True)), (table, INDEX, paradigm))
        return output.loss(paradigm, Y)

    assert gradcheck(loss, (table, *model.parameters()))


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
    assert_close(FCAM(nn.Identity(), nn.Identity()).class_logits(logits), logits.float())


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

"""The biases that the sampled losses state, measured: none, one, and one with a bound."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fcamlib.losses import hard_attention_loss, lvml_loss
from fcamlib.sampled_losses import largest_z, reinforce_loss, sample_segments, straight_through, topk_lvml_loss

B, M, K, D, DRAWS = 3, 6, 4, 5, 40_000


def seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


@pytest.fixture(scope="module")
def problem() -> dict[str, Tensor]:
    """One instance of M segments, a linear focus model and a linear classifier, in float64."""
    generator = seeded(7)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {"x": normal(M, D), "focus": normal(D), "classifier": 1.5 * normal(D, K)}


def scores(problem: dict[str, Tensor], focus: Tensor, classifier: Tensor) -> tuple[Tensor, Tensor]:
    """Log attention weights and log-likelihood of class 1 of each segment: (M,) both."""
    log_alpha = (problem["x"] @ focus).log_softmax(dim=0)
    return log_alpha, (problem["x"] @ classifier).log_softmax(dim=1)[:, 1]


def exact(problem: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Hard attention's loss and its gradients with respect to focus and classifier."""
    focus, classifier = (problem[name].clone().requires_grad_() for name in ("focus", "classifier"))
    log_alpha, log_likelihood = scores(problem, focus, classifier)
    value = hard_attention_loss(log_alpha[None], log_likelihood[None])
    of_focus, of_classifier = torch.autograd.grad(value, (focus, classifier))
    return value.detach(), of_focus, of_classifier


def copies(problem: dict[str, Tensor]) -> Tensor:
    """Focus logits (DRAWS, M), a copy for each independent estimate: one backward pass gives all their gradients."""
    return (problem["x"] @ problem["focus"]).expand(DRAWS, M).clone().requires_grad_()


@pytest.mark.parametrize("num_samples", [1, 2, 5])
def test_reinforce_has_the_expectation_of_hard_attention(problem: dict[str, Tensor], num_samples: int) -> None:
    value, focus, _ = exact(problem)
    _, log_likelihood = scores(problem, problem["focus"], problem["classifier"])
    logits = copies(problem)
    log_alpha = logits.log_softmax(dim=1)
    drawn = sample_segments(log_alpha, num_samples, seeded(1))
    losses = reinforce_loss(log_alpha, drawn, log_likelihood[drawn])
    gradients = torch.autograd.grad(losses.sum(), logits)[0] @ problem["x"]
    assert largest_z(losses.detach()[:, None], value) < 3.5
    assert largest_z(gradients, focus) < 3.5
    resolution = gradients.std(dim=0) / DRAWS**0.5
    assert (focus.abs() > 5 * resolution).any()  # a gradient of zero would have been noticed


def test_reinforce_gives_the_classifier_the_gradient_of_what_was_drawn(problem: dict[str, Tensor]) -> None:
    """Unbiased for the classifier too: the mean over all M draws of one segment, weighted by alpha, is exact."""
    _, _, truth = exact(problem)
    classifier = problem["classifier"].clone().requires_grad_()
    log_alpha, log_likelihood = scores(problem, problem["focus"], classifier)
    total = torch.zeros_like(classifier)
    for segment in range(M):
        drawn = torch.tensor([[segment]])
        loss = reinforce_loss(log_alpha[None], drawn, log_likelihood[drawn])
        (gradient,) = torch.autograd.grad(loss, classifier, retain_graph=True)
        total += log_alpha[segment].exp() * gradient
    assert_close(total, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("advantages", [(1.0 - 4.0, 4.0 - 1.0), (1.0 - 3.0, 4.0 - 1.5, 2.0 - 2.5)])
def test_baseline_is_the_mean_of_the_others_so_that_a_shift_of_all_losses_steers_nothing(
    advantages: tuple[float, ...],
) -> None:
    logits = torch.tensor([[0.3, -0.2, 0.5]], dtype=torch.float64, requires_grad=True)
    places, number = [2, 0, 2][: len(advantages)], len(advantages)
    drawn, log_likelihood = torch.tensor([places]), torch.tensor([[-1.0, -4.0, -2.0][:number]], dtype=torch.float64)
    loss = reinforce_loss(logits.log_softmax(dim=1), drawn, log_likelihood)
    (gradient,) = torch.autograd.grad(loss, logits)
    alpha = logits.detach().softmax(dim=1)[0]
    each = torch.eye(3, dtype=torch.float64)[places] - alpha
    by_hand = sum(a * own / number for own, a in zip(each, advantages, strict=True))
    assert loss.item() == pytest.approx({2: 5 / 2, 3: 7 / 3}[number])
    assert_close(gradient[0], by_hand)
    (shifted,) = torch.autograd.grad(reinforce_loss(logits.log_softmax(dim=1), drawn, log_likelihood - 9), logits)
    assert_close(shifted, gradient)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_straight_through_draws_like_attention_and_its_gradient_is_biased(
    problem: dict[str, Tensor], temperature: float
) -> None:
    """Value: hard attention's in expectation. Gradient: many standard errors away, the Gumbel-softmax's of the draw."""
    value, focus, _ = exact(problem)
    logits = copies(problem)
    weights = straight_through(logits.log_softmax(dim=1), temperature, seeded(2))
    noise = -(-torch.rand(DRAWS, M, generator=seeded(2), dtype=torch.float64).log()).log()
    assert_close(weights.detach(), torch.eye(M, dtype=torch.float64)[(logits.log_softmax(dim=1) + noise).argmax(dim=1)])
    slope, soft = torch.arange(M, dtype=torch.float64), ((logits.detach() + noise) / temperature).softmax(dim=1)
    (gradient,) = torch.autograd.grad((weights @ slope).sum(), logits, retain_graph=True)
    assert_close(gradient, (soft * slope - soft * (soft @ slope)[:, None]) / temperature)
    class_logits = (weights @ problem["x"]) @ problem["classifier"]
    losses = -class_logits.log_softmax(dim=1)[:, 1]
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert largest_z(losses.detach()[:, None], value) < 3.5
    assert largest_z(gradient @ problem["x"], focus) > 10


def test_a_uniform_number_of_zero_gives_finite_weights_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, *, dtype, **rest: torch.zeros(shape, dtype=dtype))
    log_alpha = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64).log().requires_grad_()
    weights = straight_through(log_alpha, 1.0, seeded())
    assert_close(weights.detach(), torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(weights[0, 1], log_alpha)
    assert_close(gradient, torch.tensor([[-0.1, 0.25, -0.15]], dtype=torch.float64))  # of the softmax of log alpha


@pytest.mark.parametrize("num_kept", [1, 2, 5, M])
@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
def test_topk_likelihood_is_a_lower_bound_with_the_stated_gap(num_kept: int, scale: float) -> None:
    generator = seeded(11)
    logits = scale * torch.randn(200, M, generator=generator, dtype=torch.float64)
    log_alpha = logits.log_softmax(dim=1)
    log_likelihood = -scale * torch.rand(200, M, generator=generator, dtype=torch.float64)
    log_likelihood[0] = torch.where(torch.arange(M) == log_alpha[0].argmax(), log_likelihood[0], 0.0)
    full = lvml_loss(log_alpha, log_likelihood, "none")
    loss, bound = topk_lvml_loss(log_alpha, log_likelihood, num_kept)
    gap = loss - full
    assert (gap >= -1e-12).all() and (gap <= bound + 1e-12).all()
    if num_kept == M:
        assert_close((loss, bound), (full, torch.zeros_like(full)))
    elif scale == 0.3:
        assert gap.min() > 0  # what is left out counts
    assert_close(gap[0], bound[0])  # reached where the others are certain


def test_topk_leaves_padding_out_and_has_finite_gradients() -> None:
    logits = torch.tensor([[0.4, 0.0, -1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, True, False]])
    log_alpha = logits.masked_fill(~mask, -torch.inf).log_softmax(dim=1)
    likelihood = torch.tensor([[0.5, torch.nan, 0.25, torch.nan]], dtype=torch.float64).log()
    loss, _ = topk_lvml_loss(log_alpha, likelihood, 3)
    weights = torch.tensor([0.4, -1.0], dtype=torch.float64).softmax(dim=0)
    assert loss.item() == pytest.approx(-(weights @ torch.tensor([0.5, 0.25], dtype=torch.float64)).log().item())
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(gradient).all() and (gradient[~mask] == 0).all()

"""The captioning model, its losses and its decoding against slow, independent and brute-force counterparts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fcamlib.captioning.decoding import greedy, sayable
from fcamlib.captioning.losses import (
    Credit,
    cross_entropy,
    entropy_bonus,
    next_baseline,
    place_log_prob,
    real_words,
    reinforce_loss,
    rewards,
    word_log_prob,
)
from fcamlib.captioning.model import Captioner, Context, Regions, SmallCNN
from fcamlib.captioning.packed import read
from fcamlib.config import CaptionModel
from fcamlib.data.vocabulary import PAD, START
from fcamlib.errors import UserError

L, D, V = 3, 5, 7
# Of different lengths, so that padding matters; <start> is 1, <end> 2, <pad> 0.
TOKENS = torch.tensor([[1, 4, 2, 0], [1, 5, 6, 2]])


def tiny(seed: int = 0, start: str = "mean", sees: str = "region", num_words: int = V, sharp: float = 3.0) -> Captioner:
    """A small model in float64 whose attention is far from uniform."""
    config = CaptionModel(
        encoder="features", attention_dim=4, embedding_dim=3, hidden_dim=6, start_state=start, state_sees=sees
    )
    model = Captioner(config, (L, D), num_words, torch.Generator().manual_seed(seed)).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(sharp)
    return model


def features(batch: int, seed: int = 1, num_regions: int = L) -> Tensor:
    return torch.randn(batch, num_regions, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def enumerated_loss(model: Captioner, regions: Regions, tokens: Tensor) -> Tensor:
    """The expected cross-entropy per word under hard attention, over all L^T sequences of regions."""
    batch, length = tokens.shape[0], tokens.shape[1] - 1
    sequences = torch.cartesian_prod(*[torch.arange(L)] * length)  # (S, T)
    number, captions = len(sequences), torch.arange(batch).repeat_interleave(len(sequences))
    tokens, real = tokens[captions], real_words(tokens[captions])
    output = model(regions.take(captions), tokens, "given", sequences.repeat(batch, 1))
    # Behind a caption's end the places go through all regions too, where their weights sum to 1.
    taken = output.log_alpha.gather(2, sequences.repeat(batch, 1)[..., None]).squeeze(2)  # (B S, T)
    loss = -word_log_prob(output.log_prob, tokens, real).sum(dim=1)
    return (taken.sum(dim=1).exp() * loss).sum() / (real.sum() / number)


def flat_gradient(model: Captioner, loss: Tensor) -> Tensor:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    found = torch.autograd.grad(loss, weights, allow_unused=True, retain_graph=True)
    return torch.cat([(torch.zeros_like(w) if g is None else g).flatten() for w, g in zip(weights, found, strict=True)])


def slow_soft_log_prob(model: Captioner, regions: np.ndarray, caption: list[int]) -> list[float]:
    """Log probability of each word of one caption, written out with NumPy from the weights alone."""
    w = {name: value.detach().numpy() for name, value in model.state_dict().items()}

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    start = np.tanh(w["start.dense.weight"] @ regions.mean(axis=0) + w["start.dense.bias"])
    size = len(start) // 2
    h, c = start[:size], start[size:]
    found = []
    for before, word in itertools.pairwise(caption):
        scores = []
        for region in regions:
            hidden = np.tanh(
                w["attention.of_region.weight"] @ region
                + w["attention.of_region.bias"]
                + w["attention.of_state.weight"] @ h
            )
            scores.append(float(w["attention.score.weight"][0] @ hidden))
        total = sum(math.exp(s) for s in scores)
        context = sum(math.exp(s) / total * region for s, region in zip(scores, regions, strict=True))
        seen = np.concatenate([w["embedding.weight"][before], context])
        gates = w["cell.weight_ih"] @ seen + w["cell.bias_ih"] + w["cell.weight_hh"] @ h + w["cell.bias_hh"]
        i, f, g, o = (gates[k * size : (k + 1) * size] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        logits = w["output.weight"] @ np.concatenate([h, context]) + w["output.bias"]
        found.append(float(logits[word] - np.log(np.exp(logits).sum())))
    return found


def test_soft_attention_equals_a_slow_loop_over_captions_words_and_regions() -> None:
    model, pictures = tiny(), features(2)
    output = model(model.regions(pictures), TOKENS, "soft")
    found = word_log_prob(output.log_prob, TOKENS, real_words(TOKENS))
    for number, caption in enumerate(TOKENS.tolist()):
        words = [token for token in caption if token != PAD]
        expected = slow_soft_log_prob(model, pictures[number].numpy(), words)
        assert_close(found[number, : len(expected)].tolist(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("context", ["soft", "mode", "drawn"])
def test_a_caption_does_not_depend_on_its_batch(context: Context) -> None:
    model, pictures = tiny(), features(2)
    quantiles = torch.tensor([[0.1, 0.8, 0.5], [0.6, 0.3, 0.9]], dtype=torch.float64)
    together = model(model.regions(pictures), TOKENS, context, quantiles)
    for number in range(2):
        alone = model(model.regions(pictures[number : number + 1]), TOKENS[number : number + 1], context,
                      quantiles[number : number + 1])  # fmt: skip
        assert_close(together.log_prob[number], alone.log_prob[0], rtol=1e-12, atol=1e-12)
        assert_close(together.log_alpha[number], alone.log_alpha[0], rtol=1e-12, atol=1e-12)


def test_padding_adds_nothing_to_losses_and_gradients() -> None:
    model, pictures = tiny(), features(2)
    quantiles = torch.tensor([[0.1, 0.8, 0.5], [0.6, 0.3, 0.9]], dtype=torch.float64)
    baseline = torch.tensor([-3.0, -2.0, -1.0], dtype=torch.float64)

    def losses(part: slice, length: int) -> tuple[Tensor, Tensor, Tensor, int]:
        tokens = TOKENS[part, : length + 1]
        real = real_words(tokens)
        output = model(model.regions(pictures[part]), tokens, "drawn", quantiles[part, :length])
        words = word_log_prob(output.log_prob, tokens, real)
        hard = reinforce_loss(words, place_log_prob(output, real), rewards(words, "rest"), baseline[:length], real)
        return cross_entropy(words, real), hard, entropy_bonus(output.log_alpha, real), int(real.sum())

    padded = losses(slice(0, 2), 3)
    first, second = losses(slice(0, 1), 2), losses(slice(1, 2), 3)
    for whole, one, other in zip(padded[:3], first[:3], second[:3], strict=True):
        single = (one * first[3] + other * second[3]) / padded[3]
        assert_close(whole, single, rtol=1e-12, atol=0)
        assert_close(flat_gradient(model, whole), flat_gradient(model, single), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("sees", ["region", "word"])
@pytest.mark.parametrize("context", ["soft", "mode", "drawn"])
def test_a_packed_pass_equals_reading_word_after_word(context: Context, sees: str) -> None:
    """Captions of all lengths, not sorted, two of one picture; log probabilities, attention and all gradients."""
    model, pictures = tiny(sees=sees, sharp=4.0), features(3)
    tokens = torch.tensor([[1, 4, 2, 0, 0, 0], [1, 5, 6, 4, 4, 2], [1, 2, 0, 0, 0, 0], [1, 6, 5, 3, 2, 0]])
    place, real = torch.tensor([2, 0, 0, 1]), real_words(tokens)
    quantiles = torch.rand(4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = read(model, model.regions(pictures), place, tokens, context, quantiles)
    given = torch.ones(4, 5, dtype=torch.bool)  # the caption's own words, but word after word
    expected = read(model, model.regions(pictures), place, tokens, context, quantiles, given)
    assert_close(found.words, expected.words, rtol=1e-10, atol=1e-12)
    assert_close(found.log_alpha[real], expected.log_alpha[real], rtol=1e-10, atol=1e-12)
    assert (found.places is None) == (context == "soft")
    losses = []
    for reading in (found, expected):
        loss = cross_entropy(reading.words, real) + entropy_bonus(reading.log_alpha, real)
        losses.append(loss if reading.places is None else loss + (quantiles * reading.places).sum())
    assert_close(flat_gradient(model, losses[0]), flat_gradient(model, losses[1]), rtol=1e-9, atol=1e-12)


def test_a_draw_takes_each_region_as_often_as_its_weight_says() -> None:
    model, pictures = tiny(), features(1)
    number = 4_000
    quantiles = (torch.arange(number, dtype=torch.float64) + 0.5)[:, None] / number
    tokens = TOKENS[:1, :2].expand(number, -1)
    output = model(model.regions(pictures).take(torch.zeros(number, dtype=torch.long)), tokens, "drawn", quantiles)
    assert output.region is not None
    share = torch.bincount(output.region[:, 0], minlength=L) / number
    assert_close(share.double(), output.log_alpha[0, 0].exp(), rtol=0, atol=1.0 / number)


def estimates(
    model: Captioner, pictures: Tensor, baseline: Tensor, credit: Credit, groups: int, size: int, scored: bool = True
) -> Tensor:
    """Gradients of the drawn loss, each the mean over `size` draws: (groups, weights); `scored`: both terms."""
    generator = torch.Generator().manual_seed(7)
    captions = torch.arange(2).repeat_interleave(size)
    tokens, regions = TOKENS[captions], model.regions(pictures).take(captions)
    real = real_words(tokens)
    found = []
    for _ in range(groups):
        quantiles = torch.rand(len(tokens), 3, generator=generator, dtype=torch.float64)
        output = model(regions, tokens, "drawn", quantiles)
        words, places = word_log_prob(output.log_prob, tokens, real), place_log_prob(output, real)
        loss = reinforce_loss(words, places if scored else places.detach(), rewards(words, credit), baseline, real)
        found.append(flat_gradient(model, loss))
    return torch.stack(found)


def mean_square_of_z(found: Tensor, exact: Tensor) -> float:
    """1 on average where the mean of `found` estimates `exact` without bias."""
    error = found.std(dim=0) / math.sqrt(len(found))
    return float(((found.mean(dim=0) - exact)[error > 1e-12] / error[error > 1e-12]).square().mean())


@pytest.mark.parametrize("credit", ["caption", "rest"])
def test_reinforce_estimates_the_gradient_of_the_enumerated_loss_without_bias(credit: Credit) -> None:
    model, pictures = tiny(), features(2)
    exact = flat_gradient(model, enumerated_loss(model, model.regions(pictures), TOKENS))
    baseline = torch.tensor([-5.0, -4.0, -3.0], dtype=torch.float64)
    found = estimates(model, pictures, baseline, credit, groups=100, size=200)
    error = found.std(dim=0) / math.sqrt(len(found))
    assert bool(((found.mean(dim=0) - exact).abs() <= 4.5 * error + 1e-12).all())
    assert mean_square_of_z(found, exact) < 2.0
    without = estimates(model, pictures, baseline, credit, groups=30, size=200, scored=False)
    assert mean_square_of_z(without, exact) > 10.0, "the test would not see a bias"


def test_a_baseline_that_is_subtracted_lowers_the_variance_and_one_that_is_added_raises_it() -> None:
    model, pictures = tiny(), features(2)
    none = torch.zeros(3, dtype=torch.float64)
    regions = model.regions(pictures)
    real = real_words(TOKENS)
    output = model(regions, TOKENS, "drawn", torch.full((2, 3), 0.5, dtype=torch.float64))
    reward = rewards(word_log_prob(output.log_prob, TOKENS, real), "rest").detach()
    mean = next_baseline(none, reward, real, 0.0)
    spread = {
        name: float(estimates(model, pictures, value, "rest", 40, 20).var(dim=0).sum())
        for name, value in {"none": none, "subtracted": mean, "added": -mean}.items()
    }
    assert spread["subtracted"] < 0.7 * spread["none"] < 0.7 * spread["added"]


def test_the_baseline_is_a_moving_average_of_each_place_over_the_captions_that_reach_it() -> None:
    reward = torch.tensor([[-1.0, -2.0, 99.0], [-3.0, -4.0, -5.0]])
    real = torch.tensor([[True, True, False], [True, True, True]])
    found = next_baseline(torch.tensor([0.0, -1.0, -10.0]), reward, real, 0.9)
    assert_close(found, torch.tensor([-0.2, -1.2, -9.5]))
    unreached = next_baseline(torch.tensor([0.0, -1.0, -10.0]), reward[:1], real[:1], 0.9)
    assert float(unreached[2]) == -10.0


def test_rewards_are_the_captions_or_its_rest() -> None:
    words = torch.tensor([[-1.0, -2.0, -4.0]])
    assert rewards(words, "caption").tolist() == [[-7.0, -7.0, -7.0]]
    assert rewards(words, "rest").tolist() == [[-7.0, -6.0, -4.0]]


def test_a_state_that_sees_words_alone_makes_the_expectation_a_sum_over_words() -> None:
    """Then the regions of other words change nothing, and the L^T sequences fall apart into T sums over L regions."""
    model, pictures = tiny(sees="word"), features(2)
    regions, real = model.regions(pictures), real_words(TOKENS)
    expected = torch.zeros((), dtype=torch.float64)
    for region in range(L):
        output = model(regions, TOKENS, "given", torch.full((2, 3), region))
        words = word_log_prob(output.log_prob, TOKENS, real)
        expected = expected - (place_log_prob(output, real).exp() * words).sum()
    assert_close(enumerated_loss(model, regions, TOKENS), expected / real.sum(), rtol=1e-12, atol=0)


def names(num_words: int = V) -> Tensor:
    return torch.eye(num_words, 2, dtype=torch.float64)


def test_greedy_reports_words_attention_and_probabilities_of_its_own_steps() -> None:
    model = tiny(seed=6)
    regions = model.regions(features(5))
    found = greedy(model, regions, "mode", 6, names())
    tokens = torch.cat([torch.full((5, 1), START), found.tokens], dim=1)
    output = model(regions, tokens, "mode")
    real = found.real
    assert_close(found.alpha[real], output.log_alpha.exp()[real], rtol=1e-12, atol=0)
    assert_close(found.category_prob[real], (output.log_prob.exp() @ names())[real], rtol=1e-12, atol=1e-15)
    best = torch.stack([sayable(own) for own in output.log_prob.unbind(dim=1)], dim=1).argmax(dim=2)
    assert bool((found.tokens == best)[real].all())
    assert not bool(((found.tokens == PAD) | (found.tokens == START))[real].any())


def test_scheduled_sampling_feeds_the_models_own_guess_where_it_is_told_to() -> None:
    model, pictures = tiny(seed=2), features(2)
    regions = model.regions(pictures)
    given = torch.zeros(2, 3, dtype=torch.bool)
    free = model(regions, TOKENS, "soft", given=given)
    guesses = free.log_prob.argmax(dim=2)
    fed = torch.cat([TOKENS[:, :1], guesses[:, :2], TOKENS[:, 3:]], dim=1)
    assert_close(free.log_prob, model(regions, fed, "soft").log_prob, rtol=1e-12, atol=1e-12)


def test_a_region_of_the_small_encoder_sees_its_own_surroundings_alone() -> None:
    """16 x 16 pixels around a cell of 8 x 8: what attention skips must not reach the decoder by another way."""
    torch.manual_seed(0)
    encoder = SmallCNN(4, 40).double()
    pictures = torch.rand(1, 3, 40, 40, dtype=torch.float64, requires_grad=True)
    encoder(pictures)[0, 12].sum().backward()  # the middle of a 5 x 5 grid: pixels 16..23
    assert pictures.grad is not None
    rows, columns = pictures.grad.abs().sum(dim=(0, 1)).nonzero().T
    assert (int(rows.min()), int(rows.max())) == (12, 27) == (int(columns.min()), int(columns.max()))


@pytest.mark.parametrize("start", ["zero", "learned"])
def test_without_the_mean_region_the_first_attention_query_is_the_same_for_all_pictures(start: str) -> None:
    model = tiny(start=start)
    state = model.start(features(2))
    assert_close(state.hidden[0], state.hidden[1], rtol=0, atol=0)
    assert not torch.equal(*tiny(start="mean").start(features(2)).hidden.unbind())


def test_an_encoder_that_does_not_fit_the_data_is_refused_in_a_sentence() -> None:
    generator = torch.Generator()
    with pytest.raises(UserError, match="encoder=smallcnn needs pictures"):
        Captioner(CaptionModel(encoder="smallcnn"), (4, 5), 9, generator)
    with pytest.raises(UserError, match="encoder=features does not take pictures"):
        Captioner(CaptionModel(encoder="features"), (3, 16, 16), 9, generator)
    with pytest.raises(UserError, match="picture_size=20 does not fit"):
        Captioner(CaptionModel(encoder="smallcnn"), (3, 20, 20), 9, generator)

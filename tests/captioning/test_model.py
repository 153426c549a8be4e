"""The captioning model, its losses and its passes against a slow loop, enumeration and hand-made values."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fcamlib.captioning import decoding
from fcamlib.captioning.decoding import greedy, read
from fcamlib.captioning.model import Captioner, Context, SmallCNN, region_taken
from fcamlib.config import CaptionModel
from fcamlib.data.captions import PAD, START
from fcamlib.errors import UserError

L, D, V = 3, 5, 7
# Of all lengths, not sorted, two of one picture; <start> is 1, <end> 2, <pad> 0.
TOKENS = torch.tensor([[1, 4, 2, 0, 0, 0], [1, 5, 6, 4, 4, 2], [1, 2, 0, 0, 0, 0], [1, 6, 5, 3, 2, 0]])
PLACE = torch.tensor([2, 0, 0, 1])
Take = Callable[[Tensor, int], int]  # attention weights and step -> region


def tiny(seed: int = 0, sees: str = "region") -> Captioner:
    """A small model in float64 whose attention is far from uniform."""
    config = CaptionModel(attention_dim=4, embedding_dim=3, hidden_dim=6, state_sees=sees)
    model = Captioner(config, (L, D), V, torch.Generator().manual_seed(seed)).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3.0)
    return model


def features(number: int) -> Tensor:
    return torch.randn(number, L, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def by_hand(model: Captioner, x: Tensor, caption: list[int], take: Take | None) -> tuple[Tensor, Tensor, Tensor]:
    """Log probability of each word, of the region taken and of every region, one caption of a picture `x` alone."""
    w = dict(model.named_parameters())
    h, c = torch.tanh(w["start.dense.weight"] @ x.mean(dim=0) + w["start.dense.bias"]).chunk(2)
    words, places, attention = [], [], []
    for t, (before, word) in enumerate(itertools.pairwise(caption)):
        keys = x @ w["attention.of_region.weight"].T + w["attention.of_region.bias"]  # (L, A)
        scores = torch.tanh(keys + w["attention.of_state.weight"] @ h) @ w["attention.score.weight"][0]
        a = scores.exp() / scores.exp().sum()
        region = 0 if take is None else take(a.detach(), t)
        context = sum(weight * own for weight, own in zip(a, x, strict=True)) if take is None else x[region]
        seen = torch.cat([w["embedding.weight"][before], *([context] if model.sees_region else [])])
        gates = w["cell.weight_ih"] @ seen + w["cell.bias_ih"] + w["cell.weight_hh"] @ h + w["cell.bias_hh"]
        i, f, g, o = gates.chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        logits = w["output.weight"] @ torch.cat([h, context]) + w["output.bias"]
        words.append(logits[word] - logits.exp().sum().log())
        places.append(a[region].log())
        attention.append(a.log())
    return torch.stack(words), torch.stack(places), torch.stack(attention)


def drawn(quantiles: Tensor) -> Take:
    """The region at the quantile of each step."""
    return lambda a, t: int(torch.searchsorted(a.cumsum(dim=0), quantiles[t], right=True))


def largest(a: Tensor, t: int) -> int:
    return int(a.argmax())


def flat_gradient(model: Captioner, loss: Tensor) -> Tensor:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    found = torch.autograd.grad(loss, weights, allow_unused=True, retain_graph=True)
    return torch.cat([(torch.zeros_like(w) if g is None else g).flatten() for w, g in zip(weights, found, strict=True)])


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("sees", ["region", "word"])
@pytest.mark.parametrize("context", ["soft", "mode", "drawn"])
def test_reading_a_batch_equals_a_slow_loop_over_captions_and_words(context: Context, sees: str, packed: bool) -> None:
    """Log probabilities, attention, losses and all gradients: neither padding nor the rest of a batch adds anything."""
    model, pictures, real = tiny(sees=sees), features(3), decoding.real_words(TOKENS)
    quantiles = torch.rand(4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    given = None if packed else torch.ones(4, 5, dtype=torch.bool)  # the caption's own words, but word after word
    found = read(model, model.regions(pictures), PLACE, TOKENS, context, quantiles, given)
    assert (found.places is None) == (context == "soft")
    words, places, entropy = [], [], []
    for row, place in enumerate(PLACE.tolist()):
        takes: dict[Context, Take | None] = {"soft": None, "mode": largest, "drawn": drawn(quantiles[row])}
        caption = [token for token in TOKENS[row].tolist() if token != PAD]
        own, taken, attention = by_hand(model, pictures[place], caption, takes[context])
        number = len(caption) - 1
        assert_close(found.words[row, :number], own, rtol=1e-10, atol=1e-12)
        assert_close(found.log_alpha[row, :number], attention, rtol=1e-10, atol=1e-12)
        assert not bool(found.words[row, number:].any())
        words.append(own)
        places.append(taken @ quantiles[row, :number])
        entropy.append(-(attention.exp() * attention).sum())
    expected = -torch.cat(words).mean() + sum(entropy) / int(real.sum())
    loss = decoding.cross_entropy(found.words, real) + decoding.entropy_bonus(found.log_alpha, real)
    if found.places is not None:
        loss, expected = loss + (quantiles * found.places).sum(), expected + sum(places)
    assert_close(loss, expected, rtol=1e-11, atol=0)
    assert_close(flat_gradient(model, loss), flat_gradient(model, expected), rtol=1e-9, atol=1e-12)


def test_a_draw_takes_each_region_as_often_as_its_weight_says() -> None:
    log_alpha = torch.tensor([0.137, 0.61, 0.253], dtype=torch.float64).log().expand(4_000, -1)
    region = region_taken(log_alpha, "drawn", (torch.arange(4_000, dtype=torch.float64) + 0.5) / 4_000)
    assert_close(torch.bincount(region) / 4_000, torch.tensor([0.137, 0.61, 0.253]), rtol=0, atol=1 / 4_000)


def estimates(model: Captioner, baseline: Tensor, credit: Any, groups: int, size: int, scored: bool = True) -> Tensor:
    """Gradients of the drawn loss of two captions, each the mean over `size` draws; `scored`: of both its terms."""
    generator, captions = torch.Generator().manual_seed(7), torch.arange(2).repeat_interleave(size)
    regions, tokens = model.regions(features(2)), TOKENS[:2, :4][captions]
    real, found = decoding.real_words(tokens), []
    for _ in range(groups):
        quantiles = torch.rand(len(tokens), 3, generator=generator, dtype=torch.float64)
        reading = read(model, regions, captions, tokens, "drawn", quantiles)
        assert reading.places is not None
        places = reading.places if scored else reading.places.detach()
        reward = decoding.rewards(reading.words, credit)
        found.append(flat_gradient(model, decoding.reinforce_loss(reading.words, places, reward, baseline, real)))
    return torch.stack(found)


def enumerated_gradient(model: Captioner) -> Tensor:
    """Gradient of the expected cross-entropy per word of the same captions, over all sequences of regions."""
    total, words = torch.zeros((), dtype=torch.float64), 0
    for row, picture in enumerate(features(2)):
        caption = [token for token in TOKENS[row, :4].tolist() if token != PAD]
        words += len(caption) - 1
        for sequence in itertools.product(range(L), repeat=len(caption) - 1):
            own, places, _ = by_hand(model, picture, caption, lambda a, t, fixed=sequence: fixed[t])  # type: ignore
            total = total - places.sum().exp() * own.sum()
    return flat_gradient(model, total / words)


@pytest.mark.parametrize("credit", ["caption", "rest"])
def test_reinforce_estimates_the_gradient_of_the_enumerated_loss_without_bias(credit: decoding.Credit) -> None:
    model, baseline = tiny(), torch.tensor([-5.0, -4.0, -3.0], dtype=torch.float64)
    exact = enumerated_gradient(model)

    def mean_square_of_z(found: Tensor) -> float:  # 1 on average without bias
        error = found.std(dim=0) / math.sqrt(len(found))
        return float(((found.mean(dim=0) - exact)[error > 1e-12] / error[error > 1e-12]).square().mean())

    assert mean_square_of_z(estimates(model, baseline, credit, groups=40, size=500)) < 2.0
    without = estimates(model, baseline, credit, groups=30, size=500, scored=False)
    assert mean_square_of_z(without) > 10.0, "the test would not see a bias"


def test_a_baseline_that_is_subtracted_lowers_the_variance_and_one_that_is_added_raises_it() -> None:
    model, tokens, none = tiny(), TOKENS[:2, :4], torch.zeros(3, dtype=torch.float64)
    quantiles = torch.full((2, 3), 0.5, dtype=torch.float64)
    reading = read(model, model.regions(features(2)), torch.arange(2), tokens, "drawn", quantiles)
    _, mean = decoding.next_baseline(none, decoding.rewards(reading.words, "rest"), decoding.real_words(tokens), 0.0)
    without, subtracted, added = (
        float(estimates(model, value, "rest", 40, 20).var(dim=0).sum()) for value in (none, mean, -mean)
    )
    assert subtracted < 0.7 * without < 0.7 * added


def test_rewards_and_baseline_equal_values_computed_by_hand() -> None:
    words = torch.tensor([[-1.0, -2.0, -4.0], [-3.0, -8.0, 0.0]])
    assert decoding.rewards(words, "caption").tolist() == [[-7.0] * 3, [-11.0] * 3]
    assert decoding.rewards(words, "rest").tolist() == [[-7.0, -6.0, -4.0], [-11.0, -8.0, 0.0]]
    reward = torch.tensor([[-1.0, -2.0, 99.0], [-3.0, -4.0, -5.0]])
    real = torch.tensor([[True, True, False], [True, True, True]])
    average = torch.tensor([0.0, -1.0, -10.0])
    assert_close(decoding.next_baseline(average, reward, real, 0.9), (average, torch.tensor([-0.2, -1.2, -9.5])))
    assert float(decoding.next_baseline(average, reward[:1], real[:1], 0.9)[1][2]) == -10.0, "no caption is so long"
    first = decoding.next_baseline(torch.full((3,), torch.nan), reward[:1], real[:1], 0.9)
    assert [found.tolist()[:2] for found in first] == [[-1.0, -2.0]] * 2 and first[1].isnan().tolist()[2]


def test_greedy_takes_the_most_probable_word_and_reports_attention_and_probabilities_of_its_own_steps() -> None:
    model, pictures = tiny(seed=6), features(5)
    found = greedy(model, model.regions(pictures), "mode", 6, torch.eye(V, 2, dtype=torch.float64))
    for row in range(5):
        said = [START, *found.tokens[row, : int(found.real[row].sum())].tolist()]
        assert START not in said[1:] and PAD not in said

        for t in range(len(said) - 1):
            extended = [[*said[: t + 1], word] for word in range(V)]
            named = [by_hand(model, pictures[row], words, largest)[0][-1].exp().item() for words in extended]
            assert max(range(2, V), key=named.__getitem__) == said[t + 1]
            assert found.category_prob[row, t].tolist() == pytest.approx(named[:2], rel=1e-10)
        attention = by_hand(model, pictures[row], said, largest)[2]
        assert_close(found.alpha[row, : len(said) - 1], attention.exp(), rtol=1e-10, atol=0)


def test_scheduled_sampling_feeds_the_models_own_guess_where_it_is_told_to() -> None:
    model, tokens = tiny(seed=2), TOKENS[1:2]
    regions, place = model.regions(features(1)), torch.zeros(1, dtype=torch.long)
    given = torch.tensor([[False, False, True, True, True]])
    state = model.start(regions.values)
    guess = model.step(regions, state, tokens[:, 0], "soft")[0].argmax(dim=1)
    fed = torch.cat([tokens[:, :1], guess[:, None], tokens[:, 2:]], dim=1)
    found = read(model, regions, place, tokens, "soft", given=given).words
    assert_close(found[:, 1:], read(model, regions, place, fed, "soft").words[:, 1:], rtol=1e-12, atol=1e-12)


def test_a_region_of_the_small_encoder_sees_its_own_surroundings_alone() -> None:
    """16 x 16 pixels around a cell of 8 x 8: what attention skips must not reach the decoder by another way."""
    torch.manual_seed(0)
    encoder = SmallCNN(4, 40).double()
    pictures = torch.rand(1, 3, 40, 40, dtype=torch.float64, requires_grad=True)
    encoder(pictures)[0, 12].sum().backward()  # the middle of a 5 x 5 grid: pixels 16..23
    assert pictures.grad is not None
    rows, columns = pictures.grad.abs().sum(dim=(0, 1)).nonzero().T
    assert (int(rows.min()), int(rows.max())) == (12, 27) == (int(columns.min()), int(columns.max()))
    with pytest.raises(UserError, match="image_size=20 does not fit the encoder smallcnn: give a multiple of 8"):
        SmallCNN(4, 20)

"""Measures of captions and attention against values computed by hand, by counting, and step by step."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_captions import config, model_of, small_task

from fcamlib.captioning.decoding import read
from fcamlib.captioning.evaluation import (
    CaptionEvaluator,
    bleu,
    bleu_settings,
    caption_histogram,
    coverage,
)
from fcamlib.captioning.training import numerics_of
from fcamlib.data.captions import Phrase
from fcamlib.numerics import PLAIN


def test_bleu_equals_values_computed_by_hand() -> None:
    captions = [["a", "red", "square", "left", "of", "a", "circle"], ["a", "a", "b"]]
    references = [
        [["a", "red", "square", "left", "of", "a", "blue", "circle"]],
        [["a", "b", "c", "d"], ["b", "a"]],
    ]
    # Unigrams: all 7 of the first; "a" counts once as no reference has it twice, "b" once: 2 of 3. 9/10.
    # Bigrams: 5 of 6 (not "a circle"); "a b" of "a a", "a b": 1 of 2. 6/8. Trigrams: 4 of 5; 0 of 1. 4/6. Of 4: 3/4.
    # Lengths: 7 + 3 = 10; closest references 8 and, of 4 and 2 equally close to 3, the shorter: 2. 10: no penalty.
    precision = [9 / 10, 6 / 8, 4 / 6, 3 / 4]
    found = bleu(captions, references)
    for order in range(1, 5):
        expected = 100 * math.prod(precision[:order]) ** (1 / order)
        assert found[f"bleu{order}"] == pytest.approx(expected, abs=1e-10)


def test_bleu_penalises_short_captions_and_takes_words_as_they_are() -> None:
    found = bleu([("a", "b")], [[("a", "b", "c", "d")]])
    assert found["bleu1"] == pytest.approx(100 * math.exp(1 - 4 / 2), abs=1e-10) and found["bleu3"] == 0.0
    assert bleu([("it's", "A", "<unk>")], [[("it's", "A", "<unk>")]])["bleu3"] == pytest.approx(100)
    assert bleu([("a",)], [[("A",)]])["bleu1"] == 0.0
    settings = bleu_settings()
    assert "tok:none" in settings and "smooth:none" in settings and "case:mixed" in settings


def test_coverage_equals_hand_computed_overlaps_and_counts_a_union_once() -> None:
    # A 2 x 2 grid; the box spans x 0.25..0.75 and y 0.5..0.75: a quarter of each lower cell.
    assert coverage(np.array([[0.25, 0.5, 0.75, 0.75]]), 4) == pytest.approx([0, 0, 0.25, 0.25], abs=1e-15)
    overlapping = np.array([[0.0, 0.0, 0.5, 0.5], [0.25, 0.25, 0.75, 0.75]])
    assert coverage(overlapping, 1) == pytest.approx([0.25 + 0.25 - 0.0625], abs=1e-15)
    assert coverage(overlapping, 4) == pytest.approx([1.0, 0.25, 0.25, 0.25], abs=1e-15)
    assert coverage(np.array([[-0.5, -1.0, 2.0, 1.5]]), 9) == pytest.approx(np.ones(9))
    assert coverage(np.zeros((0, 4)), 9) == pytest.approx(np.zeros(9))
    with pytest.raises(ValueError, match="12 regions do not form a square grid"):
        coverage(np.zeros((1, 4)), 12)


def test_histogram_bins_hold_their_lower_edges_and_the_last_one_both() -> None:
    a_z = np.array([0.0, 0.2, 0.3, 1.0, 0.25])
    s_y = np.array([0.1, 0.2, 1.0, 0.3, 0.9])
    found = caption_histogram(a_z, s_y)
    assert found.tolist() == [[20.0, 0.0, 0.0], [0.0, 20.0, 20.0], [0.0, 0.0, 40.0]]


def test_scores_of_objects_are_those_of_the_greedy_caption_step_by_step() -> None:
    run_config, task = config("soft"), small_task()
    model, evaluator = model_of(run_config, task), CaptionEvaluator(task, "test", 15, numerics_of(run_config.training))
    evaluator.chunk = 4  # chunks of unequal size
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3.0)
    scores = evaluator.evaluate(model, "hard")
    data = task.splits["test"]
    for row in range(len(data.references)):
        with torch.inference_mode():
            regions = model.regions(data.pictures.rows(torch.tensor([row]), torch.float64))
            state, word, best = model.start(regions.values), torch.tensor([1]), (-1.0, 0.0)
            covered = coverage(data.objects[row].box.numpy(), 4)
            for _ in range(15):
                log_prob, log_alpha, _, state = model.step(regions, state, word, "mode")
                wanted = [7, 9] if data.objects[row].category == (0,) else [8]
                named = float(log_prob[0, wanted].exp().sum())
                if named > best[0]:
                    best = (named, float(log_alpha[0].exp().numpy() @ covered))
                log_prob[0, :2] = -torch.inf
                word = log_prob.argmax(dim=1)
                if int(word) == 2:
                    break
        assert scores.objects["s_y"][row] == pytest.approx(best[0], rel=1e-12)
        assert scores.objects["a_z"][row] == pytest.approx(best[1], rel=1e-12)
    assert scores.objects["area"].tolist() == [0.25] * 9
    assert len({len(caption) for caption in scores.captions}) > 1 and scores.objects["picture"].tolist() == list(
        range(9)
    )


@pytest.mark.parametrize("chunk", [3, 250])
def test_attention_on_phrases_is_the_mean_over_their_words_and_uniform_attention_has_the_covered_share(
    chunk: int,
) -> None:
    run_config, task = config("soft"), small_task()
    boxes = torch.tensor([[0.0, 0.0, 0.5, 0.75]]), torch.tensor([[0.25, 0.5, 0.75, 1.0], [0.5, 0.0, 1.0, 0.5]])
    # Of a 2 x 2 grid: all of the upper left cell, half of the lower left; half of both lower cells, all upper right.
    phrases = (Phrase(0, 1, 3, boxes[0]), Phrase(0, 2, 3, boxes[1]), Phrase(4, 0, 2, boxes[1]))
    shares = np.array([[1, 0, 0.5, 0], [0, 1, 0.5, 0.5], [0, 1, 0.5, 0.5]])
    data = replace(task.splits["test"], phrases=phrases)
    task = replace(task, splits={**task.splits, "test": data})
    model, evaluator = model_of(run_config, task), CaptionEvaluator(task, "test", 15, numerics_of(run_config.training))
    evaluator.chunk = chunk
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3.0)
    scores, expected = evaluator.evaluate(model, "soft"), []
    for phrase, share in zip(phrases, shares, strict=True):
        with torch.inference_mode():
            pictures = data.pictures.rows(data.picture[[phrase.caption]], torch.float64)
            place, tokens = torch.tensor([0]), data.tokens[[phrase.caption]]
            output = read(model, model.regions(pictures), place, tokens, "soft")
        alpha = output.log_alpha[0].exp().numpy()
        own = [alpha[t] @ share for t in range(phrase.start, phrase.end)]  # place t predicts word t
        expected.append(sum(own) / len(own))
    assert scores.phrases["a_z"].to_numpy() == pytest.approx(expected, rel=1e-12)
    assert scores.phrases["area"].tolist() == [0.375, 0.5, 0.5]
    with torch.no_grad():
        model.attention.score.weight.zero_()
    uniform = evaluator.evaluate(model, "soft")
    assert uniform.phrases["a_z"].to_numpy() == pytest.approx(uniform.phrases["area"].to_numpy(), rel=1e-14)
    summary = uniform.summary(data.references)
    assert summary["phrase_a_z"] == pytest.approx(summary["uniform_phrase_a_z"], rel=1e-14)
    assert "phrase_a_z" not in CaptionEvaluator(task, "validation", 15, evaluator.numerics).evaluate(
        model, "soft"
    ).summary(task.splits["validation"].references)


def test_loss_of_a_split_is_the_mean_over_words_whatever_the_chunks() -> None:
    run_config, task = config("soft"), small_task()
    model, found = model_of(run_config, task), set()
    for chunk in (1, 4, 250):
        evaluator = CaptionEvaluator(task, "test", 15, numerics_of(run_config.training))
        evaluator.chunk = chunk
        found.add(round(evaluator.evaluate(model, "soft").loss, 12))
    assert len(found) == 1
    short = CaptionEvaluator(task, "validation", 3, PLAIN).evaluate(model.float(), "soft")
    assert len(short.captions) == 5 and max(map(len, short.captions)) <= 3

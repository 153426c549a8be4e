"""BLEU, box coverage and the histogram against values computed by hand and by other ways."""

from __future__ import annotations

import math
import sys
import types

import numpy as np
import pytest

from fcamlib.captioning.metrics import bleu, bleu_settings, caption_histogram, cider, coverage


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


def test_bleu_of_short_captions_is_penalised_and_zero_without_a_match() -> None:
    found = bleu([("a", "b")], [[("a", "b", "c", "d")]])
    assert found["bleu1"] == pytest.approx(100 * math.exp(1 - 4 / 2), abs=1e-10)
    assert found["bleu3"] == 0.0


def test_bleu_takes_words_as_they_are() -> None:
    assert bleu([("it's", "A", "<unk>")], [[("it's", "A", "<unk>")]])["bleu3"] == pytest.approx(100)
    assert bleu([("a",)], [[("A",)]])["bleu1"] == 0.0
    settings = bleu_settings()
    assert "tok:none" in settings and "smooth:none" in settings and "case:mixed" in settings


def test_bleu_needs_a_reference_for_every_picture() -> None:
    with pytest.raises(ValueError, match="1 captions and 2 pictures"):
        bleu([("a",)], [[("a",)], [("b",)]])
    with pytest.raises(ValueError, match="picture 1 has no reference"):
        bleu([("a",), ("b",)], [[("a",)], []])


def test_coverage_equals_a_hand_computed_overlap() -> None:
    # A 2 x 2 grid; the box spans x 0.25..0.75 and y 0.5..0.75: a quarter of each lower cell.
    found = coverage(np.array([[0.25, 0.5, 0.75, 0.75]]), 4)
    assert found == pytest.approx([0, 0, 0.25, 0.25], abs=1e-15)
    alpha = np.array([0.1, 0.2, 0.3, 0.4])
    assert float(alpha @ found) == pytest.approx(0.175, abs=1e-15)


def test_coverage_of_overlapping_boxes_counts_their_union_once() -> None:
    boxes = np.array([[0.0, 0.0, 0.5, 0.5], [0.25, 0.25, 0.75, 0.75]])
    assert coverage(boxes, 1) == pytest.approx([0.25 + 0.25 - 0.0625], abs=1e-15)
    assert coverage(boxes, 4) == pytest.approx([1.0, 0.25, 0.25, 0.25], abs=1e-15)


def test_coverage_agrees_with_counting_points_and_keeps_the_area() -> None:
    draws = np.random.default_rng(0)
    corners = np.sort(draws.random((5, 2, 2)), axis=1)  # (N, low and high, x and y)
    boxes = corners.reshape(5, 4)  # x0, y0, x1, y1
    found = coverage(boxes, 49)
    steps = (np.arange(1400) + 0.5) / 1400
    x, y = np.meshgrid(steps, steps)
    inside = np.zeros_like(x, dtype=bool)
    for x0, y0, x1, y1 in boxes:
        inside |= (x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)
    counted = inside.reshape(7, 200, 7, 200).mean(axis=(1, 3)).ravel()
    assert found == pytest.approx(counted, abs=0.02)
    assert found.mean() == pytest.approx(inside.mean(), abs=1e-3)


def test_coverage_of_the_whole_picture_is_one_and_boxes_beyond_it_are_cut() -> None:
    assert coverage(np.array([[-0.5, -1.0, 2.0, 1.5]]), 9) == pytest.approx(np.ones(9))
    assert coverage(np.zeros((0, 4)), 9) == pytest.approx(np.zeros(9))


def test_regions_that_are_no_grid_are_refused() -> None:
    with pytest.raises(ValueError, match="12 regions are no square grid"):
        coverage(np.zeros((1, 4)), 12)


def test_histogram_bins_hold_their_lower_edges_and_the_last_one_both() -> None:
    a_z = np.array([0.0, 0.2, 0.3, 1.0, 0.25])
    s_y = np.array([0.1, 0.2, 1.0, 0.3, 0.9])
    found = caption_histogram(a_z, s_y)
    assert found.tolist() == [[20.0, 0.0, 0.0], [0.0, 20.0, 20.0], [0.0, 0.0, 40.0]]


def test_cider_is_given_words_as_they_are_and_left_out_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocoevalcap.cider.cider", None)
    assert cider([("a",)], [[("a",)]]) is None
    seen: dict[str, dict[int, list[str]]] = {}

    class Cider:
        def compute_score(self, references: dict[int, list[str]], captions: dict[int, list[str]]) -> tuple[float, None]:
            seen.update(references=references, captions=captions)
            return 1.5, None

    module = types.ModuleType("pycocoevalcap.cider.cider")
    module.Cider = Cider  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pycocoevalcap.cider.cider", module)
    assert cider([("a", "b")], [[("a",), ("c", "d")]]) == 1.5
    assert seen == {"references": {0: ["a", "c d"]}, "captions": {0: ["a b"]}}

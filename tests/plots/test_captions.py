"""Figures of captions, read back from what is drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fcamlib.plots import CaptionExample, caption_curves, caption_heatmaps, word_attention

PERCENT = np.array([[10.0, 0.0, 5.0], [0.4, 20.0, 4.6], [0.0, 0.0, 60.0]])  # [a_z bin, s_y bin]


def example(words: list[str], places: list[int]) -> CaptionExample:
    """A caption whose attention is mostly at one cell of a grid of 3 x 3, the one given for each word."""
    alpha = np.full((len(words), 9), 0.05)
    alpha[np.arange(len(words)), places] = 0.6
    return CaptionExample(words, alpha, np.array([word in ("dot", "bar") for word in words], dtype=bool))


def outlines(ax: Axes) -> list[tuple[float, float, float]]:
    """Left, top and width of each rectangle of a panel."""
    return [(p.get_x(), p.get_y(), p.get_width()) for p in ax.patches if isinstance(p, Rectangle)]


def test_word_attention_shows_each_word_with_its_box_and_its_cell() -> None:
    boxes = np.array([[0.25, 0.5, 0.75, 1.0], [np.nan] * 4])
    shown = {"hybrid": example(["bar"], [4]), "soft": example(["a", "dot"], [5, 0])}
    fig = word_attention(np.zeros((6, 6, 3), dtype=np.uint8), boxes, shown)
    titled = [ax for ax in fig.axes if ax.get_title()]
    assert [ax.get_title() for ax in titled] == ["a", "dot", "bar"], "SA comes before the hybrid"
    assert [ax.title.get_fontweight() for ax in titled] == ["normal", "bold", "bold"]
    for ax, (row, column) in zip(titled, [(1, 2), (0, 0), (1, 1)], strict=True):
        box, cell = outlines(ax)
        assert box == (0.25, 0.5, 0.5)
        assert cell == pytest.approx((column / 3, row / 3, 1 / 3))
        assert [text.get_text() for text in ax.texts if text.get_text().startswith("0.")] == ["0.60"]
        shade = ax.images[1].get_array()
        assert shade is not None
        darkness = np.asarray(shade)[..., 3]
        assert darkness[row, column] == 0 and darkness.min() == 0
        assert np.count_nonzero(darkness == darkness.max()) == 8


def test_word_attention_wraps_long_captions_and_says_where_there_are_no_words(
    assert_legible: Callable[[Figure], None],
) -> None:
    words = [f"w{number}" for number in range(9)]
    fig = word_attention(None, np.zeros((0, 4)), {"soft": example(words, list(range(9))), "hard": example([], [])})
    assert [ax.get_title() for ax in fig.axes if ax.get_title()] == [*words, "no words"]
    assert len(fig.axes) == 3 * 7
    assert_legible(fig)


def test_word_attention_refuses_what_is_no_grid(assert_refused: Callable[[Callable[[], object], str], None]) -> None:
    wrong = CaptionExample(["a"], np.full((1, 6), 1 / 6), np.array([False]))
    assert_refused(lambda: word_attention(None, np.zeros((0, 4)), {"soft": wrong}), "6 regions, which are no square")
    odd = CaptionExample(["a", "b"], np.full((1, 4), 0.25), np.array([False]))
    assert_refused(lambda: word_attention(None, np.zeros((0, 4)), {"soft": odd}), r"has shape \(1, 4\)")


def test_heatmap_has_a_z_to_the_right_and_s_y_upwards(
    panel: Callable[[Figure, str], Axes], assert_legible: Callable[[Figure], None]
) -> None:
    fig = caption_heatmaps({"soft": PERCENT, "hard": PERCENT.T, "hybrid": PERCENT})
    found = {(text.get_position()): text.get_text() for text in panel(fig, "SA").texts}
    assert found[(0.5, 2.5)] == "5" and found[(2.5, 2.5)] == "60" and found[(2.5, 0.5)] == ""
    assert found[(1.5, 0.5)] == "<1" and found[(1.5, 2.5)] == "5"
    assert {(text.get_position()): text.get_text() for text in panel(fig, "HA").texts}[(0.5, 2.5)] == ""
    assert_legible(fig)


def test_heatmap_refuses_what_is_not_percent(assert_refused: Callable[[Callable[[], object], str], None]) -> None:
    assert_refused(lambda: caption_heatmaps({"soft": PERCENT / 100}), "sums to 1; give percent")
    assert_refused(lambda: caption_heatmaps({"soft": np.zeros((5, 5))}), r"shape \(5, 5\)")


def test_curves_show_means_over_seeds_and_the_switch(
    by_gid: Callable[[Figure, str], list[Axes]], assert_legible: Callable[[Figure], None]
) -> None:
    rows = [
        {"paradigm": name, "seed": seed, "epoch": epoch, "bleu4": 0.1 * epoch, "a_z": 0.2 + 0.1 * seed, "s_y": 0.5,
         "saif": 0.3}
        for name in ("soft", "hybrid") for seed in (0, 1) for epoch in (2, 4)
    ]  # fmt: skip
    fig = caption_curves(pd.DataFrame(rows), 2)
    (a_z,) = [ax for ax in fig.axes if "a_z" in ax.get_title()]
    for line in (line for line in a_z.lines if str(line.get_gid()).startswith("mean-")):
        assert np.asarray(line.get_ydata()) == pytest.approx([0.25, 0.25])
    assert len(by_gid(fig, "switch")) == 4
    assert_legible(fig)


def test_curves_refuse_a_switch_outside_the_epochs(assert_refused: Callable[[Callable[[], object], str], None]) -> None:
    row = {"paradigm": "soft", "seed": 0, "epoch": 1, "bleu4": 0.0, "a_z": 0.0, "s_y": 0.0, "saif": 0.0}
    assert_refused(lambda: caption_curves(pd.DataFrame([row]), 3), "switch_epoch is 3")
    assert_refused(lambda: caption_curves(pd.DataFrame([{"paradigm": "soft"}]), 1), "lacks the column 'seed'")

"""Focus-prediction heatmaps: which number stands where, and the outlined SAIF cell."""

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from fcamlib import plots
from fcamlib.plots.heatmaps import DARK_CELL, SHARE_COLORS, SHARE_SCALE
from fcamlib.plots.look import CARD, INK

PARADIGMS = ("soft", "hard", "lvml", "hybrid")
WEIGHTS = (0.2126, 0.7152, 0.0722)  # of linear red, green and blue in luminance


def a_histogram() -> np.ndarray:
    """Distinct percentages, so that a transposed or mirrored drawing shows."""
    percent = np.zeros((5, 5))
    percent[4, 4], percent[4, 0], percent[0, 4], percent[0, 0] = 41.0, 7.0, 23.0, 13.0
    percent[3, 1], percent[1, 2], percent[2, 2] = 9.6, 6.0, 0.4
    return percent


def test_heatmap_prints_each_cell_at_its_scores(panel: Callable) -> None:
    fig = plots.focus_prediction_heatmaps({"test": {"soft": a_histogram(), "hybrid": a_histogram().T}}, "digits")
    printed = {tuple(np.round(text.get_position(), 6)): text.get_text() for text in panel(fig, "SA").texts}
    assert len(printed) == 25
    assert printed[0.9, 0.9] == "41"  # a_z high, s_y high
    assert printed[0.9, 0.1] == "7"  # a_z high, s_y low
    assert printed[0.1, 0.9] == "23"  # a_z low, s_y high
    assert printed[0.1, 0.1] == "13"
    assert printed[0.7, 0.3] == "10"
    assert printed[0.5, 0.5] == "<1"
    assert printed[0.3, 0.3] == ""
    turned = {tuple(np.round(text.get_position(), 6)): text.get_text() for text in panel(fig, "hybrid").texts}
    assert turned[0.9, 0.1] == "23"
    assert fig.get_supxlabel() == "attention on the foreground, $a_z$"
    assert fig.get_supylabel() == "prediction score of the true label, $s_y$"


def test_heatmap_shades_the_cell_that_its_number_describes(panel: Callable) -> None:
    ax = panel(plots.focus_prediction_heatmaps({"test": {"soft": a_histogram()}}), "SA")
    (mesh,) = ax.collections
    corners = mesh.get_coordinates()
    centres = (corners[:-1, :-1] + corners[1:, 1:]) / 2
    values = np.asarray(mesh.get_array()).reshape(5, 5)
    shaded = {tuple(np.round(centres[cell], 6)): values[cell] for cell in np.ndindex(5, 5)}
    assert shaded[0.9, 0.1] == 7.0
    assert shaded[0.1, 0.9] == 23.0
    assert not ax.xaxis_inverted() and not ax.yaxis_inverted()


def test_heatmaps_share_one_scale_and_outline_the_saif_cell(by_gid: Callable) -> None:
    histograms = {name: a_histogram() for name in PARADIGMS}
    fig = plots.focus_prediction_heatmaps({"train": histograms, "test": histograms})
    meshes = [ax.collections[0] for ax in fig.axes[:8]]
    assert {(mesh.norm.vmin, mesh.norm.vmax) for mesh in meshes} == {(0.0, 100.0)}
    outlines = by_gid(fig, "saif-cell")
    assert len(outlines) == 8
    for outline in outlines:
        assert np.allclose(outline.get_bbox().extents, [0.8, 0.8, 1.0, 1.0])
    assert [ax.get_title() for ax in fig.axes[:4]] == ["SA", "HA", "LVML", "hybrid"]
    assert (fig.axes[0].get_ylabel(), fig.axes[4].get_ylabel()) == ("train", "test")


def test_numbers_have_contrast_in_every_cell() -> None:
    def luminance(color: str | tuple[float, float, float]) -> float:
        channels = np.asarray(to_rgb(color), dtype=float)
        return float(np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4) @ WEIGHTS)

    for percent in np.linspace(0, 100, 201):
        pair = luminance(SHARE_COLORS(SHARE_SCALE(percent))), luminance(CARD if percent >= DARK_CELL else INK)
        assert (max(pair) + 0.05) / (min(pair) + 0.05) > 4.0, percent


def test_heatmaps_are_legible(assert_legible: Callable) -> None:
    histograms = {name: a_histogram() for name in PARADIGMS}
    assert_legible(plots.focus_prediction_heatmaps({"train": histograms, "test": histograms}, "digits"))
    assert_legible(plots.focus_prediction_heatmaps({"test": histograms}, "digits"))


REFUSED = {
    "unknown paradigm in histograms": (
        lambda: plots.focus_prediction_heatmaps({"test": {"softmax": a_histogram()}}),
        "unknown paradigm 'softmax'; use one of soft, hard, lvml, hybrid",
    ),
    "no histogram": (lambda: plots.focus_prediction_heatmaps({}), "histograms is empty"),
    "histogram shape": (
        lambda: plots.focus_prediction_heatmaps({"test": {"soft": np.ones((5, 4)) * 5}}),
        r"has shape \(5, 4\); give an array of shape \(5, 5\)",
    ),
    "histogram of fractions": (
        lambda: plots.focus_prediction_heatmaps({"test": {"soft": a_histogram() / 100}}),
        "sums to 1; give percent",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_in_one_sentence(case: str, assert_refused: Callable) -> None:
    assert_refused(*REFUSED[case])

"""Heatmaps and estimates side by side: which number stands where, in which colour, row and marker."""

from typing import Any

import numpy as np
import pandas as pd
from drawn import assert_legible, by_gid, contrast, data_of, panel, texts_of
from matplotlib.axes import Axes

from fcamlib import paradigms, plots
from fcamlib.plots.heatmaps import GAIN_COLORS, SHARE_COLORS, SHARE_SCALE
from fcamlib.plots.look import CARD, INK

PARADIGMS = ("soft", "hard", "lvml", "hybrid")
MINUS, OR_SO = "\N{MINUS SIGN}", "\N{PLUS-MINUS SIGN}"


def a_histogram() -> np.ndarray:
    """Distinct percentages, so that a transposed or mirrored drawing shows."""
    percent = np.zeros((5, 5))
    percent[4, 4], percent[4, 0], percent[0, 4], percent[0, 0] = 41.0, 7.0, 23.0, 13.0
    percent[3, 1], percent[1, 2], percent[2, 2] = 9.6, 6.0, 0.4
    return percent


def printed(ax: Axes) -> dict[tuple[float, float], str]:
    """Text at each cell, by the numbers of the cell from the lower left corner."""
    return {(text.get_position()[0] - 0.5, text.get_position()[1] - 0.5): text.get_text() for text in ax.texts}


def test_each_cell_is_printed_and_shaded_at_its_scores() -> None:
    fig = plots.focus_prediction_heatmaps({"test": {"hybrid": a_histogram().T, "soft": a_histogram()}})
    ax = panel(fig, "SA")
    cells = printed(ax)
    assert len(cells) == 25 and not ax.xaxis_inverted() and not ax.yaxis_inverted()
    assert (cells[4, 4], cells[4, 0], cells[0, 4], cells[0, 0]) == ("41", "7", "23", "13")  # at (a_z, s_y)
    assert (cells[3, 1], cells[2, 2], cells[1, 1]) == ("10", "<1", "")
    assert printed(panel(fig, "hybrid"))[4, 0] == "23"
    shares = np.asarray(ax.collections[0].get_array()).reshape(5, 5)  # rows upwards
    assert (shares[0, 4], shares[4, 0]) == (7.0, 23.0)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", ".2", ".4", ".6", ".8", "1"]
    assert fig.get_supxlabel() == "attention on the foreground, $a_z$"
    assert fig.get_supylabel() == "prediction score of the true label, $s_y$"


def test_heatmaps_share_one_scale_and_outline_the_saif_cell() -> None:
    histograms = {name: a_histogram() for name in PARADIGMS}
    fig = plots.focus_prediction_heatmaps({"$\\frac 漢": histograms, "test": histograms})
    meshes = [ax.collections[0] for ax in fig.axes[:8]]
    assert {(mesh.norm.vmin, mesh.norm.vmax) for mesh in meshes} == {(0.0, 100.0)}
    outlines = by_gid(fig, "saif-cell")
    assert [outline.get_bbox().extents.tolist() for outline in outlines] == [[4, 4, 5, 5]] * 8
    assert [ax.get_title() for ax in fig.axes[:4]] == ["SA", "HA", "LVML", "hybrid"]
    assert (fig.axes[0].get_ylabel(), fig.axes[4].get_ylabel()) == ("$\\frac 漢", "test")
    assert_legible(fig)
    assert_legible(plots.focus_prediction_heatmaps({"test": histograms}))
    nothing = ["Nothing to draw: the data do not say which segments are the foreground."]
    assert texts_of(plots.focus_prediction_heatmaps({"test": {}})) == nothing


def test_caption_heatmap_has_a_z_to_the_right_and_s_y_upwards() -> None:
    percent = np.array([[10.0, 0.0, 5.0], [0.4, 20.0, 4.6], [0.0, 0.0, 60.0]])  # [a_z bin, s_y bin]
    fig = plots.caption_heatmaps({"soft": percent, "hard": percent.T, "hybrid": percent})
    cells = printed(panel(fig, "SA"))
    assert (cells[0, 2], cells[2, 2], cells[2, 0], cells[1, 0], cells[1, 2]) == ("5", "60", "", "<1", "5")
    assert printed(panel(fig, "HA"))[0, 2] == ""
    assert_legible(fig)


def test_numbers_have_contrast_in_every_cell() -> None:
    planes = dict(zip(PARADIGMS, np.arange(100.0).reshape(4, 5, 5), strict=True))
    for ax, percent in zip(plots.focus_prediction_heatmaps({"test": planes}).axes, planes.values(), strict=False):
        for text in ax.texts:
            column, row = (int(position) for position in text.get_position())
            shade = SHARE_COLORS(SHARE_SCALE(percent[column, row]))
            assert text.get_text() == "" or contrast(shade, text.get_color()) > 4.0, percent[column, row]
    assert min(contrast(GAIN_COLORS(place), INK) for place in np.linspace(0, 1, 21)) > 6.0


def gains(classifiers: str = "ab", **changes: Any) -> pd.DataFrame:
    rows = []
    for place, (focus, classifier) in enumerate((f, c) for f in ("linear", "mlp:3x64:batch") for c in classifiers):
        row = {"focus": focus, "classifier": classifier, "verdict": "supported", "n": 5}
        for metric, mean in (("saif", 0.1 * place - 0.1), ("accuracy", -0.01)):
            row |= {metric: mean, f"{metric}_low": mean - 0.02, f"{metric}_high": mean + 0.02}
        rows.append(row)
    return pd.DataFrame(rows).assign(**changes)


def test_a_gain_stands_in_the_cell_of_its_networks() -> None:
    fig = plots.gain_heatmap(gains())
    ax = fig.axes[0]
    cells = printed(ax)
    assert cells[0, 0] == f"{MINUS}0.100\n{OR_SO} 0.020\nsupported"
    assert cells[1, 1] == f"+0.200\n{OR_SO} 0.020\nsupported"
    assert ax.yaxis_inverted() and [label.get_text() for label in ax.get_yticklabels()] == ["linear", "mlp:3x64:batch"]
    shades: Any = ax.collections[0]
    np.testing.assert_allclose(shades.get_array(), [[-0.1, 0.0], [0.1, 0.2]], atol=1e-12)
    assert shades.norm.vmin == -shades.norm.vmax and shades.norm(0.0) == 0.5
    assert texts_of(fig).count(f"{MINUS}0.010\n{OR_SO} 0.020") == 4
    assert_legible(fig)
    alone = gains(saif_low=np.nan, saif_high=np.nan, verdict="undecided", accuracy=[np.nan, 0, 0, 0], accuracy_low=-0.1)
    assert {"+0.200\nundecided", "not known", f"+0.000\n{OR_SO} 0.055"} <= set(texts_of(plots.gain_heatmap(alone)))
    nothing = plots.gain_heatmap(gains(saif=np.nan, accuracy=np.nan))  # no seed has SA, HA and the hybrid
    assert texts_of(nothing).count("not known") == 8
    assert_legible(plots.gain_heatmap(gains("abcdef", verdict="inconclusive")))


def a_table() -> pd.DataFrame:
    rows = [
        (dataset, name, metric, mean, mean - 0.03, mean + 0.02 + 0.05 * (mean > 0.94), n)
        for dataset, n, drop in (("$\\frac 漢", 5, 0.0), ("pictures", 3, 0.3))
        for place, name in enumerate(PARADIGMS)
        for metric, mean in (("accuracy", 0.95 - drop - 0.01 * place), ("saif", 0.5 - drop + 0.1 * place))
    ]
    return pd.DataFrame(rows, columns=["dataset", "paradigm", "metric", "mean", "low", "high", "n"])


def test_summary_draws_every_mean_and_interval_in_its_panel() -> None:
    table = a_table()
    fig = plots.accuracy_saif_summary(table)
    names = [label.get_text() for label in fig.axes[0].get_yticklabels()]
    for row in table.to_dict("records"):
        ax, kind = panel(fig, f"{row['dataset']} (n\u00a0=\u00a0{row['n']})"), f"{row['metric']}-{row['paradigm']}"
        (point,) = [artist for artist in by_gid(fig, f"point-{kind}") if artist.axes is ax]
        look, height = paradigms.style_of(row["paradigm"]), point.get_ydata()[0]
        assert list(point.get_xdata()) == [row["mean"]] and names[round(height)] == look.label
        assert data_of(ax, f"interval-{kind}").tolist() == [[row["low"], height], [min(1.0, row["high"]), height]]
        assert point.get_marker() == look.marker
        assert point.get_markerfacecolor() == (look.color if row["metric"] == "saif" else CARD)
        assert f"{row['mean']:.3f}" in [text.get_text() for text in ax.texts]
    assert "95% t-interval over seeds" in texts_of(fig)
    assert_legible(fig)
    assert "95% interval over seeds" in texts_of(plots.accuracy_saif_summary(table.assign(n=10)))  # or a bootstrap
    alone = plots.accuracy_saif_summary(table.assign(low=np.nan, high=np.nan, n=1))
    assert by_gid(alone, "interval-saif-soft") == [] and "95% t-interval over seeds" not in texts_of(alone)


def test_folds_are_weighted_by_their_bags_and_each_method_has_its_column(outsider: str) -> None:
    rows = [
        {"repeat": repeat, "fold": fold, "method": method, "n": 3 + fold, "accuracy": value + repeat / 10 + fold / 5}
        for method, value in (("abmil", 0.1), ("soft", 0.4), (outsider, 0.2), ("hybrid", 0.3))
        for repeat in range(2)
        for fold in range(2)
    ]
    long = "a_file_of_a_long_name"
    fig = plots.crossval_accuracy({long: pd.DataFrame(rows), "$\\frac 漢": pd.DataFrame(rows[:8])})
    first, second = fig.axes
    assert [ax.get_title() for ax in (first, second)] == ["$\\frac 漢 (n = 7 bags)", f"{long} (n = 7\nbags)"]
    assert [label.get_text() for label in second.get_xticklabels()] == ["SA", "EM", "hybrid", "ABMIL"]
    for column, value in enumerate((0.4, 0.2, 0.3, 0.1)):
        repeats, mean = second.lines[2 * column], second.lines[2 * column + 1]
        expected = [value + repeat / 10 + 4 / 7 / 5 for repeat in range(2)]  # fold 1 has 4 of 7 bags
        np.testing.assert_allclose(np.asarray(repeats.get_ydata()), np.asarray(expected))
        np.testing.assert_allclose(np.asarray(mean.get_ydata()), np.mean(expected))
        assert np.asarray(mean.get_xdata()).tolist() == [column]
    assert_legible(fig)
    seven = (*PARADIGMS, "logit_mixture", "abmil", outsider)
    every = pd.concat([pd.DataFrame(rows[:4]).assign(method=name) for name in seven])
    assert_legible(plots.crossval_accuracy({"b": every, "c": every}))

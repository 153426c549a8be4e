"""Estimates side by side: every mean, interval and repeat in its panel, row and marker."""

import numpy as np
import pandas as pd
import pytest
from drawn import assert_legible, by_gid, data_of, panel, texts_of

from fcamlib import paradigms, plots
from fcamlib.errors import UserError
from fcamlib.plots.look import CARD

PARADIGMS = ("soft", "hard", "lvml", "hybrid")


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
    alone = plots.accuracy_saif_summary(table.assign(low=np.nan, high=np.nan, n=1))
    assert by_gid(alone, "interval-saif-soft") == [] and "95% t-interval over seeds" not in texts_of(alone)


def test_folds_are_weighted_by_their_bags_and_each_method_has_its_column(outsider: str) -> None:
    rows = [
        {"repeat": repeat, "fold": fold, "method": method, "n": 3 + fold, "accuracy": value + repeat / 10 + fold / 5}
        for method, value in (("abmil", 0.1), ("soft", 0.4), (outsider, 0.2), ("hybrid", 0.3))
        for repeat in range(2)
        for fold in range(2)
    ]
    fig = plots.crossval_accuracy({"b": pd.DataFrame(rows), "$\\frac 漢": pd.DataFrame(rows[:8])})
    first, second = fig.axes
    assert [ax.get_title() for ax in (first, second)] == ["$\\frac 漢 (n = 7 bags)", "b (n = 7 bags)"]
    assert [label.get_text() for label in second.get_xticklabels()] == ["SA", "EM", "hybrid", "ABMIL"]
    for column, value in enumerate((0.4, 0.2, 0.3, 0.1)):
        repeats, mean = second.lines[2 * column], second.lines[2 * column + 1]
        expected = [value + repeat / 10 + 4 / 7 / 5 for repeat in range(2)]  # fold 1 has 4 of 7 bags
        np.testing.assert_allclose(np.asarray(repeats.get_ydata()), np.asarray(expected))
        np.testing.assert_allclose(np.asarray(mean.get_ydata()), np.mean(expected))
        assert np.asarray(mean.get_xdata()).tolist() == [column]
    assert_legible(fig)
    with pytest.raises(UserError, match="accuracy"):
        plots.crossval_accuracy({"a": pd.DataFrame(rows).drop(columns="accuracy")})

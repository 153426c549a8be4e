"""The key figure: every estimate in its panel, row and marker."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from fcamlib import plots
from fcamlib.plots.look import CARD

PARADIGMS = ("soft", "hard", "lvml", "hybrid")


def a_summary_table() -> pd.DataFrame:
    rows = [
        (dataset, name, metric, mean, mean - 0.03, mean + 0.02, n)
        for dataset, n, drop in (("digits", 5, 0.0), ("pictures", 3, 0.3))
        for place, name in enumerate(PARADIGMS)
        for metric, mean in (("accuracy", 0.95 - drop - 0.01 * place), ("saif", 0.5 - drop + 0.1 * place))
    ]
    return pd.DataFrame(rows, columns=["dataset", "paradigm", "metric", "mean", "low", "high", "n"])


def test_summary_draws_every_mean_and_interval_in_its_panel(
    by_gid: Callable, panel: Callable, texts_of: Callable
) -> None:
    table = a_summary_table()
    fig = plots.accuracy_saif_summary(table)
    heights: dict[tuple[str, str], float] = {}
    for row in table.to_dict("records"):
        ax = panel(fig, f"{row['dataset']} (n\u00a0=\u00a0{row['n']})")
        kind = f"{row['metric']}-{row['paradigm']}"
        (point,) = [artist for artist in by_gid(fig, f"point-{kind}") if artist.axes is ax]
        (bar,) = [artist for artist in by_gid(fig, f"interval-{kind}") if artist.axes is ax]
        assert list(point.get_xdata()) == [row["mean"]]
        assert list(bar.get_xdata()) == [row["low"], row["high"]]
        assert list(bar.get_ydata()) == list(point.get_ydata()) * 2
        look = plots.PARADIGM_STYLE[row["paradigm"]]
        assert point.get_marker() == look.marker
        assert point.get_markerfacecolor() == (look.color if row["metric"] == "saif" else CARD)
        heights[row["metric"], row["paradigm"]] = point.get_ydata()[0]
        assert f"{row['mean']:.3f}" in [text.get_text() for text in ax.texts]
    names = [label.get_text() for label in fig.axes[0].get_yticklabels()]
    for (_, paradigm), height in heights.items():
        assert names[round(height)] == plots.PARADIGM_LABEL[paradigm]
    assert "95 % t-interval over seeds" in texts_of(fig)


def test_summary_of_a_single_seed_has_no_interval(by_gid: Callable, panel: Callable, texts_of: Callable) -> None:
    table = a_summary_table().query("dataset == 'digits'").assign(low=np.nan, high=np.nan, n=1)
    fig = plots.accuracy_saif_summary(table)
    assert by_gid(fig, "interval-saif-soft") == []
    assert by_gid(fig, "point-saif-soft")[0].get_xdata()[0] == 0.5
    assert "95 % t-interval over seeds" not in texts_of(fig)
    assert panel(fig, "digits (n\u00a0=\u00a01)")


def test_summary_is_legible(assert_legible: Callable) -> None:
    assert_legible(plots.accuracy_saif_summary(a_summary_table(), title="test"))


REFUSED = {
    "unknown paradigm in table": (
        lambda: plots.accuracy_saif_summary(a_summary_table().assign(paradigm="HA")),
        "unknown paradigm 'HA'",
    ),
    "unknown metric": (
        lambda: plots.accuracy_saif_summary(a_summary_table().assign(metric="f1")),
        "unknown metric 'f1'; use one of accuracy, saif",
    ),
    "mean outside interval": (lambda: plots.accuracy_saif_summary(a_summary_table().assign(low=0.99)), "low <= mean"),
    "half an interval": (lambda: plots.accuracy_saif_summary(a_summary_table().assign(low=np.nan)), "leave both empty"),
    "no seeds": (lambda: plots.accuracy_saif_summary(a_summary_table().assign(n=0)), "'n' has a value below 1"),
    "summary in percent": (lambda: plots.accuracy_saif_summary(a_summary_table().assign(mean=51.0)), "not percent"),
    "repeated estimate": (
        lambda: plots.accuracy_saif_summary(pd.concat([a_summary_table()] * 2)),
        "two rows for one dataset, paradigm and metric",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_in_one_sentence(case: str, assert_refused: Callable) -> None:
    assert_refused(*REFUSED[case])

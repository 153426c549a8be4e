"""Figures of studies: every mean, interval and verdict is where the numbers put it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fcamlib import plots
from fcamlib.metrics import t_interval

PARADIGMS = ("soft", "hard", "hybrid")


def a_frame(num_seeds: int = 3) -> pd.DataFrame:
    rows = [
        (name, seed, number, 0.9 - 0.001 * number, 0.5 + 0.02 * seed, 0.2 + 0.1 * turn + 0.01 * seed)
        for turn, name in enumerate(PARADIGMS)
        for seed in range(num_seeds)
        for number in (5, 20, 100)
    ]
    return pd.DataFrame(rows, columns=["paradigm", "seed", "m", "accuracy", "focus_accuracy", "saif"])


def test_measures_are_drawn_over_the_setting_with_intervals_and_guessing(
    by_gid: Callable, panel: Callable, texts_of: Callable, assert_legible: Callable
) -> None:
    frame = a_frame()
    guess = {"focus_accuracy": [0.2, 0.05, 0.01]}
    fig = plots.measures_over(frame, "m", "segments", log=True, chance=guess)
    for metric in ("accuracy", "focus_accuracy", "saif"):
        for name in PARADIGMS:
            (line,) = by_gid(fig, f"mean-{metric}-{name}")
            rows = frame[frame["paradigm"] == name]
            values = [rows.loc[rows["m"] == number, metric].to_numpy() for number in (5, 20, 100)]
            np.testing.assert_allclose(line.get_ydata(), [v.mean() for v in values])
            assert np.allclose(line.get_xdata(), [5, 20, 100], rtol=0.05)
            (bars,) = by_gid(fig, f"interval-{metric}-{name}")
            for segment, v in zip(bars.get_segments(), values, strict=True):
                np.testing.assert_allclose(segment[:, 1], t_interval(v)[1:], atol=1e-12)
    (dotted,) = by_gid(fig, "chance-focus_accuracy")
    assert dotted.get_ydata().tolist() == guess["focus_accuracy"] and panel(fig, "SAIF").get_xscale() == "log"
    assert {"SA (n = 3)", "hybrid (n = 3)", "guessing", "segments"} <= set(texts_of(fig))
    assert_legible(fig)


def test_paradigms_with_settings_of_their_own_stand_on_them(by_gid: Callable, texts_of: Callable) -> None:
    frame = a_frame(1)
    share = {"soft": 1.0, "hard": 0.0, "hybrid": 0.5}
    frame = frame[frame["m"] == 5].assign(share=lambda rows: rows["paradigm"].map(share))
    fig = plots.measures_over(frame, "share", "share of soft epochs")
    for name, place in share.items():
        (line,) = by_gid(fig, f"mean-saif-{name}")
        assert line.get_xdata().tolist() == [place]
    assert not [text for text in texts_of(fig) if "interval" in text]


def test_measures_are_refused_that_cannot_be_drawn(assert_refused: Callable) -> None:
    frame = a_frame()
    assert_refused(lambda: plots.measures_over(frame, "rate", "rate"), "rate")
    assert_refused(lambda: plots.measures_over(frame.assign(m=0), "seed", "seed", log=True), "two rows for one")
    assert_refused(lambda: plots.measures_over(frame.assign(m=frame["m"] - 5), "m", "m", log=True), "no logarithm")
    assert_refused(lambda: plots.measures_over(frame.assign(saif=2.0), "m", "m"), "saif")


def gains(**changes: Any) -> pd.DataFrame:
    rows = []
    for place, (focus, classifier) in enumerate([(f, c) for f in ("linear", "mlp:3x64:batch") for c in ("a", "b")]):
        row = {"focus": focus, "classifier": classifier, "verdict": "holds", "n": 5}
        for metric, mean in (("saif", 0.1 * place - 0.1), ("accuracy", -0.01)):
            row |= {metric: mean, f"{metric}_low": mean - 0.02, f"{metric}_high": mean + 0.02}
        rows.append(row)
    return pd.DataFrame(rows).assign(**changes)


def test_a_gain_stands_in_the_cell_of_its_networks(
    by_gid: Callable, texts_of: Callable, assert_legible: Callable
) -> None:
    fig = plots.gain_heatmap(gains())
    (image,) = by_gid(fig, "gain-saif")
    np.testing.assert_allclose(image.get_array(), [[-0.1, 0.0], [0.1, 0.2]], atol=1e-12)
    assert image.norm.vmin == -image.norm.vmax and image.norm(0.0) == 0.5
    shown = texts_of(fig)
    assert shown.count("\N{MINUS SIGN}0.100\n\N{PLUS-MINUS SIGN} 0.020\nholds") == 1
    assert shown.count("\N{MINUS SIGN}0.010\n\N{PLUS-MINUS SIGN} 0.020") == 4
    assert "mlp:3x64:batch" in shown
    assert_legible(fig)
    alone = texts_of(plots.gain_heatmap(gains(saif_low=np.nan, saif_high=np.nan, verdict="undecided")))
    assert "+0.200\nundecided" in alone
    assert "diverged" in texts_of(plots.gain_heatmap(gains(saif=[np.nan, 0, 0, 0])))


def test_gains_need_one_row_for_each_pair(assert_refused: Callable) -> None:
    assert_refused(lambda: plots.gain_heatmap(pd.concat([gains(), gains()])), "two rows for one pair")
    assert_refused(lambda: plots.gain_heatmap(gains().iloc[:0]), "no rows")

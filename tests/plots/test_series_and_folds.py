"""Figures of series and of cross-validations show the numbers that they are given, and refuse others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fcamlib import plots


def gallery(**changes: Any) -> dict[str, Any]:
    draws = np.random.default_rng(0)
    alpha = {"hard": draws.dirichlet(np.ones(3), 2), "soft": draws.dirichlet(np.ones(3), 2)}
    return {
        "segments": draws.normal(size=(2, 3, 2, 5)),
        "foreground": np.array([[False, True, False], [True, False, False]]),
        "labels": [1, 0],
        "label_names": ("wake", "sleep"),
        "alpha": alpha,
        "predictions": {"soft": [1, 1], "hard": [0, 0]},
        **changes,
    }


def test_each_series_is_drawn_whole_with_its_weights_below() -> None:
    given = gallery()
    fig = plots.series_attention(**given)
    assert len(fig.axes) == 4
    for number in range(2):
        series, weights = fig.axes[2 * number], fig.axes[2 * number + 1]
        lines = [line for line in series.lines if len(np.asarray(line.get_xdata())) == 15]
        for channel, line in enumerate(lines):
            np.testing.assert_allclose(np.asarray(line.get_ydata()), given["segments"][number, :, channel].reshape(-1))
        drawn = [[bar.get_height() for bar in container] for container in weights.containers]
        np.testing.assert_allclose(drawn, [given["alpha"][p][number] for p in ("soft", "hard")])
        middle = [[bar.get_x() + bar.get_width() / 2 for bar in container] for container in weights.containers]
        assert np.array_equal(np.round(middle), [[0, 1, 2]] * 2), "a bar stands outside its window"
    titles = [fig.axes[place].get_title(loc="left") for place in (0, 2)]
    assert titles == ["label: sleep; right: SA", "label: wake; right: HA"]


def test_without_names_classes_are_numbered_and_wrong_shapes_are_refused() -> None:
    fig = plots.series_attention(**gallery(label_names=()))
    assert fig.axes[0].get_title(loc="left").startswith("label: 1;")
    with pytest.raises(ValueError, match="segments"):
        plots.series_attention(**gallery(segments=np.zeros((2, 3, 5))))
    with pytest.raises(ValueError, match="alpha"):
        plots.series_attention(**gallery(alpha={"soft": np.zeros((2, 4)), "hard": np.zeros((2, 3))}))


def test_folds_are_weighted_by_their_bags_and_each_method_has_its_column() -> None:
    rows = [
        {"repeat": repeat, "fold": fold, "method": method, "n": 3 + fold, "accuracy": value + repeat / 10 + fold / 5}
        for method, value in (("abmil", 0.1), ("soft", 0.4), ("hybrid", 0.3))
        for repeat in range(2)
        for fold in range(2)
    ]
    fig = plots.crossval_accuracy({"b": pd.DataFrame(rows), "a": pd.DataFrame(rows[:8])})
    first, second = fig.axes
    assert [ax.get_title() for ax in (first, second)] == ["a (n = 7 bags)", "b (n = 7 bags)"]
    assert [label.get_text() for label in second.get_xticklabels()] == ["SA", "hybrid", "ABMIL"]
    for column, value in enumerate((0.4, 0.3, 0.1)):
        repeats, mean = second.lines[2 * column], second.lines[2 * column + 1]
        expected = [value + repeat / 10 + 4 / 7 / 5 for repeat in range(2)]  # fold 1 has 4 of 7 bags
        np.testing.assert_allclose(np.asarray(repeats.get_ydata()), np.asarray(expected))
        np.testing.assert_allclose(np.asarray(mean.get_ydata()), np.mean(expected))
        assert np.asarray(mean.get_xdata()).tolist() == [column]
    with pytest.raises(ValueError, match="histories is empty"):
        plots.crossval_accuracy({})
    with pytest.raises(ValueError, match="accuracy"):
        plots.crossval_accuracy({"a": pd.DataFrame(rows).drop(columns="accuracy")})

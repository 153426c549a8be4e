"""Curves: means, bands and marks against hand-computed values."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from fcamlib import plots

PARADIGMS = ("soft", "hard", "lvml", "hybrid")
# Quantile 0.975 of Student's t with 1, 2 and 4 degrees of freedom, from a printed table, by number of seeds.
T_QUANTILE = {2: 12.7062, 3: 4.30265, 5: 2.77645}


def a_history(num_seeds: int = 3, num_epochs: int = 8, names: tuple[str, ...] = PARADIGMS) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    rows = [
        (name, seed, epoch, *rng.uniform(0.3, 0.7, 3))
        for name in names
        for seed in range(num_seeds)
        for epoch in range(1, num_epochs + 1)
    ]
    return pd.DataFrame(rows, columns=["paradigm", "seed", "epoch", "accuracy", "focus_accuracy", "saif"])


def some_curves() -> dict[str, np.ndarray]:
    falling = 1.0 - np.linspace(0.0, 1.0, 11) ** 2
    return {name: np.stack([falling * scale for scale in (0.7, 0.8, 0.9)]) for name in PARADIGMS}


def band_limits(ax: Axes, paradigm: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Horizontal positions, lower and upper edge of a drawn band."""
    (band,) = [artist for artist in ax.collections if artist.get_gid() == f"band-{paradigm}"]
    vertices = np.asarray(band.get_paths()[0].vertices)
    x = np.unique(vertices[:, 0])
    low = np.array([vertices[np.isclose(vertices[:, 0], position), 1].min() for position in x])
    high = np.array([vertices[np.isclose(vertices[:, 0], position), 1].max() for position in x])
    return x, low, high


@pytest.mark.parametrize("num_seeds", [2, 3, 5])
def test_learning_curve_bands_are_the_t_interval(
    num_seeds: int, panel: Callable, texts_of: Callable, by_gid: Callable
) -> None:
    history = a_history(num_seeds).sample(frac=1.0, random_state=0)  # row order carries no meaning
    fig = plots.learning_curves(history)
    for title, metric in (("accuracy", "accuracy"), ("focus accuracy", "focus_accuracy"), ("SAIF", "saif")):
        ax = panel(fig, title)
        x, low, high = band_limits(ax, "lvml")
        (line,) = [line for line in ax.lines if line.get_gid() == "mean-lvml"]
        assert x.tolist() == list(range(1, 9)) == list(line.get_xdata())
        for place, epoch in enumerate(range(1, 9)):
            rows = history[(history["paradigm"] == "lvml") & (history["epoch"] == epoch)]
            values = rows[metric].tolist()
            mean = math.fsum(values) / num_seeds
            spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (num_seeds - 1))
            half = T_QUANTILE[num_seeds] * spread / math.sqrt(num_seeds)
            assert line.get_ydata()[place] == pytest.approx(mean)
            assert low[place] == pytest.approx(mean - half, abs=1e-5)
            assert high[place] == pytest.approx(mean + half, abs=1e-5)
    assert "95 % t-interval of the mean\nover the n seeds" in texts_of(fig)
    assert f"LVML (n = {num_seeds})" in texts_of(fig)


def test_learning_curve_range_band_is_minimum_to_maximum(panel: Callable, texts_of: Callable, by_gid: Callable) -> None:
    history = a_history(4)
    fig = plots.learning_curves(history, band="range")
    _, low, high = band_limits(panel(fig, "SAIF"), "hard")
    groups = history[history["paradigm"] == "hard"].groupby("epoch")["saif"]
    assert np.allclose(low, groups.min()) and np.allclose(high, groups.max())
    assert "minimum to maximum\nover the n seeds" in texts_of(fig)


def test_a_single_seed_is_a_plain_line_that_says_so(by_gid: Callable, texts_of: Callable) -> None:
    history = pd.concat([a_history(1, names=("soft",)), a_history(3, names=("hard",))])
    fig = plots.learning_curves(history)
    assert by_gid(fig, "band-soft") == []
    assert len(by_gid(fig, "band-hard")) == 3
    assert {"SA (n = 1)", "HA (n = 3)"} <= set(texts_of(fig))
    alone = plots.learning_curves(a_history(1))
    assert not any("interval" in text for text in texts_of(alone))


def test_switch_is_marked_in_each_panel_at_its_epoch(by_gid: Callable, texts_of: Callable) -> None:
    fig = plots.learning_curves(a_history(), switch_epoch=5)
    lines = by_gid(fig, "switch")
    assert [ax.get_title() for ax in fig.axes if any(line.axes is ax for line in lines)] == [
        "accuracy",
        "focus accuracy",
        "SAIF",
    ]
    assert all(list(line.get_xdata()) == [5, 5] for line in lines)
    assert {line.get_color() for line in lines} == {plots.PARADIGM_STYLE["hybrid"].color}
    assert "hybrid turns from SA to HA\nafter epoch 5" in texts_of(fig)


def test_curves_wear_their_paradigms_style(by_gid: Callable) -> None:
    fig = plots.saif_over_tau(some_curves())
    for name, look in plots.PARADIGM_STYLE.items():
        (line,) = by_gid(fig, f"mean-{name}")
        assert (line.get_color(), line.get_marker()) == (look.color, look.marker)


def test_saif_over_tau_draws_means_bands_and_the_threshold(by_gid: Callable, texts_of: Callable) -> None:
    fig = plots.saif_over_tau(some_curves(), tau=0.8)
    (line,) = by_gid(fig, "mean-hybrid")
    assert np.allclose(line.get_xdata(), np.arange(11) / 10)
    assert line.get_ydata()[5] == pytest.approx(0.75 * 0.8)  # (1 - 0.5^2) times the mean of 0.7, 0.8, 0.9
    _, low, high = band_limits(line.axes, "hybrid")
    half = T_QUANTILE[3] * 0.1 * 0.75 / math.sqrt(3)
    assert low[5] == pytest.approx(0.6 - half, abs=1e-5)
    assert high[5] == pytest.approx(0.6 + half, abs=1e-5)
    (mark,) = by_gid(fig, "tau")
    assert list(mark.get_xdata()) == [0.8, 0.8]
    assert r"$\tau$ = 0.8" in texts_of(fig)


def test_curves_are_legible(assert_legible: Callable) -> None:
    assert_legible(plots.learning_curves(a_history(), switch_epoch=4, title="digits"))
    assert_legible(plots.saif_over_tau(some_curves(), title="digits"))


def history_with(**changes: Any) -> pd.DataFrame:
    return a_history().assign(**changes)


REFUSED = {
    "unknown paradigm in curves": (lambda: plots.saif_over_tau({"SA": np.zeros((2, 3))}), "unknown paradigm 'SA'"),
    "unknown paradigm in history": (
        lambda: plots.learning_curves(history_with(paradigm="sharp")),
        "unknown paradigm 'sharp'",
    ),
    "missing column": (
        lambda: plots.learning_curves(a_history().drop(columns="saif")),
        "history lacks the column 'saif'",
    ),
    "no rows": (lambda: plots.learning_curves(a_history().iloc[:0]), "history has no rows"),
    "accuracy in percent": (
        lambda: plots.learning_curves(history_with(accuracy=61.0)),
        r"give finite values in \[0, 1\]",
    ),
    "NaN": (lambda: plots.learning_curves(history_with(saif=np.nan)), "give finite values"),
    "ragged seeds": (lambda: plots.learning_curves(a_history().iloc[:-1]), "seeds of 'hybrid' with different epochs"),
    "repeated rows": (
        lambda: plots.learning_curves(pd.concat([a_history(), a_history()])),
        "two rows for one seed and epoch of 'soft'",
    ),
    "unknown band": (lambda: plots.learning_curves(a_history(), band="sd"), "band is 'sd'; use one of t, range"),
    "switch outside": (
        lambda: plots.learning_curves(a_history(), switch_epoch=99),
        "epoch of the hybrid's history, 1 to 8",
    ),
    "switch without hybrid": (
        lambda: plots.learning_curves(a_history(names=("soft",)), switch_epoch=2),
        "history has no paradigm 'hybrid'",
    ),
    "rising SAIF": (lambda: plots.saif_over_tau({"soft": [[0.1, 0.2]]}), "rises with tau, which SAIF cannot"),
    "curve of one axis": (lambda: plots.saif_over_tau({"soft": [0.2, 0.1]}), r"give an array of shape \(any, any\)"),
    "uneven thresholds": (
        lambda: plots.saif_over_tau({"soft": [[0.2, 0.1]], "hard": [[0.2, 0.1, 0.0]]}),
        r"curves\['hard'\] has 3 thresholds; give 2",
    ),
    "falling taus": (lambda: plots.saif_over_tau({"soft": [[0.2, 0.1]]}, taus=[1.0, 0.0]), "taus does not rise"),
    "tau outside": (lambda: plots.saif_over_tau(some_curves(), tau=1.5), "tau is 1.5; give a threshold"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_in_one_sentence(case: str, assert_refused: Callable) -> None:
    assert_refused(*REFUSED[case])

"""Curves: means, intervals, seeds and marks against their tables, in the paradigms' styles, and legible."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import assert_legible, by_gid, data_of, panel, texts_of
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.testing import assert_allclose
from scipy import stats

from fcamlib import paradigms, plots
from fcamlib.errors import UserError

PARADIGMS = ("soft", "hard", "lvml", "hybrid")
METRICS = {"accuracy": "accuracy", "focus accuracy": "focus_accuracy", "SAIF": "saif"}
ALPHAS = (0.2, 0.6, 1.0)


def a_history(num_seeds: int = 3, num_epochs: int = 8, names: Sequence[str] = PARADIGMS) -> pd.DataFrame:
    """Rows in no order, with values from 0 to 1."""
    rng = np.random.default_rng(7)
    keys = product(names, range(num_seeds), range(1, num_epochs + 1))
    rows = [(*key, *rng.uniform(0.3, 0.7, 6)) for key in keys]
    columns = ["paradigm", "seed", "epoch", "accuracy", "focus_accuracy", "saif", "bleu4", "a_z", "s_y"]
    return pd.DataFrame(rows, columns=columns).sample(frac=1.0, random_state=0)


def some_curves() -> dict[str, np.ndarray]:
    falling = 1.0 - np.linspace(0.0, 1.0, 11) ** 2
    return {name: np.stack([falling * scale for scale in (0.7, 0.8, 0.9)]) for name in PARADIGMS}


def a_flow(points: int = 30, settings: Sequence[str] = ("m = 2", "m = 3")) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    rows = []
    for setting, name in product(settings, PARADIGMS[:3]):
        columns = {c: np.sort(rng.uniform(0.1, 5.0, points)) for c in ("time", "mu", "nu", "largest", "downward")}
        columns |= {c: rng.uniform(0.5, 3.0, points) for c in ("mu_ratio", "nu_ratio")}
        columns["alpha"] = np.sort(rng.uniform(0.01, 1.0, points))
        rows.append(pd.DataFrame(columns).assign(setting=setting, paradigm=name))
    return pd.concat(rows, ignore_index=True)


def a_sweep(num_seeds: int = 5, epochs: int = 6) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    keys = product(PARADIGMS[:3], ALPHAS, range(num_seeds), range(epochs))
    rows = [(*key, 2.0 * key[3], *rng.uniform(0.5, 2.0, 2)) for key in keys]
    return pd.DataFrame(rows, columns=["paradigm", "alpha", "seed", "epoch", "time", "loss", "incentive"])


def assert_curve(ax: Axes, measure: str, name: object, rows: pd.DataFrame, x: str, places: bool = True) -> None:
    """Check that a curve has the mean of `rows` at each `x`, and its 95% t-interval cut at 0 and 1, or the range."""
    groups = rows.dropna(subset=[measure]).groupby(x)[measure]
    drawn, (band,) = data_of(ax, f"mean-{measure}-{name}"), by_gid(ax, f"band-{measure}-{name}")
    assert_allclose(drawn[:, 1], groups.mean())
    assert_allclose(drawn[:, 0], groups.mean().index, rtol=1e-12 if places else 0.06, atol=0 if places else 0.02)
    if isinstance(band, LineCollection):
        ends = np.array([segment[:, 1] for segment in band.get_segments()])
    else:
        corners = np.asarray(band.get_paths()[0].vertices)
        at = [corners[np.isclose(corners[:, 0], place), 1] for place in drawn[:, 0]]
        ends = np.array([(y.min(), y.max()) for y in at])
    few = rows["seed"].nunique() < 5
    wanted = [
        (of.min(), of.max()) if few else stats.t.interval(0.95, len(of) - 1, of.mean(), stats.sem(of))
        for _, of in groups
    ]
    is_share = "incentive" not in rows and "share" not in rows
    assert_allclose(ends, np.clip(wanted, 0.0, 1.0) if is_share else wanted, atol=1e-5)


@pytest.mark.parametrize(("num_seeds", "limits"), [(2, "range"), (4, "range"), (5, "95% t-interval")])
def test_learning_curves_are_means_with_intervals_or_ranges_and_every_seed(num_seeds: int, limits: str) -> None:
    history = a_history(num_seeds)
    fig = plots.learning_curves(history)
    for title, metric in METRICS.items():
        ax, rows = panel(fig, title), history[history["paradigm"] == "lvml"]
        assert_curve(ax, metric, "lvml", rows, "epoch")
        dots = {tuple(dot) for dot in np.round(data_of(ax, f"seeds-{metric}-lvml"), 9)}
        assert dots == {tuple(row) for row in np.round(rows[["epoch", metric]].to_numpy(), 9)}
    assert {f"{limits} over seeds", "single seeds", f"LVML (n = {num_seeds})"} <= set(texts_of(fig))


def test_what_needs_the_foreground_is_left_out_where_it_is_not_known() -> None:
    for bare in (a_history().drop(columns=["focus_accuracy", "saif"]), a_history().assign(focus_accuracy=np.nan)):
        fig = plots.learning_curves(bare)
        assert panel(fig, "accuracy") and "focus accuracy" not in texts_of(fig)
    assert "Nothing to draw" in texts_of(plots.saif_over_tau({}))[0]


def test_curves_wear_their_paradigms_style_from_outside_too_and_the_switch_is_marked(outsider: str) -> None:
    fig = plots.learning_curves(a_history(names=(*PARADIGMS, outsider)), switch_epoch=5)
    for name in (*PARADIGMS, outsider):
        look, (line,) = paradigms.style_of(name), by_gid(fig, f"mean-saif-{name}")
        assert (line.get_color(), line.get_marker()) == (look.color, look.marker)
    key = [text for text in texts_of(fig) if "(n = 3)" in text]
    assert key == ["SA (n = 3)", "HA (n = 3)", "LVML (n = 3)", "EM (n = 3)", "hybrid (n = 3)"]
    marks = by_gid(fig, "mark")
    assert [(line.axes.get_title(), *line.get_xdata()) for line in marks] == [(title, 5, 5) for title in METRICS]
    assert "hybrid switches from SA to HA\nafter epoch 5" in texts_of(fig)


def test_saif_over_tau_draws_means_and_the_threshold() -> None:
    fig = plots.saif_over_tau(some_curves(), title="$\\frac 漢")
    drawn = data_of(fig, "mean-saif-hybrid")
    assert np.allclose(drawn[:, 0], np.arange(11) / 10)
    assert drawn[5, 1] == pytest.approx(0.75 * 0.8)  # (1 - 0.5^2) times the mean of 0.7, 0.8, 0.9
    assert [list(mark.get_xdata()) for mark in by_gid(fig, "mark")] == [[0.8, 0.8]]
    assert {r"$\tau$ = 0.8", "$\\frac 漢"} <= set(texts_of(fig))


def test_gains_over_the_switch_are_means_with_intervals_and_the_rule_is_marked() -> None:
    levels: list[Any] = [["digits", "$x$ 漢"], [0.1, 0.5, 0.9], range(11)]
    keys = pd.MultiIndex.from_product(levels, names=["task", "share", "seed"])
    draws = np.random.default_rng(3).normal(0.02, 0.05, (len(keys), 2))
    gains = pd.DataFrame(draws, keys, ["saif", "accuracy"]).reset_index()
    gains["data"] = gains["task"].map({"digits": "small", "$x$ 漢": "large"})
    rule = {"digits": 0.1, "$x$ 漢": 0.37}
    fig = plots.gain_over_switch(gains, rule)
    assert [ax.get_title("left") for ax in fig.axes] == ["small", "", "large", ""]
    for ax, (name, measure) in zip(fig.axes, product(rule, ["saif", "accuracy"]), strict=True):
        assert ax.get_ylabel() == {"saif": "gain in SAIF", "accuracy": "gain in accuracy"}[measure]
        assert_curve(ax, measure, name, gains[gains["task"] == name], "share", places=False)
        assert data_of(ax, f"rule-{measure}-{name}").tolist() == [[rule[name], ax.get_ylim()[0]]]
        assert [line.get_gid() for line in ax.lines if "rule" in str(line.get_gid())] == [f"rule-{measure}-{name}"]
    assert {"no gain", "digits (n = 11)", r"\$x\$ 漢 (n = 11)"} <= set(texts_of(fig))
    assert_legible(fig)


def test_measures_are_drawn_over_the_setting_with_intervals_and_guessing() -> None:
    frame = pd.concat([a_history(5, 1, PARADIGMS[:3]).assign(m=m) for m in (5, 20, 100)])
    frame.loc[(frame["m"] == 100) & (frame["paradigm"] == "lvml"), "saif"] = np.nan  # diverged
    frame.loc[(frame["m"] == 20) & (frame["paradigm"] == "hard") & (frame["seed"] == 0), "saif"] = np.nan
    fig = plots.measures_over(frame, "m", "segments", log=True, chance={"focus_accuracy": [0.2, 0.05, 0.01]})
    for (title, metric), name in product(METRICS.items(), PARADIGMS[:3]):
        assert_curve(panel(fig, title), metric, name, frame[frame["paradigm"] == name], "m", places=False)
    assert data_of(fig, "chance-focus_accuracy")[:, 1].tolist() == [0.2, 0.05, 0.01]
    assert {"SA (n = 5)", "LVML (n = 5)", "guessing", "segments", "100"} <= set(texts_of(fig))
    assert_legible(fig)
    many = pd.concat([frame[frame["m"] == 5].assign(m=place / 20) for place in range(1, 20)])
    assert_legible(plots.measures_over(many, "m", "share"))
    share = {"soft": 1.0, "hard": 0.0, "lvml": 0.5}
    alone = plots.measures_over(frame.assign(share=frame["paradigm"].map(share)).query("m == 5"), "share", "share")
    assert {name: data_of(alone, f"mean-saif-{name}")[0, 0] for name in share} == share, "where nothing is beside it"


@pytest.mark.parametrize(
    ("draw", "x", "columns"),
    [
        (plots.flow_curves, "time", ("mu", "nu")),
        (plots.speed_ratios, "alpha", ("mu_ratio", "nu_ratio")),
        (plots.curvature, "time", ("largest", "downward")),
    ],
)
def test_each_panel_holds_its_settings_column(draw: Callable, x: str, columns: tuple[str, str]) -> None:
    flow = a_flow()
    fig = draw(flow)
    assert [ax.get_title(loc="left") for ax in fig.axes[:4:2]] == ["m = 2", "m = 3"]
    for ax, (setting, column) in zip(fig.axes, product(("m = 2", "m = 3"), columns), strict=False):
        for name in PARADIGMS[:3]:
            rows = flow[(flow["setting"] == setting) & (flow["paradigm"] == name)]
            assert np.allclose(data_of(ax, f"mean-{column}-{name}"), rows[[x, column]])
    if draw is plots.speed_ratios:
        assert [list(line.get_ydata()) for line in by_gid(fig, "mark")] == [[1, 1]] * 4
        assert {"at the points along the path of", "equally fast", "0.05", "0.5"} <= set(texts_of(fig))
    assert_legible(fig)


def test_phase_portrait_shows_curves_and_training_apart() -> None:
    flow = a_flow()
    points = pd.concat([a_flow(4).assign(seed=seed) for seed in (0, 1)])
    fig = plots.phase_portrait(flow, points)
    for ax, name in product(fig.axes, PARADIGMS[:3]):
        curve, dots = (t[(t["paradigm"] == name) & (t["setting"] == ax.get_title())] for t in (flow, points))
        assert np.allclose(data_of(ax, f"mean-nu-{name}"), curve[["mu", "nu"]])
        assert np.allclose(data_of(ax, f"points-{name}"), dots[["mu", "nu"]])
    assert "lines: closed form; marks: training, n = 2 seeds" in texts_of(fig)
    assert_legible(fig)
    assert_legible(plots.phase_portrait(a_flow(settings=[f"m = 100, C = 1,000, t to {t},000" for t in (1, 20, 300)])))


def test_fixed_focus_curves_are_means_bands_and_closed_forms() -> None:
    sweep = a_sweep()
    fig = plots.fixed_focus_curves(sweep.sample(frac=1.0), sweep[sweep["seed"] == 0].drop(columns="seed"))
    assert [ax.get_title() for ax in fig.axes[:3]] == ["SA", "HA", "LVML"]
    panels = zip(fig.axes, product(("loss", "incentive"), PARADIGMS[:3]), strict=False)
    for (ax, (measure, name)), alpha in product(panels, ALPHAS):
        rows = sweep[(sweep["paradigm"] == name) & (sweep["alpha"] == alpha)]
        assert_curve(ax, measure, alpha, rows, "epoch")
        assert np.allclose(data_of(ax, f"theory-{measure}-{alpha}")[:, 1], rows.loc[rows["seed"] == 0, measure])
    assert {"95% t-interval (n = 5)", "closed form", "single seeds"} <= set(texts_of(fig))
    assert_legible(fig)
    over_time = plots.fixed_focus_curves(sweep, x="time")
    assert data_of(over_time.axes[0], "mean-loss-0.2")[:, 0].tolist() == [0, 2, 4, 6, 8, 10]
    assert over_time.axes[3].get_xlabel() == "time $t$"
    high = sweep.assign(incentive=500 * sweep["incentive"])  # as with 1,000 classes
    assert_legible(plots.fixed_focus_curves(high))
    assert_legible(plots.incentive_over_alpha(high))


def test_incentive_over_alpha_takes_the_last_epoch() -> None:
    sweep = a_sweep()
    rows = [(name, alpha, 0.25 + 0.5 * alpha) for name in PARADIGMS[:3] for alpha in (0.0, 1.0)]
    fig = plots.incentive_over_alpha(sweep, pd.DataFrame(rows, columns=["paradigm", "alpha", "incentive"]))
    for name, last in sweep[sweep["epoch"] == 5].groupby("paradigm"):
        assert_curve(fig.axes[0], "incentive", name, last, "alpha", places=False)
    assert data_of(fig, "theory-incentive-hard").tolist() == [[0.0, 0.25], [1.0, 0.75]]
    assert "HA (n = 5)" in texts_of(fig)
    assert_legible(fig)


def test_cost_is_drawn_over_segments_a_column_a_way() -> None:
    keys = product(PARADIGMS[:3], ("bank", "all"), (100, 2, 20))
    rows = [(p, way, m, 2.0 * m, m, 3.0 * m, 5.0 * m) for p, way, m in keys]
    costs = pd.DataFrame(rows, columns=["paradigm", "way", "num_segments", "median", "low", "high", "peak_mb"])
    costs.loc[costs["way"] == "all", "median"] *= 7
    fig = plots.cost_over_segments(costs, {"all": "all at once", "bank": "distinct segments in chunks of any size"})
    assert [ax.get_title() for ax in fig.axes[:2]] == ["all at once", "distinct segments in chunks of\nany size"]
    assert data_of(fig.axes[0], "mean-median-hard").tolist() == [[2, 28], [20, 280], [100, 1400]]
    assert data_of(fig.axes[3], "mean-peak_mb-hard").tolist() == [[2, 10], [20, 100], [100, 500]]
    bars: Any = fig.axes[1].collections[0]
    assert bars.get_segments()[0].tolist() == [[2, 2], [2, 6]]
    assert_legible(fig)


@pytest.mark.parametrize(
    ("num_seeds", "num_epochs", "names"),
    [(1, 1, PARADIGMS[:1]), (3, 1, PARADIGMS), (12, 2, PARADIGMS), (3, 30, PARADIGMS)],
)
def test_curves_of_any_length_are_legible(num_seeds: int, num_epochs: int, names: tuple[str, ...]) -> None:
    history = a_history(num_seeds, num_epochs, names)
    assert_legible(plots.learning_curves(history, switch_epoch=1, title="digits"))
    assert_legible(plots.caption_curves(history, 1))
    assert_legible(plots.saif_over_tau(some_curves(), title="digits"))


def test_missing_columns_and_rows_of_other_settings_are_one_sentence() -> None:
    with pytest.raises(UserError, match=r"^history lacks the column 'seed': give the columns .*\.$"):
        plots.learning_curves(a_history().drop(columns="seed"))
    with pytest.raises(UserError, match=r"^history has no rows: give at least one\.$"):
        plots.learning_curves(a_history().iloc[:0])
    with pytest.raises(UserError, match=r"^the table has several rows for a curve, seed and epoch: give one value"):
        plots.learning_curves(pd.concat([a_history(), a_history()]))  # as of a study with two switches

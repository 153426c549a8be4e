"""Curves: means, intervals, seeds and marks against hand-computed values, in the paradigms' styles, and legible."""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import assert_legible, by_gid, data_of, panel, texts_of
from matplotlib.axes import Axes

from fcamlib import paradigms, plots
from fcamlib.errors import UserError
from fcamlib.metrics import t_interval

PARADIGMS = ("soft", "hard", "lvml", "hybrid")
METRICS = {"accuracy": "accuracy", "focus accuracy": "focus_accuracy", "SAIF": "saif"}
ALPHAS = (0.2, 0.6, 1.0)
# Quantile 0.975 of Student's t with 1, 2 and 4 degrees of freedom, from a printed table, by number of seeds.
T_QUANTILE = {2: 12.7062, 3: 4.30265, 5: 2.77645}


def a_history(num_seeds: int = 3, num_epochs: int = 8, names: Sequence[str] = PARADIGMS) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    keys = product(names, range(num_seeds), range(1, num_epochs + 1))
    rows = [(*key, *rng.uniform(0.3, 0.7, 6)) for key in keys]
    columns = ["paradigm", "seed", "epoch", "accuracy", "focus_accuracy", "saif", "bleu4", "a_z", "s_y"]
    return pd.DataFrame(rows, columns=columns)


def some_curves() -> dict[str, np.ndarray]:
    falling = 1.0 - np.linspace(0.0, 1.0, 11) ** 2
    return {name: np.stack([falling * scale for scale in (0.7, 0.8, 0.9)]) for name in PARADIGMS}


def a_flow(points: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    rows = []
    for setting, name in product(("m = 2", "m = 3"), PARADIGMS[:3]):
        columns = {c: np.sort(rng.uniform(0.1, 5.0, points)) for c in ("time", "mu", "nu", "largest", "downward")}
        columns |= {c: rng.uniform(0.5, 3.0, points) for c in ("mu_ratio", "nu_ratio")}
        columns["alpha"] = np.sort(rng.uniform(0.01, 1.0, points))
        rows.append(pd.DataFrame(columns).assign(setting=setting, paradigm=name))
    return pd.concat(rows, ignore_index=True)


def a_sweep(num_seeds: int = 3, epochs: int = 6, highest: float = 2.0) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    keys = product(PARADIGMS[:3], ALPHAS, range(num_seeds), range(epochs))
    rows = [(*key, 2.0 * key[3], *rng.uniform(0.5, highest, 2)) for key in keys]
    return pd.DataFrame(rows, columns=["paradigm", "alpha", "seed", "epoch", "time", "loss", "incentive"])


def band_of(ax: Axes, gid: str) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper edge of a drawn band at each place."""
    (band,) = [artist for artist in ax.collections if artist.get_gid() == gid]
    vertices = np.asarray(band.get_paths()[0].vertices)
    at = [vertices[np.isclose(vertices[:, 0], x), 1] for x in np.unique(vertices[:, 0])]
    return np.array([y.min() for y in at]), np.array([y.max() for y in at])


@pytest.mark.parametrize("num_seeds", [2, 5])
def test_learning_curves_are_means_with_t_intervals_and_every_seed(num_seeds: int) -> None:
    history = a_history(num_seeds).sample(frac=1.0, random_state=0)  # row order carries no meaning
    fig = plots.learning_curves(history)
    for title, metric in METRICS.items():
        ax = panel(fig, title)
        drawn, (low, high) = data_of(ax, f"mean-{metric}-lvml"), band_of(ax, f"band-{metric}-lvml")
        assert drawn[:, 0].tolist() == list(range(1, 9))
        rows = history[history["paradigm"] == "lvml"]
        for place, epoch in enumerate(range(1, 9)):
            values = rows.loc[rows["epoch"] == epoch, metric].tolist()
            mean = math.fsum(values) / num_seeds
            spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (num_seeds - 1))
            half = T_QUANTILE[num_seeds] * spread / math.sqrt(num_seeds)
            assert drawn[place, 1] == pytest.approx(mean)
            assert low[place] == pytest.approx(max(0.0, mean - half), abs=1e-5)
            assert high[place] == pytest.approx(min(1.0, mean + half), abs=1e-5)
        dots = {tuple(dot) for dot in np.round(data_of(ax, f"seeds-{metric}-lvml"), 9)}
        assert dots == {tuple(row) for row in np.round(rows[["epoch", metric]].to_numpy(), 9)}
    assert {"95% t-interval of the mean", "single seeds", f"LVML (n = {num_seeds})"} <= set(texts_of(fig))


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
    draws = np.random.default_rng(3).normal(0.02, 0.05, (2, 3, 11, 2))
    keys = pd.MultiIndex.from_product(
        [["digits", "$x$ 漢"], [0.1, 0.5, 0.9], range(11)], names=["task", "share", "seed"]
    )
    gains = pd.DataFrame(draws.reshape(-1, 2), keys, ["saif", "accuracy"]).reset_index()
    fig = plots.gain_over_switch(gains, {"digits": 0.1, "$x$ 漢": 0.37})
    for measure, place in (("saif", 0), ("accuracy", 1)):
        drawn, (bars,) = data_of(fig, f"mean-{measure}-digits"), by_gid(fig, f"band-{measure}-digits")
        np.testing.assert_allclose(drawn[:, 1], draws[0, ..., place].mean(axis=1))
        for segment, values in zip(bars.get_segments(), draws[0, ..., place], strict=True):
            np.testing.assert_allclose(segment[:, 1], t_interval(values)[1:])
        ((share, low),) = data_of(fig, f"rule-{measure}-$x$ 漢")
        assert share == 0.37 and low == panel(fig, f"gain in {measure.replace('saif', 'SAIF')}").get_ylim()[0]
    assert {"no gain", "digits (n = 11)", r"\$x\$ 漢 (n = 11)"} <= set(texts_of(fig))
    assert_legible(fig)


def test_measures_are_drawn_over_the_setting_with_intervals_and_guessing() -> None:
    frame = pd.concat(
        [a_history(3, 1, PARADIGMS[:3]).assign(m=m, accuracy=0.9 - 0.001 * m) for m in (5, 20, 100)]
    ).sample(frac=1.0, random_state=0)  # fmt: skip
    frame.loc[(frame["m"] == 100) & (frame["paradigm"] == "lvml"), "saif"] = np.nan  # diverged
    fig = plots.measures_over(frame, "m", "segments", log=True, chance={"focus_accuracy": [0.2, 0.05, 0.01]})
    for metric, name in product(METRICS.values(), PARADIGMS[:3]):
        rows = frame[frame["paradigm"] == name].dropna(subset=[metric])
        values = [group.to_numpy() for _, group in rows.groupby("m")[metric]]
        drawn, (bars,) = data_of(fig, f"mean-{metric}-{name}"), by_gid(fig, f"band-{metric}-{name}")
        np.testing.assert_allclose(drawn[:, 1], [v.mean() for v in values])
        assert np.allclose(drawn[:, 0], [5, 20, 100][: len(values)], rtol=0.06)
        ends = [np.clip(t_interval(v)[1:], 0, 1) for v in values]
        np.testing.assert_allclose([segment[:, 1] for segment in bars.get_segments()], ends, atol=1e-12)
    assert data_of(fig, "chance-focus_accuracy")[:, 1].tolist() == [0.2, 0.05, 0.01]
    assert {"SA (n = 3)", "LVML (n = 3)", "guessing", "segments", "100"} <= set(texts_of(fig))
    assert_legible(fig)
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


def test_fixed_focus_curves_are_means_bands_and_closed_forms() -> None:
    sweep = a_sweep()
    fig = plots.fixed_focus_curves(
        sweep.sample(frac=1.0, random_state=0), sweep[sweep["seed"] == 0].drop(columns="seed")
    )
    assert [ax.get_title() for ax in fig.axes[:3]] == ["SA", "HA", "LVML"]
    panels = zip(fig.axes, product(("loss", "incentive"), PARADIGMS[:3]), strict=False)
    for (ax, (measure, name)), alpha in product(panels, ALPHAS):
        rows = sweep[(sweep["paradigm"] == name) & (sweep["alpha"] == alpha)]
        table = rows.pivot(index="epoch", columns="seed", values=measure)
        assert np.allclose(data_of(ax, f"mean-{measure}-{alpha}")[:, 1], table.mean(axis=1))
        assert np.allclose(data_of(ax, f"theory-{measure}-{alpha}")[:, 1], table[0])
        half = T_QUANTILE[3] * table.std(axis=1, ddof=1) / np.sqrt(3)
        assert np.allclose(band_of(ax, f"band-{measure}-{alpha}")[1], table.mean(axis=1) + half, rtol=1e-4)
    assert {"95% t-interval (n = 3)", "closed form", "single seeds"} <= set(texts_of(fig))
    assert_legible(fig)
    over_time = plots.fixed_focus_curves(sweep, x="time")
    assert data_of(over_time.axes[0], "mean-loss-0.2")[:, 0].tolist() == [0, 2, 4, 6, 8, 10]
    assert over_time.axes[3].get_xlabel() == "time $t$"


def test_incentive_over_alpha_takes_the_last_epoch() -> None:
    sweep = a_sweep()
    rows = [(name, alpha, 0.25 + 0.5 * alpha) for name in PARADIGMS[:3] for alpha in (0.0, 1.0)]
    fig = plots.incentive_over_alpha(sweep, pd.DataFrame(rows, columns=["paradigm", "alpha", "incentive"]))
    last = sweep[sweep["epoch"] == 5]
    for name in PARADIGMS[:3]:
        drawn = data_of(fig, f"mean-incentive-{name}")
        assert np.allclose(drawn[:, 1], last[last["paradigm"] == name].groupby("alpha")["incentive"].mean())
        assert np.allclose(drawn[:, 0], ALPHAS, atol=0.02)
    assert data_of(fig, "theory-incentive-hard").tolist() == [[0.0, 0.25], [1.0, 0.75]]
    assert "HA (n = 3)" in texts_of(fig)
    assert_legible(fig)


def test_cost_is_drawn_over_segments_a_column_a_way() -> None:
    keys = product(PARADIGMS[:3], ("bank", "all"), (100, 2, 20))
    rows = [(p, way, m, 2.0 * m, m, 3.0 * m, 5.0 * m) for p, way, m in keys]
    costs = pd.DataFrame(rows, columns=["paradigm", "way", "num_segments", "median", "low", "high", "peak_mb"])
    costs.loc[costs["way"] == "all", "median"] *= 7
    fig = plots.cost_over_segments(costs, {"all": "all at once", "bank": "distinct segments in chunks of any size"})
    assert [ax.get_title() for ax in fig.axes[:2]] == ["all at once", "distinct segments in\nchunks of any size"]
    assert data_of(fig.axes[0], "mean-median-hard").tolist() == [[2, 28], [20, 280], [100, 1400]]
    assert data_of(fig.axes[3], "mean-peak_mb-hard").tolist() == [[2, 10], [20, 100], [100, 500]]
    bars: Any = fig.axes[1].collections[0]
    assert bars.get_segments()[0].tolist() == [[2, 2], [2, 6]]
    assert_legible(fig)


def test_curves_of_all_epochs_are_legible_and_a_missing_column_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"^history lacks the column 'seed': give the columns .*\.$"):
        plots.learning_curves(a_history().drop(columns="seed"))
    with pytest.raises(UserError, match=r"^history has no rows: give at least one\.$"):
        plots.learning_curves(a_history().iloc[:0])
    assert_legible(plots.learning_curves(a_history(num_epochs=30), switch_epoch=4, title="digits"))
    assert_legible(plots.caption_curves(a_history(), 4))
    assert_legible(plots.saif_over_tau(some_curves(), title="digits"))

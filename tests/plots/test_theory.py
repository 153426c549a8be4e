"""Figures of the theory: what is drawn is what was given, in the paradigms' styles, and legible."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from fcamlib import plots
from fcamlib.plots.incentives import alpha_colors

PARADIGMS = ("soft", "hard", "lvml")
ALPHAS = (0.2, 0.6, 1.0)
# Quantile 0.975 of Student's t with 2 degrees of freedom, from a printed table.
T_QUANTILE = 4.30265


def a_flow(settings: tuple[str, ...] = ("m = 2", "m = 3"), points: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    rows = []
    for setting in settings:
        for name in PARADIGMS:
            columns = {c: np.sort(rng.uniform(0.1, 5.0, points)) for c in ("time", "mu", "nu", "largest", "downward")}
            columns |= {c: rng.uniform(0.5, 3.0, points) for c in ("mu_ratio", "nu_ratio")}
            columns["alpha"] = np.sort(rng.uniform(0.01, 1.0, points))
            rows.append(pd.DataFrame(columns).assign(setting=setting, paradigm=name))
    return pd.concat(rows, ignore_index=True)


def a_sweep(num_seeds: int = 3, epochs: int = 6) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    rows = [
        (name, alpha, seed, epoch, 2.0 * epoch, *rng.uniform(0.5, 2.0, 2))
        for name in PARADIGMS
        for alpha in ALPHAS
        for seed in range(num_seeds)
        for epoch in range(epochs)
    ]
    return pd.DataFrame(rows, columns=["paradigm", "alpha", "seed", "epoch", "time", "loss", "incentive"])


def data_of(fig: Figure, gid: str, panel: int) -> np.ndarray:
    (line,) = [line for line in fig.axes[panel].lines if line.get_gid() == gid]
    return np.column_stack([line.get_xdata(), line.get_ydata()])


@pytest.mark.parametrize(
    ("draw", "x", "columns"),
    [
        (plots.flow_curves, "time", ("mu", "nu")),
        (plots.speed_ratios, "alpha", ("mu_ratio", "nu_ratio")),
        (plots.curvature, "time", ("largest", "downward")),
    ],
)
def test_each_panel_holds_its_settings_column(
    draw: Callable, x: str, columns: tuple[str, str], assert_legible: Callable
) -> None:
    flow = a_flow()
    fig = draw(flow.sample(frac=1.0, random_state=0).sort_values(x))
    for row, setting in enumerate(dict.fromkeys(flow.sample(frac=1.0, random_state=0).sort_values(x)["setting"])):
        for place, column in enumerate(columns):
            for name in PARADIGMS:
                rows = flow[(flow["setting"] == setting) & (flow["paradigm"] == name)].sort_values(x)
                assert np.allclose(data_of(fig, f"curve-{name}", 2 * row + place), rows[[x, column]].to_numpy())
    assert_legible(fig)


def test_curves_wear_their_paradigms_style(by_gid: Callable) -> None:
    fig = plots.flow_curves(a_flow(("one",)))
    for name in PARADIGMS:
        look = plots.PARADIGM_STYLE[name]
        assert {(line.get_color(), line.get_marker()) for line in by_gid(fig, f"curve-{name}")} == {
            (look.color, look.marker)
        }


def test_equality_of_speeds_is_marked(by_gid: Callable) -> None:
    lines = by_gid(plots.speed_ratios(a_flow()), "equal")
    assert len(lines) == 4 and all(list(line.get_ydata()) == [1, 1] for line in lines)


def test_phase_portrait_shows_curves_and_training_apart(texts_of: Callable, assert_legible: Callable) -> None:
    flow = a_flow(("one",))
    points = pd.concat([a_flow(("one",), 4).assign(seed=seed) for seed in (0, 1)])
    fig = plots.phase_portrait(flow, points)
    for name in PARADIGMS:
        curve, dots = flow[flow["paradigm"] == name], points[points["paradigm"] == name]
        assert np.allclose(data_of(fig, f"curve-{name}", 0), curve[["mu", "nu"]])
        assert np.allclose(data_of(fig, f"points-{name}", 0), dots[["mu", "nu"]])
    assert "lines: closed form; marks: training, n = 2 seeds" in texts_of(fig)
    assert_legible(fig)


def test_fixed_focus_curves_are_means_bands_and_closed_forms(assert_legible: Callable, texts_of: Callable) -> None:
    sweep = a_sweep()
    theory = sweep[sweep["seed"] == 0].drop(columns="seed")
    fig = plots.fixed_focus_curves(sweep.sample(frac=1.0, random_state=0), theory)
    assert [ax.get_title() for ax in fig.axes[:3]] == ["SA", "HA", "LVML"]
    for column, name in enumerate(PARADIGMS):
        for row, measure in enumerate(("loss", "incentive")):
            for alpha in ALPHAS:
                rows = sweep[(sweep["paradigm"] == name) & (sweep["alpha"] == alpha)]
                table = rows.pivot(index="epoch", columns="seed", values=measure)
                panel = 3 * row + column
                assert np.allclose(data_of(fig, f"trained-{alpha:g}", panel)[:, 1], table.mean(axis=1))
                assert np.allclose(data_of(fig, f"theory-{alpha:g}", panel)[:, 1], table[0])
                (band,) = [b for b in fig.axes[panel].collections if b.get_gid() == f"band-{alpha:g}"]
                half = T_QUANTILE * table.std(axis=1, ddof=1) / np.sqrt(3)
                top = np.asarray(band.get_paths()[0].vertices)[:, 1].max()
                assert top == pytest.approx((table.mean(axis=1) + half).max(), rel=1e-4)
    assert "95 % t-interval (n = 3)" in texts_of(fig) and "closed form" in texts_of(fig)
    assert_legible(fig)


def test_time_can_stand_on_the_horizontal_axis() -> None:
    fig = plots.fixed_focus_curves(a_sweep(), x="time")
    assert data_of(fig, "trained-0.2", 0)[:, 0].tolist() == [0, 2, 4, 6, 8, 10]
    assert fig.axes[3].get_xlabel() == "time $t$"


def test_incentive_over_alpha_takes_the_last_epoch(texts_of: Callable, assert_legible: Callable) -> None:
    sweep = a_sweep()
    lines = pd.DataFrame({"paradigm": "hard", "alpha": [0.0, 1.0], "incentive": [0.25, 0.75]})
    fig = plots.incentive_over_alpha(
        sweep, pd.concat([lines, lines.assign(paradigm="soft"), lines.assign(paradigm="lvml")])
    )
    last = sweep[sweep["epoch"] == 5]
    bars = [c for c in fig.axes[0].containers if isinstance(c, ErrorbarContainer)]
    drawn = {c.get_label(): c.lines[0].get_ydata() for c in bars}
    for name in PARADIGMS:
        means = last[last["paradigm"] == name].groupby("alpha")["incentive"].mean()
        assert np.allclose(drawn[plots.PARADIGM_LABEL[name]], means)
    assert data_of(fig, "theory-hard", 0).tolist() == [[0.0, 0.25], [1.0, 0.75]]
    assert "HA (n = 3)" in texts_of(fig)
    assert_legible(fig)


def test_attention_goes_from_dark_to_light() -> None:
    colors = alpha_colors(np.array([1.0, 0.2, 0.6]))
    lightness = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(to_rgb, colors.values())]
    assert list(colors) == [0.2, 0.6, 1.0] and lightness == sorted(lightness)


def test_what_cannot_be_drawn_is_refused_in_one_sentence(assert_refused: Callable) -> None:
    flow, sweep = a_flow(), a_sweep()
    assert_refused(lambda: plots.flow_curves(flow.drop(columns="nu")), "lacks the column 'nu'")
    assert_refused(lambda: plots.flow_curves(flow.assign(mu=np.nan)), "column 'mu' has a value that is not finite")
    assert_refused(lambda: plots.curvature(flow.assign(paradigm="x")), "unknown paradigm 'x'")
    assert_refused(lambda: plots.fixed_focus_curves(sweep, x="steps"), "x is 'steps'; use one of epoch, time")
    assert_refused(lambda: plots.fixed_focus_curves(pd.concat([sweep, sweep])), "two rows")
    assert_refused(lambda: plots.fixed_focus_curves(sweep.iloc[1:]), "different values of 'epoch'")

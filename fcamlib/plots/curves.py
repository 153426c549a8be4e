"""Figures of curves: learning, thresholds, settings, the gradient flow, cost, and training at a fixed focus.

With fewer than five seeds they show the range of the seeds in place of the 95% t-interval.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from fcamlib.paradigms import Style, style_of
from fcamlib.plots.look import CARD, INK, PageFigure, empty_card, paradigm_order, require_columns, styled
from fcamlib.plots.panels import THIN, dotted, finished, interval_key, panels, paradigm_key, share_axis, tame

METRICS = {"accuracy": "accuracy", "focus_accuracy": "focus accuracy", "saif": "SAIF"}
CAPTIONS = {"bleu4": "BLEU-4 / 100", "a_z": "attention in the box, $a_z$", "s_y": "score of the category, $s_y$"}
CAPTIONS |= {"saif": "SAIF"}
FLOW = {"mu": r"margin $\mu$", "nu": r"focus logit $\nu$"}
RATIOS = {"mu_ratio": r"$\mu'_{LVML}\,/\,\mu'_{HA}$", "nu_ratio": r"$\nu'_{LVML}\,/\,\nu'_{HA}$"}
CURVATURE = {"largest": "largest eigenvalue", "downward": "downward curvature"}
COSTS = {"median": "time of a step (ms)", "peak_mb": "peak memory (MB)"}
GAIN_PANELS = {"saif": "gain in SAIF", "accuracy": "gain in accuracy"}
FOCUS = {"loss": r"loss $L(\alpha)$", "incentive": r"incentive $I(\alpha)$"}
ATTENTION = r"attention $\alpha$ on the foreground"
TAU = 0.8  # the threshold of SAIF used everywhere else


@styled
def learning_curves(history: pd.DataFrame, switch_epoch: int | None = None, title: str = "") -> PageFigure:
    """Accuracy, focus accuracy and SAIF per epoch: mean over seeds, 95% t-interval, and seeds as dots.

    `history` has one row per paradigm, seed and epoch, with the columns accuracy, focus_accuracy and saif in [0, 1];
    the last two are missing if the foreground is not known. A line marks `switch_epoch`, the hybrid's last SA epoch.
    """
    require_columns(history, "history", ("paradigm", "seed", "epoch", "accuracy"))
    known = {name: label for name, label in METRICS.items() if name in history and history[name].notna().any()}
    height = (5.0 if len(known) > 1 else 3.6) + (0.2 if title else 0.0)
    fig, axes = panels(history, "epoch", known, "epoch", log="x", shares=True, height=height)
    key = paradigm_key(history, bars=False)
    if switch_epoch is not None:
        key.append(dotted(axes, f"hybrid switches from SA to HA\nafter epoch {switch_epoch}", x=switch_epoch))
    return finished(fig, axes, key, ncols=3, title=title)


@styled
def caption_curves(history: pd.DataFrame, switch_epoch: int) -> PageFigure:
    """BLEU-4, a_z, s_y and SAIF per epoch: mean over seeds, 95% t-interval, and seeds as dots.

    `history` has one row per paradigm, seed and epoch, with the columns bleu4, a_z, s_y and saif in [0, 1].
    """
    fig, axes = panels(history, "epoch", CAPTIONS, "epoch", log="x", shares=True, height=5.4)
    key = [*paradigm_key(history, bars=False), dotted(axes, "change of phase", x=switch_epoch)]
    return finished(fig, axes, key, ncols=3)


@styled
def saif_over_tau(curves: Mapping[str, ArrayLike], title: str = "") -> PageFigure:
    """SAIF over its threshold, from 0 to 1 in equal steps: mean over seeds, 95% t-interval, and seeds as dots.

    `curves` maps each paradigm to SAIF in [0, 1] of every seed at every threshold, (R, T).
    """
    rows = [
        pd.DataFrame({"paradigm": name, "seed": seed, "tau": np.linspace(0.0, 1.0, len(curve)), "saif": curve})
        for name, values in curves.items()
        for seed, curve in enumerate(np.asarray(values, dtype=np.float64))
    ]
    if not rows:
        return empty_card()
    frame = pd.concat(rows)
    fig, axes = panels(frame, "tau", {"saif": ""}, r"threshold $\tau$", shares=True, height=4.5 if title else 4.3)
    dotted(axes, "", x=TAU)
    axes[0].annotate(rf"$\tau$ = {TAU:g}", (TAU, 0.0), (4, 2), textcoords="offset points", color=INK)
    axes[0].set(ylabel=r"SAIF: share with $a_z > \tau$ and $s_y > \tau$", xlim=(-0.01, 1.01))
    return finished(fig, axes, paradigm_key(frame, bars=False), ncols=3, title=title)


@styled
def measures_over(
    frame: pd.DataFrame, column: str, label: str, log: bool = False, chance: Mapping[str, ArrayLike] | None = None
) -> PageFigure:
    """Accuracy, focus accuracy and SAIF over a setting: mean over seeds, 95% t-interval, and seeds as dots.

    `frame` has one row per paradigm, value of the setting and seed, with measures in [0, 1], NaN if training diverged.
    `column` holds the setting, `label` names it; `chance` gives the results of guessing at its values in rising order.
    """
    places = np.sort(frame[column].unique())
    fig, axes = panels(frame, column, METRICS, label, log="x" * log, shares=True, dense=False)
    key = paradigm_key(frame, bars=True)
    if chance:
        key.append(guess := dotted([], "guessing"))
    for ax, measure in zip(axes, METRICS, strict=True):
        if chance and measure in chance:
            ax.plot(places, chance[measure], c=guess.get_color(), ls=":", lw=1.4, gid=f"chance-{measure}")
            share_axis(ax)
        ax.set_xticks(places, [f"{place:,.0f}" if place >= 1 and place % 1 == 0 else f"{place:g}" for place in places])
        ax.set_xticks([], minor=True)
        ax.tick_params(axis="x", rotation=90 * (len(places) > 7))
    return finished(fig, axes, key)


@styled
def gain_over_switch(gains: pd.DataFrame, rule: Mapping[str, float]) -> PageFigure:
    """Gain of the hybrid over the better of SA and HA, by the share of epochs before its switch.

    `gains` has one row per task, share in (0, 1) and seed, with the columns saif and accuracy, differences in [-1, 1],
    and data, a kind of data, which has a row of panels. Drawn are means over seeds, 95% t-intervals and, if few, seeds
    as dots. `rule` maps tasks to the share at which a rule switches, which is marked on the axis.
    """
    tasks = {data: list(dict.fromkeys(part["task"])) for data, part in gains.groupby("data", sort=False)}
    hues = {data: colormaps["viridis"](np.linspace(0.0, 0.72, len(names))) for data, names in tasks.items()}
    looks = {
        name: Style(name=name, label=name, color=to_hex(hue), marker=marker, linestyle="-")
        for data, names in tasks.items()
        for name, hue, marker in zip(names, hues[data], cycle("osD^v"), strict=False)
    }
    fig, axes = panels(gains, "share", GAIN_PANELS, "share of epochs before switch", rows="data", hue="task",
                       looks=looks, dense=False, log="x")  # fmt: skip
    for ax, (data, measure) in zip(axes, product(tasks, GAIN_PANELS), strict=True):
        low = ax.get_ylim()[0]
        ax.set_ylim(low, None)
        for name in (name for name in tasks[data] if name in rule):
            shape: Any = {"ms": 9, "mfc": looks[name].color, "mec": CARD, "clip_on": False, "zorder": 5}
            ax.plot(rule[name], low, looks[name].marker, gid=f"rule-{measure}-{name}", **shape)
    key: list[Artist] = [dotted(axes, "no gain", y=0.0)]
    for name, look in looks.items():
        label = f"{name} (n = {gains.loc[gains['task'] == name, 'seed'].nunique()})".replace("$", r"\$")
        key.append(Line2D([], [], c=look.color, marker=look.marker, label=label))
    return finished(fig, axes, key, ncols=2, heading="marks on the axis: where the rule switches" if rule else "")


@styled
def flow_curves(flow: pd.DataFrame) -> PageFigure:
    """Margin and focus logit over time, one row per setting: columns setting, paradigm, time, mu and nu."""
    return _over_time(flow, FLOW)


@styled
def curvature(spectrum: pd.DataFrame) -> PageFigure:
    """Extreme eigenvalues of the loss's Hessian over time, one row per setting: columns setting, paradigm, time,
    largest (the largest eigenvalue) and downward (minus the smallest; drawn only if positive)."""
    return _over_time(spectrum, CURVATURE, log="y")


def _over_time(frame: pd.DataFrame, measures: Mapping[str, str], log: str = "") -> PageFigure:
    """Measures over the time of the flow."""
    fig, axes = panels(frame, "time", measures, "time $t$", rows="setting", log=log)
    for ax in axes:
        ax.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4), useMathText=True)
    return finished(fig, axes, paradigm_key(frame))


@styled
def speed_ratios(ratios: pd.DataFrame) -> PageFigure:
    """Ratio of LVML's speed to HA's at the same point, along the path of each paradigm; one row per setting.

    Columns: setting, paradigm (of the path), alpha in (0, 1), mu_ratio and nu_ratio, both positive.
    """
    fig, axes = panels(ratios, "alpha", RATIOS, ATTENTION, rows="setting", log="xy")
    key = [*paradigm_key(ratios), dotted(axes, "equally fast", y=1.0)]
    return finished(fig, axes, key, heading="at the points along the path of")


@styled
def phase_portrait(curves: pd.DataFrame, points: pd.DataFrame | None = None) -> PageFigure:
    """Focus logit versus margin, one panel per setting: closed-form curves, and training as points.

    `curves` has the columns setting, paradigm, mu and nu; `points` has also seed, with one row per seed and epoch.
    """
    settings = list(dict.fromkeys(curves["setting"]))
    looks = {name: style_of(name) for name in paradigm_order(curves["paradigm"])}
    lines = looks if points is None else {name: replace(look, marker="") for name, look in looks.items()}
    height, nu = 3.7 if len(settings) > 1 else 4.4, {"nu": FLOW["nu"]}
    fig, axes = panels(curves, "mu", nu, FLOW["mu"], columns="setting", looks=lines, height=height)
    note = ""
    if points is not None:
        note = f"lines: closed form; marks: training, n = {points['seed'].nunique()} seeds"
        for (setting, name), dots in points.groupby(["setting", "paradigm"]):
            look = looks[str(name)]
            shape: Any = {"marker": look.marker, "mec": look.color, "mfc": "none", "mew": 0.9, "ms": 4.5, "ls": ""}
            ax = axes[settings.index(str(setting))]
            ax.plot(dots["mu"], dots["nu"], alpha=0.75, gid=f"points-{name}", **shape)
    for ax in axes:
        ax.set(xlim=(0, None), ylim=(0, None))
    return finished(fig, axes, paradigm_key(curves), heading=note)


@styled
def cost_over_segments(costs: pd.DataFrame, ways: Mapping[str, str]) -> PageFigure:
    """Time and memory of a training step over the number of segments, one column per method of computation.

    `costs` has one row per measurement: paradigm, way, num_segments, median, low, high (milliseconds) and peak_mb;
    `ways` maps each method to its heading.
    """
    named = pd.Categorical(costs["way"].map(ways), list(ways.values()))
    shown = costs.assign(way=named).sort_values(["way", "num_segments"])
    fig, axes = panels(shown, "num_segments", COSTS, "segments $m$", columns="way", log="xy")
    for ax, (_, part) in zip(axes, shown.groupby("way", observed=True), strict=False):
        colors = [style_of(name).color for name in part["paradigm"]]
        ax.vlines(part["num_segments"], part["low"], part["high"], color=colors, lw=1.0)
    return finished(fig, axes, paradigm_key(costs))


@styled
def fixed_focus_curves(sweep: pd.DataFrame, theory: pd.DataFrame | None = None, x: str = "epoch") -> PageFigure:
    """Loss and incentive over `x` ("epoch" or "time"), one column per paradigm and one curve per attention weight.

    `sweep` has one row per paradigm, alpha, seed and epoch, with the columns loss and incentive; `theory`, a closed
    form, has the same without seed and is drawn thin and dashed.
    """
    looks, names = alpha_looks(sweep["alpha"].unique()), paradigm_order(sweep["paradigm"])
    ordered = sweep.assign(paradigm=pd.Categorical(sweep["paradigm"], names)).sort_values("paradigm", kind="stable")
    label = "time $t$" if x == "time" else x
    fig, axes = panels(ordered, x, FOCUS, label, columns="paradigm", hue="alpha", looks=looks, theory=theory)
    for ax, name in zip(axes, names, strict=False):
        ax.set_title(style_of(name).label)
    tame(axes[len(names)], sweep["incentive"])
    key: list[Artist] = [Line2D([], [], color=look.color, lw=2.4, label=look.label) for look in looks.values()]
    if theory is not None:
        key.append(Line2D([], [], color=INK, lw=0.8, ls=THIN, label="closed form"))
    seeds = sweep["seed"].nunique()
    key += interval_key(seeds, f" (n = {seeds})") or [Line2D([], [], ls="", label="n = 1")]
    return finished(fig, axes, key, ncols=3)


@styled
def incentive_over_alpha(sweep: pd.DataFrame, theory: pd.DataFrame | None = None) -> PageFigure:
    """Incentive at the last epoch over the attention on the foreground: mean, 95% t-interval, and seeds as dots.

    `sweep` is as in `fixed_focus_curves`; `theory`, drawn as lines, has the columns paradigm, alpha and incentive.
    """
    last = sweep[sweep["epoch"] == sweep["epoch"].max()]
    fig, axes = panels(last, "alpha", {"incentive": ""}, ATTENTION, dense=False, theory=theory, height=3.9)
    axes[0].set_ylabel(r"incentive $I(\alpha)$ after training")
    tame(axes[0], last["incentive"])
    heading = "" if theory is None else "marks: trained; lines: closed form"
    return finished(fig, axes, paradigm_key(last, bars=True), ncols=3, heading=heading)


def alpha_looks(alphas: ArrayLike) -> dict[float, Style]:
    """A style for each attention weight in [0, 1] in rising order, from dark to light."""
    looks = {}
    for alpha in sorted(float(alpha) for alpha in np.asarray(alphas)):
        color = to_hex(colormaps["viridis"](0.62 * alpha))
        label = rf"$\alpha$ = {alpha:g}"
        looks[alpha] = Style(name=f"{alpha:g}", label=label, color=color, marker="", linestyle="-")
    return looks

"""Panels for all figures of curves: means over seeds, intervals, single seeds and closed forms."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullFormatter, StrMethodFormatter
from scipy.special import stdtrit

from fcamlib.errors import UserError
from fcamlib.paradigms import Style, style_of
from fcamlib.plots.look import DOT, FAINT_INK, INK, PAGE_WIDTH, RULE, PageFigure, paradigm_order, require_columns
from fcamlib.verdicts import LEAST_SEEDS

DOTS_BELOW = 10  # number of seeds from which only the interval is drawn
MARKERS = 7  # per curve, so that curves are distinguishable without colour
SHIFT = 0.014  # of the axis, between intervals that would overlap
THIN = (0, (4, 3))  # dashes of a closed form
LINEAR_BELOW = 2.0  # value above which an axis becomes logarithmic if a curve goes far beyond it


def seed_band(seeds: Float[np.ndarray, "R T"], shares: bool = False) -> Float[np.ndarray, "3 T"]:
    r"""Mean over the seeds that are not NaN, and the limits of its 95% t-interval, clipped to [0, 1] for `shares`.

    $$\bar v \pm t_{0.975, R-1} \, s / \sqrt R$$

    For a curve of fewer than five seeds the limits are the least and the greatest value, as in the tables.
    """
    table = pd.DataFrame(seeds)
    count, mean = table.count(), table.mean()
    half = (stdtrit((count - 1).clip(1), 0.975) * table.std() / np.sqrt(count)).fillna(0.0)
    limits = (table.min(), table.max()) if len(table) < LEAST_SEEDS else (mean - half, mean + half)
    band = np.stack([mean, *limits])
    return band.clip(0.0, 1.0) if shares else band


def panels(
    frame: pd.DataFrame,
    x: str,
    measures: Mapping[str, str],
    x_label: str,
    rows: str = "",
    columns: str = "",
    hue: str = "paradigm",
    looks: Mapping[Any, Style] | None = None,
    theory: pd.DataFrame | None = None,
    height: float = 5.0,
    **drawing: Any,
) -> tuple[PageFigure, list[Axes]]:
    """One panel per measure over `x`, with one curve per value of `hue`: means over seeds, intervals, seeds as dots.

    `frame` has the columns `x`, `hue`, the measures (NaN is left out) and, if there are several, `seed`; `theory`, with
    closed forms, has the same without seed. `measures` maps measures to labels, `looks` maps values of `hue` to styles.
    `rows` or `columns` names a column that divides the panels further. `drawing` is passed to `draw_panel`.
    """
    divided, several = rows or columns, len(measures) > 1
    require_columns(frame, "the table", [name for name in (hue, x, *measures, divided) if name])
    looks = looks or {name: style_of(name) for name in paradigm_order(frame[hue])}
    groups = list(dict.fromkeys(frame[divided])) if divided else [""]
    cells = [(m, g) for g in groups for m in measures] if rows else [(m, g) for m in measures for g in groups]
    across = len(measures) if rows else len(groups) if columns else min(2, len(measures))
    shared: Any = {"sharex": several and not rows, "sharey": "row" if columns and several else False}
    fig, axes = empty_panels(len(cells), across, 0.8 + 2.5 * len(groups) if rows else height, **shared)
    for place, (ax, (measure, group)) in enumerate(zip(axes, cells, strict=True)):
        part = frame[frame[divided] == group] if divided else frame
        form = theory[theory[divided] == group] if divided and theory is not None else theory
        draw_panel(ax, part, x, measure, hue, looks, form, **drawing)
        is_first, is_top, is_last = place % across == 0, place < across, place + across >= len(cells)
        ax.set_xlabel(x_label if is_last else "")
        ax.tick_params(labelbottom=is_last or not columns)
        ax.set_ylabel(measures[measure] if rows or (columns and is_first) else "")
        if rows and is_first:
            ax.set_title(group, loc="left", fontweight="normal")
        elif not rows and (is_top or not divided):
            ax.set_title(textwrap.fill(group or measures[measure], 64 // len(groups)))
    return fig, axes


def empty_panels(number: int, across: int, height: float, **shared: Any) -> tuple[PageFigure, list[Axes]]:
    """A figure with `number` panels; the places after the last panel stay empty."""
    fig = PageFigure(figsize=(PAGE_WIDTH, height), layout="constrained")
    grid = fig.subplots(-(-number // across), across, squeeze=False, **shared)
    for ax in grid.flat[number:]:
        ax.set_axis_off()
    return fig, list(grid.flat[:number])


def draw_panel(
    ax: Axes,
    frame: pd.DataFrame,
    x: str,
    measure: str,
    hue: str,
    looks: Mapping[Any, Style],
    theory: pd.DataFrame | None = None,
    dense: bool = True,
    shares: bool = False,
    log: str = "",
) -> None:
    """Draw the curves of one panel; `log` names the logarithmic axes.

    Intervals form a band if `x` is `dense`; otherwise they are bars, side by side unless a closed
    form is drawn. For `shares` they are clipped to [0, 1], and the axis begins below the lowest value.
    """
    for axis in log:
        getattr(ax, f"set_{axis}scale")("log", nonpositive="mask")
    crowded = not dense and theory is None and frame.groupby(x)[hue].nunique().max() > 1
    low, high = frame[x].min(), frame[x].max()
    for turn, (value, look) in enumerate(looks.items()):
        name, part = f"{measure}-{value}", frame[frame[hue] == value].dropna(subset=[measure])
        if len(part):
            places, seeds = by_seed(part, x, measure)
            beside = SHIFT * (turn - (len(looks) - 1) / 2) if crowded else 0.0
            places = places * (high / low) ** beside if "x" in log else places + beside * (high - low)
            shown = _spread(np.log(places) if "x" in log else places, turn / len(looks))
            line: Any = {"c": look.color, "ls": look.linestyle if dense or theory is None else ""}
            line |= {"marker": look.marker, "markevery": shown, "ms": 5.5}
            _draw_curve(ax, places, seeds, seed_band(seeds, shares), name, line, dense)
        if theory is not None:
            form = theory[theory[hue] == value].sort_values(x)
            thin: Any = {"c": INK, "lw": 0.8, "ls": THIN, "zorder": 4}
            shape: Any = thin if dense else {"c": look.color, "ls": look.linestyle}
            ax.plot(form[x], form[measure], gid=f"theory-{name}", **shape)
    for letter in log:
        log_ticks(getattr(ax, f"{letter}axis"))
    if shares:
        share_axis(ax)


def by_seed(part: pd.DataFrame, x: str, measure: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "R T"]]:
    """Values of `x`, and one row of values per seed with NaN for missing ones; without seeds, a single row."""
    if "seed" not in part:
        return part[x].to_numpy(dtype=np.float64), part[[measure]].to_numpy(dtype=np.float64).T
    if part.duplicated(["seed", x]).any():
        raise UserError(f"the table has several rows for a curve, seed and {x}: give one value of each other setting.")
    table = part.pivot(index="seed", columns=x, values=measure)
    return table.columns.to_numpy(dtype=np.float64), table.to_numpy(dtype=np.float64)


def _draw_curve(
    ax: Axes,
    x: Float[np.ndarray, " T"],
    seeds: Float[np.ndarray, "R T"],
    band: Float[np.ndarray, "3 T"],
    name: str,
    line: dict[str, Any],
    dense: bool,
) -> None:
    """Draw the mean, its interval if there are several seeds, and few seeds as dots if the mean has markers."""
    (mean, low, high), color, shown = band, line["c"], line["markevery"]
    ax.plot(x, mean, gid=f"mean-{name}", **line)
    if len(seeds) > 1 and dense:
        ax.fill_between(x, low, high, color=color, alpha=0.16, lw=0, gid=f"band-{name}")
    elif len(seeds) > 1:
        ax.vlines(x, low, high, color=color, lw=1.4, gid=f"band-{name}")
    if 1 < len(seeds) < DOTS_BELOW:
        dots = np.broadcast_to(x[shown], (len(seeds), len(shown)))
        ax.plot(dots.ravel(), seeds[:, shown].ravel(), color=color, gid=f"seeds-{name}", **DOT)


def _spread(x: Float[np.ndarray, " T"], turn: float) -> list[int]:
    """Indices of markers spread evenly over the axis, offset from those with another `turn` in [0, 1)."""
    if len(x) < 2 * MARKERS:
        return list(range(len(x)))
    wanted = x.min() + np.ptp(x) * (np.arange(MARKERS) + turn) / MARKERS
    return sorted({int(np.abs(x - place).argmin()) for place in wanted})


def share_axis(ax: Axes) -> None:
    """Let an axis of shares range from below its lowest value to 1."""
    bottom = min(0.8, np.floor(max(0.0, ax.dataLim.y0) * 5 + 1e-9) / 5)
    ticks = np.arange(0.0, 1.01, 0.2 if bottom < 0.6 else 0.1)
    room = 0.03 * (1 - bottom)
    ax.set(ylim=(bottom - room, 1 + room), yticks=ticks[ticks > bottom - 1e-9])


def log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times each power of ten, or only at powers of ten if there are many."""
    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    axis.set_major_locator(FixedLocator([step * 10.0**power for power in range(-12, 13) for step in steps]))
    if len(steps) > 1 and low > 1e-3:
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_minor_formatter(NullFormatter())


def tame(ax: Axes, values: pd.Series) -> None:
    """Make an axis logarithmic above `LINEAR_BELOW` if a very large curve would flatten the others."""
    if values.max() > 5 * LINEAR_BELOW:
        ax.set_yscale("symlog", linthresh=LINEAR_BELOW, linscale=1.6)
        low, high = min(values.min(), -0.5), ax.get_ylim()[1]
        beyond = (5, 20, 100) if high < 200 else (20, 200, 2000)
        ticks = [tick for tick in (-5, -2, -1, 0, 1, 2, *beyond) if low < tick < high]
        ax.set_yticks(ticks, [f"{tick}".replace("-", "\N{MINUS SIGN}") for tick in ticks])
        ax.set_yticks([], minor=True)
        ax.set_ylabel(f"{ax.get_ylabel()}\n(logarithmic above {LINEAR_BELOW:g})")


def dotted(axes: Sequence[Axes], label: str, x: Any = None, y: Any = None) -> Line2D:
    """Draw a dotted line through each panel at `x` or `y`; return its legend entry."""
    shape: Any = {"color": FAINT_INK, "lw": 1.4, "ls": ":"}
    for ax in axes:
        if x is not None:
            ax.axvline(x, zorder=1, gid="mark", **shape)
        if y is not None:
            ax.axhline(y, zorder=1, gid="mark", **shape)
    return Line2D([], [], label=label, **shape)


def paradigm_key(frame: pd.DataFrame, bars: bool | None = None) -> list[Artist]:
    """Legend entries of the paradigms and, unless `bars` is None, of their number of seeds, intervals and dots."""
    key: list[Artist] = []
    for look in map(style_of, paradigm_order(frame["paradigm"])):
        seeds = 0 if bars is None else frame.loc[frame["paradigm"] == look.name, "seed"].nunique()
        label = f"{look.label} (n = {seeds})" if seeds else look.label
        key.append(Line2D([], [], c=look.color, marker=look.marker, ls=look.linestyle, label=label))
    return key if bars is None else key + interval_key(frame["seed"].nunique(), bars=bars)


def interval_key(seeds: int, number: str = "", bars: bool = False) -> list[Artist]:
    """Legend entries of intervals, or with few seeds of ranges, and of dots, if there are several seeds."""
    label = f"{'95% t-interval' if seeds >= LEAST_SEEDS else 'range'}{number or ' over seeds'}"
    drawn = Line2D([], [], color=FAINT_INK, lw=1.4, label=label) if bars else Patch(facecolor=RULE, label=label)
    dots = Line2D([], [], color=FAINT_INK, label="single seeds", **DOT)
    return [] if seeds < 2 else [drawn] if seeds >= DOTS_BELOW else [drawn, dots]


def finished(fig: PageFigure, axes: Sequence[Axes], key: Sequence[Artist], ncols: int = 0, **words: str) -> PageFigure:
    """Add the `title`, and the legend with its `heading`, in an empty place or under the panels."""
    if free := fig.axes[len(axes) :]:
        free[0].legend(handles=key, loc="center left", borderaxespad=0.0)
    else:
        shape: Any = {"ncols": ncols or len(key), "handlelength": 3.0, "columnspacing": 1.4}
        fig.legend(handles=key, loc="outside lower center", title=words.get("heading"), **shape)
    if words.get("title"):
        fig.suptitle(words["title"], parse_math=False)
    return fig

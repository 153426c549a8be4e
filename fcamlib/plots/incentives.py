"""Fixed focus: loss and incentive over training at each attention, and the incentive over attention at its end."""

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fcamlib.plots.checks import paradigm_order, require_columns
from fcamlib.plots.curves import seed_band
from fcamlib.plots.look import (
    BODY_SIZE,
    FAINT_INK,
    INK,
    PAGE_WIDTH,
    PARADIGM_LABEL,
    PARADIGM_STYLE,
    RULE,
    PageFigure,
    styled,
)

MEASURES = {"loss": r"loss $L(\alpha)$", "incentive": r"incentive $I(\alpha)$"}
X_LABELS = {"epoch": "epoch", "time": "time $t$"}
COLOR_RANGE = (0.05, 0.85)  # of viridis: dark for little attention; the lightest end would vanish on white


@styled
def fixed_focus_curves(
    sweep: pd.DataFrame, theory: pd.DataFrame | None = None, x: str = "epoch", title: str = ""
) -> PageFigure:
    """Draw loss and incentive over training, one column per paradigm, one curve per attention on the foreground.

    Parameters
    ----------
    sweep : pandas.DataFrame
        One row per paradigm, alpha, seed and epoch; columns paradigm, alpha, seed, `x`, loss, incentive.
    theory : pandas.DataFrame, optional
        The closed form: the same columns without seed, drawn thin and dashed.
    x : {"epoch", "time"}
        Column on the horizontal axis.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        Two rows of panels; a row shares its vertical axis. Bands are the 95 % t-interval over seeds.
    """
    if x not in X_LABELS:
        raise ValueError(f"x is {x!r}; use one of {', '.join(X_LABELS)}.")
    require_columns(sweep, "sweep", ("paradigm", "alpha", "seed", x, *MEASURES))
    names = paradigm_order(sweep["paradigm"], "sweep column 'paradigm'")
    if theory is not None:
        require_columns(theory, "theory", ("paradigm", "alpha", x, *MEASURES))
    colors = alpha_colors(sweep["alpha"].unique())
    fig = PageFigure(figsize=(PAGE_WIDTH, 5.0), layout="constrained")
    grid = fig.subplots(len(MEASURES), len(names), sharey="row", squeeze=False)
    for column, name in enumerate(names):
        for row, measure in enumerate(MEASURES):
            ax = grid[row, column]
            _draw_panel(ax, sweep[sweep["paradigm"] == name], x, measure, colors)
            if theory is not None:
                _draw_theory(ax, theory[theory["paradigm"] == name], x, measure, colors)
            ax.set(xlabel=X_LABELS[x] if row else "")
        grid[0, column].set_title(PARADIGM_LABEL[name])
    for row, label in enumerate(MEASURES.values()):
        grid[row, 0].set_ylabel(label)
    handles = _key(colors, sweep["seed"].nunique(), theory is not None)
    fig.legend(handles=handles, loc="outside lower center", ncols=4, handlelength=2.0, columnspacing=1.2)
    if title:
        fig.suptitle(title)
    return fig


@styled
def incentive_over_alpha(sweep: pd.DataFrame, theory: pd.DataFrame | None = None, title: str = "") -> PageFigure:
    """Draw the incentive at the last epoch over the attention on the foreground.

    Parameters
    ----------
    sweep : pandas.DataFrame
        As in `fixed_focus_curves`.
    theory : pandas.DataFrame, optional
        Columns paradigm, alpha (finely spaced) and incentive at the same time of training: drawn as lines.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        One panel: means over seeds with their 95 % t-intervals.
    """
    require_columns(sweep, "sweep", ("paradigm", "alpha", "seed", "epoch", "incentive"))
    names = paradigm_order(sweep["paradigm"], "sweep column 'paradigm'")
    last = sweep[sweep["epoch"] == sweep["epoch"].max()]
    fig = PageFigure(figsize=(PAGE_WIDTH, 3.9), layout="constrained")
    ax = fig.subplots()
    handles = []
    for name in names:
        look = PARADIGM_STYLE[name]
        table = last[last["paradigm"] == name].pivot(index="seed", columns="alpha", values="incentive")
        mean, low, high = seed_band(table.to_numpy(dtype=np.float64), "t")
        alphas = table.columns.to_numpy(dtype=np.float64)
        joined = look.linestyle if theory is None else ""
        ax.errorbar(alphas, mean, yerr=np.stack([mean - low, high - mean]), color=look.color, marker=look.marker,
                    ls=joined, capsize=3, label=look.label)  # fmt: skip
        if theory is not None:
            rows = theory[theory["paradigm"] == name].sort_values("alpha")
            ax.plot(rows["alpha"], rows["incentive"], color=look.color, ls=look.linestyle, gid=f"theory-{name}")
        handles.append(Line2D([], [], color=look.color, marker=look.marker, ls=look.linestyle,
                              label=f"{look.label} (n = {len(table)})"))  # fmt: skip
    ax.set(xlabel=r"attention $\alpha$ on the foreground", ylabel=r"incentive $I(\alpha)$ after training")
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    note = "bars: 95 % t-interval over n seeds" + ("" if theory is None else "; lines: closed form")
    fig.legend(handles=handles, loc="outside lower center", ncols=3, title=note, title_fontsize=BODY_SIZE)
    if title:
        fig.suptitle(title)
    return fig


def alpha_colors(alphas: np.ndarray) -> dict[float, str]:
    """Return a colour for each attention weight, from dark to light as it grows.

    Parameters
    ----------
    alphas : numpy.ndarray
        Weights in [0, 1], in any order.

    Returns
    -------
    dict
        Weight -> hexadecimal colour; rising weights.
    """
    low, high = COLOR_RANGE
    ordered = sorted(float(alpha) for alpha in alphas)
    return {alpha: to_hex(colormaps["viridis"](low + (high - low) * alpha)) for alpha in ordered}


def seeds_by_x(rows: pd.DataFrame, x: str, measure: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "R T"]]:
    """Return one measure at one paradigm and attention as an array.

    Parameters
    ----------
    rows : pandas.DataFrame
        Columns seed, `x` and `measure`; every seed with the same places.
    x, measure : str
        Columns.

    Returns
    -------
    places : numpy.ndarray
        (T,) rising.
    values : numpy.ndarray
        (R, T), one row per seed.
    """
    if rows.duplicated(["seed", x]).any():
        raise ValueError(f"sweep has two rows for one paradigm, alpha, seed and {x}; keep one row for each.")
    table = rows.pivot(index="seed", columns=x, values=measure)
    if table.isna().to_numpy().any():
        raise ValueError(f"sweep has seeds with different values of {x!r}, or a missing {measure}; give all the same.")
    return table.columns.to_numpy(dtype=np.float64), table.to_numpy(dtype=np.float64)


def _draw_panel(ax: Axes, rows: pd.DataFrame, x: str, measure: str, colors: dict[float, str]) -> None:
    """Draw the trained curves of one paradigm.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    rows : pandas.DataFrame
        The paradigm's rows.
    x, measure : str
        Columns.
    colors : dict
        Attention -> colour.
    """
    for alpha, color in colors.items():
        places, values = seeds_by_x(rows[rows["alpha"] == alpha], x, measure)
        mean, low, high = seed_band(values, "t")
        ax.plot(places, mean, color=color, gid=f"trained-{alpha:g}")
        if len(values) > 1:
            ax.fill_between(places, low, high, color=color, alpha=0.2, lw=0, gid=f"band-{alpha:g}")


def _draw_theory(ax: Axes, rows: pd.DataFrame, x: str, measure: str, colors: dict[float, str]) -> None:
    """Draw the closed form over the trained curves.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    rows : pandas.DataFrame
        The paradigm's rows.
    x, measure : str
        Columns.
    colors : dict
        Attention -> colour of the trained curve; the closed form is drawn in ink over it.
    """
    for alpha in colors:
        curve = rows[rows["alpha"] == alpha].sort_values(x)
        ax.plot(curve[x], curve[measure], color=INK, lw=0.8, ls=(0, (4, 3)), zorder=4, gid=f"theory-{alpha:g}")


def _key(colors: dict[float, str], num_seeds: int, has_theory: bool) -> list[Artist]:
    """Return the legend.

    Parameters
    ----------
    colors : dict
        Attention -> colour.
    num_seeds : int
        Seeds behind each curve.
    has_theory : bool
        Whether closed forms are drawn.

    Returns
    -------
    list of matplotlib.artist.Artist
        Legend handles.
    """
    handles: list[Artist] = [
        Line2D([], [], color=color, lw=2.4, label=rf"$\alpha$ = {alpha:g}") for alpha, color in colors.items()
    ]
    if has_theory:
        handles.append(Line2D([], [], color=INK, lw=0.8, ls=(0, (4, 3)), label="closed form"))
    if num_seeds > 1:
        handles.append(Patch(facecolor=RULE, label=f"95 % t-interval (n = {num_seeds})"))
    else:
        handles.append(Line2D([], [], ls="", color=FAINT_INK, label="n = 1"))
    return handles

"""The gradient flow: trajectories, phase portraits, ratios of speeds and curvature, from tables."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from fcamlib.plots.checks import paradigm_order, require_columns
from fcamlib.plots.look import (
    BODY_SIZE,
    FAINT_INK,
    INK,
    PAGE_WIDTH,
    PARADIGM_STYLE,
    PageFigure,
    paradigm_handle,
    styled,
)

FLOW_LABELS = {"mu": r"margin $\mu$", "nu": r"focus logit $\nu$", "alpha": r"attention $\alpha$"}
RATIO_LABELS = {"mu_ratio": r"$\mu'_{LVML}\,/\,\mu'_{HA}$", "nu_ratio": r"$\nu'_{LVML}\,/\,\nu'_{HA}$"}
CURVATURE_LABELS = {"largest": "largest eigenvalue", "downward": "downward curvature"}
MARKS = 7  # markers on a curve, so that it is told from the others without colour


@styled
def flow_curves(flow: pd.DataFrame, title: str = "") -> PageFigure:
    """Draw margin and focus logit over time, one row per setting.

    Parameters
    ----------
    flow : pandas.DataFrame
        Columns setting (shown as written), paradigm, time, mu, nu; several rows per setting and paradigm.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        Two panels a setting, with the key below.
    """
    return _grid(flow, "flow", "time", "time $t$", ("mu", "nu"), FLOW_LABELS, title)


@styled
def phase_portrait(curves: pd.DataFrame, points: pd.DataFrame | None = None, title: str = "") -> PageFigure:
    """Draw focus logit against margin: closed-form curves, and what training did as points.

    Parameters
    ----------
    curves : pandas.DataFrame
        Columns setting, paradigm, mu, nu.
    points : pandas.DataFrame, optional
        The same columns and seed: one point per seed and epoch of a training.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        One panel a setting, with the key below.
    """
    names = _checked(curves, "curves", ("mu", "nu"))
    if points is not None:
        _checked(points, "points", ("mu", "nu", "seed"))
    settings = list(dict.fromkeys(curves["setting"]))
    fig = PageFigure(figsize=(PAGE_WIDTH, 3.7 if len(settings) > 1 else 4.4), layout="constrained")
    axes = fig.subplots(1, len(settings), squeeze=False)[0]
    for ax, setting in zip(axes, settings, strict=True):
        for place, name in enumerate(names):
            rows = _rows(curves, setting, name)
            _draw(ax, name, rows["mu"], rows["nu"], (place, len(names)), marked=points is None)
            if points is not None:
                dots = _rows(points, setting, name)
                look = PARADIGM_STYLE[name]
                ax.plot(
                    dots["mu"], dots["nu"], ls="", marker=look.marker, ms=4.5, mfc="none", mec=look.color,
                    mew=0.9, alpha=0.75, gid=f"points-{name}",
                )  # fmt: skip
        ax.set(xlabel=FLOW_LABELS["mu"], xlim=(0, None), ylim=(0, None))
        ax.set_title(setting, fontweight="normal")
    axes[0].set_ylabel(FLOW_LABELS["nu"])
    note = "" if points is None else f"lines: closed form; marks: training, n = {points['seed'].nunique()} seeds"
    handles = [paradigm_handle(name) for name in names]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(names), title=note, title_fontsize=BODY_SIZE)
    return _headed(fig, title)


@styled
def speed_ratios(ratios: pd.DataFrame, title: str = "") -> PageFigure:
    """Draw how much faster LVML moves than HA at the same point, along the paths of the paradigms.

    Parameters
    ----------
    ratios : pandas.DataFrame
        Columns setting, paradigm (whose path it is), alpha in (0, 1), mu_ratio and nu_ratio (both positive).
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        Two panels a setting over the attention on the foreground; equality is marked.
    """
    equal = Line2D([], [], color=FAINT_INK, lw=1.2, ls=":", label="equally fast")
    x_label = r"attention $\alpha$ on the foreground"
    fig = _grid(ratios, "ratios", "alpha", x_label, ("mu_ratio", "nu_ratio"), RATIO_LABELS, title, [equal])
    for ax in fig.axes:
        ax.axhline(1.0, color=FAINT_INK, lw=1.2, ls=":", zorder=1, gid="equal")
        ax.set(xscale="log", yscale="log")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
    return fig


@styled
def curvature(spectrum: pd.DataFrame, title: str = "") -> PageFigure:
    """Draw the extreme eigenvalues of the loss's Hessian along the trajectories.

    Parameters
    ----------
    spectrum : pandas.DataFrame
        Columns setting, paradigm, time, largest (the largest eigenvalue) and downward (minus the smallest one); where
        one is not above 0 the curve breaks off.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        Two panels a setting over time, on logarithmic scales.
    """
    fig = _grid(spectrum, "spectrum", "time", "time $t$", ("largest", "downward"), CURVATURE_LABELS, title)
    for ax in fig.axes:
        ax.set_yscale("log", nonpositive="mask")
        ax.yaxis.set_minor_formatter(NullFormatter())
    return fig


def _grid(
    table: pd.DataFrame,
    field: str,
    x: str,
    x_label: str,
    columns: tuple[str, str],
    labels: dict[str, str],
    title: str,
    handles: Iterable[Artist] = (),
) -> PageFigure:
    """Return a figure with a row of panels per setting and a panel per column.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns setting, paradigm, x and `columns`.
    field : str
        Its name, for errors.
    x, x_label : str
        Column on the horizontal axis and how it is called.
    columns : tuple of str
        Columns on the vertical axes.
    labels : dict
        What each is called.
    title : str
        Heading of the figure.
    handles : iterable of matplotlib.artist.Artist
        Further entries of the key.

    Returns
    -------
    PageFigure
        Not yet laid out.
    """
    names = _checked(table, field, (x, *columns))
    settings = list(dict.fromkeys(table["setting"]))
    fig = PageFigure(figsize=(PAGE_WIDTH, 0.8 + 2.5 * len(settings)), layout="constrained")
    grid = fig.subplots(len(settings), len(columns), squeeze=False)
    for row, setting in zip(grid, settings, strict=True):
        for ax, column in zip(row, columns, strict=True):
            for place, name in enumerate(names):
                rows = _rows(table, setting, name)
                _draw(ax, name, rows[x], rows[column], (place, len(names)))
            ax.set(ylabel=labels[column])
            ax.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4), useMathText=True)
        row[0].annotate(setting, (0.0, 1.03), xycoords="axes fraction", color=INK, annotation_clip=False)
    for ax in grid[-1]:
        ax.set_xlabel(x_label)
    entries = [*(paradigm_handle(name) for name in names), *handles]
    fig.legend(handles=entries, loc="outside lower center", ncols=len(entries))
    return _headed(fig, title)


def _draw(
    ax: Axes, paradigm: str, x: Iterable[float], y: Iterable[float], turn: tuple[int, int], marked: bool = True
) -> None:
    """Draw one curve in its paradigm's style.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    paradigm : str
        Code name.
    x, y : iterable of float
        The curve.
    turn : tuple of int
        The curve's place among how many, which sets its markers apart from the others'.
    marked : bool
        Whether it carries markers.
    """
    look = PARADIGM_STYLE[paradigm]
    values = np.asarray(list(x), dtype=np.float64)
    spacing = max(1, len(values) // MARKS)
    ax.plot(
        values,
        np.asarray(list(y), dtype=np.float64),
        color=look.color,
        ls=look.linestyle,
        marker=look.marker if marked else "",
        markevery=(turn[0] * spacing // turn[1], spacing),
        ms=5,
        gid=f"curve-{paradigm}",
    )


def _checked(table: pd.DataFrame, field: str, columns: tuple[str, ...]) -> list[str]:
    """Return a table's paradigms, refusing what cannot be drawn.

    Parameters
    ----------
    table : pandas.DataFrame
        Any table.
    field : str
        Its name, for the error.
    columns : tuple of str
        Numeric columns that it has to have, besides setting and paradigm.

    Returns
    -------
    list of str
        Code names in the figures' order.
    """
    require_columns(table, field, ("setting", "paradigm", *columns))
    for column in columns:
        if not np.isfinite(table[column].to_numpy(dtype=np.float64)).all():
            raise ValueError(f"{field} column {column!r} has a value that is not finite; leave such rows out.")
    return paradigm_order(table["paradigm"], f"{field} column 'paradigm'")


def _rows(table: pd.DataFrame, setting: str, paradigm: str) -> pd.DataFrame:
    """Return the rows of one curve.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns setting and paradigm at least.
    setting, paradigm : str
        Which.

    Returns
    -------
    pandas.DataFrame
        In the table's order.
    """
    return table[(table["setting"] == setting) & (table["paradigm"] == paradigm)]


def _headed(fig: PageFigure, title: str) -> PageFigure:
    """Return the figure with its heading.

    Parameters
    ----------
    fig : PageFigure
        Any figure.
    title : str
        Heading; "" for none.

    Returns
    -------
    PageFigure
        The same figure.
    """
    if title:
        fig.suptitle(title)
    return fig

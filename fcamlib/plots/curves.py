"""Curves with a band over seeds: metrics per epoch, and SAIF over its threshold."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from fcamlib.plots.checks import array_within, by_paradigm, paradigm_order, require_columns
from fcamlib.plots.look import (
    FAINT_INK,
    INK,
    PAGE_WIDTH,
    PARADIGM_LABEL,
    PARADIGM_STYLE,
    RULE,
    PageFigure,
    paradigm_handle,
    styled,
)

METRIC_TITLES = {"accuracy": "accuracy", "focus_accuracy": "focus accuracy", "saif": "SAIF"}
CONFIDENCE = 0.95
BAND_TEXT = {"t": "95 % t-interval of the mean", "range": "minimum to maximum"}
UNIT_TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@styled
def learning_curves(
    history: pd.DataFrame, switch_epoch: int | None = None, band: str = "t", title: str = ""
) -> PageFigure:
    """Draw accuracy, focus accuracy and SAIF per epoch: the mean over seeds and a band.

    Parameters
    ----------
    history : pandas.DataFrame
        One row per paradigm, seed and epoch; columns paradigm, seed, epoch, accuracy, focus_accuracy, saif, the
        last three in [0, 1].
    switch_epoch : int, optional
        Last epoch the hybrid trains with soft attention; marked by a vertical line.
    band : {"t", "range"}
        The 95 % t-interval of the mean, or minimum to maximum over seeds; a single seed has none.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        Three panels and, in the fourth place, the key with each paradigm's number of seeds.
    """
    require_columns(history, "history", ("paradigm", "seed", "epoch", *METRIC_TITLES))
    _require_known_band(band)
    names = paradigm_order(history["paradigm"], "history column 'paradigm'")
    _require_switch_fits(history, switch_epoch)
    fig = PageFigure(figsize=(PAGE_WIDTH, 5.2 if title else 5.0), layout="constrained")
    grid = fig.subplots(2, 2, sharex=True, sharey=True)
    seeds_of: dict[str, int] = {}
    for ax, (metric, heading) in zip(grid.flat, METRIC_TITLES.items(), strict=False):
        for position, name in enumerate(names):
            epochs, values = seeds_by_epoch(history, name, metric)
            draw_curve(ax, name, epochs, values, band, (position, len(names)))
            seeds_of[name] = len(values)
        if switch_epoch is not None:
            ax.axvline(switch_epoch, color=PARADIGM_STYLE["hybrid"].color, lw=1.2, ls=":", zorder=1, gid="switch")
        ax.set_title(heading)
        ax.set(ylim=(-0.02, 1.02), yticks=UNIT_TICKS)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.tick_params(labelbottom=True)
    for ax in (grid[0, 1], grid[1, 0]):
        ax.set_xlabel("epoch")
    grid[1, 1].set_axis_off()
    grid[1, 1].legend(handles=_key(seeds_of, band, switch_epoch), loc="center left", borderaxespad=0.0)
    if title:
        fig.suptitle(title)
    return fig


@styled
def saif_over_tau(
    curves: Mapping[str, ArrayLike],
    taus: ArrayLike | None = None,
    tau: float = 0.8,
    band: str = "t",
    title: str = "",
) -> PageFigure:
    """Draw SAIF over its threshold: the mean over seeds and a band.

    Parameters
    ----------
    curves : mapping of str to array_like
        Paradigm -> (R, T) SAIF in [0, 1] of each seed at each threshold; never rises along T.
    taus : array_like, optional
        (T,) rising thresholds in [0, 1]; T equal steps from 0 to 1 by default.
    tau : float
        The threshold used everywhere else, marked by a vertical line.
    band : {"t", "range"}
        The 95 % t-interval of the mean, or minimum to maximum over seeds; a single seed has none.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        One panel with the key below it.
    """
    _require_known_band(band)
    if not 0.0 <= tau <= 1.0:
        raise ValueError(f"tau is {tau:g}; give a threshold in [0, 1].")
    checked = {name: _falling_curves(name, values) for name, values in by_paradigm(curves, "curves").items()}
    num_taus = next(iter(checked.values())).shape[1]
    grid = np.linspace(0.0, 1.0, num_taus) if taus is None else array_within(taus, "taus", (num_taus,), 0.0, 1.0)
    if not (np.diff(grid) > 0).all():
        raise ValueError("taus does not rise from each value to the next; sort it and leave out repeats.")
    fig = PageFigure(figsize=(PAGE_WIDTH, 4.5 if title else 4.3), layout="constrained")
    ax = fig.subplots()
    for position, (name, values) in enumerate(checked.items()):
        if values.shape[1] != num_taus:
            raise ValueError(f"curves[{name!r}] has {values.shape[1]} thresholds; give {num_taus}, as for the others.")
        draw_curve(ax, name, grid, values, band, (position, len(checked)))
    ax.axvline(tau, color=FAINT_INK, lw=1.2, ls=":", zorder=1, gid="tau")
    ax.annotate(rf"$\tau$ = {tau:g}", (tau, 1.0), (4, 0), textcoords="offset points", va="top", color=INK)
    ax.set(xlabel=r"threshold $\tau$", ylabel=r"SAIF: share with $a_z > \tau$ and $s_y > \tau$")
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.02, 1.02), xticks=UNIT_TICKS, yticks=UNIT_TICKS)
    handles = _key({name: len(values) for name, values in checked.items()}, band, None)
    fig.legend(handles=handles, loc="outside lower center", ncols=2)
    if title:
        fig.suptitle(title)
    return fig


def seed_band(
    values: Float[np.ndarray, "R T"], band: str
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    r"""Return the mean over seeds and the limits of its band.

    .. math:: \bar v \pm t_{0.975, R-1} \, s / \sqrt R \quad\text{or}\quad [\min v, \max v]

    Parameters
    ----------
    values : numpy.ndarray
        (R, T), one row per seed.
    band : {"t", "range"}
        Which band.

    Returns
    -------
    mean, low, high : numpy.ndarray
        (T,) each; the limits equal the mean when R = 1.
    """
    num_seeds = len(values)
    mean = values.mean(axis=0)  # (T,)
    if num_seeds == 1:
        return mean, mean, mean
    if band == "range":
        return mean, values.min(axis=0), values.max(axis=0)
    quantile = float(stdtrit(num_seeds - 1, 0.5 + CONFIDENCE / 2))
    half = quantile * values.std(axis=0, ddof=1) / np.sqrt(num_seeds)  # (T,)
    return mean, mean - half, mean + half


def draw_curve(
    ax: Axes,
    paradigm: str,
    x: Float[np.ndarray, " T"],
    values: Float[np.ndarray, "R T"],
    band: str,
    turn: tuple[int, int],
) -> None:
    """Draw one paradigm's mean line and, from two seeds on, its band.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    paradigm : str
        Code name.
    x : numpy.ndarray
        (T,) horizontal positions.
    values : numpy.ndarray
        (R, T), one row per seed.
    band : {"t", "range"}
        Which band.
    turn : tuple of int
        This curve's place and the number of curves, so that markers of different curves do not coincide.
    """
    look = PARADIGM_STYLE[paradigm]
    mean, low, high = seed_band(values, band)
    spacing = max(1, len(x) // 6)
    first = min(len(x) - 1, turn[0] * spacing // turn[1])
    ax.plot(
        x,
        mean,
        color=look.color,
        ls=look.linestyle,
        marker=look.marker,
        markevery=(first, spacing),
        label=look.label,
        gid=f"mean-{paradigm}",
    )
    if len(values) > 1:
        ax.fill_between(x, low, high, color=look.color, alpha=0.18, lw=0, gid=f"band-{paradigm}")


def seeds_by_epoch(
    history: pd.DataFrame, paradigm: str, metric: str
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "R T"]]:
    """Return one metric of one paradigm as an array.

    Parameters
    ----------
    history : pandas.DataFrame
        As in `learning_curves`.
    paradigm : str
        Code name.
    metric : str
        A column with values in [0, 1].

    Returns
    -------
    epochs : numpy.ndarray
        (T,) rising.
    values : numpy.ndarray
        (R, T), one row per seed.
    """
    rows = history[history["paradigm"] == paradigm]
    if rows.duplicated(["seed", "epoch"]).any():
        raise ValueError(f"history has two rows for one seed and epoch of {paradigm!r}; keep one row for each.")
    table = rows.pivot(index="seed", columns="epoch", values=metric)
    if len(rows) != table.size:
        raise ValueError(f"history has seeds of {paradigm!r} with different epochs; give every seed the same epochs.")
    values = array_within(table.to_numpy(), f"history column {metric!r} of {paradigm!r}", table.shape, 0.0, 1.0)
    return table.columns.to_numpy(dtype=np.float64), values


def _falling_curves(paradigm: str, values: ArrayLike) -> Float[np.ndarray, "R T"]:
    """Return one paradigm's SAIF curves, refusing any that rises.

    Parameters
    ----------
    paradigm : str
        Code name, for the error.
    values : array_like
        (R, T).

    Returns
    -------
    numpy.ndarray
        The curves as float64.
    """
    checked = array_within(values, f"curves[{paradigm!r}]", (None, None), 0.0, 1.0)
    if (np.diff(checked, axis=1) > 1e-9).any():
        raise ValueError(f"curves[{paradigm!r}] rises with tau, which SAIF cannot; order the axis from tau = 0 to 1.")
    return checked


def _require_known_band(band: str) -> None:
    """Refuse an unknown kind of band.

    Parameters
    ----------
    band : str
        The user's value.
    """
    if band not in BAND_TEXT:
        raise ValueError(f"band is {band!r}; use one of {', '.join(BAND_TEXT)}.")


def _require_switch_fits(history: pd.DataFrame, switch_epoch: int | None) -> None:
    """Refuse a switch without a hybrid or outside its epochs.

    Parameters
    ----------
    history : pandas.DataFrame
        As in `learning_curves`.
    switch_epoch : int or None
        The user's value.
    """
    if switch_epoch is None:
        return
    epochs = history.loc[history["paradigm"] == "hybrid", "epoch"]
    if epochs.empty:
        raise ValueError("switch_epoch is given but history has no paradigm 'hybrid'; add its rows or leave it out.")
    if not epochs.min() <= switch_epoch <= epochs.max():
        raise ValueError(
            f"switch_epoch is {switch_epoch}; give an epoch of the hybrid's history, {epochs.min()} to {epochs.max()}."
        )


def _key(seeds_of: Mapping[str, int], band: str, switch_epoch: int | None) -> list[Artist]:
    """Return the legend: paradigms with their number of seeds, the band, the switch.

    Parameters
    ----------
    seeds_of : mapping
        Paradigm -> number of seeds.
    band : {"t", "range"}
        Which band.
    switch_epoch : int or None
        Where the hybrid switches.

    Returns
    -------
    list of matplotlib.artist.Artist
        Legend handles.
    """
    handles: list[Artist] = [
        paradigm_handle(name, f"{PARADIGM_LABEL[name]} (n = {count})") for name, count in seeds_of.items()
    ]
    if max(seeds_of.values()) > 1:
        handles.append(Patch(facecolor=RULE, label=f"{BAND_TEXT[band]}\nover the n seeds"))
    if switch_epoch is not None:
        color = PARADIGM_STYLE["hybrid"].color
        label = f"hybrid turns from SA to HA\nafter epoch {switch_epoch}"
        handles.append(Line2D([], [], color=color, lw=1.2, ls=":", label=label))
    return handles

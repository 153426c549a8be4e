"""Figures of studies: measures over a setting, and the hybrid's gain over pairs of networks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from fcamlib.plots.checks import array_within, paradigm_order, require_columns
from fcamlib.plots.curves import METRIC_TITLES, UNIT_TICKS, seed_band
from fcamlib.plots.look import (
    CARD,
    FAINT_INK,
    INK,
    NOTE_SIZE,
    PAGE_WIDTH,
    PARADIGM_LABEL,
    PARADIGM_STYLE,
    PageFigure,
    paradigm_handle,
    styled,
)

SHIFT = 0.012  # of the axis, between paradigms
GAIN_COLUMNS = ("focus", "classifier", "verdict", "n")
GAIN_PANELS = {"saif": "SAIF: hybrid less the better of SA and HA", "accuracy": "accuracy: the same difference"}
# Losses warm, gains cool, none white; light enough for the number that is printed in each cell.
GAIN_COLORS = LinearSegmentedColormap.from_list("gain", ["#d98c66", "#efcbb8", CARD, "#bcd3e3", "#74a5c6"])


@styled
def measures_over(
    frame: pd.DataFrame,
    column: str,
    label: str,
    log: bool = False,
    chance: Mapping[str, ArrayLike] | None = None,
    title: str = "",
) -> PageFigure:
    """Draw accuracy, focus accuracy and SAIF over a setting: mean over seeds and its 95 % t-interval.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per paradigm, value of the setting and seed; columns paradigm, seed, accuracy, focus_accuracy, saif in
        [0, 1], and the setting. Rows without a measure, of trainings that diverged, are left out.
    column : str
        The setting: a column of numbers.
    label : str
        What the horizontal axis says.
    log : bool
        Whether that axis is logarithmic.
    chance : mapping, optional
        Measure -> (T,) what guessing gives at each distinct value of the setting, rising; a dotted line.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        Three panels and, in the fourth place, the key.
    """
    require_columns(frame, "frame", ("paradigm", "seed", column, *METRIC_TITLES))
    names = paradigm_order(frame["paradigm"], "frame column 'paradigm'")
    if frame.duplicated(["paradigm", "seed", column]).any():
        raise ValueError(f"frame has two rows for one paradigm, seed and {column}; keep one row for each.")
    places = np.sort(frame[column].unique()).astype(np.float64)
    if log and places[0] <= 0:
        raise ValueError(f"frame column {column!r} holds {places[0]:g}, which has no logarithm; give values above 0.")
    crowded = frame.groupby(column)["paradigm"].nunique().max() > 1
    fig = PageFigure(figsize=(PAGE_WIDTH, 5.2 if title else 5.0), layout="constrained")
    grid = fig.subplots(2, 2, sharex=True, sharey=True)
    for ax, (metric, heading) in zip(grid.flat, METRIC_TITLES.items(), strict=False):
        for turn, name in enumerate(names):
            shift = SHIFT * (turn - (len(names) - 1) / 2) if crowded else 0.0  # intervals beside each other
            moved = places * (places[-1] / places[0]) ** shift if log else places + shift * np.ptp(places)
            rows = frame[frame["paradigm"] == name]
            _draw_estimates(ax, name, rows, column, metric, dict(zip(places, moved, strict=True)))
        if chance and metric in chance:
            level = array_within(chance[metric], f"chance[{metric!r}]", places.shape, 0.0, 1.0)
            ax.plot(places, level, color=FAINT_INK, ls=":", lw=1.4, gid=f"chance-{metric}")
        ax.set_title(heading)
        ax.set(ylim=(-0.03, 1.05), yticks=UNIT_TICKS)
        if log:
            ax.set_xscale("log")
        ax.tick_params(labelbottom=True)
        _mark(ax, places)
    for ax in (grid[0, 1], grid[1, 0]):
        ax.set_xlabel(label)
    grid[1, 1].set_axis_off()
    grid[1, 1].legend(handles=_key(frame, names, bool(chance)), loc="center left", borderaxespad=0.0)
    if title:
        fig.suptitle(title)
    return fig


def _mark(ax: Axes, places: np.ndarray) -> None:
    """Put a tick at each value of the setting.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where.
    places : numpy.ndarray
        (T,) values.
    """
    ax.set_xticks(places, [f"{place:,.0f}" if place >= 1 and place % 1 == 0 else f"{place:g}" for place in places])
    ax.set_xticks([], minor=True)
    ax.tick_params(axis="x", labelsize=NOTE_SIZE - 1)


def _draw_estimates(
    ax: Axes, paradigm: str, rows: pd.DataFrame, column: str, metric: str, moved: Mapping[float, float]
) -> None:
    """Draw one paradigm's means and intervals.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    paradigm : str
        Code name.
    rows : pandas.DataFrame
        Its rows.
    column, metric : str
        Setting and measure.
    moved : mapping
        Value of the setting -> where it is drawn.
    """
    look = PARADIGM_STYLE[paradigm]
    estimates = []
    for place, group in rows.dropna(subset=[metric]).groupby(column):
        values = array_within(group[metric].to_numpy(), f"frame column {metric!r}", (len(group),), 0.0, 1.0)
        estimates.append((moved[float(str(place))], *(float(limit[0]) for limit in seed_band(values[:, None], "t"))))
    if not estimates:
        return
    x, mean, low, high = np.array(estimates).T
    ax.vlines(x, low, high, color=look.color, lw=1.4, gid=f"interval-{metric}-{paradigm}")
    ax.plot(x, mean, color=look.color, ls=look.linestyle, marker=look.marker, gid=f"mean-{metric}-{paradigm}")


def _key(frame: pd.DataFrame, names: list[str], has_chance: bool) -> list[Artist]:
    """Return the legend: paradigms with their number of seeds, intervals, chance.

    Parameters
    ----------
    frame : pandas.DataFrame
        As in `measures_over`.
    names : list of str
        Paradigms.
    has_chance : bool
        Whether its line is drawn.

    Returns
    -------
    list of matplotlib.artist.Artist
        Legend handles.
    """
    seeds = {name: frame.loc[frame["paradigm"] == name, "seed"].nunique() for name in names}
    handles: list[Artist] = [paradigm_handle(name, f"{PARADIGM_LABEL[name]} (n = {seeds[name]})") for name in names]
    if max(seeds.values()) > 1:
        handles.append(Line2D([], [], color=FAINT_INK, lw=1.4, label="95 % t-interval\nover the n seeds"))
    if has_chance:
        handles.append(Line2D([], [], color=FAINT_INK, lw=1.4, ls=":", label="guessing"))
    return handles


@styled
def gain_heatmap(frame: pd.DataFrame, title: str = "") -> PageFigure:
    """Draw what the hybrid gains with each focus and classification network, in SAIF and in accuracy.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per pair of networks; columns focus, classifier (names as shown), saif, saif_low, saif_high, accuracy,
        accuracy_low, accuracy_high (differences in [-1, 1]; limits empty for a single seed), verdict (shown below the
        numbers) and n, the seeds.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        One panel a measure, on one colour scale around zero; rows are focus networks, columns classifiers.
    """
    import seaborn  # takes a second, and no other figure needs it

    limits = [f"{metric}{end}" for metric in GAIN_PANELS for end in ("", "_low", "_high")]
    require_columns(frame, "frame", (*GAIN_COLUMNS, *limits))
    if frame.duplicated(["focus", "classifier"]).any():
        raise ValueError("frame has two rows for one pair of networks; keep one row for each.")
    rows, columns = (list(dict.fromkeys(frame[name])) for name in ("focus", "classifier"))
    furthest = max(0.05, float(frame[list(GAIN_PANELS)].abs().max().max()))
    norm = TwoSlopeNorm(0.0, -furthest, furthest)
    height = 1.1 + 2 * (0.75 + 0.56 * len(rows)) + (0.3 if title else 0.0)
    fig = PageFigure(figsize=(PAGE_WIDTH, height), layout="constrained")
    panels = fig.subplots(2, 1)
    for ax, (metric, heading) in zip(panels, GAIN_PANELS.items(), strict=True):
        texts = frame.assign(text=[_cell(row, metric) for row in frame.to_dict("records")])
        values, labels = (
            table.pivot(index="focus", columns="classifier", values=name).loc[rows, columns]
            for table, name in ((frame, metric), (texts, "text"))
        )
        shown = {"color": INK, "fontsize": NOTE_SIZE - 1.5}
        seaborn.heatmap(
            values, ax=ax, cmap=GAIN_COLORS, norm=norm, annot=labels, fmt="", annot_kws=shown, cbar=False,
            xticklabels=[_wrapped(name) for name in columns], gid=f"gain-{metric}",
        )  # fmt: skip
        for row, column in np.argwhere(values.isna().to_numpy()):  # seaborn writes nothing there
            ax.text(column + 0.5, row + 0.5, "diverged", ha="center", va="center", **shown)
        ax.set_title(heading)
        ax.set(xlabel="", ylabel="focus network")
        ax.tick_params(length=0, labelsize=NOTE_SIZE - 1, rotation=0)
        ax.grid(False)
    panels[1].set_xlabel("classification network")
    fig.colorbar(panels[0].collections[0], ax=panels, location="bottom", aspect=40, label="difference, mean over seeds")
    if title:
        fig.suptitle(title)
    return fig


def _wrapped(network: str) -> str:
    """Return a network's name with its normalisation on a line of its own.

    Parameters
    ----------
    network : str
        Such as mlp:3x64:layer.

    Returns
    -------
    str
        One or two lines.
    """
    *first, last = network.rsplit(":", 1)
    return f"{first[0]}\n:{last}" if first and ":" in first[0] else network


def _cell(row: Mapping[Any, Any], metric: str) -> str:
    """Return what a cell says: mean, half the interval, and the claim's verdict in the panel of SAIF.

    Parameters
    ----------
    row : mapping
        A row of the frame.
    metric : str
        "saif" or "accuracy".

    Returns
    -------
    str
        Up to three lines.
    """
    mean, high = float(row[metric]), float(row[f"{metric}_high"])
    if mean != mean:
        return "diverged"
    shown = f"{mean:+.3f}".replace("-", "\N{MINUS SIGN}")
    text = shown if high != high else f"{shown}\n\N{PLUS-MINUS SIGN} {high - mean:.3f}"
    return f"{text}\n{row['verdict']}" if metric == "saif" else text

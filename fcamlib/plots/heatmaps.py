"""Heatmaps with a number in each cell: attention on the foreground versus prediction score, and gains."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, PowerNorm, TwoSlopeNorm
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike

from fcamlib.paradigms import style_of
from fcamlib.plots.look import CARD, INK, NOTE_SIZE, PAGE_WIDTH, PageFigure, empty_card, paradigm_order, styled

EDGES = {5: ("0", ".2", ".4", ".6", ".8", "1")}  # number of bins -> names of their edges
BINS = {3: ("< .2", ".2 - .3", "≥ .3")}  # number of bins -> their names, if their sizes differ
DARK_CELL = 35.0  # percent above which white digits have more contrast than dark ones
# From white through slate to near black: lightness decreases throughout, so it prints, and no paradigm has this hue.
SHARE_COLORS = LinearSegmentedColormap.from_list("share", [CARD, "#cfd9e2", "#7f97ab", "#3d5468", "#13202c"])
# Square root, because one cell often holds most instances and the small ones matter; always 0 to 100.
SHARE_SCALE = PowerNorm(gamma=0.5, vmin=0.0, vmax=100.0)
GAIN_PANELS = {"saif": "SAIF: hybrid minus the better of SA and HA", "accuracy": "accuracy: the same difference"}
# Losses are warm, gains cool, zero is white; light enough for the number printed in each cell.
GAIN_COLORS = LinearSegmentedColormap.from_list("gain", ["#d98c66", "#efcbb8", CARD, "#bcd3e3", "#74a5c6"])


def _cells(ax: Axes, values: Float[np.ndarray, "R C"], texts: Any, colors: Any, scale: Normalize) -> None:
    """Draw one heatmap of unit cells, first row at the top, with a text in each."""
    import seaborn  # takes a second to import, and no other figure needs it

    is_tall = any("\n" in text for text in np.ravel(texts))
    size: Any = NOTE_SIZE - (values.shape[1] > 4) if is_tall else "medium"
    seaborn.heatmap(
        values, annot=np.asarray(texts), fmt="", cmap=colors, norm=scale, vmin=scale.vmin, vmax=scale.vmax, cbar=False,
        linewidths=0.5, linecolor="#e3e6ea", annot_kws={"size": size, "color": INK}, ax=ax,
    )  # fmt: skip
    if colors is SHARE_COLORS:
        for text, value in zip(ax.texts, values[~np.isnan(values)], strict=True):
            text.set_color(CARD if value >= DARK_CELL else INK)
    for row, column in np.argwhere(np.isnan(values)):  # seaborn writes nothing there
        ax.text(column + 0.5, row + 0.5, texts[row][column], color=INK, size=size, ha="center", va="center")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, rotation=0)
    ax.grid(False)


def cell_text(percent: float) -> str:
    """The text of a cell: whole percent, "<1" below 1, nothing for an empty cell."""
    return "" if percent == 0.0 else "<1" if percent < 1.0 else f"{percent:.0f}"


def _plane(ax: Axes, percent: Float[np.ndarray, "A S"]) -> None:
    """Draw the percentages of one paradigm, with a_z to the right, s_y upwards and the SAIF cell outlined."""
    bins = len(percent)
    texts = [[cell_text(float(value)) for value in row] for row in percent.T]
    _cells(ax, percent.T, texts, SHARE_COLORS, SHARE_SCALE)
    ax.invert_yaxis()
    outline = Rectangle((bins - 1, bins - 1), 1, 1, fill=False, ec=INK, lw=2.0, zorder=4, clip_on=False)
    outline.set(path_effects=[withStroke(linewidth=4.0, foreground=CARD)], gid="saif-cell")
    ax.add_patch(outline)
    ax.set(aspect="equal")
    names = EDGES.get(bins) or BINS[bins]
    places = np.arange(len(names)) + (0.5 if bins in BINS else 0.0)
    ax.set_xticks(places, names)
    ax.set_yticks(places, names)


def _planes(rows: Mapping[str, Mapping[str, ArrayLike]], x: str, y: str, scale: str) -> PageFigure:
    """One panel per row label and paradigm; a single row of four panels is arranged in a square."""
    names = paradigm_order(name for panels in rows.values() for name in panels)
    if not names:
        return empty_card()
    square, single = len(rows) == 1 and len(names) > 3, len(rows) == 1
    across = 2 if square else len(names)
    down = -(-len(names) // 2) if square else len(rows)
    width = PAGE_WIDTH if single else max(4.4, 0.8 + 1.55 * across)
    height = 0.9 + 2.75 * down if square else 3.1 if single else 1.85 + 1.5 * down
    fig = PageFigure(figsize=(width, height), layout="constrained")
    grid = fig.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for ax in grid.flat:
        ax.set_axis_off()
    for place, (label, name) in enumerate((label, name) for label in rows for name in names):
        ax = grid.flat[place]
        if name in rows[label]:
            ax.set_axis_on()
            _plane(ax, np.asarray(rows[label][name], dtype=np.float64))
        if place < across or square:
            ax.set_title(style_of(name).label)
        if not single and place % across == 0:
            ax.set_ylabel(label, fontweight="bold", parse_math=False)
    fig.supxlabel(x)
    fig.supylabel(y)
    bar = fig.colorbar(
        ScalarMappable(norm=SHARE_SCALE, cmap=SHARE_COLORS), ax=list(grid.flat), ticks=[0, 1, 5, 10, 25, 50, 100],
        location="right" if square else "top", fraction=0.05, pad=0.02 if square else 0.05, aspect=30, label=scale,
    )  # fmt: skip
    bar.ax.grid(False)
    if single:
        fig.suptitle(next(iter(rows)), parse_math=False)
    return fig


@styled
def focus_prediction_heatmaps(histograms: Mapping[str, Mapping[str, ArrayLike]]) -> PageFigure:
    """Share of instances over attention on the foreground a_z and prediction score of the true label s_y.

    `histograms` maps a row label such as "test", and a paradigm, to (5, 5) percent, indexed [a_z bin, s_y bin], with
    bin edges 0, 0.2, ..., 1. Source: arXiv 2307.13421, sec. 2.4; fixed bins are this project's choice.
    """
    x, y = "attention on the foreground, $a_z$", "prediction score of the true label, $s_y$"
    return _planes(histograms, x, y, "% of instances; outlined: SAIF, both > 0.8")


@styled
def caption_heatmaps(histograms: Mapping[str, ArrayLike]) -> PageFigure:
    """Share of objects over (a_z, s_y): for each paradigm (3, 3) percent, with bin edges 0, 0.2, 0.3, 1.

    Cells have equal size although bins do not. Source: arXiv 2307.13421, experiments on MSCOCO.
    """
    x, y = "attention in the box, $a_z$", "score of the category, $s_y$"
    return _planes({"": histograms}, x, y, "% of objects; outlined: SAIF, both > 0.3")


@styled
def gain_heatmap(frame: pd.DataFrame) -> PageFigure:
    """Gain of the hybrid in SAIF and in accuracy for each pair of focus and classification networks.

    `frame` has one row per pair of networks: focus, classifier, saif and accuracy with limits _low and _high
    (differences in [-1, 1]; limits are NaN without an interval), verdict, and n, the number of seeds.
    """
    rows, columns = (list(dict.fromkeys(frame[name])) for name in ("focus", "classifier"))
    furthest = max(0.05, float(frame[list(GAIN_PANELS)].abs().max().max()))
    scale = TwoSlopeNorm(0.0, -furthest, furthest)
    fig = PageFigure(figsize=(PAGE_WIDTH, 2.6 + 1.12 * len(rows)), layout="constrained")
    axes = fig.subplots(2, 1)
    for ax, (metric, heading) in zip(axes, GAIN_PANELS.items(), strict=True):
        shown = frame.assign(text=[_gain_text(row, metric) for row in frame.to_dict("records")])
        values, texts = (
            shown.pivot(index="focus", columns="classifier", values=name).loc[rows, columns].to_numpy()
            for name in (metric, "text")
        )
        _cells(ax, values.astype(np.float64), texts, GAIN_COLORS, scale)
        ax.set_title(heading)
        ax.set_ylabel("focus network")
        names = ["\n:".join(name.rsplit(":", 1)) if name.count(":") > 1 else name for name in columns]
        ax.set_xticks(np.arange(len(columns)) + 0.5, names)
        ax.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes[1].set_xlabel("classification network")
    fig.colorbar(axes[0].collections[0], ax=axes, location="bottom", aspect=40, label="difference, mean over seeds")
    return fig


def _gain_text(row: Mapping[Any, Any], metric: str) -> str:
    """A cell's mean, half the width of its interval and, in the SAIF panel, the claim's verdict."""
    mean, half_width = float(row[metric]), (float(row[f"{metric}_high"]) - float(row[f"{metric}_low"])) / 2
    if np.isnan(mean):
        return "not known"
    half = "" if np.isnan(half_width) else f"\n\N{PLUS-MINUS SIGN} {half_width:.3f}"
    text = f"{mean:+.3f}".replace("-", "\N{MINUS SIGN}") + half
    return f"{text}\n{row['verdict']}" if metric == "saif" else text

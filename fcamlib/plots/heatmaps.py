"""Focus-prediction heatmaps: how attention on the foreground and the prediction score go together."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike

from fcamlib.plots.checks import array_within, by_paradigm
from fcamlib.plots.look import BODY_SIZE, CARD, INK, PARADIGM_LABEL, PageFigure, styled

BIN_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
EDGE_LABELS = ("0", ".2", ".4", ".6", ".8", "1")
NUM_BINS = len(BIN_EDGES) - 1
DARK_CELL = 35.0  # percent from which white figures have more contrast than dark ones
# From white to near black through slate: lightness falls all the way, so it prints, and no paradigm has this hue.
SHARE_COLORS = LinearSegmentedColormap.from_list("share", [CARD, "#cfd9e2", "#7f97ab", "#3d5468", "#13202c"])
# Square root, because one cell often holds most instances and the small ones are the finding; always 0 to 100.
SHARE_SCALE = PowerNorm(gamma=0.5, vmin=0.0, vmax=100.0)


@styled
def focus_prediction_heatmaps(histograms: Mapping[str, Mapping[str, ArrayLike]], title: str = "") -> PageFigure:
    """Draw the share of instances over (a_z, s_y), one panel per row label and paradigm.

    Each panel has the attention on the foreground a_z on the horizontal axis and the prediction score of the true
    label s_y on the vertical axis, both in the fixed bins 0, 0.2, ..., 1. The outlined top-right cell is SAIF at
    tau = 0.8. Several row labels give one row each; a single one is laid out in a square.

    Parameters
    ----------
    histograms : mapping of str to mapping of str to array_like
        Row label (such as "train", "test") -> paradigm -> (5, 5) percent, indexed [a_z bin, s_y bin], sum 100.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        Panels on one colour scale from 0 to 100 percent, the same in every figure.

    Notes
    -----
    Source: arXiv 2307.13421, sec. 2.4; fixed bins are this project's choice.
    """
    rows = _checked(histograms)
    names = by_paradigm({name: None for panels in rows.values() for name in panels}, "histograms")
    if len(rows) == 1:
        num_columns = 2 if len(names) > 1 else 1
        num_rows = -(-len(names) // num_columns)
        width, height = (6.4, 0.9 + 2.75 * num_rows) if num_columns == 2 else (4.4, 4.2)
    else:
        num_rows, num_columns = len(rows), len(names)
        width, height = max(4.4, 0.8 + 1.55 * num_columns), 1.85 + 1.5 * num_rows
    fig = PageFigure(figsize=(width, height), layout="constrained")
    grid = fig.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False)
    _fill(grid, rows, list(names))
    only_row = next(iter(rows)) if len(rows) == 1 else ""
    fig.suptitle(": ".join(part for part in (title, only_row) if part))
    fig.supxlabel("attention on the foreground, $a_z$")
    fig.supylabel("prediction score of the true label, $s_y$")
    _add_scale(fig, grid, "right" if len(rows) == 1 else "top")
    return fig


def _checked(
    histograms: Mapping[str, Mapping[str, ArrayLike]],
) -> dict[str, dict[str, Float[np.ndarray, "A S"]]]:
    """Return the histograms as arrays of percent.

    Parameters
    ----------
    histograms : mapping
        As in `focus_prediction_heatmaps`.

    Returns
    -------
    dict
        Row label -> paradigm, in the common order -> (5, 5) percent.
    """
    if not histograms:
        raise ValueError("histograms is empty; give at least one row label, such as 'test'.")
    rows: dict[str, dict[str, Float[np.ndarray, "A S"]]] = {}
    for label, panels in histograms.items():
        rows[label] = {}
        for name, values in by_paradigm(panels, f"histograms[{label!r}]").items():
            field = f"histograms[{label!r}][{name!r}]"
            percent = array_within(values, field, (NUM_BINS, NUM_BINS), 0.0, 100.0)
            if abs(percent.sum() - 100.0) > 0.1:
                raise ValueError(f"{field} sums to {percent.sum():g}; give percent of instances, which sum to 100.")
            rows[label][name] = percent
    return rows


def _fill(grid: np.ndarray, rows: Mapping[str, Mapping[str, Float[np.ndarray, "A S"]]], names: list[str]) -> None:
    """Draw all panels and hide those without data.

    Parameters
    ----------
    grid : numpy.ndarray
        Axes, (rows, columns).
    rows : mapping
        Checked histograms.
    names : list of str
        Paradigms in order.
    """
    panels = [(label, name) for label in rows for name in names]
    for ax, (label, name) in zip(grid.flat, panels, strict=False):
        if name in rows[label]:
            draw_panel(ax, rows[label][name])
        else:
            ax.set_axis_off()
        if len(rows) == 1 or ax.get_subplotspec().is_first_row():
            ax.set_title(PARADIGM_LABEL[name])
        if len(rows) > 1 and ax.get_subplotspec().is_first_col():
            ax.set_ylabel(label, fontweight="bold")
    for ax in grid.flat[len(panels) :]:
        ax.set_axis_off()


def draw_panel(ax: Axes, percent: Float[np.ndarray, "A S"]) -> None:
    """Draw one heatmap with its percentages and the outlined SAIF cell.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    percent : numpy.ndarray
        (5, 5), indexed [a_z bin, s_y bin].
    """
    # pcolormesh wants [vertical, horizontal], hence the transpose: a_z runs to the right.
    ax.pcolormesh(BIN_EDGES, BIN_EDGES, percent.T, cmap=SHARE_COLORS, norm=SHARE_SCALE, edgecolor="#e3e6ea", lw=0.5)
    centres = [(low + high) / 2 for low, high in pairwise(BIN_EDGES)]
    for a_bin, s_bin in np.ndindex(percent.shape):
        value = float(percent[a_bin, s_bin])
        color = CARD if value >= DARK_CELL else INK
        size = BODY_SIZE if value >= 1.0 else BODY_SIZE - 2
        ax.text(centres[a_bin], centres[s_bin], cell_text(value), color=color, size=size, ha="center", va="center")
    outline = Rectangle((0.8, 0.8), 0.2, 0.2, fill=False, ec=INK, lw=2.0, zorder=4, clip_on=False, gid="saif-cell")
    outline.set_path_effects([withStroke(linewidth=4.0, foreground=CARD)])
    ax.add_patch(outline)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xticks(BIN_EDGES, EDGE_LABELS)
    ax.set_yticks(BIN_EDGES, EDGE_LABELS)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.grid(False)


def cell_text(percent: float) -> str:
    """Return a cell's percentage as printed in it.

    Parameters
    ----------
    percent : float
        0 to 100.

    Returns
    -------
    str
        Whole percent; "<1" for a share between zero and one, nothing for an empty cell.
    """
    if percent == 0.0:
        return ""
    return "<1" if percent < 1.0 else f"{percent:.0f}"


def _add_scale(fig: PageFigure, grid: np.ndarray, location: Literal["right", "top"]) -> None:
    """Add the shared colour scale.

    Parameters
    ----------
    fig : PageFigure
        The figure.
    grid : numpy.ndarray
        Its axes.
    location : {"right", "top"}
        Beside the panels, or above them where they need the width.
    """
    bar = fig.colorbar(
        ScalarMappable(norm=SHARE_SCALE, cmap=SHARE_COLORS),
        ax=list(grid.flat),
        ticks=[0, 1, 5, 10, 25, 50, 100],
        location=location,
        fraction=0.05,
        pad=0.02 if location == "right" else 0.05,
        aspect=30,
    )
    bar.set_label("% of instances; outlined: SAIF, both > 0.8")
    bar.ax.grid(False)

"""Figures of captioning: attention word by word over a picture, 3 x 3 heatmaps, and learning curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike

from fcamlib.plots.checks import array_within, by_paradigm, paradigm_order, require_columns, require_shape
from fcamlib.plots.curves import draw_curve, seeds_by_epoch
from fcamlib.plots.heatmaps import DARK_CELL, SHARE_COLORS, SHARE_SCALE, cell_text
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

BIN_LABELS = ("< .2", ".2 - .3", "≥ .3")
MAX_COLUMNS = 7  # words beside the picture on a line; at the page's width their names stay legible
CURVES = {
    "bleu4": "BLEU-4 / 100",
    "a_z": "attention in the box, $a_z$",
    "s_y": "score of the category, $s_y$",
    "saif": "SAIF",
}


@dataclass(frozen=True)
class CaptionExample:
    """One paradigm's caption of a picture.

    Parameters
    ----------
    words : sequence of str
        Words of the caption.
    alpha : (T, L) float
        Attention weights at each word; L is a square number, the cells of a grid over the picture.
    names_category : (T,) bool
        Whether a word names an object's category.
    """

    words: Sequence[str]
    alpha: Float[np.ndarray, "T L"]
    names_category: Bool[np.ndarray, " T"]


@styled
def word_attention(
    picture: ArrayLike | None, boxes: ArrayLike, examples: Mapping[str, CaptionExample], title: str = ""
) -> PageFigure:
    """Draw one picture with its caption word by word, and where attention was at each word.

    Parameters
    ----------
    picture : (H, W, 3) uint8, optional
        The picture; without one the attention is drawn on an empty card.
    boxes : (N, 4) float
        Boxes of the objects as fractions of the picture; rows of NaN are left out.
    examples : mapping of str to CaptionExample
        Paradigm -> its caption and attention.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        For each paradigm a line, or more, of panels: the darker a cell, the less attention it has. Words that name a
        category are bold.
    """
    shown = by_paradigm(examples, "examples")
    shape = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    lines = [
        (name, start) for name, example in shown.items() for start in range(0, max(1, len(example.words)), MAX_COLUMNS)
    ]
    side = (PAGE_WIDTH - 0.6) / MAX_COLUMNS
    fig = PageFigure(figsize=(PAGE_WIDTH, (side + 0.32) * len(lines) + (0.75 if title else 0.4)), layout="constrained")
    grid = fig.subplots(len(lines), MAX_COLUMNS, squeeze=False)
    background = _picture(picture)
    for row, (name, start) in zip(grid, lines, strict=True):
        example = shown[name]
        field, wanted = f"examples[{name!r}].alpha", (len(example.words), None)
        alpha = array_within(example.alpha, field, wanted, 0.0, 1.0 + 1e-5) if example.words else None
        for column, ax in enumerate(row):
            number = start + column
            ax.set_axis_off()
            if alpha is None and column == 0:
                ax.set_title("no words", fontsize=NOTE_SIZE, style="italic")
            if alpha is not None and number < len(example.words):
                _draw_word(ax, background, shape, alpha[number], PARADIGM_STYLE[name].color)
                weight = "bold" if example.names_category[number] else "normal"
                ax.set_title(example.words[number], fontsize=NOTE_SIZE, fontweight=weight, parse_math=False, pad=3)
        label = PARADIGM_LABEL[name] if start == 0 else ""
        row[0].text(-0.08, 0.5, label, transform=row[0].transAxes, rotation=90, ha="right", va="center", weight="bold")
    fig.supxlabel("Framed: the objects. The number is the largest weight; its cell is outlined.", fontsize=NOTE_SIZE)
    if title:
        fig.suptitle(title)
    return fig


def _picture(picture: ArrayLike | None) -> Float[np.ndarray, "H W 3"]:
    """Return the picture in [0, 1], or an empty card."""
    if picture is None:
        return np.ones((8, 8, 3))
    array = np.asarray(picture)
    require_shape(array, "picture", (None, None, 3))
    return array / 255.0


def _draw_word(
    ax: Axes,
    picture: Float[np.ndarray, "H W 3"],
    boxes: Float[np.ndarray, "N 4"],
    alpha: Float[np.ndarray, " L"],
    color: str,
) -> None:
    """Draw the picture, darkened where attention is not, with the objects' boxes."""
    side = round(len(alpha) ** 0.5)
    if side * side != len(alpha):
        raise ValueError(f"alpha has {len(alpha)} regions, which are no square grid; give a square number.")
    cells = alpha.reshape(side, side)
    shade = np.zeros((side, side, 4))
    shade[..., 3] = 0.85 * (1.0 - cells / max(float(cells.max()), 1e-12))
    ax.imshow(picture, extent=(0, 1, 1, 0), interpolation="nearest")
    ax.imshow(shade, extent=(0, 1, 1, 0), interpolation="nearest")
    for x0, y0, x1, y1 in boxes[~np.isnan(boxes).any(axis=1)]:
        ax.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, ec=CARD, lw=0.9))
    row, column = divmod(int(alpha.argmax()), side)
    outline = Rectangle((column / side, row / side), 1 / side, 1 / side, fill=False, ec=color, lw=1.8)
    outline.set_path_effects([withStroke(linewidth=3.0, foreground=CARD)])
    ax.add_patch(outline)
    ax.text(0.03, 0.97, f"{alpha.max():.2f}", color=CARD, size=NOTE_SIZE - 1, va="bottom", path_effects=[
        withStroke(linewidth=2.0, foreground=INK)
    ])  # fmt: skip
    ax.set(xlim=(0, 1), ylim=(1, 0))


@styled
def caption_heatmaps(histograms: Mapping[str, ArrayLike], title: str = "") -> PageFigure:
    """Draw the share of objects over (a_z, s_y) in the bins 0, 0.2, 0.3, 1, one panel per paradigm.

    Parameters
    ----------
    histograms : mapping of str to array_like
        Paradigm -> (3, 3) percent, indexed [a_z bin, s_y bin], sum 100.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        Cells of equal size, since the bins are not; the outlined one is SAIF at the threshold 0.3.

    Notes
    -----
    Source: arXiv 2307.13421, experiments on MSCOCO.
    """
    panels = by_paradigm(histograms, "histograms")
    fig = PageFigure(figsize=(PAGE_WIDTH, 3.3 if title else 3.1), layout="constrained")
    grid = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (name, values) in zip(grid, panels.items(), strict=True):
        percent = array_within(values, f"histograms[{name!r}]", (3, 3), 0.0, 100.0)
        if abs(percent.sum() - 100.0) > 0.1:
            raise ValueError(
                f"histograms[{name!r}] sums to {percent.sum():g}; give percent of objects, which sum to 100."
            )
        ax.pcolormesh(percent.T, cmap=SHARE_COLORS, norm=SHARE_SCALE, edgecolor="#e3e6ea", lw=0.5)
        for a_bin, s_bin in np.ndindex(percent.shape):
            value = float(percent[a_bin, s_bin])
            color = CARD if value >= DARK_CELL else INK
            ax.text(a_bin + 0.5, s_bin + 0.5, cell_text(value), color=color, ha="center", va="center")
        outline = Rectangle((2, 2), 1, 1, fill=False, ec=INK, lw=2.0, zorder=4, clip_on=False, gid="saif-cell")
        outline.set_path_effects([withStroke(linewidth=4.0, foreground=CARD)])
        ax.add_patch(outline)
        ax.set(aspect="equal", title=PARADIGM_LABEL[name])
        ax.set_xticks([0.5, 1.5, 2.5], BIN_LABELS)
        ax.set_yticks([0.5, 1.5, 2.5], BIN_LABELS)
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        ax.grid(False)
    fig.supxlabel("attention in the box, $a_z$")
    fig.supylabel("score of the category, $s_y$")
    ticks = [0, 1, 5, 10, 25, 50, 100]
    scale = ScalarMappable(norm=SHARE_SCALE, cmap=SHARE_COLORS)
    bar = fig.colorbar(scale, ax=list(grid), ticks=ticks, location="top", fraction=0.06, aspect=40)
    bar.set_label("% of objects; outlined: SAIF, both > 0.3")
    bar.ax.grid(False)
    if title:
        fig.suptitle(title)
    return fig


@styled
def caption_curves(history: pd.DataFrame, switch_epoch: int, title: str = "") -> PageFigure:
    """Draw BLEU-4, a_z, s_y and SAIF per epoch: the mean over seeds and its 95 % t-interval.

    Parameters
    ----------
    history : pandas.DataFrame
        One row per paradigm, seed and epoch; columns paradigm, seed, epoch, bleu4, a_z, s_y, saif, the last
        four in [0, 1].
    switch_epoch : int
        Last epoch of the first phase; marked by a vertical line.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        Four panels, the key below them.
    """
    require_columns(history, "history", ("paradigm", "seed", "epoch", *CURVES))
    names = paradigm_order(history["paradigm"], "history column 'paradigm'")
    if not history["epoch"].min() <= switch_epoch <= history["epoch"].max():
        raise ValueError(f"switch_epoch is {switch_epoch}; give one of the history's epochs.")
    fig = PageFigure(figsize=(PAGE_WIDTH, 5.6 if title else 5.4), layout="constrained")
    grid = fig.subplots(2, 2, sharex=True)
    seeds_of: dict[str, int] = {}
    for ax, (metric, heading) in zip(grid.flat, CURVES.items(), strict=True):
        for position, name in enumerate(names):
            epochs, values = seeds_by_epoch(history, name, metric)
            draw_curve(ax, name, epochs, values, "t", (position, len(names)))
            seeds_of[name] = len(values)
        ax.axvline(switch_epoch, color=FAINT_INK, lw=1.2, ls=":", zorder=1, gid="switch")
        ax.set(title=heading, ylim=(-0.02, 1.02))
        ax.xaxis.get_major_locator().set_params(integer=True)
    for ax in grid[1]:
        ax.set_xlabel("epoch")
    handles = [paradigm_handle(name, f"{PARADIGM_LABEL[name]} (n = {count})") for name, count in seeds_of.items()]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    if title:
        fig.suptitle(title)
    return fig

"""Attention over sequences: windows of a time series, and regions of a picture word by word."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike

from fcamlib.paradigms import style_of
from fcamlib.plots.look import CARD, FAINT_INK, INK, NOTE_SIZE, PAGE_WIDTH, RULE, PageFigure, by_paradigm, styled
from fcamlib.plots.pictures import shortened

CHANNEL_LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (4, 1.2, 1, 1.2)))
HATCHES = ("", "////", "....", "xxxx")  # for reading without colour
FOREGROUND = "#f3e3b3"
WORDS = 6  # per line
LEFT, SIDE, LINE, PICTURE = 0.34, 0.93, 1.24, 1.7  # inches: names, a word's panel, line height, the picture


@styled
def series_attention(
    segments: ArrayLike,
    foreground: ArrayLike,
    alpha: Mapping[str, ArrayLike],
    label_names: Sequence[str],
    labels: ArrayLike,
    predictions: Mapping[str, ArrayLike],
    scores: Mapping[str, ArrayLike] | None = None,
) -> PageFigure:
    """All channels of each series over time with the foreground shaded, above bars of the attention on its windows.

    The arguments are those of `attention_gallery`, but `segments` are (E, M, C, T) windows of series with C channels,
    and `scores` are not shown.
    """
    windows, weights = np.asarray(segments, dtype=np.float64), by_paradigm(alpha)
    fig = PageFigure(figsize=(PAGE_WIDTH, 0.5 + 1.75 * len(windows)), layout="constrained")
    ratios = [1.4, 1.0] * len(windows)
    axes = fig.subplots(2 * len(windows), 1, sharex=True, height_ratios=ratios, squeeze=False)[:, 0]
    for number, label in enumerate(np.asarray(labels).tolist()):
        mask = np.asarray(foreground)[number]
        right = [style_of(name).label for name in weights if np.asarray(predictions[name])[number] == label]
        heading = f"label: {shortened(label_names[label], 40)}; right: {', '.join(right) or 'none'}"
        top, below = axes[2 * number : 2 * number + 2]
        _draw_series(top, windows[number], mask)
        top.set_title(heading, fontsize="medium", loc="left", parse_math=False)
        _draw_bars(below, {name: np.asarray(values)[number] for name, values in weights.items()}, mask)
    axes[-1].set_xlabel("window")
    shown = [(style_of(name), hatch) for name, hatch in zip(weights, cycle(HATCHES), strict=False)]
    handles = [Patch(facecolor=look.color, hatch=hatch, edgecolor=CARD, label=look.label) for look, hatch in shown]
    handles.append(Patch(facecolor=FOREGROUND, label="foreground"))
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles), handlelength=1.5)
    return fig


def _draw_series(ax: Axes, windows: Float[np.ndarray, "M C T"], mask: Bool[np.ndarray, " M"]) -> None:
    """Draw the channels of one series, with one axis unit per window."""
    num_windows, num_channels, length = windows.shape
    time = (np.arange(num_windows * length) + 0.5) / length - 0.5
    for channel, line in zip(range(num_channels), cycle(CHANNEL_LINES), strict=False):
        color = INK if channel == 0 else FAINT_INK
        ax.plot(time, windows[:, channel].reshape(-1), color=color, linestyle=line, linewidth=1.0)
    _shade(ax, mask)
    ax.set_yticks([])


def _draw_bars(ax: Axes, weights: Mapping[str, Float[np.ndarray, " M"]], mask: Bool[np.ndarray, " M"]) -> None:
    """Draw one group of bars per window."""
    width = 0.8 / len(weights)
    for place, ((name, values), hatch) in enumerate(zip(weights.items(), cycle(HATCHES), strict=False)):
        left = np.arange(len(values)) - 0.4 + (place + 0.5) * width
        ax.bar(left, values, width, color=style_of(name).color, hatch=hatch, edgecolor=CARD, linewidth=0)
    _shade(ax, mask)
    ax.set(ylim=(0, 1), yticks=[0, 1])
    ax.set_ylabel("$a$", rotation=0)
    numbers = range(1, len(mask) + 1, 1 + len(mask) // 20)  # that fit beside each other
    ax.set_xticks([number - 1 for number in numbers], [str(number) for number in numbers])


def _shade(ax: Axes, mask: Bool[np.ndarray, " M"]) -> None:
    """Shade the foreground windows and separate all windows by lines."""
    for window in np.flatnonzero(mask):
        ax.axvspan(window - 0.5, window + 0.5, color=FOREGROUND, zorder=0, linewidth=0)
    for edge in range(1, len(mask)):
        ax.axvline(edge - 0.5, color=RULE, linewidth=0.6, zorder=0.5)
    ax.set_xlim(-0.5, len(mask) - 0.5)
    ax.grid(False)


@dataclass(frozen=True)
class CaptionExample:
    """One paradigm's caption of a picture; L, a square number, counts the cells of a grid over the picture."""

    words: Sequence[str]
    alpha: Float[np.ndarray, "T L"]  # attention weights at each word
    names_category: Bool[np.ndarray, " T"]  # whether a word names an object's category


@styled
def word_attention(picture: ArrayLike | None, boxes: ArrayLike, examples: Mapping[str, CaptionExample]) -> PageFigure:
    """One picture and each paradigm's caption, word by word, with the attention at each word.

    `picture` is (H, W, 3) uint8, or None for an empty card; `boxes` (N, 4) are the objects' boxes as fractions of it,
    or rows of NaN. Words that name a category are bold; darker cells have less attention.
    """
    shown = by_paradigm(examples)
    lines = [(name, start) for name in shown for start in range(0, max(1, len(shown[name].words)), WORDS)]
    top = 0.15 + (0.0 if picture is None else PICTURE + 0.1)
    height = top + LINE * len(lines) + 0.35
    fig = PageFigure(figsize=(PAGE_WIDTH, height))
    image = np.ones((8, 8, 3)) if picture is None else np.asarray(picture) / 255.0
    frames = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    if picture is not None:
        _draw_picture(_square(fig, LEFT, top - PICTURE - 0.1, PICTURE), image, frames)
    for line, (name, start) in enumerate(lines):
        example, down = shown[name], top + LINE * line + 0.25
        if start == 0:
            place = 0.16 / PAGE_WIDTH, 1 - (down + SIDE / 2) / height
            fig.text(*place, style_of(name).label, rotation=90, ha="center", va="center", weight="bold")
        if not example.words:
            _square(fig, LEFT, down, SIDE).set_title("no words", fontsize=NOTE_SIZE, style="italic")
        for column, word in enumerate(example.words[start : start + WORDS]):
            ax = _square(fig, LEFT + column * (SIDE + 0.08), down, SIDE)
            _draw_picture(ax, image, frames)
            _draw_attention(ax, example.alpha[start + column], style_of(name).color)
            weight = "bold" if example.names_category[start + column] else "normal"
            size = NOTE_SIZE * 12 / max(12, len(word))  # of the next word's panel nothing is covered
            ax.set_title(word, fontsize=size, fontweight=weight, parse_math=False, pad=3)
    note = "Frames mark the objects. The number is the largest weight; its cell is outlined."
    fig.text(LEFT / PAGE_WIDTH, 0.12 / height, note, fontsize=NOTE_SIZE)
    return fig


def _square(fig: PageFigure, left: float, top: float, side: float) -> Axes:
    """Square axes without lines, positioned in inches from the top left corner."""
    width, height = fig.get_size_inches()
    ax = fig.add_axes((left / width, 1 - (top + side) / height, side / width, side / height))
    ax.set(xlim=(0, 1), ylim=(1, 0))
    ax.set_axis_off()
    return ax


def _draw_picture(ax: Axes, picture: Float[np.ndarray, "H W 3"], boxes: Float[np.ndarray, "N 4"]) -> None:
    """Draw the picture and the objects' boxes."""
    ax.imshow(picture, extent=(0, 1, 1, 0), interpolation="nearest", aspect="auto")
    for x0, y0, x1, y1 in boxes[~np.isnan(boxes).any(axis=1)]:
        box = Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, ec=CARD, lw=0.9, zorder=3)
        box.set_path_effects([withStroke(linewidth=2.0, foreground=INK)])
        ax.add_patch(box)


def _draw_attention(ax: Axes, alpha: Float[np.ndarray, " L"], color: str) -> None:
    """Darken cells with little attention, outline the cell with the largest weight and print the weight."""
    side = round(len(alpha) ** 0.5)
    shade = np.zeros((side, side, 4))
    shade[..., 3] = 0.85 * (1.0 - alpha.reshape(side, side) / max(float(alpha.max()), 1e-12))
    ax.imshow(shade, extent=(0, 1, 1, 0), interpolation="nearest", aspect="auto")
    row, column = divmod(int(alpha.argmax()), side)
    outline = Rectangle((column / side, row / side), 1 / side, 1 / side, fill=False, ec=color, lw=1.8, zorder=4)
    outline.set_path_effects([withStroke(linewidth=3.0, foreground=CARD)])
    ax.add_patch(outline)
    number = ax.text(0.03, 0.97, f"{alpha.max():.2f}", color=CARD, size=NOTE_SIZE, va="bottom", zorder=5)
    number.set_path_effects([withStroke(linewidth=2.0, foreground=INK)])

"""Figures of instances: mosaics with framed foreground, and each paradigm's attention on their segments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from fcamlib.paradigms import style_of
from fcamlib.plots.look import CARD, FAINT_INK, INK, NOTE_SIZE, PAGE_WIDTH, RULE, PageFigure, by_paradigm, styled

MARGIN = 0.14  # inches, as all lengths here
GAP = 0.1  # between segments; frames fit inside it
FRAME = 2.6 / 72  # width of a frame
FRAME_GAP = 0.022  # between a picture and its frame, so that frames are visible around dark pictures
HEAD = 0.3  # label above an instance
NAMES, VERDICTS = 0.66, 1.42  # left and right of the bars; longer names of paradigms get more
BAR, BAR_STEP, BAR_OFFSET = 0.185, 0.225, 0.085  # the offset clears the frame of the picture above
RIGHT, WRONG = "\N{CHECK MARK}", "\N{BALLOT X}"
GALLERY_NOTE = (
    "framed: foreground. Bars: attention weight, the largest in bold.\n"
    f"{RIGHT} right, {WRONG} wrong prediction, and the score $s_y$ of the true label."
)


@dataclass(frozen=True)
class Grid:
    """An instance's segments in lines of nearly equal length; `line` is the height of a line."""

    left: float
    top: float
    side: float
    line: float
    columns: int

    def corner(self, segment: int) -> tuple[float, float]:
        """Left and top coordinates of a segment's picture."""
        line, column = divmod(segment, self.columns)
        return self.left + column * (self.side + GAP), self.top + line * self.line


@styled
def sample_mosaics(segments: ArrayLike, foreground: ArrayLike, labels: Sequence[str]) -> PageFigure:
    """Instances as rows of segments, with the foreground framed; short rows are side by side, long rows wrap.

    `segments` are (E, M, H, W) grey or (E, M, H, W, 3) colour, uint8 in 0..255 or floats in [0, 1]; `foreground` is
    (E, M) bool; `labels` are E label names.
    """
    images = _colored(segments)
    lines, columns = _wrapped(images.shape[1], 10)
    across = 2 if 2 * columns <= 10 and len(images) > 1 else 1
    width = (PAGE_WIDTH - 2 * MARGIN - (across - 1) * 0.3) / across
    side = min(0.85, (width - (columns - 1) * GAP) / columns)
    block = 0.39 + lines * (side + GAP)
    height = MARGIN + -(-len(images) // across) * block + 0.3
    fig, ax = _inch_axes(height)
    for instance, label in enumerate(labels):
        down, beside = divmod(instance, across)
        left, top = MARGIN + beside * (width + 0.3), MARGIN + down * block
        ax.text(left, top, f"label: {shortened(label, 25)}", va="top", parse_math=False)
        grid = Grid(left, top + 0.25, side, side + GAP, columns)
        _draw_segments(ax, images[instance], np.asarray(foreground)[instance], grid, instance)
    note = "framed: the foreground, which decides the label and is hidden during training"
    ax.text(MARGIN, height - 0.14, note, va="bottom", color=FAINT_INK, fontsize=NOTE_SIZE)
    return fig


@styled
def attention_gallery(
    segments: ArrayLike,
    foreground: ArrayLike,
    alpha: Mapping[str, ArrayLike],
    label_names: Sequence[str],
    labels: ArrayLike,
    predictions: Mapping[str, ArrayLike],
    scores: Mapping[str, ArrayLike],
) -> PageFigure:
    """Segments with each paradigm's attention weights below them and its prediction on the right.

    `segments` and `foreground` are as in `sample_mosaics`; `label_names` are K class names, `labels` E classes. For
    each paradigm: `alpha` (E, M), `predictions` E classes, and `scores` E scores s_y of the true label in [0, 1].
    """
    images, weights = _colored(segments), by_paradigm(alpha)
    lines, columns = _wrapped(images.shape[1], 7)
    names = max(NAMES, *(0.2 + 0.076 * len(shortened(style_of(name).label, 13)) for name in weights))
    side = min(0.8, (PAGE_WIDTH - 2 * MARGIN - names - VERDICTS) / columns - GAP)
    line = side + BAR_OFFSET + len(weights) * BAR_STEP + 0.09
    block = HEAD + lines * line + 0.1
    height = MARGIN + len(images) * block + 0.52
    fig, ax = _inch_axes(height)
    for instance, label in enumerate(np.asarray(labels).tolist()):
        grid = Grid(MARGIN + names, MARGIN + HEAD + instance * block, side, line, columns)
        right = grid.left + columns * (side + GAP) + 0.02
        named: Any = {"va": "top", "fontweight": "bold", "parse_math": False}
        ax.text(MARGIN, grid.top - HEAD, f"label: {shortened(label_names[label], 40)}", **named)
        ax.text(right, grid.top + side + BAR_OFFSET - 0.05, "predicted, $s_y$", va="bottom", fontsize=NOTE_SIZE)
        _draw_segments(ax, images[instance], np.asarray(foreground)[instance], grid, instance)
        for place, (paradigm, values) in enumerate(weights.items()):
            offset = side + BAR_OFFSET + place * BAR_STEP
            _draw_weights(ax, paradigm, np.asarray(values, dtype=np.float64)[instance], grid, offset, instance)
            predicted, score = (np.asarray(of[paradigm])[instance] for of in (predictions, scores))
            sign = RIGHT if predicted == label else WRONG
            text = f"{sign} {shortened(label_names[int(predicted)], 10)} {score:.2f}"
            shown: Any = {"va": "center_baseline", "fontsize": NOTE_SIZE, "gid": f"verdict-{paradigm}-{instance}"}
            ax.text(right, grid.top + offset + BAR / 2, text, parse_math=False, **shown)
    ax.text(MARGIN, height - 0.1, GALLERY_NOTE, va="bottom", color=FAINT_INK, fontsize=NOTE_SIZE, linespacing=1.35)
    return fig


def _draw_weights(
    ax: Axes, paradigm: str, alpha: Float[np.ndarray, " M"], grid: Grid, offset: float, instance: int
) -> None:
    """Draw a paradigm's weights as bars with numbers below their segments, and its name on each line."""
    look = style_of(paradigm)
    small: Any = {"va": "center_baseline", "fontsize": NOTE_SIZE}
    for segment, weight in enumerate(alpha.tolist()):
        left, top = grid.corner(segment)
        corner, middle = (left, top + offset), top + offset + BAR / 2
        if segment % grid.columns == 0:
            ax.plot([MARGIN + 0.06], [middle], color=look.color, marker=look.marker, ls="")
            ax.text(MARGIN + 0.17, middle, shortened(look.label, 13), **small)
        ax.add_patch(Rectangle(corner, grid.side, BAR, facecolor=CARD, edgecolor=RULE, lw=0.7, zorder=1.5))
        # Semi-transparent, so that dark numbers keep their contrast.
        bar = Rectangle(corner, weight * grid.side, BAR, facecolor=look.color, alpha=0.45, lw=0, zorder=1.6)
        bar.set_gid(f"weight-{paradigm}-{instance}-{segment}")
        ax.add_patch(bar)
        is_focus = segment == alpha.argmax()
        bold: Any = {"fontweight": "bold", "color": INK} if is_focus else {"color": FAINT_INK}
        ax.text(left + grid.side / 2, middle, f"{weight:.2f}", ha="center", **small, **bold)


def _inch_axes(height: float) -> tuple[PageFigure, Axes]:
    """A figure of the page's width with one axes in inches from the top left corner."""
    fig = PageFigure(figsize=(PAGE_WIDTH, height))
    ax = fig.add_axes((0.0, 0.0, 1.0, 1.0))
    ax.set(xlim=(0.0, PAGE_WIDTH), ylim=(height, 0.0))
    ax.set_autoscale_on(False)
    ax.set_axis_off()
    return fig, ax


def _colored(segments: ArrayLike) -> Float[np.ndarray, "E M H W 3"]:
    """Segments as colour pictures in [0, 1], from bytes or floats, grey or colour."""
    array = np.asarray(segments)
    scaled = array / 255.0 if array.dtype == np.uint8 else array.astype(np.float64)
    return scaled if array.ndim == 5 else np.repeat(scaled[..., None], 3, axis=-1)


def _wrapped(num_segments: int, most: int) -> tuple[int, int]:
    """Number of lines, and of segments on a full line (at most `most`)."""
    lines = -(-num_segments // most)
    return lines, -(-num_segments // lines)


def _draw_segments(
    ax: Axes, images: Float[np.ndarray, "M H W 3"], foreground: ArrayLike, grid: Grid, instance: int
) -> None:
    """Draw an instance's segments, and a frame around those of the foreground."""
    for segment, (picture, framed) in enumerate(zip(images, np.asarray(foreground), strict=True)):
        left, top = grid.corner(segment)
        extent, gid = (left, left + grid.side, top + grid.side, top), f"segment-{instance}-{segment}"
        ax.imshow(picture, extent=extent, aspect="auto", interpolation="nearest", gid=gid)
        if framed:
            out = FRAME_GAP + FRAME / 2
            frame = Rectangle((left - out, top - out), grid.side + 2 * out, grid.side + 2 * out, fill=False)
            frame.set(joinstyle="miter", edgecolor=INK, linewidth=72 * FRAME, zorder=3, gid=f"foreground-{gid}")
            ax.add_patch(frame)


def shortened(name: str, most: int) -> str:
    """A name, truncated with an ellipsis if it is too long."""
    return name if len(name) <= most else name[: most - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"

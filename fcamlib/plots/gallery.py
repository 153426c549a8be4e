"""The attention gallery: where each paradigm looks, and what it predicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from fcamlib.plots.checks import (
    array_within,
    by_paradigm,
    class_indices,
    foreground_mask,
    pictures,
    same_paradigms,
)
from fcamlib.plots.layout import GAP, SegmentGrid, draw_segment, inch_axes, shortened
from fcamlib.plots.look import CARD, FAINT_INK, INK, NOTE_SIZE, PAGE_WIDTH, PARADIGM_STYLE, RULE, PageFigure, styled

MARGIN = 0.14  # inches, as all lengths here
NAME_WIDTH = 0.66
VERDICT_WIDTH = 1.42
HEAD_HEIGHT = 0.3
BAR_HEIGHT = 0.185
BAR_STEP = 0.225
BAR_OFFSET = 0.085  # clears the frame of the picture above
MAX_SIDE = 0.8
MAX_COLUMNS = 7
NOTE_HEIGHT = 0.52
RIGHT, WRONG = "\N{CHECK MARK}", "\N{BALLOT X}"


@dataclass(frozen=True)
class Verdict:
    """What a paradigm's model says of one instance.

    Parameters
    ----------
    paradigm : str
        Code name.
    alpha : numpy.ndarray
        (M,) attention weights, sum 1.
    predicted : str
        Name of the predicted class.
    is_right : bool
        Whether it is the label.
    score : float
        Prediction score of the true label, in [0, 1].
    """

    paradigm: str
    alpha: Float[np.ndarray, " M"]
    predicted: str
    is_right: bool
    score: float


@dataclass(frozen=True)
class Block:
    """Where one instance is drawn.

    Parameters
    ----------
    left, top, side : float
        The first segment's corner and width in inches.
    grid : SegmentGrid
        How segments wrap.
    num_paradigms : int
        Bars below each segment.
    """

    left: float
    top: float
    side: float
    grid: SegmentGrid
    num_paradigms: int

    @property
    def line_height(self) -> float:
        """Height of one line: pictures and the bars below them."""
        return self.side + BAR_OFFSET + self.num_paradigms * BAR_STEP + 0.09

    @property
    def verdict_left(self) -> float:
        """Left edge of the predictions."""
        return self.left + self.grid.columns * (self.side + GAP) + 0.02

    def corner(self, segment: int) -> tuple[float, float]:
        """Return the left and top of a segment's picture.

        Parameters
        ----------
        segment : int
            0..M-1.

        Returns
        -------
        tuple of float
            Inches.
        """
        line, column = self.grid.place(segment)
        return self.left + column * (self.side + GAP), self.top + line * self.line_height

    def bar_top(self, line: int, position: int) -> float:
        """Return the top of a paradigm's bars.

        Parameters
        ----------
        line : int
            Line of segments.
        position : int
            The paradigm's place.

        Returns
        -------
        float
            Inches.
        """
        return self.top + line * self.line_height + self.side + BAR_OFFSET + position * BAR_STEP


@styled
def attention_gallery(
    segments: ArrayLike,
    foreground: ArrayLike,
    alpha: Mapping[str, ArrayLike],
    label_names: Sequence[str],
    labels: ArrayLike,
    predictions: Mapping[str, ArrayLike],
    scores: Mapping[str, ArrayLike],
    title: str = "",
) -> PageFigure:
    """Draw each instance's segments with every paradigm's attention weights below them and its prediction beside.

    Parameters
    ----------
    segments : array_like
        (E, M, H, W) grey or (E, M, H, W, 3) colour; uint8 in 0..255 or floats in [0, 1].
    foreground : array_like
        (E, M) bool, true where a segment decides the label.
    alpha : mapping of str to array_like
        Paradigm -> (E, M) attention weights, each row a distribution.
    label_names : sequence of str
        K class names.
    labels : array_like
        (E,) true classes in 0..K-1.
    predictions : mapping of str to array_like
        Paradigm -> (E,) predicted classes in 0..K-1.
    scores : mapping of str to array_like
        Paradigm -> (E,) prediction score s_y of the true label, in [0, 1].
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        One block per instance; more than seven segments wrap.
    """
    images = pictures(segments)
    num_instances, num_segments = images.shape[:2]
    mask = foreground_mask(foreground, num_instances, num_segments)
    truth = class_indices(labels, "labels", num_instances, len(label_names))
    verdicts = _verdicts(alpha, label_names, truth, predictions, scores, num_segments)
    grid = SegmentGrid(num_segments, MAX_COLUMNS)
    room = PAGE_WIDTH - 2 * MARGIN - NAME_WIDTH - VERDICT_WIDTH
    side = min(MAX_SIDE, (room - grid.columns * GAP) / grid.columns)
    first = Block(MARGIN + NAME_WIDTH, MARGIN + (0.32 if title else 0.0) + HEAD_HEIGHT, side, grid, len(verdicts[0]))
    block_height = HEAD_HEIGHT + grid.lines * first.line_height + 0.1
    height = first.top - HEAD_HEIGHT + num_instances * block_height + NOTE_HEIGHT
    fig, ax = inch_axes(PAGE_WIDTH, height)
    if title:
        ax.text(MARGIN, MARGIN, title, va="top", fontsize="x-large", fontweight="bold")
    for instance, class_index in enumerate(truth):
        block = Block(first.left, first.top + instance * block_height, side, grid, first.num_paradigms)
        label = f"label: {shortened(label_names[class_index], 40)}"
        ax.text(MARGIN, block.top - HEAD_HEIGHT, label, va="top", fontweight="bold", parse_math=False)
        ax.text(block.verdict_left, block.bar_top(0, 0) - 0.05, "predicted, $s_y$", va="bottom", fontsize=NOTE_SIZE)
        _draw_pictures(ax, block, images[instance], mask[instance], instance)
        for position, verdict in enumerate(verdicts[instance]):
            _draw_verdict(ax, block, position, verdict, instance)
    _draw_note(ax, height)
    return fig


def _verdicts(
    alpha: Mapping[str, ArrayLike],
    label_names: Sequence[str],
    truth: Sequence[int],
    predictions: Mapping[str, ArrayLike],
    scores: Mapping[str, ArrayLike],
    num_segments: int,
) -> list[list[Verdict]]:
    """Return the checked outputs, instance by instance.

    Parameters
    ----------
    alpha, label_names, predictions, scores
        As in `attention_gallery`.
    truth : sequence of int
        (E,) true classes.
    num_segments : int
        M.

    Returns
    -------
    list of list of Verdict
        E lists in the paradigms' order.
    """
    weights = by_paradigm(alpha, "alpha")
    same_paradigms(predictions, "predictions", weights)
    same_paradigms(scores, "scores", weights)
    instances: list[list[Verdict]] = [[] for _ in truth]
    for name, values in weights.items():
        rows = array_within(values, f"alpha[{name!r}]", (len(truth), num_segments), 0.0, 1.0)
        if np.abs(rows.sum(axis=1) - 1.0).max() > 1e-3:
            raise ValueError(f"alpha[{name!r}] has a row that does not sum to 1; give weights after the softmax.")
        classes = class_indices(predictions[name], f"predictions[{name!r}]", len(truth), len(label_names))
        s_y = array_within(scores[name], f"scores[{name!r}]", (len(truth),), 0.0, 1.0)
        for instance, label in enumerate(truth):
            predicted = classes[instance]
            verdict = Verdict(name, rows[instance], label_names[predicted], predicted == label, float(s_y[instance]))
            instances[instance].append(verdict)
    return instances


def _draw_pictures(
    ax: Axes, block: Block, images: Float[np.ndarray, "M H W 3"], mask: Bool[np.ndarray, " M"], instance: int
) -> None:
    """Draw an instance's segments.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    block : Block
        The instance's place.
    images : numpy.ndarray
        (M, H, W, 3) in [0, 1].
    mask : numpy.ndarray
        (M,) true on the foreground.
    instance : int
        Its number.
    """
    for segment, picture in enumerate(images):
        gid = f"segment-{instance}-{segment}"
        draw_segment(ax, picture, block.corner(segment), block.side, gid, bool(mask[segment]))


def _draw_verdict(ax: Axes, block: Block, position: int, verdict: Verdict, instance: int) -> None:
    """Draw one paradigm's name, bars and prediction.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    block : Block
        The instance's place.
    position : int
        The paradigm's place among the bars.
    verdict : Verdict
        What to show.
    instance : int
        Its number.
    """
    look = PARADIGM_STYLE[verdict.paradigm]
    for line in range(block.grid.lines):
        middle = block.bar_top(line, position) + BAR_HEIGHT / 2
        ax.plot([MARGIN + 0.06], [middle], color=look.color, marker=look.marker, ls="")
        ax.text(MARGIN + 0.17, middle, look.label, va="center_baseline", fontsize=NOTE_SIZE)
    focus = int(verdict.alpha.argmax())
    for segment, weight in enumerate(verdict.alpha):
        line, _ = block.grid.place(segment)
        corner = (block.corner(segment)[0], block.bar_top(line, position))
        gid = f"weight-{verdict.paradigm}-{instance}-{segment}"
        _draw_bar(ax, corner, block.side, float(weight), look.color, gid, segment == focus)
    symbol = RIGHT if verdict.is_right else WRONG
    middle = block.bar_top(0, position) + BAR_HEIGHT / 2
    text = f"{symbol} {shortened(verdict.predicted, 10)} {verdict.score:.2f}"
    ax.text(
        block.verdict_left,
        middle,
        text,
        va="center_baseline",
        fontsize=NOTE_SIZE,
        parse_math=False,  # a class name may hold a dollar sign
        gid=f"verdict-{verdict.paradigm}-{instance}",
    )


def _draw_bar(
    ax: Axes, corner: tuple[float, float], side: float, weight: float, color: str, gid: str, is_focus: bool
) -> None:
    """Draw one attention weight as a bar on a track with its number.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    corner : tuple of float
        Left and top in inches.
    side : float
        Length of the track, a weight of 1.
    weight : float
        In [0, 1].
    color : str
        The paradigm's.
    gid : str
        The bar's name in the SVG.
    is_focus : bool
        Whether this is the largest weight, printed in bold.
    """
    left, top = corner
    ax.add_patch(Rectangle(corner, side, BAR_HEIGHT, facecolor=CARD, edgecolor=RULE, lw=0.7, zorder=1.5))
    # A tint, so that dark figures keep their contrast on it.
    ax.add_patch(Rectangle(corner, weight * side, BAR_HEIGHT, facecolor=color, alpha=0.45, lw=0, zorder=1.6, gid=gid))
    ax.text(
        left + side / 2,
        top + BAR_HEIGHT / 2,
        f"{weight:.2f}",
        ha="center",
        va="center_baseline",
        fontsize=NOTE_SIZE - 0.5,
        fontweight="bold" if is_focus else "normal",
        color=INK if is_focus else FAINT_INK,
    )


def _draw_note(ax: Axes, height: float) -> None:
    """Write how to read the figure below it.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    height : float
        The figure's height in inches.
    """
    note = (
        "framed: foreground. Bars: attention weight, the largest in bold.\n"
        f"{RIGHT} right, {WRONG} wrong prediction, and the score $s_y$ of the true label."
    )
    ax.text(MARGIN, height - 0.1, note, va="bottom", color=FAINT_INK, fontsize=NOTE_SIZE, linespacing=1.35)

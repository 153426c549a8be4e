"""Sample mosaics: what an instance looks like."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from fcamlib.plots.checks import foreground_mask, pictures
from fcamlib.plots.layout import GAP, SegmentGrid, draw_segment, inch_axes, shortened
from fcamlib.plots.look import FAINT_INK, NOTE_SIZE, PAGE_WIDTH, PageFigure, styled

MARGIN = 0.14  # inches
LABEL_HEIGHT = 0.25
BLOCK_GAP = 0.14
MAX_SIDE = 0.85
MAX_COLUMNS = 10


@styled
def sample_mosaics(segments: ArrayLike, foreground: ArrayLike, labels: Sequence[str], title: str = "") -> PageFigure:
    """Draw instances as rows of segments with the foreground framed.

    Parameters
    ----------
    segments : array_like
        (E, M, H, W) grey or (E, M, H, W, 3) colour; uint8 in 0..255 or floats in [0, 1].
    foreground : array_like
        (E, M) bool, true where a segment decides the label.
    labels : sequence of str
        E names of the instances' labels.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        One block per instance; short instances stand side by side, long ones wrap.
    """
    images = pictures(segments)
    num_instances, num_segments = images.shape[:2]
    mask = foreground_mask(foreground, num_instances, num_segments)
    if isinstance(labels, str) or len(labels) != num_instances:
        raise ValueError(f"labels has {len(labels)} entries; give {num_instances} names, one for each instance.")
    grid = SegmentGrid(num_segments, MAX_COLUMNS)
    blocks_across = 2 if 2 * grid.columns <= MAX_COLUMNS and num_instances > 1 else 1
    block_width = (PAGE_WIDTH - 2 * MARGIN - (blocks_across - 1) * 0.3) / blocks_across
    side = min(MAX_SIDE, (block_width - (grid.columns - 1) * GAP) / grid.columns)
    block_height = LABEL_HEIGHT + grid.lines * (side + GAP) + BLOCK_GAP
    top = MARGIN + (0.32 if title else 0.0)
    height = top + -(-num_instances // blocks_across) * block_height + 0.3
    fig, ax = inch_axes(PAGE_WIDTH, height)
    if title:
        ax.text(MARGIN, MARGIN, title, va="top", fontsize="x-large", fontweight="bold")
    for instance, label in enumerate(labels):
        down, across = divmod(instance, blocks_across)
        corner = (MARGIN + across * (block_width + 0.3), top + down * block_height)
        ax.text(*corner, f"label: {shortened(label, 25)}", va="top", parse_math=False)
        _draw_instance(
            ax, images[instance], mask[instance], instance, grid, (corner[0], corner[1] + LABEL_HEIGHT), side
        )
    note = "framed: the foreground, which decides the label and is hidden in training"
    ax.text(MARGIN, height - 0.14, note, va="bottom", color=FAINT_INK, fontsize=NOTE_SIZE)
    return fig


def _draw_instance(
    ax: Axes,
    images: Float[np.ndarray, "M H W 3"],
    mask: Bool[np.ndarray, " M"],
    instance: int,
    grid: SegmentGrid,
    corner: tuple[float, float],
    side: float,
) -> None:
    """Draw the segments of one instance.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    images : numpy.ndarray
        (M, H, W, 3) in [0, 1].
    mask : numpy.ndarray
        (M,) true on the foreground.
    instance : int
        Its number.
    grid : SegmentGrid
        How segments wrap.
    corner : tuple of float
        Left and top in inches.
    side : float
        A segment's width in inches.
    """
    for segment in range(grid.num_segments):
        line, column = grid.place(segment)
        place = (corner[0] + column * (side + GAP), corner[1] + line * (side + GAP))
        draw_segment(ax, images[segment], place, side, f"segment-{instance}-{segment}", bool(mask[segment]))

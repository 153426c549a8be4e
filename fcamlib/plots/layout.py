"""Rows of segment pictures laid out in inches, shared by the mosaics and the attention gallery."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from fcamlib.plots.look import INK, PageFigure

FRAME_WIDTH = 2.6  # points
FRAME_GAP = 0.022  # inches of card between a picture and its frame, which sets it off from dark pictures
GAP = 0.1  # inches between segments; a frame lies wholly inside it


@dataclass(frozen=True)
class SegmentGrid:
    """An instance's segments, wrapped into lines of nearly equal length.

    Parameters
    ----------
    num_segments : int
        M.
    max_columns : int
        Most segments on one line.
    """

    num_segments: int
    max_columns: int

    @property
    def lines(self) -> int:
        """Number of lines."""
        return -(-self.num_segments // self.max_columns)

    @property
    def columns(self) -> int:
        """Segments on a full line."""
        return -(-self.num_segments // self.lines)

    def place(self, segment: int) -> tuple[int, int]:
        """Return where a segment goes.

        Parameters
        ----------
        segment : int
            0..M-1.

        Returns
        -------
        tuple of int
            Line and column.
        """
        return divmod(segment, self.columns)


def inch_axes(width: float, height: float) -> tuple[PageFigure, Axes]:
    """Return a figure with one axes whose units are inches from the top left corner.

    Parameters
    ----------
    width, height : float
        Size in inches.

    Returns
    -------
    tuple
        Figure and axes.
    """
    fig = PageFigure(figsize=(width, height))
    ax = fig.add_axes((0.0, 0.0, 1.0, 1.0))
    ax.set(xlim=(0.0, width), ylim=(height, 0.0))
    ax.set_autoscale_on(False)
    ax.set_axis_off()
    return fig, ax


def draw_segment(
    ax: Axes, picture: Float[np.ndarray, "H W 3"], corner: tuple[float, float], side: float, gid: str, framed: bool
) -> None:
    """Draw one segment, framed where it is the foreground.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        From `inch_axes`.
    picture : numpy.ndarray
        (H, W, 3) in [0, 1].
    corner : tuple of float
        Left and top in inches.
    side : float
        Width and height in inches.
    gid : str
        Name in the SVG; a frame's is prefixed with "foreground-".
    framed : bool
        Whether it is the foreground.
    """
    left, top = corner
    extent = (left, left + side, top + side, top)
    ax.imshow(picture, extent=extent, aspect="auto", interpolation="nearest", gid=gid)
    if framed:
        out = FRAME_GAP + FRAME_WIDTH / 72 / 2
        frame = Rectangle((left - out, top - out), side + 2 * out, side + 2 * out, fill=False, joinstyle="miter")
        frame.set(edgecolor=INK, linewidth=FRAME_WIDTH, zorder=3, gid=f"foreground-{gid}")
        ax.add_patch(frame)


def shortened(name: str, max_length: int) -> str:
    """Return a class name that fits where it is written.

    Parameters
    ----------
    name : str
        Any name.
    max_length : int
        Most characters.

    Returns
    -------
    str
        The name, or its beginning and an ellipsis.
    """
    return name if len(name) <= max_length else name[: max_length - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"

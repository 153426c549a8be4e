"""The look of every figure, fixed in one place: paradigm styles, fonts, sizes and the card they are drawn on."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from io import BytesIO
from types import MappingProxyType
from typing import Any, Literal, ParamSpec

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

P = ParamSpec("P")

INK = "#1a1c20"
FAINT_INK = "#5c6068"
RULE = "#c9ccd2"
CARD = "#ffffff"
PAGE_WIDTH = 6.4  # inches; at this width 10 pt type stays legible when a phone scales the figure to 350 px
BODY_SIZE = 10.0  # points
NOTE_SIZE = 9.0  # points
PALETTE_ERROR = 0.3  # of 255, mean over all pixels and channels: what a palette of 256 colours may change


@dataclass(frozen=True)
class ParadigmStyle:
    """How one paradigm looks in every figure.

    Parameters
    ----------
    label : str
        The paradigm's name as shown.
    color : str
        Hexadecimal colour.
    marker : str
        Matplotlib marker.
    linestyle : str or tuple
        Matplotlib line style, an offset and on-off pattern in points where it is a tuple.
    """

    label: str
    color: str
    marker: str
    linestyle: Literal["-"] | tuple[float, tuple[float, ...]]


# The four colours differ in lightness (CIE L* 47, 54, 64, 41), keep a contrast of 2.8 or more against white and
# against a dark page, and stay apart for readers without red, green or blue cones; the tests compute all three.
PARADIGM_STYLE = MappingProxyType(
    {
        "soft": ParadigmStyle("SA", "#2f63fa", "o", "-"),
        "hard": ParadigmStyle("HA", "#ea4822", "s", (0.0, (5.0, 2.0))),
        "lvml": ParadigmStyle("LVML", "#34ae7d", "^", (0.0, (1.2, 1.4))),
        "hybrid": ParadigmStyle("hybrid", "#b21c7a", "D", (0.0, (3.6, 1.3, 1.0, 1.3))),
    }
)
PARADIGM_LABEL = MappingProxyType({name: look.label for name, look in PARADIGM_STYLE.items()})

RC: dict[str, Any] = {
    "figure.dpi": 144,
    "savefig.dpi": 200,
    "figure.facecolor": CARD,
    "figure.edgecolor": CARD,
    "savefig.facecolor": CARD,
    "savefig.edgecolor": CARD,
    "axes.facecolor": CARD,
    "axes.edgecolor": FAINT_INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": FAINT_INK,
    "ytick.color": FAINT_INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "font.family": "DejaVu Sans",  # ships with matplotlib, so widths are the same on every machine
    "mathtext.fontset": "dejavusans",
    "font.size": BODY_SIZE,
    "axes.titlesize": BODY_SIZE + 1,
    "axes.labelsize": BODY_SIZE,
    "figure.titlesize": BODY_SIZE + 2,
    "figure.labelsize": BODY_SIZE,
    "xtick.labelsize": NOTE_SIZE,
    "ytick.labelsize": NOTE_SIZE,
    "legend.fontsize": BODY_SIZE,
    "legend.frameon": False,
    "legend.handlelength": 4.0,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.07,
    "axes.titleweight": "bold",
    "figure.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "patch.edgecolor": CARD,
    "patch.force_edgecolor": True,
    "lines.solid_capstyle": "round",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "svg.fonttype": "path",
    "svg.hashsalt": "fcam-companion",
}


def style() -> AbstractContextManager[None]:
    """Return the context in which every figure is drawn and saved; the caller's own settings come back after it.

    Returns
    -------
    context manager
        Matplotlib's defaults with this project's settings on top, whatever the user has configured.
    """
    return matplotlib.style.context(["default", RC])


class PageFigure(Figure):
    """A figure that shows itself as a PNG when it is a cell's last value, without pyplot's global state."""

    def _repr_png_(self) -> bytes:
        """Return the picture that a notebook stores.

        Returns
        -------
        bytes
            A PNG at the figure's own resolution, the same bytes for the same figure; in 256 colours, which makes a
            page a third as heavy, where nobody can tell the difference.
        """
        buffer = BytesIO()
        with style():
            self.savefig(buffer, format="png", dpi=self.dpi, metadata={"Software": None})
        full = Image.open(buffer).convert("RGB")
        few = full.quantize(256, dither=Image.Dither.NONE)
        error = np.abs(np.asarray(few.convert("RGB"), dtype=float) - np.asarray(full)).mean()
        buffer = BytesIO()
        (few if error < PALETTE_ERROR else full).save(buffer, "PNG", optimize=True)
        return buffer.getvalue()


def styled(draw: Callable[P, PageFigure]) -> Callable[P, PageFigure]:
    """Draw in the project's style and fix the layout once, so that every later save writes the same bytes.

    Parameters
    ----------
    draw : callable
        A function that returns a figure.

    Returns
    -------
    callable
        The same function, its figure laid out.
    """

    @wraps(draw)
    def draw_in_style(*args: P.args, **kwargs: P.kwargs) -> PageFigure:
        with style():
            figure = draw(*args, **kwargs)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        return figure

    return draw_in_style


def paradigm_handle(paradigm: str, label: str | None = None) -> Line2D:
    """Return the legend entry of a paradigm.

    Parameters
    ----------
    paradigm : str
        Code name, a key of `PARADIGM_STYLE`.
    label : str, optional
        Text beside it; the paradigm's name as shown by default.

    Returns
    -------
    matplotlib.lines.Line2D
        A short line in the paradigm's colour, marker and line style.
    """
    look = PARADIGM_STYLE[paradigm]
    text = look.label if label is None else label
    return Line2D([], [], color=look.color, marker=look.marker, linestyle=look.linestyle, label=text)

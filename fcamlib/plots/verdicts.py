"""The figure of all verdicts: tasks against claims."""

import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from fcamlib.plots.look import CARD, FAINT_INK, INK, NOTE_SIZE, PAGE_WIDTH, RULE, PageFigure, styled

# Shape and colour say the same, so that the figure reads in black and white too.
VERDICT_STYLE: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "holds": {"marker": "o", "color": "#1f7a4d", "markerfacecolor": "#1f7a4d", "markersize": 9},
        "undecided": {"marker": "o", "color": FAINT_INK, "markerfacecolor": CARD, "markersize": 8},
        "fails": {"marker": "X", "color": "#b3261e", "markerfacecolor": "#b3261e", "markersize": 10},
    }
)
ROW_HEIGHT = 0.3  # inches, for a name of two lines
LINE_LENGTH = 56  # letters of a name that fit beside the marks
LABEL_SHARE = 0.62  # of the width, for the names of the tasks


@styled
def verdict_matrix(frame: pd.DataFrame) -> PageFigure:
    """Draw which claim holds, fails or is undecided on which task.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per task, its name as index; one column per claim. Values are holds, undecided, fails, or empty where
        the claim has nothing to do with the task.

    Returns
    -------
    PageFigure
        A row of marks for each task, and the key below.
    """
    if frame.empty:
        raise ValueError("frame has no row or no column; give at least one task and one claim.")
    if strange := sorted(set(frame.to_numpy().ravel()) - {*VERDICT_STYLE, ""}):
        raise ValueError(f"frame holds {strange[0]!r}; allowed are {', '.join(VERDICT_STYLE)} and an empty text.")
    height = ROW_HEIGHT * (len(frame) + 3.2)
    fig = PageFigure(figsize=(PAGE_WIDTH, height))
    # Marks stand left of the names, so that a screen too narrow for both shows the marks.
    ax = fig.add_axes((0.0, 1.6 * ROW_HEIGHT / height, 1 - LABEL_SHARE, len(frame) * ROW_HEIGHT / height))
    ax.yaxis.tick_right()
    ax.set(xlim=(-0.5, len(frame.columns) - 0.5), ylim=(len(frame) - 0.5, -0.5))
    ax.set_xticks(range(len(frame.columns)), frame.columns)
    ax.set_yticks(range(len(frame)), [_in_two_lines(str(name)) for name in frame.index])
    ax.tick_params(length=0, top=True, labeltop=True, labelbottom=False, labelsize=NOTE_SIZE - 1, labelcolor=INK)
    ax.spines[:].set_visible(False)
    ax.grid(False)
    ax.hlines(range(len(frame)), -0.5, len(frame.columns) - 0.5, color=RULE, lw=0.6, zorder=0)
    for row, verdicts in enumerate(frame.to_numpy()):
        for column, verdict in enumerate(verdicts):
            if verdict:
                ax.plot(column, row, ls="", gid=f"{verdict}-{row}-{column}", **VERDICT_STYLE[verdict])
    handles = [Line2D([], [], ls="", label=verdict, **look) for verdict, look in VERDICT_STYLE.items()]
    fig.legend(handles=handles, loc="lower left", ncols=len(handles), handlelength=1.4, borderaxespad=0.1)
    return fig


def _in_two_lines(name: str) -> str:
    """A task's name as far as it fits beside the marks."""
    return "\n".join(textwrap.wrap(name, LINE_LENGTH, max_lines=2, placeholder=" …"))

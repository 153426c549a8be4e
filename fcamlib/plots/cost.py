"""What a training step costs as instances get more segments: time and memory, a column for each way to compute it."""

from collections.abc import Mapping

import pandas as pd

from fcamlib.plots.checks import paradigm_order, require_columns
from fcamlib.plots.look import PAGE_WIDTH, PARADIGM_STYLE, PageFigure, paradigm_handle, styled

COST_LABELS = {"median": "time of a step (ms)", "peak_mb": "peak memory (MB)"}


@styled
def cost_over_segments(costs: pd.DataFrame, ways: Mapping[str, str]) -> PageFigure:
    """Draw time and memory of a step over the number of segments, on logarithmic axes.

    Parameters
    ----------
    costs : pandas.DataFrame
        Columns paradigm, way, num_segments, median, low, high (milliseconds) and peak_mb; one row for each
        combination that was measured.
    ways : mapping of str to str
        Way to compute a step -> its heading, in the order of the columns.

    Returns
    -------
    PageFigure
        Two rows of panels that share their vertical axes, with the key below; bars go from least to greatest.
    """
    require_columns(costs, "costs", ("paradigm", "way", "num_segments", "low", "high", *COST_LABELS))
    unknown = sorted(set(costs["way"]) - set(ways))
    if unknown:
        raise ValueError(f"costs column 'way' holds {', '.join(unknown)}; give a heading for each in ways.")
    names = paradigm_order(costs["paradigm"], "costs column 'paradigm'")
    fig = PageFigure(figsize=(PAGE_WIDTH, 5.0), layout="constrained")
    grid = fig.subplots(2, len(ways), squeeze=False, sharex=True, sharey="row")
    for row, (column, label) in zip(grid, COST_LABELS.items(), strict=True):
        row[0].set_ylabel(label)
        for ax, way in zip(row, ways, strict=True):
            for name in names:
                part = costs[(costs["paradigm"] == name) & (costs["way"] == way)].sort_values("num_segments")
                look, x, y = PARADIGM_STYLE[name], part["num_segments"], part[column]
                ax.plot(x, y, color=look.color, ls=look.linestyle, marker=look.marker, gid=f"{column}-{way}-{name}")
                if column == "median":
                    ax.vlines(x, part["low"], part["high"], color=look.color, lw=1.0)
            ax.set_xscale("log")
            ax.set_yscale("log")
    for ax, heading in zip(grid[0], ways.values(), strict=True):
        ax.set_title(heading.replace(" segments ", " segments\n").replace(" occurrence ", " occurrence\n"))
    for ax in grid[1]:
        ax.set_xlabel("segments $m$")
    fig.legend(handles=[paradigm_handle(name) for name in names], loc="outside lower center", ncols=len(names))
    return fig

"""The key figure: accuracy and SAIF of each paradigm with their intervals."""

import textwrap

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fcamlib.plots.checks import paradigm_order, require_columns
from fcamlib.plots.look import (
    BODY_SIZE,
    CARD,
    FAINT_INK,
    INK,
    NOTE_SIZE,
    PAGE_WIDTH,
    PARADIGM_LABEL,
    PARADIGM_STYLE,
    PageFigure,
    styled,
)

COLUMNS = ("dataset", "paradigm", "metric", "mean", "low", "high", "n")
METRIC_LABEL = {"accuracy": "accuracy", "saif": "SAIF"}
METRIC_SHIFT = {"accuracy": -0.19, "saif": 0.19}  # rows run downwards: accuracy lies above SAIF
ROW_HEIGHT = 0.52  # inches
NO_BREAK = "\u00a0=\u00a0"  # keeps "n = 5" on one line


@styled
def accuracy_saif_summary(
    table: pd.DataFrame, interval: str = "95 % t-interval over seeds", title: str = ""
) -> PageFigure:
    """Draw accuracy (open marker) and SAIF (filled marker) of each paradigm, one panel per data set.

    Parameters
    ----------
    table : pandas.DataFrame
        One row per data set, paradigm and metric; columns dataset (shown as written), paradigm, metric ("accuracy"
        or "saif"), mean, low, high (in [0, 1]; low and high are empty for a single seed) and n, the seeds.
    interval : str
        What low and high are, as the key states it.
    title : str
        Heading of the figure.

    Returns
    -------
    PageFigure
        Panels side by side in pairs, sharing both axes, with every mean printed.
    """
    require_columns(table, "table", COLUMNS)
    names = paradigm_order(table["paradigm"], "table column 'paradigm'")
    _check_estimates(table)
    datasets = list(dict.fromkeys(table["dataset"]))
    num_columns = min(2, len(datasets))
    num_rows = -(-len(datasets) // num_columns)
    title_width = 62 // num_columns  # letters that a panel has room for
    title_lines = max(len(textwrap.wrap(f"{name} (n = 10)".replace(" = ", NO_BREAK), title_width)) for name in datasets)
    height = 0.75 + (0.3 if title else 0.0) + num_rows * (0.45 + 0.2 * title_lines + ROW_HEIGHT * len(names))
    fig = PageFigure(figsize=(PAGE_WIDTH, height), layout="constrained")
    grid = fig.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False)
    for ax, dataset in zip(grid.flat, datasets, strict=False):
        _draw_dataset(ax, table[table["dataset"] == dataset], names, title_width)
        ax.tick_params(labelbottom=True)
        ax.tick_params(axis="y", labelsize=BODY_SIZE + 1)
    for ax in grid.flat[len(datasets) :]:
        ax.set_axis_off()
    grid[0, 0].set_yticks(range(len(names)), [PARADIGM_LABEL[name] for name in names])
    grid[0, 0].set(xlim=(-0.02, 1.02), ylim=(len(names) - 0.45, -0.55), xticks=(0, 0.2, 0.4, 0.6, 0.8, 1))
    handles = _key(interval, has_interval=bool(table["low"].notna().any()))
    fig.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=1.8)
    if title:
        fig.suptitle(title)
    return fig


def _check_estimates(table: pd.DataFrame) -> None:
    """Refuse estimates that cannot be drawn.

    Parameters
    ----------
    table : pandas.DataFrame
        As in `accuracy_saif_summary`.
    """
    unknown = [metric for metric in table["metric"] if metric not in METRIC_LABEL]
    if unknown:
        raise ValueError(f"table has the unknown metric {unknown[0]!r}; use one of {', '.join(METRIC_LABEL)}.")
    if table.duplicated(["dataset", "paradigm", "metric"]).any():
        raise ValueError("table has two rows for one dataset, paradigm and metric; keep one row for each.")
    if not table["mean"].between(0, 1).all():
        raise ValueError("table column 'mean' has a value outside [0, 1]; give fractions, not percent.")
    if not (table["n"] >= 1).all():
        raise ValueError("table column 'n' has a value below 1; give the number of seeds behind each mean.")
    has_interval = table["low"].notna() | table["high"].notna()
    ordered = (table["low"] <= table["mean"]) & (table["mean"] <= table["high"])
    if not ordered[has_interval].all():
        raise ValueError("table has a mean outside its low and high; give low <= mean <= high, or leave both empty.")


def _draw_dataset(ax: Axes, rows: pd.DataFrame, names: list[str], title_width: int) -> None:
    """Draw one panel.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    rows : pandas.DataFrame
        The data set's rows.
    names : list of str
        Paradigms, top to bottom.
    title_width : int
        Letters in a line of the title.
    """
    counts = sorted({int(count) for count in rows["n"]})
    seeds = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
    ax.set_title(textwrap.fill(f"{rows['dataset'].iloc[0]} ({seeds})".replace(" = ", NO_BREAK), title_width))
    for row in rows.to_dict("records"):
        paradigm, metric = str(row["paradigm"]), str(row["metric"])
        y = names.index(paradigm) + METRIC_SHIFT[metric]
        _draw_estimate(ax, y, paradigm, metric, (float(row["mean"]), float(row["low"]), float(row["high"])))
    for position in range(1, len(names)):
        ax.axhline(position - 0.5, color=FAINT_INK, lw=0.4)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _draw_estimate(ax: Axes, y: float, paradigm: str, metric: str, estimate: tuple[float, float, float]) -> None:
    """Draw a point, its interval and its value.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    y : float
        Vertical position.
    paradigm, metric : str
        Code names.
    estimate : tuple of float
        Mean, low and high; NaN limits leave the interval out.
    """
    look = PARADIGM_STYLE[paradigm]
    mean, low, high = estimate
    has_interval = low == low and high == high
    left, right = (low, high) if has_interval else (mean, mean)
    if has_interval:
        ax.plot([low, high], [y, y], color=look.color, lw=2.2, gid=f"interval-{metric}-{paradigm}")
    fill = look.color if metric == "saif" else CARD
    ax.plot(
        [mean],
        [y],
        color=look.color,
        marker=look.marker,
        mfc=fill,
        mew=1.8,
        ms=7.5,
        clip_on=False,
        gid=f"point-{metric}-{paradigm}",
    )
    beside, shift, side = (min(left, mean), -8, "right") if right > 0.72 else (max(right, mean), 8, "left")
    ax.annotate(
        f"{mean:.3f}",
        (beside, y),
        (shift, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        color=INK,
        fontsize=NOTE_SIZE + 0.5,
        annotation_clip=False,
    )


def _key(interval: str, has_interval: bool) -> list[Artist]:
    """Return the legend.

    Parameters
    ----------
    interval : str
        What the bars are.
    has_interval : bool
        Whether any bar is drawn.

    Returns
    -------
    list of matplotlib.artist.Artist
        Legend handles.
    """
    handles: list[Artist] = [
        Line2D([], [], color=FAINT_INK, marker="o", ls="", mew=1.8, ms=7.5, mfc=fill, label=label)
        for fill, label in ((CARD, "accuracy"), (FAINT_INK, r"SAIF ($\tau$ = 0.8)"))
    ]
    if has_interval:
        handles.append(Line2D([], [], color=FAINT_INK, lw=2.2, label=interval))
    return handles

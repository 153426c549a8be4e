"""Figures of estimates: accuracy and SAIF of every paradigm, and cross-validations."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fcamlib.paradigms import Style, style_of
from fcamlib.plots.look import BODY_SIZE, CARD, FAINT_INK, NOTE_SIZE, RULE, PageFigure, paradigm_order, styled
from fcamlib.plots.panels import empty_panels
from fcamlib.verdicts import LEAST_BOOTSTRAP

METRIC_SHIFT = {"accuracy": -0.19, "saif": 0.19}  # the y axis points down: accuracy is above SAIF
ROW_HEIGHT = 0.52  # inches
NO_BREAK = "\u00a0=\u00a0"  # keeps "n = 5" on one line
# Multiple-instance learning methods that are compared with the paradigms, in a neutral colour.
REFERENCES = {
    "abmil": Style(name="abmil", label="ABMIL", color=FAINT_INK, marker="P"),
    "gated-abmil": Style(name="gated-abmil", label="gated ABMIL", color=FAINT_INK, marker="X"),
}


@styled
def accuracy_saif_summary(table: pd.DataFrame) -> PageFigure:
    """Accuracy (open marker) and SAIF (filled marker) of each paradigm with printed means, one panel per data set.

    `table` has one row per dataset (its title), paradigm and metric ("accuracy" or "saif"), with mean, low and high in
    [0, 1] (limits are NaN without an interval) and n, the number of seeds.
    """
    names, datasets = paradigm_order(table["paradigm"]), list(dict.fromkeys(table["dataset"]))
    across = min(2, len(datasets))
    down, letters = -(-len(datasets) // across), 62 // across
    headings = [_heading(name, table.loc[table["dataset"] == name, "n"], letters) for name in datasets]
    lines = 1 + max(heading.count("\n") for heading in headings)
    height = 0.75 + down * (0.45 + 0.2 * lines + ROW_HEIGHT * len(names))
    fig, axes = empty_panels(len(datasets), across, height, sharex=True, sharey=True)
    for ax, dataset, heading in zip(axes, datasets, headings, strict=True):
        ax.set_title(heading, parse_math=False)
        for row in table[table["dataset"] == dataset].to_dict("records"):
            _draw_estimate(ax, names.index(row["paradigm"]) + METRIC_SHIFT[row["metric"]], row)
        ax.hlines(np.arange(1, len(names)) - 0.5, 0, 1, color=RULE, lw=0.8)
        ax.grid(False, axis="y")
        ax.tick_params(labelbottom=True)
        ax.tick_params(axis="y", length=0, labelsize=BODY_SIZE + 1)
        ax.spines["left"].set_visible(False)
    axes[0].set_yticks(range(len(names)), [style_of(name).label for name in names])
    axes[0].set(xlim=(-0.02, 1.02), ylim=(len(names) - 0.45, -0.55), xticks=np.linspace(0, 1, 6))
    point: Any = {"color": FAINT_INK, "ls": "", "mew": 1.8}
    handles = [
        Line2D([], [], marker="o", ms=7.5, mfc=CARD, label="accuracy", **point),
        Line2D([], [], marker="o", ms=7.5, label=r"SAIF ($\tau$ = 0.8)", **point),
    ]
    if table["low"].notna().any():  # with many seeds it may be a bootstrap interval
        kind = "t-interval" if table["n"].max() < LEAST_BOOTSTRAP else "interval"
        handles.append(Line2D([], [], color=FAINT_INK, lw=2.2, label=f"95% {kind} over seeds"))
    fig.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=1.8)
    return fig


def _heading(dataset: str, counts: pd.Series, letters: int) -> str:
    """A data set's name with its number of seeds, wrapped at `letters` characters."""
    least, most = counts.min(), counts.max()
    seeds = f"n = {least}" if least == most else f"n = {least} to {most}"
    return textwrap.fill(f"{dataset} ({seeds})".replace(" = ", NO_BREAK), letters)


def _draw_estimate(ax: Axes, y: float, row: Mapping[Any, Any]) -> None:
    """Draw a point with its value, and its interval clipped to [0, 1]."""
    look, mean, name = style_of(row["paradigm"]), float(row["mean"]), f"{row['metric']}-{row['paradigm']}"
    low, high = (min(1.0, max(0.0, float(row[end]))) if row[end] == row[end] else mean for end in ("low", "high"))
    if low < high:
        ax.plot([low, high], [y, y], color=look.color, lw=2.2, gid=f"interval-{name}")
    fill = look.color if row["metric"] == "saif" else CARD
    shown: Any = {"color": look.color, "marker": look.marker, "mfc": fill, "mew": 1.8, "ms": 7.5, "clip_on": False}
    ax.plot([mean], [y], gid=f"point-{name}", **shown)
    beside, shift, side = (min(low, mean), -8, "right") if high > 0.72 else (max(high, mean), 8, "left")
    text: Any = {"ha": side, "va": "center", "fontsize": NOTE_SIZE + 0.5, "annotation_clip": False}
    ax.annotate(f"{mean:.3f}", (beside, y), (shift, 0), textcoords="offset points", **text)


@styled
def crossval_accuracy(histories: Mapping[str, pd.DataFrame]) -> PageFigure:
    """Accuracy of each repeat of a cross-validation (small) and their mean (large), for each method and data set.

    That of a repeat is the mean over its folds, weighted by their bags. `histories` maps a data set's title to rows
    with repeat, fold, method, n (bags in the fold) and accuracy.
    """
    across = min(2, len(histories))
    fig, axes = empty_panels(len(histories), across, 0.4 + 2.6 * -(-len(histories) // across), sharey=True)
    for ax, (title, history) in zip(axes, sorted(histories.items()), strict=True):
        names = sorted(paradigm_order(history["method"]), key=lambda name: name in REFERENCES)  # references last
        looks = [REFERENCES.get(name) or style_of(name) for name in names]
        for place, look in enumerate(looks):
            repeats = history[history["method"] == look.name].groupby("repeat")[["accuracy", "n"]]
            values = repeats.apply(lambda folds: np.average(folds["accuracy"], weights=folds["n"])).to_numpy()
            spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
            ax.plot(place + spread, values, look.marker, color=look.color, ms=3.5, alpha=0.6)
            ax.plot(place, values.mean(), look.marker, color=look.color, ms=9, mec=CARD)
        ax.set_xticks(range(len(looks)), [look.label.replace(" ", "\n") for look in looks])
        ax.tick_params(axis="x", labelsize=NOTE_SIZE - 0.5, rotation=90 * (len(looks) > 6))
        ax.set_xlim(-0.6, len(looks) - 0.4)
        num_bags = int(history.drop_duplicates(["repeat", "fold"]).groupby("repeat")["n"].sum().max())
        ax.set_title(textwrap.fill(f"{title} (n = {num_bags} bags)", 62 // across), parse_math=False)
        ax.grid(axis="x", visible=False)
    for ax in axes[::across]:
        ax.set_ylabel("accuracy")
    return fig

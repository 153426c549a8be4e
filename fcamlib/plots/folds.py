"""Results of repeated cross-validations: one panel a data set, one column a method."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fcamlib.plots.checks import require_columns
from fcamlib.plots.look import FAINT_INK, PAGE_WIDTH, PARADIGM_LABEL, PARADIGM_STYLE, PageFigure, styled

METHOD_LABEL = {**PARADIGM_LABEL, "abmil": "ABMIL", "gated-abmil": "gated ABMIL"}
REFERENCE_MARKERS = {"abmil": "P", "gated-abmil": "X"}  # in a neutral colour, beside the paradigms' own


@styled
def crossval_accuracy(histories: Mapping[str, pd.DataFrame]) -> PageFigure:
    """Draw the accuracy of each repeat and its mean, for each method and data set.

    Parameters
    ----------
    histories : mapping
        Title of a data set to the rows of its cross-validation: repeat, fold, method, n, accuracy.

    Returns
    -------
    PageFigure
        Small marks are repeats, each the mean over folds weighted by their bags; the large mark is their mean.
    """
    if not histories:
        raise ValueError("histories is empty; give the rows of at least one cross-validation.")
    columns = min(2, len(histories))
    lines = -(-len(histories) // columns)
    fig = PageFigure(figsize=(PAGE_WIDTH, 0.4 + 2.6 * lines), layout="constrained")
    axes = fig.subplots(lines, columns, squeeze=False, sharey=True)
    for ax, (title, history) in zip(axes.flat, sorted(histories.items()), strict=False):
        require_columns(history, f"histories[{title!r}]", ("repeat", "method", "n", "accuracy"))
        methods = [method for method in METHOD_LABEL if method in set(history["method"])]
        for place, method in enumerate(methods):
            values = _repeats(history[history["method"] == method])
            look = PARADIGM_STYLE.get(method)
            color = look.color if look else FAINT_INK
            marker = look.marker if look else REFERENCE_MARKERS.get(method, "o")
            spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
            ax.plot(place + spread, values, marker, color=color, markersize=3.5, alpha=0.55, linestyle="none")
            ax.plot(place, values.mean(), marker, color=color, markersize=9, markeredgecolor="white", linestyle="none")
        ax.set_xticks(range(len(methods)), [METHOD_LABEL[method].replace(" ", "\n") for method in methods])
        ax.tick_params(axis="x", labelsize="small")
        ax.set_xlim(-0.6, len(methods) - 0.4)
        num_bags = int(history.drop_duplicates(["repeat", "fold"]).groupby("repeat")["n"].sum().max())
        ax.set_title(f"{title} (n = {num_bags} bags)")
        ax.grid(axis="x", visible=False)
    for ax in axes.flat[len(histories) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("accuracy")
    return fig


def _repeats(part: pd.DataFrame) -> np.ndarray:
    """Accuracy of each repeat of one method."""
    weighted = (part["accuracy"] * part["n"]).groupby(part["repeat"]).sum()
    return (weighted / part.groupby("repeat")["n"].sum()).to_numpy(dtype=np.float64)

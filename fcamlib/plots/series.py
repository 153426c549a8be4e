"""Windows of time series with the attention that each paradigm's model gives them."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import ArrayLike

from fcamlib.plots.checks import by_paradigm, class_indices, foreground_mask, require_shape
from fcamlib.plots.look import FAINT_INK, INK, PAGE_WIDTH, PARADIGM_STYLE, RULE, PageFigure, styled

CHANNEL_STYLES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (4, 1.2, 1, 1.2)))
HATCHES = {"soft": "", "hard": "////", "lvml": "....", "hybrid": "xxxx"}  # for readers without colours
FOREGROUND = "#f3e3b3"


@styled
def series_attention(
    segments: ArrayLike,
    foreground: ArrayLike,
    labels: Sequence[int],
    alpha: Mapping[str, ArrayLike],
    predictions: Mapping[str, Sequence[int]],
    label_names: Sequence[str] = (),
    scores: Mapping[str, ArrayLike] | None = None,
) -> PageFigure:
    """Draw series with their windows, and below each the attention weights as bars.

    Parameters
    ----------
    segments : array_like
        (E, M, C, T) windows of E series with C channels.
    foreground : array_like
        (E, M) bool, true where a window decides the label.
    labels : sequence of int
        E true classes.
    alpha : mapping
        Paradigm to (E, M) attention weights.
    predictions : mapping
        Paradigm to E predicted classes.
    label_names : sequence of str
        Names of the classes; their numbers where it is empty.
    scores : mapping, optional
        Not drawn; taken so that the arguments are those of `attention_gallery`.

    Returns
    -------
    PageFigure
        Two axes a series: all channels over time with the foreground shaded, and the weights of its windows.
    """
    windows = np.asarray(segments, dtype=np.float64)
    require_shape(windows, "segments", (None, None, None, None))
    num_series, num_windows = windows.shape[:2]
    mask = foreground_mask(foreground, num_series, num_windows)
    weights = {p: np.asarray(v, dtype=np.float64) for p, v in by_paradigm(alpha, "alpha").items()}
    for paradigm, values in weights.items():
        require_shape(values, f"alpha[{paradigm!r}]", (num_series, num_windows))
    num_classes = max(len(label_names), 1 + max([*labels, *(k for row in predictions.values() for k in row)]))
    names = list(label_names) or [str(number) for number in range(num_classes)]
    truth = class_indices(labels, "labels", num_series, num_classes)
    fig = PageFigure(figsize=(PAGE_WIDTH, 0.5 + 1.75 * num_series), layout="constrained")
    axes = fig.subplots(2 * num_series, 1, sharex=True, height_ratios=[1.4, 1.0] * num_series, squeeze=False)[:, 0]
    for number in range(num_series):
        right = [PARADIGM_STYLE[p].label for p in weights if predictions[p][number] == truth[number]]
        said = ", ".join(right) or "none"
        _draw_series(axes[2 * number], windows[number], mask[number])
        axes[2 * number].set_title(f"label: {names[truth[number]]}; right: {said}", fontsize="medium", loc="left")
        _draw_weights(axes[2 * number + 1], {p: values[number] for p, values in weights.items()}, mask[number])
    axes[-1].set_xlabel("window")
    handles = [Patch(facecolor=PARADIGM_STYLE[p].color, hatch=HATCHES[p], edgecolor="white") for p in weights]
    shown = [PARADIGM_STYLE[p].label for p in weights]
    fig.legend(
        [*handles, Patch(facecolor=FOREGROUND)],
        [*shown, "foreground"],
        loc="outside upper center",
        ncols=len(handles) + 1,
        handlelength=1.5,
    )
    return fig


def _draw_series(ax: Axes, windows: np.ndarray, mask: np.ndarray) -> None:
    """Draw the channels of one series, (M, C, T), one unit of the axis a window."""
    num_windows, num_channels, length = windows.shape
    time = np.arange(num_windows * length) / length - 0.5
    for channel in range(num_channels):
        style = CHANNEL_STYLES[channel % len(CHANNEL_STYLES)]
        color = INK if channel == 0 else FAINT_INK
        ax.plot(time, windows[:, channel].reshape(-1), color=color, linestyle=style, linewidth=1.0)
    _shade(ax, mask)
    ax.set_yticks([])
    ax.grid(False)


def _draw_weights(ax: Axes, weights: Mapping[str, np.ndarray], mask: np.ndarray) -> None:
    """Draw one group of bars a window."""
    width = 0.8 / len(weights)
    for place, (paradigm, values) in enumerate(weights.items()):
        left = np.arange(len(values)) - 0.4 + (place + 0.5) * width
        color = PARADIGM_STYLE[paradigm].color
        ax.bar(left, values, width, color=color, hatch=HATCHES[paradigm], edgecolor="white", linewidth=0)
    _shade(ax, mask)
    ax.set_ylim(0, 1)
    ax.set_yticks([0, 1])
    ax.set_ylabel("$a$", rotation=0)
    ax.set_xticks(range(len(mask)), [str(number + 1) for number in range(len(mask))])


def _shade(ax: Axes, mask: np.ndarray) -> None:
    """Shade the foreground windows and part all of them by lines."""
    for window in np.flatnonzero(mask):
        ax.axvspan(window - 0.5, window + 0.5, color=FOREGROUND, zorder=0, linewidth=0)
    for edge in range(1, len(mask)):
        ax.axvline(edge - 0.5, color=RULE, linewidth=0.6, zorder=0.5)
    ax.set_xlim(-0.5, len(mask) - 0.5)

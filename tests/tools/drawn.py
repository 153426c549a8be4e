"""Reading a figure back from its drawn artists, and colours as they are seen."""

from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text


def by_gid(where: Figure | Axes, gid: str) -> list[Any]:
    """The artists of a name."""
    return where.findobj(lambda artist: artist.get_gid() == gid)


def data_of(where: Figure | Axes, gid: str) -> np.ndarray:
    """Points of the one line of a name, (T, 2)."""
    (line,) = by_gid(where, gid)
    return np.column_stack([line.get_xdata(), line.get_ydata()])


def panel(fig: Figure, title: str) -> Axes:
    """The one panel of a title."""
    (found,) = [ax for ax in fig.axes if ax.get_title() == title]
    return found


def shown_texts(fig: Figure) -> list[Text]:
    """Texts that a reader sees: visible, not empty, and no label of a tick outside the axis or of a hidden axis."""
    unseen: set[Text] = set()
    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not ax.axison or not low <= tick.get_loc() <= high:
                    unseen.update((tick.label1, tick.label2))
            if not ax.axison:
                unseen.update((axis.label, axis.offsetText))
    return [text for text in fig.findobj(Text) if text.get_visible() and text.get_text() and text not in unseen]


def texts_of(fig: Figure) -> list[str]:
    """All that is written in a figure."""
    return [text.get_text() for text in shown_texts(fig)]


def assert_legible(fig: Figure) -> None:
    """Check that no text overlaps another or leaves the figure."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown_texts(fig)]
    page = fig.bbox
    for label, box in boxes:
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, label
    for (label, box), (other_label, other) in combinations(boxes, 2):
        across = min(box.x1, other.x1) - max(box.x0, other.x0)
        down = min(box.y1, other.y1) - max(box.y0, other.y0)
        assert across <= 1 or down <= 1, (label, other_label)


def linear_rgb(color: Any) -> np.ndarray:
    """Light intensities of a colour's channels."""
    channels = np.array(to_rgb(color))
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: Any, other: Any) -> float:
    """WCAG contrast of two colours."""
    darker, lighter = sorted(float(linear_rgb(color) @ [0.2126, 0.7152, 0.0722]) for color in (one, other))
    return (lighter + 0.05) / (darker + 0.05)

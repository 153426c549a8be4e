"""What the tests of the figures share: reading a figure back from its drawn artists."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from fcamlib import paradigms

Finder = Callable[[Figure, str], list[Artist]]


@pytest.fixture
def by_gid() -> Finder:
    """Find the artists of a name."""
    return lambda fig, gid: fig.findobj(lambda artist: artist.get_gid() == gid)


@pytest.fixture
def data_of() -> Callable[[Figure | Axes, str], np.ndarray]:
    """Points of the one line of a name, (T, 2)."""

    def find(where: Figure | Axes, gid: str) -> np.ndarray:
        (line,) = where.findobj(lambda artist: artist.get_gid() == gid)
        return np.column_stack([line.get_xdata(), line.get_ydata()])  # type: ignore[attr-defined]

    return find


@pytest.fixture
def panel() -> Callable[[Figure, str], Axes]:
    """Find the one panel of a title."""

    def find(fig: Figure, title: str) -> Axes:
        (found,) = [ax for ax in fig.axes if ax.get_title() == title]
        return found

    return find


@pytest.fixture
def texts_of() -> Callable[[Figure], list[str]]:
    """List all that is written in a figure."""
    return lambda fig: [text.get_text() for text in shown_texts(fig)]


@pytest.fixture
def assert_legible() -> Callable[[Figure], None]:
    """Check that no text overlaps another or leaves the figure."""

    def check(fig: Figure) -> None:
        boxes = [(text.get_text(), text.get_window_extent()) for text in shown_texts(fig)]
        page = fig.bbox
        for label, box in boxes:
            assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, label
        for (label, box), (other_label, other) in combinations(boxes, 2):
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            down = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert across <= 1 or down <= 1, (label, other_label)

    return check


def linear_rgb(color: Any) -> np.ndarray:
    """Light intensities of a colour's channels."""
    channels = np.array(to_rgb(color))
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


@pytest.fixture
def contrast() -> Callable[[Any, Any], float]:
    """WCAG contrast of two colours."""

    def ratio(one: Any, other: Any) -> float:
        darker, lighter = sorted(float(linear_rgb(color) @ [0.2126, 0.7152, 0.0722]) for color in (one, other))
        return (lighter + 0.05) / (darker + 0.05)

    return ratio


@pytest.fixture
def outsider() -> Iterator[str]:
    """A paradigm that is registered from outside, for the length of a test."""
    look: Any = {"label": "EM", "color": "#775500", "marker": "P", "linestyle": "-"}
    found = paradigms.Paradigm(name="outside", needs="segments", loss=max, log_prob=max, **look)
    yield paradigms.register(found).name
    del paradigms.PARADIGMS[found.name]


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

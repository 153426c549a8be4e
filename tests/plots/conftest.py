"""What the tests of the figures share: reading a figure back from its drawn artists."""

from collections.abc import Callable
from itertools import combinations

import pytest
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text


@pytest.fixture
def by_gid() -> Callable[[Figure, str], list[Artist]]:
    """Find the artists of a name."""
    return lambda fig, gid: fig.findobj(lambda artist: artist.get_gid() == gid)


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


@pytest.fixture
def assert_refused() -> Callable[[Callable[[], object], str], None]:
    """Check that a call is refused with one sentence that matches."""

    def check(draw: Callable[[], object], message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            draw()
        sentence = str(caught.value)
        assert sentence.endswith(".") and "\n" not in sentence

    return check


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

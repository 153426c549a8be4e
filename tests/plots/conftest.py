"""What the tests of the figures share."""

from collections.abc import Iterator
from typing import Any

import pytest

from fcamlib import paradigms


@pytest.fixture
def outsider() -> Iterator[str]:
    """A paradigm that is registered from outside, for the length of a test."""
    look: Any = {"label": "EM", "color": "#775500", "marker": "P", "linestyle": "-"}
    found = paradigms.Paradigm(name="outside", needs="segments", loss=max, log_prob=max, **look)
    yield paradigms.register(found).name
    del paradigms.PARADIGMS[found.name]

"""Sphinx extension: `{{ saif.digits.hybrid }}` in a page is the number that findings.py read from the records."""

from __future__ import annotations

import json
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config


def take_numbers(app: Sphinx, config: Config) -> None:
    """Hand the numbers to MyST; a name that is not among them is a warning, which ends the build."""
    config.myst_substitutions = json.loads(Path(app.srcdir, "notebooks", "numbers.json").read_text("utf-8"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the step to the start of the build."""
    app.connect("config-inited", take_numbers, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

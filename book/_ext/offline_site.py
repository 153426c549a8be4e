"""Sphinx extension: a site that asks no other host for anything, and no page for more than it needs.

Sphinx loads MathJax from a content delivery network, and the theme's "live code" helper names another one. Here MathJax
comes from the PyPI package sphinx-mathjax-offline, which is used as a source of files only, and the live-code scripts
are left out of every page, since the book offers the executed notebooks for download instead. jupyter-book loads every
script and style sheet in _static on all pages; those that belong to one page are left out of the others.
"""

from __future__ import annotations

import shutil
from importlib.metadata import files
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

MATHJAX_PACKAGE = "sphinx-mathjax-offline"
MATHJAX_PARTS = (
    "tex-mml-chtml.js",
    "output/chtml/fonts/woff-v2/*.woff",
    # Loaded by MathJax when a formula first uses one of their macros.
    "input/tex/extensions/*.js",
)
VENDOR_DIR = "vendor_js"
# Name of a script or style sheet in _static -> the pages that use it; the others are for all pages.
USED_BY = {
    "drawing": ("explorer", "course", "intro", "train"),
    "explorer": ("explorer",),
    "course": ("course", "intro"),
    "gallery": ("course",),
    "train": ("train",),
    "train_model": ("train",),
    "train_run": ("train",),
    "train_views": ("train",),
}


def mathjax_dir() -> Path:
    """Folder of the installed MathJax distribution."""
    for file in files(MATHJAX_PACKAGE) or []:
        if file.name == "tex-mml-chtml.js":
            return Path(str(file.locate())).resolve().parent
    raise ExtensionError(
        f"{MATHJAX_PACKAGE} holds no tex-mml-chtml.js: reinstall it with pip, as constraints.txt pins it."
    )


def use_local_mathjax(app: Sphinx, config: Config) -> None:
    """Point every page with formulas at the copy inside the site."""
    config.mathjax_path = f"{VENDOR_DIR}/tex-mml-chtml.js"


def leave_out_files(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Drop what belongs to another page, and sphinx-thebe, which would fetch a client from another host."""
    for kind in ("script_files", "css_files"):
        files = [file for file in context.get(kind, []) if not _is_live_code(file)]
        context[kind] = [file for file in files if pagename in USED_BY.get(Path(_name(file)).stem, (pagename,))]


def _name(file: Any) -> str:
    return Path(str(getattr(file, "filename", file)).split("?")[0]).name


def _is_live_code(script: Any) -> bool:
    return "thebe" in _name(script).lower() or "THEBE" in str(getattr(script, "attributes", {}).get("body", ""))


def copy_mathjax(app: Sphinx, exception: Exception | None) -> None:
    """Copy MathJax and its fonts beside the pages once they are written."""
    if exception is not None or app.builder.format != "html":
        return
    source = mathjax_dir()
    target = Path(app.outdir) / "_static" / VENDOR_DIR
    for pattern in MATHJAX_PARTS:
        for file in sorted(source.glob(pattern)):
            copy = target / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the steps to Sphinx's events."""
    # After sphinx-thebe (500) has registered its scripts and before the page is rendered.
    app.connect("config-inited", use_local_mathjax)
    app.connect("html-page-context", leave_out_files, priority=900)
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Sphinx extension: pages that ask no other host for anything, are light, hold still and quote numbers from records.

MathJax comes from the package sphinx-mathjax-offline, used as a folder of files, and not from another host. Each page
keeps the scripts, style sheets and search index that it uses. The written HTML is rewritten, as commented below.
`{{ saif.digits.hybrid }}` in a page is the number that findings.py read from the records.
"""

import json
import re
import shutil
from html import escape, unescape
from importlib.metadata import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from PIL import Image
from sphinx.application import Sphinx
from sphinx.config import Config

from fcamlib import paths
from fcamlib.paradigms import label_of

MATHJAX = "tex-mml-chtml.js"
# The last: loaded by MathJax when a formula first uses one of their macros.
MATHJAX_PARTS = (MATHJAX, "output/chtml/fonts/woff-v2/*.woff", "input/tex/extensions/*.js")
# Name of a script or style sheet in _static -> the pages that use it; the others are for all pages.
USED_BY = {
    "drawing": ("explorer", "course", "intro", "train"), "explorer": ("explorer",), "course": ("course", "intro"),
    "gallery": ("course",), **dict.fromkeys(("train", "train_model", "train_run", "train_views"), ("train",)),
}  # fmt: skip
# The theme's icons come twice, as a font and as this script of 1.5 MB.
ICON_SCRIPT = re.compile(r"\s*<!-- So that users can add custom icons -->\s*<script[^>]*fontawesome\.js[^>]*></script>")
SEARCH_SCRIPT = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js"></script>')
# An image without a size moves the text below it when it arrives.
IMAGE = re.compile(r'<img(?=[^>]*\bsrc="([^":]+)")(?![^>]*\b(?:width|height)=)')
VIEW_BOX = re.compile(r'<svg\b[^>]*?\bviewBox="\s*\S+\s+\S+\s+([\d.]+)\s+([\d.]+)', re.S)
# A long signature's parameters are a list of definitions that defines nothing; the sidebar's arrows have no name.
SIGNATURE = re.compile(r'<dl>(\s*<dd><em class="sig-param">.*?)</dl>', re.S)
SUMMARY = re.compile(r'<summary>(?=<span class="toctree-toggle")')
# A cell that names a paradigm gets its mark: "SA", "soft attention (SA)", "hybrid (SA, then HA)"; not "hybrid - SA".
PARADIGM = {label_of(name): name for name in ("soft", "hard", "lvml", "hybrid")}
NAME = rf"(?:[a-z ]+(?:, | \())?({'|'.join(PARADIGM)})(?:\)| \([^)]*\))?"
NAMED_CELL = re.compile(rf"(<t[hd](?: [^>]*)?>(?:<p>)?(?:SAIF: )?)({NAME})(?=(?:</p>)?</t[hd]>)")
# A link to a term of the glossary has the term's meaning as hover text.
TERM = re.compile(r'<a class="reference internal" href="[^"#]*#(term-[^"]+)"')
MEANING = re.compile(r'<dt id="(term-[^"]+)"(?=.*?<dd>(.*?)</dd>)', re.S)
# The line under a figure links to the figure's files.
NOTE = re.compile(r'(<details class="figure-note" data-figure="([^"]+)">.*?)</details>', re.S)
# An interval in a table is not broken between its limits.
TEXT_CELL = re.compile(r"<td[^>]*>(?:<p>)?[^<]*")
INTERVAL = re.compile(r"[\[(][+-]?\d[\d.]*(?:,| to) [+-]?\d[\d.]*[\])]")


def take_numbers(app: Sphinx, config: Config) -> None:
    """Hand the numbers to MyST; a name that is not among them is a warning, which ends the build."""
    config.myst_substitutions = json.loads(Path(app.srcdir, "notebooks", "numbers.json").read_text("utf-8"))


def leave_out_files(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Drop the scripts and style sheets that a page does not use, and those for live code, which name another host."""

    def is_used(file: Any) -> bool:
        name = Path(str(getattr(file, "filename", file)).split("?")[0])
        is_live_code = "thebe" in f"{name.name} {getattr(file, 'attributes', {}).get('body', '')}".lower()
        return not is_live_code and pagename in USED_BY.get(name.stem, (pagename,))

    for kind in ("script_files", "css_files"):
        context[kind] = list(filter(is_used, context.get(kind, [])))


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Copy MathJax beside the pages and rewrite every page once all are written."""
    if exception is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    package = next(file for file in files("sphinx-mathjax-offline") or () if file.name == MATHJAX)
    source, target = Path(str(package.locate())).resolve().parent, site / "_static" / "vendor_js"
    for file in (file for pattern in MATHJAX_PARTS for file in source.glob(pattern)):
        (target / file.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target / file.relative_to(source))
    rewrite(site)


def rewrite(site: Path) -> None:
    """Make the changes to every page."""
    notation = site / "notation.html"
    found = MEANING.findall(notation.read_text("utf-8") if notation.is_file() else "")
    meanings = {name: escape(unescape(" ".join(re.sub(r"<[^>]+>", "", text).split()))) for name, text in found}
    for file in (file for file in site.rglob("*.html") if "_static" not in file.parts):
        page = finished(file.read_text("utf-8"), file.parent)
        page = page if file.stem == "search" else SEARCH_SCRIPT.sub("", page)
        page = TERM.sub(lambda link: f'{link[0]} title="{meanings.get(link[1], "")}"', page)
        root = "../" * (len(file.relative_to(site).parts) - 1)
        file.write_text(NOTE.sub(lambda note: f"{note[1]}{file_links(note[2], site, root)}</details>", page), "utf-8")  # noqa: B023


def finished(page: str, folder: Path) -> str:
    """A page's HTML with the changes that concern this page alone; `folder` is where its relative links start."""
    page = ICON_SCRIPT.sub("", page)
    page = page.replace('<div role="list" class="citation-list">', '<div class="citation-list">')
    page = SUMMARY.sub('<summary aria-label="Pages of this part">', page)
    page = SIGNATURE.sub(lambda found: f'<div class="sig-lines">{found[1].replace("dd>", "div>")}</div>', page)
    page = NAMED_CELL.sub(lambda cell: f'{cell[1]}<span class="paradigm {PARADIGM[cell[3]]}">{cell[2]}</span>', page)
    page = TEXT_CELL.sub(lambda cell: INTERVAL.sub(lambda found: found[0].replace(" ", "\u00a0"), cell[0]), page)
    return IMAGE.sub(lambda tag: with_size(tag, folder), page)


def with_size(tag: re.Match[str], folder: Path) -> str:
    """The beginning of an <img> tag, with width and height of its file unless that lies elsewhere."""
    file = folder / unquote(tag[1])
    if not file.is_file():
        return tag[0]
    if file.suffix == ".svg":
        found = VIEW_BOX.search(file.read_text("utf-8")[:5000])
        assert found is not None, f"{file} does not say how large it is"
        return f'<img width="{float(found[1]):.0f}" height="{float(found[2]):.0f}"'
    with Image.open(file) as picture:
        return f'<img width="{picture.width}" height="{picture.height}"'


def file_links(figure: str, site: Path, root: str) -> str:
    """Links to a figure's files, which are copied into the site."""
    links = []
    for kind, ending in (("SVG", "svg"), ("PNG", "png"), ("record", "json")):
        places = (folder / f"{figure}.{ending}" for folder in (paths.figures_dir(), site.parents[1] / "notebooks"))
        if source := next(filter(Path.is_file, places), None):
            (site / "figures").mkdir(exist_ok=True)
            shutil.copyfile(source, site / "figures" / source.name)
            links.append(f'<a href="{root}figures/{source.name}" download>{kind}</a>')
    return f'<p class="files">{", ".join(links)}</p>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the steps to Sphinx's events."""
    app.connect("config-inited", take_numbers, priority=100)
    app.connect("html-page-context", leave_out_files, priority=900)  # sphinx-thebe registers its scripts at 500
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

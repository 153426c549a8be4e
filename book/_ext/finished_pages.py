"""Sphinx extension: what the theme leaves undone in the written pages, for weight, steadiness and keyboards.

- Its icons come twice, as a font and as a script of 1.5 MB: the script goes.
- Every page loads the search index, which the search page alone uses.
- An image without a size moves the text below it when it arrives: each gets the size of its file.
- The arrow that opens a part of the sidebar has no name.
- The parameters of a long signature stand in a list of definitions that defines nothing.
- The list of references is said to be a list, whose entries are said to be something else.
- A table's cell that names a paradigm is any cell: it gets the mark that the paradigm has in the figures.
- A term of the glossary says what it means only on another page: its link gets the explanation as a hover text.
- The line under a figure has no links to its files.
- An interval in a table may be broken between its limits.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import unquote

from PIL import Image
from sphinx.application import Sphinx

from fcamlib import paths
from fcamlib.paradigms import label_of

ICON_SCRIPT = re.compile(r"\s*<!-- So that users can add custom icons -->\s*<script[^>]*fontawesome\.js[^>]*></script>")
SEARCH_SCRIPT = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js"></script>')
IMAGE = re.compile(r"<img\b[^>]*>")
SOURCE = re.compile(r'\bsrc="([^"]+)"')
VIEW_BOX = re.compile(r'<svg\b[^>]*?\bviewBox="\s*\S+\s+\S+\s+([\d.]+)\s+([\d.]+)', re.S)
SIGNATURE = re.compile(r'<dl>(\s*<dd><em class="sig-param">.*?)</dl>', re.S)
SUMMARY = re.compile(r'<summary>(?=<span class="toctree-toggle")')
PARADIGM = {label_of(name): name for name in ("soft", "hard", "lvml", "hybrid")}
# "SA", "soft attention (SA)", "soft attention, SA", "hybrid (SA, then HA)"; not "hybrid - SA", a difference of two.
NAMED_CELL = re.compile(
    rf"<(t[hd])( [^>]*)?>((?:<p>)?)((?:[a-z ]+(?:, | \())?({'|'.join(PARADIGM)})(?:\)| \([^)]*\))?)(?=(?:</p>)?</\1>)"
)
TERM = re.compile(r'(<a class="reference internal" href="[^"#]*#(term-[^"]+)")')
NOTE = re.compile(r'<details class="figure-note" data-figure="([^"]+)">.*?</details>', re.S)
TEXT_CELL = re.compile(r"<td[^>]*>(?:<p>)?[^<]*")
INTERVAL = re.compile(r"[\[(][+-]?\d[\d.]*(?:,| to) [+-]?\d[\d.]*[\])]")


def size_of(file: Path) -> tuple[int, int] | None:
    """Width and height of a picture in pixels, or of a drawing in its own units; None where neither can be told."""
    if file.suffix == ".svg":
        found = VIEW_BOX.search(file.read_text(encoding="utf-8")[:5000])
        return (round(float(found[1])), round(float(found[2]))) if found else None
    try:
        with Image.open(file) as picture:
            return picture.size
    except OSError:
        return None


def with_size(tag: str, folder: Path) -> str:
    """An <img> tag with the width and height of its file, unless it has them or the file lies elsewhere."""
    source = SOURCE.search(tag)
    if source is None or ":" in source[1] or re.search(r"\b(width|height)=", tag):
        return tag
    file = folder / unquote(source[1])
    size = size_of(file) if file.is_file() else None
    return tag if size is None else tag.replace("<img", f'<img width="{size[0]}" height="{size[1]}"', 1)


def as_lines(parameters: str) -> str:
    """The parameters of a signature, one a line."""
    return f'<div class="sig-lines">{parameters.replace("<dd>", "<div>").replace("</dd>", "</div>")}</div>'


def marked(cell: re.Match[str]) -> str:
    """A cell that names a paradigm, with the name in a span of its own class."""
    tag, attributes, opened, text, label = cell.groups(default="")
    return f'<{tag}{attributes}>{opened}<span class="paradigm {PARADIGM[label]}">{text}</span>'


def finished(page: str, folder: Path) -> str:
    """A page's HTML with the changes above; `folder` is where its relative links start."""
    page = ICON_SCRIPT.sub("", page)
    page = page.replace('<div role="list" class="citation-list">', '<div class="citation-list">')
    page = SUMMARY.sub('<summary aria-label="Pages of this part">', page)
    page = SIGNATURE.sub(lambda match: as_lines(match[1]), page)
    page = NAMED_CELL.sub(marked, page)
    page = TEXT_CELL.sub(lambda cell: INTERVAL.sub(lambda match: match[0].replace(" ", "\u00a0"), cell[0]), page)
    return IMAGE.sub(lambda match: with_size(match[0], folder), page)


def glossary(page: str) -> dict[str, str]:
    """Anchor of each term of the glossary -> its explanation as plain text."""
    found: dict[str, str] = {}
    for heads, text in re.findall(r"((?:<dt id=\"term-.*?</dt>\s*)+)<dd>(.*?)</dd>", page, re.S):
        plain = " ".join(re.sub(r"<[^>]+>", "", text).split())
        found |= dict.fromkeys(re.findall(r'id="(term-[^"]+)"', heads), plain.replace('"', "&quot;"))
    return found


def with_files(note: re.Match[str], site: Path, depth: int) -> str:
    """The line under a figure, with links to the figure's files, which are copied into the site."""
    links = []
    for kind, ending in (("SVG", "svg"), ("PNG", "png"), ("record", "json")):
        for folder in (paths.figures_dir(), site.parents[1] / "notebooks"):
            if (source := folder / f"{note[1]}.{ending}").is_file():
                (site / "figures").mkdir(exist_ok=True)
                shutil.copyfile(source, site / "figures" / source.name)
                links.append(f'<a href="{"../" * depth}figures/{source.name}" download>{kind}</a>')
                break
    return note[0].removesuffix("</details>") + f'<p class="files">{", ".join(links)}</p></details>'


def finish_pages(app: Sphinx, exception: Exception | None) -> None:
    """Rewrite every page once all are written."""
    if exception is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    terms = glossary((site / "notation.html").read_text("utf-8"))
    for file in (file for file in site.rglob("*.html") if "_static" not in file.parts):
        depth = len(file.relative_to(site).parts) - 1
        page = finished(file.read_text("utf-8"), file.parent)
        page = page if file.stem == "search" else SEARCH_SCRIPT.sub("", page)
        page = TERM.sub(lambda link: f'{link[1]} title="{terms.get(link[2], "")}"', page)
        page = NOTE.sub(lambda note: with_files(note, site, depth), page)  # noqa: B023
        file.write_text(page, "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the step to the end of the build."""
    app.connect("build-finished", finish_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

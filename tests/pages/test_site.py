"""The built site in a real browser: nothing from elsewhere, nothing broken, readable in both schemes and on a phone."""

import functools
import gzip
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import nbformat
import pytest
from page_scripts import AXE, COLOURS, CUT, DRAWN, FIT, FOCUSED, INSPECT, PRINTED, RUN_AXE, SHIFTS
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, ViewportSize

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "book" / "_build" / "html"

DESKTOP = ViewportSize(width=1300, height=900)
PHONE = ViewportSize(width=390, height=844)
# Two harmless messages of the theme: a constant declared twice, and a mode that is not set at first.
KNOWN_MESSAGES = ("THEBE_JS_URL", "theme mode")
# Bytes of a page as a web server sends them, text compressed; without MathJax and plotly, kept from page to page.
MAX_PAGE_BYTES = 1_000_000
COMPRESSED = (".html", ".js", ".css", ".svg", ".json")
UNCOUNTED = ("_static/vendor_js/",)
MAX_SHIFT = 0.05  # cumulative layout shift: how far the page moves under the reader's eyes while it loads
FAULTS = (
    *("problems", "barriers", "broken", "bare", "heavy", "moving"),  # whatever the size and the scheme
    *("unrendered", "misread", "oversized", "untypeset"),  # of formulas
    *("desk", "phone", "paper", "light", "dark"),  # what is cut off or does not fit, and colours
)
# The empty page between two pages has no storage.
LIGHT = "if (location.protocol !== 'about:') ['mode', 'theme'].forEach(name => localStorage.setItem(name, 'light'))"
# Axe looks at each page that has parts of its own, and at one of those that are made alike; a slow test at all.
EXAMINED = ("intro.html", "course.html", "explorer.html", "train.html", "claims.html", "api/losses.html")
# Pages of the API reference are made alike: colours, print and a desk are measured on three, a phone on all.
LIKE_OTHERS = re.compile(r"api/(?!configs|plots|theory)")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing about served files."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The site on a local port."""
    if not (SITE / "index.html").is_file():
        pytest.fail("book/_build/html/index.html is missing: run `make book` first")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Visit:
    """One browser page that writes down what it asks other hosts for and what goes wrong."""

    def __init__(self, browser: Browser, base: str) -> None:
        self.base = base
        self.problems: list[str] = []
        self.asked: set[str] = set()
        context = browser.new_context(viewport=DESKTOP)
        context.add_init_script(LIGHT)
        context.add_init_script(SHIFTS)
        self.page: Page = context.new_page()
        self.page.on("request", self._note_request)
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        self.page.on("requestfailed", self._note_failure)

    def _note_request(self, request: Request) -> None:
        self.asked.add(request.url.removeprefix(self.base))
        if not request.url.startswith((self.base, "data:", "blob:", "about:")):
            self.problems.append(f"elsewhere: {request.url}")

    def _note_failure(self, request: Request) -> None:
        """A failed request, but for one that the browser gave up because the page was left (a redirect)."""
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"failed: {request.url} ({request.failure})")

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(known in message.text for known in KNOWN_MESSAGES):
            self.problems.append(f"{message.text} ({message.location.get('url')})")

    def open(self, path: str) -> Page:
        """Load a page on a desk and wait until its formulas and fonts stand."""
        if self.page.viewport_size != DESKTOP:
            self.page.goto("about:blank")  # so that no page is laid out once more before it is left
            self.page.set_viewport_size(DESKTOP)
        self.problems, self.asked = [], set()
        self.page.goto(urljoin(self.base, path), wait_until="load")
        self.page.evaluate("async () => { await window.MathJax?.startup?.promise; await document.fonts.ready; }")
        return self.page

    def on_a_phone(self) -> Page:
        """The page in a phone's window, once it is drawn."""
        self.page.set_viewport_size(PHONE)
        self.page.evaluate(DRAWN)
        return self.page

    def barriers(self, contrast: bool) -> list[dict]:
        """What axe finds to shut readers out, or, with `contrast`, the texts that it finds too pale."""
        self.page.evaluate(AXE)
        return self.page.evaluate(RUN_AXE, "color-contrast" if contrast else None)


def chapters() -> list[str]:
    """The pages with text, as paths below the site's root: without the index, the search and the redirection there."""
    found = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html") if "_static" not in path.parts)
    return [page for page in found if page not in ("genindex.html", "py-modindex.html", "search.html", "index.html")]


@functools.cache
def sent(file: Path) -> int:
    """Bytes of a file as a server sends it."""
    content = file.read_bytes()
    return len(gzip.compress(content, 6) if file.suffix in COMPRESSED else content)


def weight(asked: set[str]) -> int:
    """Bytes of the files that a page asked for."""
    files = [SITE / unquote(urlsplit(url).path) for url in asked if not url.startswith(UNCOUNTED)]
    return sum(sent(file) for file in files if file.is_file() and "plotly" not in file.name)


def looks(visit: Visit, path: str) -> dict[str, list]:
    """What is wrong with a page on a desk, on paper and on a phone, in the light and in the dark.

    One load serves all: window, scheme and medium change under the page, as they do under a reader's. A scheme changes
    colours alone, so that sizes are measured in one.
    """
    found: dict[str, list] = {}
    if not LIKE_OTHERS.match(path):
        found["desk"] = visit.page.evaluate(FIT)
        found |= {scheme: visit.page.evaluate(COLOURS, scheme) for scheme in ("light", "dark")}
        visit.page.emulate_media(media="print")
        found["paper"] = visit.page.evaluate(PRINTED)
        visit.page.emulate_media(media="screen")
    return found | {"phone": visit.on_a_phone().evaluate(FIT)}


@pytest.fixture(scope="module")
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    """One browser page for all tests, so that what pages share is fetched once."""
    visit = Visit(browser, address)
    yield visit
    visit.page.context.close()


@pytest.fixture(scope="module")
def crawl(visit: Visit) -> dict[str, dict]:
    """Path of each chapter -> its links and anchors, and under the name of each fault what has it."""
    found = {}
    for path in chapters():
        page = visit.open(path)
        shift, size = page.evaluate("window.shifts"), weight(visit.asked)
        found[path] = page.evaluate(INSPECT)
        found[path] |= {"moving": [shift] * (shift > MAX_SHIFT), "heavy": [size] * (size > MAX_PAGE_BYTES)}
        found[path] |= {"barriers": visit.barriers(False) if path in EXAMINED else []} | looks(visit, path)
        found[path]["problems"] = visit.problems
    return found


def test_every_source_page_is_in_the_site(crawl: dict[str, dict]) -> None:
    sources = {path.stem for path in (ROOT / "book").glob("*.md")}
    sources |= {f"api/{path.stem}" for path in (ROOT / "book" / "api").glob("*.md")}
    sources |= {f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")}
    assert {path.removesuffix(".html") for path in crawl} == sources


@pytest.mark.parametrize("fault", FAULTS)
def test_no_page_has_a_fault(fault: str, crawl: dict[str, dict]) -> None:
    assert not {path: page[fault] for path, page in crawl.items() if page.get(fault)}
    assert sum(fault in page for page in crawl.values()) > 25, "too few pages were looked at"


def test_there_are_formulas_to_look_at(crawl: dict[str, dict]) -> None:
    assert sum(page["formulas"] for page in crawl.values()) > 20
    assert sum(page["scripts"] for page in crawl.values()) > 500, "sub- and superscripts, whose size is measured"


def test_every_link_and_anchor_inside_the_site_exists(crawl: dict[str, dict], address: str) -> None:
    broken = []
    for path, page in crawl.items():
        for link in page["links"]:
            target, anchor = urldefrag(urljoin(address + path, link))
            if not target.startswith(address) or link.startswith("javascript:"):
                assert urlsplit(target).scheme in ("http", "https", "mailto", "javascript"), f"{link} on {path}"
                continue
            relative = unquote(target.removeprefix(address)) or "index.html"
            missing = not (SITE / relative).is_file()
            if missing or (anchor and relative in crawl and unquote(anchor) not in crawl[relative]["anchors"]):
                broken.append((path, link))
    assert not broken


def test_every_chapter_made_from_a_notebook_offers_it_executed(crawl: dict[str, dict]) -> None:
    for path in (path for path in crawl if path.startswith("notebooks/")):
        (link,) = {link for link in crawl[path]["links"] if link.endswith(".ipynb") and "_sources" in link}
        text = (SITE / path).parent.joinpath(link).read_text("utf-8")
        cells = [cell for cell in nbformat.reads(text, as_version=4).cells if cell.cell_type == "code"]
        assert cells and all(cell.execution_count for cell in cells if cell.source.strip())
        assert str(ROOT) not in text


def test_search_finds_a_word(visit: Visit) -> None:
    for word in ("hybrid", "responsibilities"):
        page = visit.open(f"search.html?q={word}")
        page.wait_for_selector("#search-results ul.search li a")
        hits = [hit.get_attribute("href") or "" for hit in page.locator("#search-results ul.search li a").all()]
        assert any("notation.html" in hit for hit in hits)
        assert not visit.problems


def test_the_claims_fit_three_screens_and_each_mark_opens_its_numbers(visit: Visit) -> None:
    page = visit.open("claims.html")
    assert page.evaluate("document.querySelector('article').scrollHeight") <= 3 * DESKTOP["height"]
    for mark in page.locator("table.matrix td a").all()[::9]:
        row = page.locator(f"[id='{(mark.get_attribute('href') or '')[1:]}']")
        mark.press("Enter")
        row.wait_for(state="visible")
        claim, task, state = re.split(" on |: ", mark.get_attribute("title") or "")
        assert f" {task}: {state}" in row.inner_text() and row.get_attribute("id") != claim
    for fold in page.locator("details.claim").all():
        fold.evaluate("fold => fold.open = true")
    assert page.evaluate(CUT) == visit.on_a_phone().evaluate(CUT) == []


@pytest.mark.slow
def test_no_page_at_all_shuts_readers_out(visit: Visit) -> None:
    """Contrast too, in both schemes, on a page of each kind: all are measured above, but not by axe."""
    assert not {path: found for path in chapters() if (visit.open(path), found := visit.barriers(False))[1]}
    for path in ("intro.html", "explorer.html", "api/theory.html", "notebooks/02_accuracy_and_saif.html"):
        page = visit.open(path)
        for scheme in ("light", "dark"):
            page.evaluate(COLOURS, scheme)
            assert not visit.barriers(True), (path, scheme)


def test_a_keyboard_reaches_everything(visit: Visit) -> None:
    page = visit.open("notebooks/02_accuracy_and_saif.html")
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
    assert all(stop["seen"] for stop in reached), [stop["what"] for stop in reached if not stop["seen"]]
    assert "skip" in reached[0]["what"].lower(), "the first stop skips to the text"
    for part in ("search-button", "bd-sidebar-primary", "article"):
        assert any(part in stop["inside"] for stop in reached), f"no stop in {part}"
    page.locator("details.hide summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details.hide").first.get_attribute("open") is not None, "folded code stays shut"
    page.keyboard.press("Control+k")
    page.wait_for_selector("dialog#pst-search-dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog#pst-search-dialog", state="hidden")


def test_the_first_visit_is_light_where_the_system_is_dark(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport=DESKTOP, color_scheme="dark")
    page = context.new_page()
    page.goto(address + "intro.html")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    context.close()


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_folder_opens_without_a_server(every: bool, browser: Browser) -> None:
    """By default a page of each kind, with formulas, pictures and scripts; all links are checked above."""
    visit = Visit(browser, SITE.as_uri() + "/")
    visit.page.goto(f"{visit.base}index.html")
    visit.page.wait_for_url("**/intro.html")
    for path in chapters() if every else ("notebooks/05_gradient_flow.html", "api/theory.html", "explorer.html"):
        found = visit.open(path).evaluate(INSPECT)
        assert not found["untypeset"] and not found["broken"], path
        assert not visit.problems
    visit.page.goto(f"{visit.base}search.html?q=hybrid")
    # Browsers forbid a page opened from disk to fetch the excerpts, but the list of hits needs none.
    visit.page.wait_for_selector("#search-results ul.search li a")
    assert not [problem for problem in visit.problems if problem.startswith("elsewhere")]
    visit.page.context.close()

"""What the built book says of its making, and what its first page shows within the first screen."""

import html
import json
import re
from pathlib import Path
from typing import Any

import ledger
import nbformat
import papermill_command
import pytest
from findings import shown_tasks
from playwright.sync_api import Browser

from fcamlib import paths, tables

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book" / "notebooks"
SITE = ROOT / "book" / "_build" / "html"
RECORDED = paths.recorded_dir() or ROOT
NAMES = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))]
NOTE = re.compile(
    r'<details class="figure-note" data-figure="(?P<figure>[\w-]+)"><summary>how it was made</summary>'
    r"<p><code>(?P<path>.*?)</code>\. (?P<made>.*?)\.</p>(<pre>(?P<rerun>.*?)</pre>)?"
    r'(<p class="files">.*?</p>)?</details>',
    re.S,
)
ORIGIN = re.compile(
    r"(recorded|computed) \d{4}-\d\d-\d\d( to \d{4}-\d\d-\d\d)?, commit (<code>([0-9a-f]{7}\+?|none)</code>(, )?)+"
)


def notes(text: str) -> list[dict[str, str]]:
    """The parts of each note in a text, as a reader sees them."""
    return [match.groupdict() | {"rerun": html.unescape(match["rerun"] or "")} for match in NOTE.finditer(text)]


def as_text(parameters: dict[str, Any]) -> dict[str, str]:
    """Parameters as a shell or a profile writes them: 5 and "5" are one value, as are [0, 1] and "0,1"."""
    return {name: ",".join(map(str, v)) if isinstance(v, list) else str(v) for name, v in parameters.items()}


def built(name: str) -> list[dict[str, str]]:
    """The notes of an executed notebook that is a page of the book."""
    path = BOOK / f"{name}.ipynb"
    if not path.is_file():
        pytest.fail(f"book/notebooks/{name}.ipynb is missing: run `make book` first")
    cells = nbformat.read(path, as_version=4).cells
    return notes("".join(o.get("data", {}).get("text/html", "") for cell in cells for o in cell.get("outputs", [])))


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_says_how_it_was_made_and_its_command_gives_the_parameters_again(name: str) -> None:
    source = (ROOT / "notebooks" / f"{name}.ipynb").read_text("utf-8")
    found = built(name)
    assert [note["figure"] for note in found] == re.findall(r'plots\.show\(\w+, \\"([\w-]+)\\"', source)
    own = ledger.parameters_of(ROOT / "notebooks" / f"{name}.ipynb")
    for note in found:
        assert note["path"] == f"notebooks/{name}.ipynb" and ORIGIN.search(note["made"])
        assert ORIGIN.sub("", note["made"]).count("commit") == 0, note["made"]
        if note["rerun"].startswith("papermill"):
            path, given = papermill_command.read(note["rerun"])
            wanted = own | ledger.parameters_of(BOOK / f"{name}.ipynb")
            assert path == note["path"] and as_text(own | given) == as_text(wanted)
        record = json.loads((ROOT / "figures" / f"{note['figure']}.json").read_text("utf-8"))
        kept = [entry for entry in record["computed"] if entry["recorded"]]
        assert bool(kept) == ("recorded" in note["made"])
        assert all(commit[:7] in note["made"] for entry in kept for commit in entry["commits"])
    assert notes((SITE / "notebooks" / f"{name}.html").read_text("utf-8")) == found
    took = json.loads((BOOK / f"{name}.json").read_text("utf-8"))
    assert took["seconds"] > 0 and took["device"] and re.fullmatch(r"\d{4}-\d\d-\d\d", took["date"])


@pytest.mark.parametrize(
    ("page", "source"),
    [("course", "book/_ext/interactive.py"), ("intro", "book/_ext/findings.py")],
)
def test_figures_outside_the_notebooks_have_their_line(page: str, source: str) -> None:
    found = [note for note in notes((SITE / f"{page}.html").read_text("utf-8")) if note["path"] == source]
    assert found and (ROOT / source).is_file() and all(ORIGIN.search(note["made"]) for note in found)


def test_the_table_of_times_has_every_notebook_and_every_record() -> None:
    text = "".join((BOOK / f"{name}.md").read_text("utf-8") for name in ("runtimes", "runtimes-recorded"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    found = {name for row in rows for name in re.findall(r"`notebooks/(.*?)`", row[0])}
    assert found == set(NAMES)
    (start,) = [number for number, row in enumerate(rows) if row[0] == "recorded"]
    recorded = rows[start + 2 :]
    folders = [path for path in RECORDED.iterdir() if (path / "summary.json").is_file()]
    assert sum(int(row[1]) for row in recorded) == len(folders)
    hours = {"s": 1 / 3600, "min": 1 / 60, "h": 1.0}
    shown = sum(float(value) * hours[unit] for value, unit in (row[3].split() for row in recorded))
    sources = [json.loads((path / "summary.json").read_text("utf-8"))["provenance"] for path in folders]
    spent = sum(source.get("train_seconds") or source["last_session_seconds"] for source in sources) / 3600
    assert shown == pytest.approx(spent, rel=0.02)
    assert all("thread" in row[4] for row in recorded)


SPACES = """rows => rows.map((row) => {
  const range = document.createRange();
  const text = (part) => (range.selectNodeContents(part), range.getBoundingClientRect());
  return text(row.children[1]).left - text(row.children[0]).right;
})"""
QUOTED = SITE.parents[1] / "notebooks" / "numbers.json"


def test_problem_findings_figure_and_ways_on_are_within_the_first_screen(browser: Browser) -> None:
    if not (path := SITE / "intro.html").is_file():
        pytest.fail("book/_build/html/intro.html is missing: run `make book` first")
    page = browser.new_page(viewport={"width": 1300, "height": 900}, reduced_motion="reduce")
    page.goto(path.as_uri())
    assert page.locator(".landing ol > li").count() == 4 and page.locator(".landing .planes figure").count() == 4
    for part in (".landing ol", ".landing .planes", ".ways"):
        box = page.locator(part).bounding_box()
        assert box is not None and box["y"] + box["height"] <= 900, part
    assert page.locator('.landing [data-part="epoch"]').inner_text() == "0", "opens before training"
    links = [str(link.get_attribute("href")).partition("#")[0] for link in page.locator(".ways a").all()]
    assert [(SITE / link).is_file() for link in links] == [True] * 4
    said = page.locator(".landing").inner_text()
    quoted = json.loads(QUOTED.read_text("utf-8"))
    for number in (quoted["saif"]["digits"]["hybrid"], quoted["gain"]["hatexplain"]["saif"], quoted["theory"]["apart"]):
        assert number in said
    page.locator("#fcam-epoch").press("End")
    shown = page.locator('.landing [data-part="recorded"]').all_inner_texts()
    history = tables.history_frame(shown_tasks()["cifar"])
    end = history[history["epoch"] == history["epoch"].max()].groupby("paradigm")["saif"].mean().round(3)
    assert shown == [f"{end[name]:.3f}" for name in ("soft", "hard", "lvml", "hybrid")], "SAIF on CIFAR-10"
    spaces = page.locator(".landing .planes .recorded").evaluate_all(SPACES)
    assert len(spaces) == 4 and min(spaces) > 4, "pixels between a label and its number"
    page.close()

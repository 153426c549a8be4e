"""What the built book says about its own making: the line under each figure, and how long everything took."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import notebook_files
import pytest
from nbformat import NotebookNode

from fcamlib import paths
from fcamlib.notebook import parameters

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book" / "notebooks"
SITE = ROOT / "book" / "_build" / "html"
RECORDED = paths.recorded_dir() or ROOT
NAMES = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))]
NOTE = re.compile(
    r'<div class="figure-note">\s*<p>How this was made: <code>(?P<path>.*?)</code>'
    r"(?:, parameters <code>(?P<digits>[0-9a-f]{8})</code>)?\. (?P<made>.*?)\.</p>\s*"
    r'<div class="highlight-bash notranslate"><div class="highlight"><pre>(?P<rerun>.*?)\s*</pre></div></div>\s*</div>',
    re.S,
)
COMMIT = r"(<code>([0-9a-f]{7}\+?|none)</code>(, )?)+"
ORIGIN = re.compile(rf"(recorded|computed) \d{{4}}-\d\d-\d\d( to \d{{4}}-\d\d-\d\d)?, commit {COMMIT}")
Reader = Callable[[str], tuple[str, dict[str, Any]]]

each_notebook = pytest.mark.parametrize("name", NAMES)


def built(name: str) -> NotebookNode:
    """The executed notebook that is a page of the book."""
    path = BOOK / f"{name}.ipynb"
    if not path.is_file():
        pytest.fail(f"book/notebooks/{name}.ipynb is missing: run `make book` first")
    return nbformat.read(path, as_version=4)


def notes(text: str) -> list[dict[str, str]]:
    """The parts of each note in a text, as a reader sees them."""
    return [match.groupdict() | {"rerun": html.unescape(match["rerun"])} for match in NOTE.finditer(text)]


def digits_of(name: str, values: Mapping[str, Any]) -> str:
    """The hash of parameters, without the code that wrote it into the book."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    kind = notebook_files.parameters_class(notebook)
    experiment = parameters(values) if kind is None else parameters(values, kind)
    content = json.dumps(json.loads(experiment.model_dump_json()), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:8]


@each_notebook
def test_every_figure_is_followed_by_how_it_was_made(name: str) -> None:
    cells = built(name).cells
    figures = [number for number, cell in enumerate(cells) if cell.metadata.get("mystnb", {}).get("figure")]
    assert figures, "a page without a figure"
    for number in figures:
        (note,) = notes(cells[number + 1].source)
        (saved,) = notebook_files.saved_figures(cells[number].source)
        assert note["path"] == f"notebooks/{name}.ipynb"
        record = cells[number + 1].metadata.provenance
        assert record["data"] and all(html.escape(title) in note["made"] for title in record["data"]), saved
        assert ORIGIN.search(note["made"]) and ORIGIN.sub("", note["made"]).count("commit") == 0, note["made"]
    assert sum(len(notes(cell.source)) for cell in cells) == len(figures)


@each_notebook
def test_the_hash_is_that_of_the_parameters_and_the_command_gives_them_again(
    name: str, papermill_reads: Reader
) -> None:
    notebook = built(name)
    executed = notebook_files.default_parameters(notebook) | notebook_files.given_parameters(notebook)
    for note in [note for cell in notebook.cells for note in notes(cell.source)]:
        assert note["digits"] == digits_of(name, executed)
        path, given = papermill_reads(note["rerun"])
        assert path == f"notebooks/{name}.ipynb"
        assert note["digits"] == digits_of(name, notebook_files.default_parameters(notebook) | given)


@each_notebook
def test_figures_of_records_name_their_commit_and_day(name: str) -> None:
    cells = built(name).cells
    for number, cell in enumerate(cells):
        for saved in notebook_files.saved_figures(cell.source) if cell.cell_type == "code" else []:
            record = cells[number + 1].metadata.provenance
            folders = [RECORDED / run for run in record.get("runs", []) if (RECORDED / run).is_dir()]
            (note,) = notes(cells[number + 1].source)
            assert ("recorded" in note["made"]) == bool(folders or record.get("measured")), saved
            for folder in folders:
                source = json.loads((folder / "summary.json").read_text("utf-8"))["provenance"]
                assert source["commit"][:7] in note["made"] and source["date"] in note["made"]


@each_notebook
def test_the_site_shows_the_notes_of_the_notebook(name: str) -> None:
    page = (SITE / "notebooks" / f"{name}.html").read_text("utf-8")
    shown, expected = notes(page), [note for cell in built(name).cells for note in notes(cell.source)]
    assert shown == expected


def test_the_key_figure_of_the_landing_page_has_its_line(papermill_reads: Reader) -> None:
    page = (SITE / "intro.html").read_text("utf-8")
    note, _ = notes(page[page.index('id="fig-key"') :])  # the other is the verdicts'
    path, given = papermill_reads(note["rerun"])
    notebook = nbformat.read(ROOT / path, as_version=4)
    assert note["digits"] == digits_of(Path(path).stem, notebook_files.default_parameters(notebook) | given)
    assert "recorded" in note["made"] and "computed" in note["made"]


@pytest.mark.parametrize(
    ("page", "number", "source"),
    [
        ("course", 2, "book/_ext/course.py"),
        ("claims", 1, "book/_ext/claims_page.py"),
        ("intro", 2, "book/_ext/claims_page.py"),
        ("explorer", 1, "book/_static/explorer.js"),
    ],
)
def test_figures_outside_the_notebooks_have_their_line(page: str, number: int, source: str) -> None:
    found = notes((SITE / f"{page}.html").read_text("utf-8"))
    assert len(found) == number
    for note in [note for note in found if not note["path"].endswith(".ipynb")]:
        assert note["path"] == source and (ROOT / source).is_file()
        words = note["rerun"].split()
        assert words == ["make", "book"] or (ROOT / words[1]).is_file()
        assert ORIGIN.search(note["made"]) or "computed in this page" in note["made"]


def test_the_table_of_times_has_every_notebook_and_every_record() -> None:
    text = (BOOK / "runtimes.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    found = {name for row in rows for name in re.findall(r"<notebooks/(.*?)>", row[0])}
    assert found == set(NAMES)
    (start,) = [number for number, row in enumerate(rows) if row[0] == "recorded"]
    recorded = rows[start + 2 :]
    folders = [path for path in RECORDED.iterdir() if (path / "summary.json").is_file()]
    assert sum(int(row[1]) for row in recorded) == len(folders)
    hours = {"s": 1 / 3600, "min": 1 / 60, "h": 1.0}
    shown = sum(float(value) * hours[unit] for value, unit in (row[4].split() for row in recorded))
    sources = [json.loads((path / "summary.json").read_text("utf-8"))["provenance"] for path in folders]
    spent = sum(source.get("train_seconds") or source["last_session_seconds"] for source in sources) / 3600
    assert shown == pytest.approx(spent, rel=0.02)
    assert all(row[5] and "thread" in row[5] for row in recorded)


@each_notebook
def test_the_cost_of_a_notebook_is_measured(name: str) -> None:
    took = json.loads((BOOK / f"{name}.json").read_text("utf-8"))
    assert took["seconds"] > 0 and took["device"] and re.fullmatch(r"\d{4}-\d\d-\d\d", took["date"])

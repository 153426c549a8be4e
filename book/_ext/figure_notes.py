"""The line under a figure of the book: notebook, parameters, data, commit, date, and the command to draw it again."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import notebook_files
from nbformat import NotebookNode

from fcamlib import paths
from fcamlib.paths import commit

SHORT = 7  # hex digits of a commit that are shown


def here() -> dict[str, str]:
    """Commit and date of this build."""
    return {"commit": commit(), "date": datetime.datetime.now(datetime.UTC).date().isoformat()}


def note_of(record: Path, given: Mapping[str, Any]) -> str:
    """`note` of a figure that is drawn outside of its notebook, from the record beside it."""
    content = json.loads(record.read_text("utf-8"))
    root = paths.checkout()
    assert root is not None, "the book is built from a source checkout"
    return note(content, nbformat.read(root / content["notebook"], as_version=4), given, here())


def note(record: Mapping[str, Any], notebook: NotebookNode, given: Mapping[str, Any], build: Mapping[str, str]) -> str:
    """The line as HTML, which both the book and a notebook viewer show.

    Parameters
    ----------
    record : mapping
        What `plots.save` keeps beside the figure.
    notebook : NotebookNode
        The notebook that draws the figure.
    given : mapping
        Parameters that it was given; the others have its defaults.
    build : mapping
        `commit` and `date` of this build, for what it computed itself and keeps nowhere.
    """
    path = record["notebook"]
    digits = notebook_files.digest(notebook_files.checked(notebook, given))
    return line(path, digits, origins(record, build), notebook_files.command(path, notebook, given))


def line(source: str, digits: str, made: str, rerun: str) -> str:
    """The line as HTML: what draws the figure, hash of its parameters ("" for none), origins, command."""
    parameters = f", parameters <code>{digits}</code>" if digits else ""
    return (
        '<div class="figure-note">\n'
        f"<p>How this was made: <code>{source}</code>{parameters}. {made}.</p>\n"
        '<div class="highlight-bash notranslate"><div class="highlight">'
        f"<pre>{escape(rerun, quote=False)}\n</pre></div></div>\n"
        "</div>\n"
    )


def origins(record: Mapping[str, Any], build: Mapping[str, str]) -> str:
    """Of each origin: titles, recorded or computed, date and commit."""
    computed = record.get("computed") or [
        {"data": title, "recorded": False, "commits": [build["commit"]], "dates": [build["date"]]}
        for title in record["data"]
    ]
    titles: dict[str, list[str]] = {}
    for entry in computed:
        verb = "recorded" if entry["recorded"] else "computed"
        commits = ", ".join(f"<code>{escape(_short(commit))}</code>" for commit in entry["commits"])
        titles.setdefault(f"{verb} {_span(entry['dates'])}, commit {commits}", []).append(escape(entry["data"]))
    return "; ".join(f"{'; '.join(found)}: {origin}" for origin, found in titles.items())


def _span(dates: Sequence[str]) -> str:
    return dates[0] if len(dates) == 1 else f"{min(dates)} to {max(dates)}"


def _short(commit: str) -> str:
    """A commit's first digits, with the "+" of a tree that was not clean."""
    return commit[:SHORT] + ("+" if commit.endswith("+") else "") if commit else "none"

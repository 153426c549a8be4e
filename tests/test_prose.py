"""What readers are told: the README's numbers and words are those of the records, and the prose is plain."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import findings
import pytest

from fcamlib import tables

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def found() -> dict[str, list[Any]]:
    """The recorded results that the README and the landing page tell of."""
    return findings.shown_tasks()


def test_the_readme_is_short_and_its_table_is_that_of_the_records(found: dict[str, list[Any]]) -> None:
    table = tables.markdown(findings.results_table(found))
    assert table.join(findings.MARKS) in README, "run book/_ext/findings.py README.md"
    assert len(README.splitlines()) <= 90 and len(table.splitlines()) <= 2 + 8


def test_the_picture_in_the_readme_was_drawn_from_the_records(found: dict[str, list[Any]]) -> None:
    drawn_from = json.loads((ROOT / "figures" / "overview.json").read_text("utf-8"))["runs"]
    assert sorted(run.folder.name for key in findings.DRAWN for run in found[key]) == drawn_from


def test_what_the_readme_and_the_landing_page_say_of_the_numbers_holds(found: dict[str, list[Any]]) -> None:
    of = {key: tables.evidence(runs) for key, runs in found.items()}
    said = {
        key: {claim: tables.verdict(c) for claim, c in tables.criteria(runs).items()} for key, runs in found.items()
    }
    for key in ("digits", "clouds"):
        assert {said[key][claim] for claim in ("S1", "S2", "S3")} == {"supported"}
    assert [key for key in said if said[key]["H1"] == "supported"] == ["digits"]
    assert not any(verdict == "contradicted" for verdicts in said.values() for verdict in verdicts.values())
    cifar, hate = of["cifar"], of["hatexplain"]
    for other in ("soft", "hard"):
        assert (cifar.saif["hybrid"] > cifar.saif[other]).all() and (hate.saif["hybrid"] > hate.saif[other]).all()
        assert (hate.accuracy["hybrid"] < hate.accuracy[other]).all()
    assert cifar.saif["lvml"].mean() > cifar.saif["hybrid"].mean() - 0.01
    assert (of["scenes"].accuracy["hybrid"] < of["scenes"].accuracy["soft"]).all()


# Phrasings of a translation rather than of English; each has a plain word: "is shown", "again", "minus", "alone".
BANNED = (
    r"\banew\b", r"\bgoes? on (?:as|with|from|where)\b", r"\bbesides\b", r"\bby much\b", r"\bfor ever\b",
    r"\bless (?:SA|HA|the better)\b", r"\bby itself\b", r"\b(?:stands?|lies?) (?:below|beside|furthest|at hand)\b",
    r"\bcolumn stands\b", r"\bno lucky choice\b", r"\btold apart\b", r"\bdecides? no(?:thing| claim)\b",
    r"\bwhoever\b", r"\beasily taken for\b", r"\bwithout the clock\b", r"\bThis machine just computed\b",
    r"\bhave an opinion\b", r"\bhas an opinion\b", r"\bnot at hand\b", r"\bopening? of hosts\b", r"\bno other host\b",
    r"\bno shortage of\b", r"\bWhere no run\b", r"\bholds emptily\b", r"\bloses its meaning\b", r"\bis content\b",
    r"\d %", r"\*\*Reading\.\*\*", r"\bTry it\b", r"\bas (?:often|good|much) below as above\b",
)  # fmt: skip
LATER = {"10_captions.ipynb", "11_cost_of_attention.ipynb", "claims.md", "map.md", "data_captions.md", "train.md"}


def pages() -> dict[str, str]:
    """File -> its prose, without code: the pages of the book, its notebooks, and the texts at the root."""
    found = {path.name: path.read_text("utf-8") for path in [*ROOT.glob("*.md"), *(ROOT / "book").glob("*.md")]}
    for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        found[path.name] = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return {name: re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S) for name, text in found.items()}


def test_no_page_reads_like_a_translation() -> None:
    kept = {name: text for name, text in pages().items() if name not in LATER}
    pattern = re.compile("|".join(BANNED), re.I)
    assert not [(name, match[0]) for name, text in kept.items() for match in pattern.finditer(text)]

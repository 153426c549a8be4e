"""What readers are told: the README's numbers and words are those of the records, and the prose is plain."""

from __future__ import annotations

import json
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

"""The book's own Sphinx extensions: docstrings become reStructuredText, and what is added to the built pages."""

import html
import re
from pathlib import Path
from typing import Any

import api_reference
import pytest

from fcamlib import losses

SITE = Path(__file__).resolve().parents[2] / "book" / "_build" / "html"
APP: Any = None  # Sphinx, which the step does not ask


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`f` of `x*y` and $a_j$, `$HOME`.", ":py:obj:`f` of ``x*y`` and :math:`a_j`, ``$HOME``.\n"),
        ("Ends in\n$$x +\ny$$\nhere.", "Ends in\n\n.. math::\n\n   x +\n   y\n\nhere.\n"),
        ("| a | b |\n|---|---|\n| $|x|$ | `p|q` |", "   - - :math:`|x|`\n     - ``p|q``\n\n"),
        ("What.\n\nReturns\n-------\nx\n\nSource: sec. 2.", "What.\n\nSource: sec. 2.\n\nReturns\n-------\nx"),
    ],
)
def test_docstrings_become_restructured_text(text: str, shown: str) -> None:
    lines = text.splitlines()
    api_reference.convert_docstring(APP, "function", "", losses.soft_attention_loss, None, lines)
    assert shown in "\n".join(lines)


def words(page: str) -> str:
    """A built page's text, on one line."""
    return " ".join(html.unescape(re.sub("<[^>]+>", "", (SITE / page).read_text("utf-8"))).split())


def test_the_reference_has_signatures_as_the_source_and_fields_with_type_default_and_meaning() -> None:
    assert "(class_logits: Float[Tensor, 'B K'], y: Int[Tensor, ' B']" in words("api/losses.html").replace("( ", "(")
    assert re.search(r"batch_size ?int = 256 ?instances per step", words("api/configs.html"))


def test_terms_say_what_they_mean_figures_offer_their_files_and_names_of_paradigms_are_marked() -> None:
    site = "".join(path.read_text("utf-8") for path in SITE.rglob("*.html") if "_static" not in path.parts)
    terms = re.findall(r'<a class="reference internal" href="[^"]*#term-[^>]*>', site)
    assert len(terms) > 5 and all(re.search('title="[^"]', link) for link in terms)
    notes = re.findall(r'<details class="figure-note" data-figure="(.*?)"(.*?)</details>', site, re.S)
    assert len(notes) > 50
    for name, note in notes:
        files = re.findall(rf'<a href="(?:../)?figures/{name}\.(\w+)" download>', note)
        assert files == ["svg", "png", "json"], name
    marked = set(re.findall(r'<t[hd][^>]*>(?:<p>)?<span class="paradigm (.*?)</span>', site))
    names = {"soft": "soft attention (SA)", "hard": "HA", "lvml": "LVML", "hybrid": "hybrid (SA, then HA)"}
    assert marked >= {f'{name}">{label}' for name, label in names.items()}
    assert 'SAIF: <span class="paradigm soft">SA</span>' in site
    assert not [cell for cell in marked if " - " in cell], "a difference of two is marked as one"

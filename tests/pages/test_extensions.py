"""The book's own Sphinx extensions: docstrings become reStructuredText, written pages lose the theme's faults."""

from pathlib import Path
from typing import Any

import api_reference
import pages
import pytest
from PIL import Image

from fcamlib import losses
from fcamlib.config import Training

APP: Any = None  # Sphinx, which the steps do not ask


def rest(text: str) -> str:
    lines = text.splitlines()
    api_reference.convert_docstring(APP, "function", "", losses.soft_attention_loss, None, lines)
    return "\n".join(lines)


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
    assert shown in rest(text)


def test_signatures_stand_as_the_source_has_them() -> None:
    shown = api_reference.source_signature(APP, "function", "", losses.soft_attention_loss, None, "", None)
    assert shown[0].startswith("(class_logits: Float[Tensor, 'B K'], y: Int[Tensor, ' B']")
    assert shown[1] == "Float[Tensor, ''] | Float[Tensor, ' B']"
    inherited = api_reference.source_signature(APP, "method", "", dict.get, None, "(key)", None)
    assert inherited is None


def test_fields_have_their_type_default_and_meaning() -> None:
    fields = {name: rest for name, *rest in api_reference._fields(Training)}
    assert list(fields) == [f"``{name}``" for name in Training.model_fields]
    assert fields["``batch_size``"] == ["``int`` = ``256``", "instances per step"]


def test_finished_pages_are_lighter_and_steadier(tmp_path: Path) -> None:
    Image.new("RGB", (7, 3)).save(tmp_path / "a b.png")
    (tmp_path / "c.svg").write_text('<?xml version="1.0"?><svg xmlns="x" viewBox="0 0 20.4 11">')
    page = (
        '<!-- So that users can add custom icons -->\n<script defer src="_static/fontawesome.js?d=1"></script>'
        '<img alt="x" src="a%20b.png"/><img src="c.svg"/><img src="c.svg" width="5"/><img src="gone.png"/>'
        '<summary><span class="toctree-toggle"></span></summary>'
        '(<dl>\n<dd><em class="sig-param">x</em>,</dd>\n</dl>)'
        '<th rowspan="2">SA</th><td><p>hybrid</p></td><th>hybrid - SA</th>'
        "<td><p>soft attention (SA)</p></td><td>hard attention, HA</td><td>hybrid (SA, then HA)</td><td>HA learns</td>"
    )
    assert pages.finished(page, tmp_path) == (
        '<img width="7" height="3" alt="x" src="a%20b.png"/><img width="20" height="11" src="c.svg"/>'
        '<img src="c.svg" width="5"/><img src="gone.png"/>'
        '<summary aria-label="Pages of this part"><span class="toctree-toggle"></span></summary>'
        '(<div class="sig-lines">\n<div><em class="sig-param">x</em>,</div>\n</div>)'
        '<th rowspan="2"><span class="paradigm soft">SA</span></th>'
        '<td><p><span class="paradigm hybrid">hybrid</span></p></td><th>hybrid - SA</th>'
        '<td><p><span class="paradigm soft">soft attention (SA)</span></p></td>'
        '<td><span class="paradigm hard">hard attention, HA</span></td>'
        '<td><span class="paradigm hybrid">hybrid (SA, then HA)</span></td><td>HA learns</td>'
    )


def test_terms_say_what_they_mean_figures_offer_their_files_and_one_page_has_the_search_index(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site, figures = tmp_path / "_build" / "html", tmp_path / "figures"
    (site / "notebooks").mkdir(parents=True)
    figures.mkdir()
    monkeypatch.setattr(pages.paths, "figures_dir", lambda: figures)
    for ending in ("svg", "png", "json"):
        (figures / f"a.{ending}").write_text(ending)
    page = site / "notebooks" / "p.html"
    scripts = "".join(f'\n<script src="../{name}.js"></script>' for name in ("searchindex", "_static/searchtools"))
    link = '<a class="reference internal" href="../notation.html#term-SAIF"'
    (site / "notation.html").write_text(
        '<dl><dt id="term-soft">soft</dt><dt id="term-SAIF">SAIF</dt>\n<dd><p>The <b>share</b>\nof "x".</p></dd></dl>'
    )
    page.write_text(f'{scripts}{link}>SAIF</a><details class="figure-note" data-figure="a"><p>x</p></details>')
    (site / "search.html").write_text(scripts)
    pages.rewrite(site)
    assert (site / "search.html").read_text() == scripts, "the page that searches keeps the index"
    links = ", ".join(
        f'<a href="../figures/a.{ending}" download>{kind}</a>'
        for kind, ending in (("SVG", "svg"), ("PNG", "png"), ("record", "json"))
    )
    assert page.read_text() == (
        f'{link} title="The share of &quot;x&quot;.">SAIF</a><details class="figure-note" data-figure="a"><p>x</p>'
        f'<p class="files">{links}</p></details>'
    )
    assert (site / "figures" / "a.svg").read_text() == "svg"

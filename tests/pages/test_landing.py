"""The landing page in a browser: what was found is seen at once, beside a figure that moves, with three ways on."""

import json
from pathlib import Path

import pytest
from findings import shown_tasks
from playwright.sync_api import Browser

from fcamlib import tables

SITE = Path(__file__).resolve().parents[2] / "book" / "_build" / "html"
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
    assert [(SITE / str(link.get_attribute("href"))).is_file() for link in page.locator(".ways a").all()] == [True] * 3
    said = page.locator(".landing").inner_text()
    quoted = json.loads(QUOTED.read_text("utf-8"))
    for number in (quoted["saif"]["digits"]["hybrid"], quoted["gain"]["hatexplain"]["saif"], quoted["theory"]["apart"]):
        assert number in said
    page.locator("#fcam-epoch").press("End")
    shown = page.locator('.landing [data-part="recorded"]').all_inner_texts()
    end = tables.history_frame(shown_tasks()["cifar"]).query("epoch == epoch.max()").groupby("paradigm")["saif"].mean()
    assert shown == [f"{end[name]:.3f}" for name in ("soft", "hard", "lvml", "hybrid")], "SAIF on CIFAR-10"
    page.close()

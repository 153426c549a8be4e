"""The explorer's own arithmetic against the library's solver, in a browser, and what a reader can do with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from fcamlib.theory import flow as gradient_flow

BOOK = Path(__file__).resolve().parents[2] / "book"
SCRIPT = BOOK / "_static" / "explorer.js"
MAX_BYTES = 30_000
PARADIGMS = ("soft", "hard", "lvml")


def skeleton() -> str:
    """The explorer's HTML as it stands in the page."""
    (html,) = re.findall(
        r"```\{raw\} html\n(<section class=\"fcam-explorer\".*?)```", (BOOK / "explorer.md").read_text(), re.S
    )
    return html


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """The explorer alone, with its script and style, at phone width."""
    context = browser.new_context(viewport={"width": 360, "height": 800})
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    style = (BOOK / "_static" / "explorer.css").read_text()
    content = f"<!doctype html><html data-theme='light'><style>{style}</style><body>{skeleton()}"
    page.set_content(f"{content}<script>{SCRIPT.read_text()}</script></body></html>")
    yield page
    assert not asked, f"the explorer asked for {asked}"
    context.close()


def in_page(page: Page, paradigm: str, m: int, classes: int, times: list[float]) -> dict[str, list[float]]:
    return page.evaluate("a => window.fcamExplorer.trajectory(...a)", [paradigm, m, classes, times])


@pytest.mark.parametrize(
    ("m", "classes", "times"),
    [
        (20, 20, [1.0, 30.0, 350.0, 600.0, 1e3]),
        (100, 1000, [40.0, 8e4, 1.3e5, 4e5]),
        (2, 2, [0.01, 1.0, 50.0, 1e12]),
        (10**6, 10**6, [1e9, 1e12]),
        (10**6, 2, [1e6, 2e7, 1e12]),
        (2, 10**6, [1e4, 1e7, 1e12]),
    ],
)
@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_the_page_computes_what_the_library_computes(
    page: Page, paradigm: str, m: int, classes: int, times: list[float]
) -> None:
    found = in_page(page, paradigm, m, classes, times)
    known = gradient_flow.trajectory(paradigm, m, classes, times)
    for name, floor in (("mu", 0), ("nu", 1e-10), ("alpha", 0), ("loss", 1e-14)):  # below the floor, rounding
        np.testing.assert_allclose(found[name], getattr(known, name), rtol=1e-6, atol=floor, err_msg=name)


def test_time_zero_is_the_start(page: Page) -> None:
    found = in_page(page, "lvml", 5, 3, [0.0, 1.0])
    assert found["mu"][0] == 0 and found["nu"][0] == 0
    assert found["alpha"][0] == pytest.approx(1 / 5) and found["loss"][0] == pytest.approx(np.log(3))


def values(page: Page, key: str) -> list[float]:
    return [float(page.locator(f'[data-part="{key}-{name}"]').inner_text().replace(",", "")) for name in PARADIGMS]


def test_entries_and_the_reading_slider_change_the_table(page: Page) -> None:
    page.get_by_label("segments m").last.fill("100")
    page.locator("#fcam-c").fill("1000")
    page.locator("#fcam-t").fill("400000")
    known = [gradient_flow.trajectory(name, 100, 1000, [2e5, 4e5]) for name in PARADIGMS]
    assert values(page, "nu") == pytest.approx([flow.nu[1] for flow in known], rel=1e-3)
    slider = page.locator("#fcam-at")
    slider.focus()
    slider.press("Home")
    assert values(page, "mu") == [0, 0, 0]
    slider.fill("120")  # the middle of a linear time axis
    assert page.locator('[data-part="time"]').inner_text() == "200,000"
    assert values(page, "mu") == pytest.approx([flow.mu[0] for flow in known], rel=1e-3)
    assert values(page, "loss") == pytest.approx([flow.loss[0] for flow in known], rel=1e-3)


def test_arrow_keys_on_a_slider_change_the_setting(page: Page) -> None:
    page.get_by_role("button", name="m = 20").click()
    slider = page.locator('[data-part="m-slider"]')
    slider.focus()
    slider.press("End")
    assert page.locator("#fcam-m").input_value() == "1000000" and slider.get_attribute("aria-valuetext") == "1,000,000"
    slider.press("ArrowLeft")
    assert page.locator("#fcam-m").input_value() == "980000"
    assert values(page, "alpha")[0] == pytest.approx(1e-6, rel=0.2)


@pytest.mark.parametrize("entry", ["1", "2.5", "", "1000001"])
def test_a_wrong_entry_is_refused_in_one_sentence_and_the_curves_stay(page: Page, entry: str) -> None:
    page.get_by_role("button", name="m = 20").click()
    before = values(page, "mu")
    field = page.locator("#fcam-m")
    field.fill(entry)
    said = page.locator("#fcam-said").inner_text()
    assert said == f'm is "{entry}": give a whole number from 2 to 1,000,000.'
    assert field.get_attribute("aria-invalid") == "true" and values(page, "mu") == before
    field.fill("20")
    assert page.locator("#fcam-said").inner_text() == "" and field.get_attribute("aria-invalid") == "false"


def test_pointing_at_a_panel_reads_the_time_there(page: Page) -> None:
    page.get_by_role("button", name="m = 20").click()
    box = page.locator('svg[data-part="mu"]').bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * (44 + 306 / 4) / 360, box["y"] + box["height"] / 2)
    assert page.locator('[data-part="time"]').inner_text() == "250"


def test_nothing_moves_and_nothing_is_wider_than_a_phone(page: Page) -> None:
    places = (
        "() => [...document.querySelectorAll('.fcam-explorer *')].map(e => e.getBoundingClientRect().top).slice(0, 40)"
    )
    page.get_by_role("button", name="m = 20").click()
    before = page.evaluate(places)
    page.get_by_role("button", name="m = 100").click()
    page.locator('[data-part="log"]').check()
    assert page.evaluate(places) == before
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator('[data-part="log"]').uncheck()


def test_every_input_and_panel_has_a_name(page: Page) -> None:
    for entry in page.locator("input, svg[data-part]").all():
        assert entry.get_attribute("aria-label") or entry.evaluate("e => e.labels.length > 0")


def test_the_script_is_small_and_names_no_address() -> None:
    text = SCRIPT.read_text()
    assert len(text.encode()) < MAX_BYTES
    assert set(re.findall(r"https?://[^\"']+", text)) == {"http://www.w3.org/2000/svg"}  # a name, never fetched

"""The explorer's own arithmetic against the library's solver, in a browser, and what a reader can do with it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from fcamlib.theory import flow as gradient_flow
from fcamlib.theory.fixed_focus import incentive

BOOK = Path(__file__).resolve().parents[2] / "book"
STATIC = BOOK / "_static"
LOSSES = ("soft", "hard", "lvml")
PARADIGMS = (*LOSSES, "hybrid")


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """The explorer alone, with its script and style, at phone width."""
    (html,) = re.findall(r"(<section class=\"fcam-explorer\".*?)```", (BOOK / "explorer.md").read_text(), re.S)
    page = browser.new_page(viewport={"width": 360, "height": 800})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    style = "".join((STATIC / name).read_text() for name in ("drawing.css", "explorer.css"))
    scripts = "".join(f"<script>{(STATIC / name).read_text()}</script>" for name in ("explorer.js", "drawing.js"))
    page.set_content(f"<!doctype html><html data-theme='light'><style>{style}</style><body>{html}{scripts}</body>")
    yield page
    assert not asked, f"the explorer asked for {asked}"
    page.close()


def in_page(page: Page, *given: Any) -> dict[str, Any]:
    return page.evaluate("a => window.fcamExplorer.trajectory(...a)", given)


@pytest.mark.parametrize(
    ("m", "classes", "times", "switch"),
    [
        (20, 20, [1.0, 30.0, 350.0, 600.0, 601.0, 1e3], 600.0),
        (20, 20, [10.0, 1e3], 0.0),
        (5, 3, [0.0, 1.0, 50.0, 200.0], 50.0),
        (100, 1000, [40.0, 8e4, 1e5, 1.3e5, 4e5], 1e5),
        (2, 2, [0.01, 1.0, 50.0, 1e12], 50.0),
        (10**6, 10**6, [1e9, 1e12], 1e9),
        (10**6, 20, [1e6, 3e7, 5e7], 3e7),
        (10**6, 2, [1e6, 2e7, 1e12], 2e7),
        (2, 10**6, [1e4, 1e7, 1e12], 1e7),
    ],
)
@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_the_page_computes_what_the_library_computes(
    page: Page, paradigm: str, m: int, classes: int, times: list[float], switch: float
) -> None:
    found = in_page(page, paradigm, m, classes, times, switch)
    known = gradient_flow.hybrid(m, classes, times, switch)
    if paradigm != "hybrid":
        known = gradient_flow.trajectory(paradigm, m, classes, times)
    floors = {"mu": 0, "nu": 1e-10, "alpha": 0, "loss": 1e-10 if paradigm == "hybrid" else 1e-14}  # below it, rounding
    for name, floor in floors.items():
        np.testing.assert_allclose(found[name], getattr(known, name), rtol=1e-6, atol=floor, err_msg=name)


@pytest.mark.parametrize("paradigm", LOSSES)
def test_the_phase_curve_follows_the_closed_form_without_corners(page: Page, paradigm: str) -> None:
    """Where attention jumps within one step of time, too: no turn in the drawn line above 3 degrees."""
    times = np.linspace(0, 5e7, 241).tolist()
    phase = in_page(page, paradigm, 10**6, 20, times)["phase"]
    mu, nu = np.array(phase["mu"]), np.array(phase["nu"])
    np.testing.assert_allclose(nu, gradient_flow.phase_curve(paradigm, mu, 10**6, 20), rtol=1e-6, atol=1e-9)
    across, up = np.diff(mu) / mu[-1] * 306, np.diff(nu) / nu.max() * 198  # in the drawing's units
    assert np.degrees(np.abs(np.diff(np.unwrap(np.arctan2(up, across))))).max() < 3


@pytest.mark.parametrize(("t", "classes"), [(1.0, 3), (1000.0, 20), (1e7, 10**6)])
@pytest.mark.parametrize("paradigm", LOSSES)
def test_incentives_are_the_library_s(page: Page, paradigm: str, t: float, classes: int) -> None:
    alphas = [0.005, 0.1, 0.5, 0.995]
    found = page.evaluate(
        "([name, alphas, t, C]) => alphas.map(a => window.fcamExplorer.incentive(name, a, t, C))",
        [paradigm, alphas, t, classes],
    )
    np.testing.assert_allclose(found, incentive(paradigm, alphas, t, classes), rtol=1e-7)


def test_settings_stand_in_the_address_and_a_wrong_one_is_named(page: Page) -> None:
    page.get_by_role("button", name="two classes").click()
    assert page.evaluate("location.hash") == "#m=20&C=2&T=1000&s=0.6"
    page.locator("#fcam-s").fill("0.25")
    assert page.evaluate("location.hash").endswith("s=0.25")
    known = gradient_flow.hybrid(20, 2, [1e3], 250.0)
    assert values(page, "alpha")[-1] == pytest.approx(known.alpha[0], rel=1e-3)
    page.evaluate("() => { location.hash = 'm=7&C=0&T=30&log=1' }")
    page.get_by_text('C is "0": give a whole number from 2 to 1,000,000.').wait_for()
    assert [page.locator(f"#fcam-{key}").input_value() for key in "mcts"] == ["7", "20", "30", "0.6"]
    assert page.locator('[data-part="log"]').is_checked()


def values(page: Page, key: str) -> list[float]:
    return [float(page.locator(f'[data-part="{key}-{name}"]').inner_text().replace(",", "")) for name in PARADIGMS]


def test_entries_and_the_reading_slider_change_the_table(page: Page) -> None:
    page.get_by_role("button", name="first setting").click()
    page.get_by_label("segments m").last.fill("100")
    page.locator("#fcam-c").fill("1000")
    page.locator("#fcam-t").fill("400000")
    page.locator("#fcam-s").fill("0.6")
    known = [gradient_flow.trajectory(name, 100, 1000, [2e5, 4e5]) for name in LOSSES]
    known.append(gradient_flow.hybrid(100, 1000, [2e5, 4e5], 0.6 * 4e5))
    assert values(page, "nu") == pytest.approx([flow.nu[1] for flow in known], rel=1e-3)
    slider = page.locator("#fcam-at")
    slider.focus()
    slider.press("Home")
    assert values(page, "mu") == [0, 0, 0, 0]
    slider.fill("120")  # the middle of a linear time axis
    assert page.locator('[data-part="time"]').inner_text() == "200,000"
    assert values(page, "mu") == pytest.approx([flow.mu[0] for flow in known], rel=1e-3)
    assert values(page, "loss") == pytest.approx([flow.loss[0] for flow in known], rel=1e-3)


@pytest.mark.parametrize("entry", ["1", "2.5", "", "1000001"])
def test_a_wrong_entry_is_refused_in_one_sentence_and_the_curves_stay(page: Page, entry: str) -> None:
    page.get_by_role("button", name="first setting").click()
    before = values(page, "mu")
    field = page.locator("#fcam-m")
    field.fill(entry)
    said = page.locator("#fcam-said").inner_text()
    assert said == f'm is "{entry}": give a whole number from 2 to 1,000,000.'
    assert field.get_attribute("aria-invalid") == "true" and values(page, "mu") == before
    page.locator("#fcam-s").fill("0.5")
    assert page.locator("#fcam-said").inner_text() == said, "the entry stands there still"
    field.fill("20")
    assert page.locator("#fcam-said").inner_text() == "" and field.get_attribute("aria-invalid") == "false"


def test_no_incentive_leaves_its_panel(page: Page) -> None:
    page.get_by_role("button", name="first setting").click()
    page.locator("#fcam-t").fill("1000000")
    panel = page.locator('[data-part="incentive"]').inner_html()
    heights = [float(y) for line in re.findall('points="(.*?)"', panel) for y in re.findall(r",(\S+)", line)]
    assert len(heights) > 200 and min(heights) >= 12


def test_arrow_keys_on_a_slider_change_the_setting(page: Page) -> None:
    page.get_by_role("button", name="first setting").click()
    slider = page.locator('[data-part="m-slider"]')
    slider.focus()
    slider.press("End")
    assert page.locator("#fcam-m").input_value() == "1000000" and slider.get_attribute("aria-valuetext") == "1,000,000"
    slider.press("ArrowLeft")
    assert page.locator("#fcam-m").input_value() == "980000"
    assert values(page, "alpha")[0] == pytest.approx(1e-6, rel=0.2)


def test_panels_of_a_row_are_level_and_their_titles_fit_a_line(browser: Browser) -> None:
    site = browser.new_page(viewport={"width": 1300, "height": 900})
    site.goto((BOOK / "_build" / "html" / "explorer.html").as_uri())
    titles = site.locator(".fcam-explorer figcaption").evaluate_all(
        "all => all.map(each => each.getClientRects()[0].height)"
    )
    tops = site.locator(".panels svg").evaluate_all("all => all.map(each => each.getBoundingClientRect().top)")
    site.close()
    assert len(tops) == len(titles) == 6 and tops[::2] == tops[1::2]
    assert len(set(titles)) == 1

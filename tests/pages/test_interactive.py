"""The plane over epochs and the gallery of attention in a browser: what they show is what the library computed."""

import io
import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import interactive
import numpy as np
import pytest
from drawn import contrast
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page

from fcamlib import store
from fcamlib.plots.heatmaps import cell_text
from fcamlib.running import Trajectory

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
STATIC = BOOK / "_static"
COURSE = BOOK / "_build" / "html" / "course.html"  # of the book that was built
PARADIGMS = ("soft", "hard", "lvml", "hybrid")
MIN_CONTRAST = 4.5
SPEC = {
    **{"num_train": 96, "num_validation": 32, "num_test": 48, "epochs": 5, "batch_size": 16, "seeds": 3},
    **{"switch_epoch": 2, "learning_rates": "0.02,0.3", "hard_learning_rates": "0.2,0.01", "search_epochs": 1},
}
LAST = 5
# In a theme, of each cell: its number, the colours of an empty and a full cell, that of the number, how full it is.
COLORS = """theme => {
  document.documentElement.dataset.theme = theme;
  const style = (e) => getComputedStyle(e), empty = style(document.querySelector('.empty')).fill;
  const [cells, numbers] = ['.cell', '.number'].map((name) => [...document.querySelectorAll(name)]);
  return cells.map((cell, i) => [numbers[i].textContent, empty, style(cell).fill, style(numbers[i]).fill,
                                 style(cell).fillOpacity]);
}"""
NAMES = ("text-base", "text-muted", "surface", "border", "primary")  # what the book's theme defines
THEME = ":root { " + "".join(f"--pst-color-{name}: #777; " for name in NAMES) + "}"


def content(data: Any) -> str:
    """A page of both figures alone, with their data, styles and code."""
    text = "".join((BOOK / name).read_text("utf-8") for name in ("_parts/plane.md", "course.md"))
    figures = "".join(re.findall(r"```\{raw\} html\n(<section.*?)```", text, re.S))
    style = THEME + "".join((STATIC / name).read_text("utf-8") for name in ("drawing.css", "course.css"))
    names = ("course.js", "gallery.js", "drawing.js")
    code = "".join(f"<script>{(STATIC / name).read_text('utf-8')}</script>" for name in names)
    script = f'<script type="application/json" id="fcam-course-data">{json.dumps(data)}</script>'
    return f"<!doctype html><html data-theme='light'><style>{style}</style><body>{figures}{script}{code}</body>"


@pytest.fixture(scope="module")
def found() -> dict[str, Trajectory]:
    """A small course of each paradigm."""
    return interactive.courses(SPEC)


@pytest.fixture(scope="module")
def data(found: dict[str, Trajectory]) -> dict[str, Any]:
    """What the page is given of them."""
    text = interactive.as_markdown(found)
    return json.loads(re.findall(r'id="fcam-course-data">(.*?)</script>', text, re.S)[0])


def test_every_epoch_has_the_numbers_of_the_run_and_epoch_zero_is_before_training(found: dict[str, Trajectory]) -> None:
    for one in found.values():
        np.testing.assert_array_equal(one.examples["alpha"][0], found["soft"].examples["alpha"][0])
        assert np.abs(one.examples["alpha"][0] - 0.2).max() < 0.2 < np.abs(one.examples["alpha"][-1] - 0.2).max()
        finished, trained = store.get(one.config), one.history.iloc[1:].reset_index(drop=True)
        for name in ("epoch", "phase", "paradigm", "learning_rate"):
            assert trained[name].tolist() == finished.history[name].tolist()
        for name in ("loss", "accuracy", "focus_accuracy", "saif"):
            assert trained[name].tolist() == finished.history[f"test_{name}"].tolist(), name
        assert trained["accuracy"].nunique() > 2, "nothing moves, so nothing is compared"
        test = finished.summary["splits"]["test"]
        assert one.histograms[-1].tolist() == test["histogram"] and trained["ftpt"].iloc[-1] == test["ftpt"]
        np.testing.assert_allclose(one.examples["alpha"][-1, :8], finished.arrays()["alpha"], atol=1e-6)
        assert one.summary["n"] == 48


def test_the_gallery_follows_its_rules(found: dict[str, Trajectory]) -> None:
    data, kept = interactive.gallery_data(found), {name: one.examples for name, one in found.items()}
    numbers = [[data["mosaics"][place]["number"] for place in group["mosaics"]] for group in data["lists"]]
    a_z = [(e["alpha"][-1] * e["foreground"]).sum(axis=1) for e in kept.values()]
    spread = np.max(a_z, axis=0) - np.min(a_z, axis=0)
    assert numbers[0] == list(range(12)) and len(numbers[1]) == 12
    assert min(spread[numbers[1]]) >= max(np.delete(spread, numbers[1])) - 1e-6
    soft = kept["soft"]
    focus = soft["foreground"][np.arange(48), soft["alpha"][-1].argmax(axis=1)]
    elsewhere = np.flatnonzero(~focus & (soft["prob"][-1].argmax(axis=1) == soft["label"])).tolist()
    assert numbers[2] == elsewhere[:12] and data["lists"][2]["title"].endswith(f"of {len(elsewhere)}")
    assert len({m["number"] for m in data["mosaics"]}) == len(data["mosaics"]) <= 36
    gallery = interactive.static_gallery(found)  # for readers without JavaScript
    for position, place in enumerate(data["lists"][-1]["mosaics"][:3]):
        for name, looks in data["mosaics"][place]["looks"].items():
            np.testing.assert_allclose(gallery["alpha"][name][position], np.array(looks[-1][:5]) / 100, atol=0.00501)
            assert gallery["predictions"][name][position] == looks[-1][6]


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Phone width, for a reader who wants nothing to move by itself."""
    context = browser.new_context(viewport={"width": 360, "height": 800}, reduced_motion="reduce")
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, data: dict[str, Any]) -> Iterator[Page]:
    """Both figures; they may ask for nothing and report nothing."""
    page, faults = context.new_page(), list[str]()
    page.on("request", lambda request: None if request.url.startswith("data:") else faults.append(request.url))
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.clock.install()
    page.set_content(content(data))
    yield page
    page.close()
    assert not faults


def check_plane(page: Page, found: dict[str, Trajectory], epoch: int) -> None:
    """Every number of the four heatmaps is the library's at `epoch`; the line goes through all means so far."""
    assert page.locator('.fcam-course [data-part="epoch"]').inner_text() == str(epoch)
    for name, one in found.items():
        figure, row = page.locator(f'figure[data-paradigm="{name}"]'), one.history.iloc[epoch]
        expected = [cell_text(round(value, 2)) for value in one.histograms[epoch].ravel()]
        assert figure.locator(".number").all_text_contents() == expected
        opacity = figure.locator(".cell").evaluate_all("all => all.map(e => Number(e.style.fillOpacity))")
        np.testing.assert_allclose(np.square(opacity) * 100, one.histograms[epoch].ravel(), atol=0.01)
        for measure in ("accuracy", "focus_accuracy", "saif"):
            shown = figure.locator(f'[data-part="{measure}"]').inner_text()
            assert shown == f"{np.round(row[measure], 3):.3f}", (name, measure)
        way = figure.locator('[data-part="way"]').get_attribute("d") or ""
        points = np.array([point.split() for point in way[1:].split("L")], dtype=float)
        means = one.history[["a_z", "s_y"]].to_numpy()[: epoch + 1]  # a side is 125, its corner at 25, 129
        np.testing.assert_allclose(points, np.array([25, 129]) + np.array([125, -125]) * means, atol=0.2)


def test_the_slider_shows_the_numbers_of_each_epoch_and_marks_the_switch(
    page: Page, found: dict[str, Trajectory]
) -> None:
    check_plane(page, found, 0)
    slider, hybrid = page.locator("#fcam-epoch"), page.locator('figure[data-paradigm="hybrid"] figcaption')
    slider.focus()
    slider.press("End")
    check_plane(page, found, LAST)
    slider.press("Home")
    slider.press("ArrowRight")
    check_plane(page, found, 1)
    assert slider.get_attribute("aria-valuetext") == "epoch 1 of 5"
    page.get_by_role("button", name="at the switch").click()
    assert slider.input_value() == "2" and hybrid.inner_text().endswith("still SA")
    assert slider.get_attribute("aria-valuetext") == "epoch 2 of 5, the switch"
    slider.press("ArrowRight")
    assert hybrid.inner_text().endswith("now HA")
    track, mark = page.locator(".track").bounding_box(), page.locator(".switch").bounding_box()
    assert track is not None and mark is not None
    assert mark["x"] - track["x"] == pytest.approx(8 + (track["width"] - 16) * 2 / 5, abs=1)
    slider.fill("4")
    check_plane(page, found, 4)
    last, cells = found["hard"].history.iloc[4], found["hard"].histograms[4]
    said = page.locator('figure[data-paradigm="hard"] svg').get_attribute("aria-label")
    assert said is not None and said.startswith("HA at epoch 4, test mosaics: attention and score above 0.8")
    assert f"above 0.8 {cells[4, 4]:.0f} %" in said and f"Mean attention {last['a_z']:.2f}" in said


def at(page: Page) -> tuple[str, str]:
    """The epoch, and what the button does."""
    return page.locator("#fcam-epoch").input_value(), page.locator(".play").inner_text()


def test_play_begins_anew_at_the_end_stops_there_and_can_be_paused(page: Page) -> None:
    play = page.locator(".play")
    page.locator("#fcam-epoch").press("End")
    play.focus()
    play.press("Enter")
    assert at(page) == ("0", "Pause")
    page.clock.run_for(3000)
    assert at(page) == ("2", "Pause")
    play.press("Enter")
    page.clock.run_for(5000)
    assert at(page) == ("2", "Play")
    play.press("Enter")
    page.clock.run_for(60_000)
    assert at(page) == ("5", "Play")


def test_it_opens_before_training_and_plays_once_when_it_is_seen(browser: Browser, data: dict[str, Any]) -> None:
    page = browser.new_page(viewport={"width": 800, "height": 900})
    page.clock.install()
    page.set_content(content(data).replace("<body>", "<body><p style='height: 2000px'></p>"))
    page.clock.run_for(5000)
    assert at(page) == ("0", "Play"), "plays before it is seen"
    page.locator(".planes").scroll_into_view_if_needed()
    page.get_by_role("button", name="Pause").wait_for()
    page.clock.run_for(60_000)
    assert at(page) == ("5", "Play")
    page.evaluate("scrollTo(0, 0)")
    page.locator(".planes").scroll_into_view_if_needed()
    page.clock.run_for(5000)
    assert at(page) == ("5", "Play")
    page.close()


def check_gallery(page: Page, found: dict[str, Trajectory], number: int, epoch: int) -> None:
    """Every number of the table is the library's on that mosaic."""
    classes = found["soft"].summary["class_names"]
    for name, one in found.items():
        kept = one.examples
        row, alpha, prob = page.locator(f'tr[data-paradigm="{name}"]'), kept["alpha"][epoch, number], kept["prob"]
        shown = row.locator(".weight").all_inner_texts()
        np.testing.assert_allclose(np.array(shown, dtype=float), alpha, atol=0.00501)
        bold = row.locator(".weight").evaluate_all("all => all.map(e => getComputedStyle(e).fontWeight === '700')")
        assert bold.index(True) == alpha.argmax() and sum(bold) == 1
        predicted, sure = prob[epoch, number].argmax(), prob[epoch, number].max()
        sign = "\u2713right" if predicted == kept["label"][number] else "\u2717wrong"
        said = re.sub(r"\s", "", row.locator(".said").text_content() or "")
        assert said.startswith(f"{sign}:{classes[predicted]},")
        assert float(said.split(",")[1]) == pytest.approx(sure, abs=0.00501)
    label = classes[found["soft"].examples["label"][number]]
    said = f"Test mosaic {number + 1}, label {label}, epoch {epoch}"
    assert page.locator(".fcam-gallery caption").inner_text() == said


def test_the_gallery_shows_each_mosaic_of_each_list_at_each_epoch(
    page: Page, found: dict[str, Trajectory], data: dict[str, Any]
) -> None:
    gallery = data["gallery"]
    for group, entry in enumerate(gallery["lists"]):
        page.locator("#fcam-list").select_option(index=group)
        numbers = [gallery["mosaics"][place]["number"] for place in entry["mosaics"]]
        check_gallery(page, found, numbers[0], LAST)
        page.get_by_role("button", name="Previous").press("Enter")  # from the first to the last
        check_gallery(page, found, numbers[-1], LAST)
        assert page.locator('[data-part="place"]').inner_text() == f"{len(numbers)} of {len(numbers)}"
        for _ in range(2):
            page.get_by_role("button", name="Next").press("Enter")
        check_gallery(page, found, numbers[1 % len(numbers)], LAST)
    page.locator("#fcam-gallery-epoch").press("ArrowLeft")
    page.locator("#fcam-gallery-epoch").press("ArrowLeft")
    check_gallery(page, found, numbers[1 % len(numbers)], LAST - 2)


def test_the_pictures_are_the_segments_and_the_foreground_is_framed(page: Page, found: dict[str, Trajectory]) -> None:
    kept = found["soft"].examples
    for number in range(3):  # of the list of the first mosaics
        for segment, picture in enumerate(page.locator(".picture").all()):
            shot = np.asarray(Image.open(io.BytesIO(picture.screenshot())).convert("L"), dtype=float)
            middle = [(np.arange(8) * 2 + 1) * size // 16 for size in shot.shape]
            expected = kept["segments"][number, segment]
            assert np.abs(shot[np.ix_(*middle)] - expected).mean() < 12, (number, segment)
            is_foreground = bool(kept["foreground"][number, segment])
            assert (picture.evaluate("e => getComputedStyle(e).outlineStyle") == "solid") == is_foreground
            assert ("foreground" in (picture.get_attribute("aria-label") or "")) == is_foreground
        page.get_by_role("button", name="Next").click()


def test_without_javascript_the_built_page_shows_its_pictures(browser: Browser) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(COURSE.as_uri())
    for picture in ("course-plane", "course-gallery"):
        box = page.locator(f'img[src*="{picture}"]').bounding_box()
        assert box is not None and box["width"] > 300 and box["height"] > 300
    told = page.locator("section noscript p").all()
    assert len(told) == 2 and all(sentence.is_visible() for sentence in told)
    assert not page.locator("#fcam-epoch").is_visible() and not page.locator("#fcam-list").is_visible()
    page.close()


def test_what_the_page_says_of_the_plane_is_what_it_shows() -> None:
    """The sentences under "What to look for" and at the end of course.md, on the numbers in the built page."""
    shown = json.loads(re.findall(r'id="fcam-course-data">(.*?)</script>', COURSE.read_text("utf-8"), re.S)[0])
    cells = {name: np.reshape(one["cells"], (-1, 5, 5)) for name, one in shown["paradigms"].items()}
    measures, switch, last = shown["paradigms"], shown["switch"], shown["epochs"][-1]
    for name in PARADIGMS:  # before training
        assert abs(measures[name]["a_z"][0] - 1 / 5) < 0.02 and abs(measures[name]["s_y"][0] - 1 / 3) < 0.02
        assert cells[name][0][:2, 1:3].sum() > 99.9
    assert measures["soft"]["accuracy"][2] > 0.9 > 0.8 > measures["soft"]["focus_accuracy"][2]
    assert (cells["soft"][2][:, 3:].sum(axis=1)[:4] > 5).all()
    for name in ("hard", "lvml"):
        assert 30 < cells[name][2][4, 4] < 35 and cells[name][2][4, :4].sum() < 4
    assert cells["hybrid"][: switch + 1].tolist() == cells["soft"][: switch + 1].tolist()
    outside = cells["soft"][switch].sum() - cells["soft"][switch][4, 4]
    assert cells["soft"][switch][:4, 4].sum() > 0.85 * outside
    assert cells["hybrid"][switch + 2][:4, 4].sum() < 0.35 * cells["hybrid"][switch][:4, 4].sum()
    assert measures["hybrid"]["saif"][switch + 2] > measures["hybrid"]["saif"][switch] + 0.05
    assert cells["soft"][last][0].sum() < 0.2
    left, rest = cells["hard"][last][0].sum(), 100 - cells["hard"][last][4, 4]
    assert 0.25 < left / rest < 0.45
    gallery = shown["gallery"]
    for place in gallery["lists"][0]["mosaics"]:
        mosaic = gallery["mosaics"][place]
        focus = mosaic["looks"]["hard"][2][5]
        assert (focus == mosaic["foreground"]) == (gallery["classes"][mosaic["label"]] == "0")


def test_the_number_of_every_cell_can_be_read(context: BrowserContext, data: dict[str, Any]) -> None:
    """Of 0 to 99 percent, which the 100 cells of four planes show at once, and of 100."""
    paradigms = {
        name: {"label": "x", "cells": [list(range(25 * place, 25 * place + 25)), [100] * 25]}
        | {measure: [0, 0] for measure in ("accuracy", "focus_accuracy", "saif", "a_z", "s_y")}
        for place, name in enumerate(PARADIGMS)
    }
    made = {"epochs": [0, 1], "switch": None, "paradigms": paradigms, "gallery": data["gallery"]}
    page = context.new_page()
    page.set_content(content(made))
    assert page.locator(".cell").first.evaluate("e => getComputedStyle(e).transitionDuration") == "0s"
    seen = set()
    for epoch, theme in product("01", ("light", "dark")):
        page.locator("#fcam-epoch").fill(epoch)
        for text, *colors in page.evaluate(COLORS, theme):
            empty, full, ink = (np.array(re.findall(r"[\d.]+", color)[:3], dtype=float) for color in colors[:3])
            ground = empty + (full - empty) * float(colors[3])
            assert contrast(ground / 255, ink / 255) >= MIN_CONTRAST, f"{text} % on a {theme} page"
            seen.add(text)
    page.close()
    assert seen == {"", *map(str, range(1, 101))}

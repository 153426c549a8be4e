"""Colours for every reader and page, the same bytes at every save, and figures that say how they were made."""

import json
from collections.abc import Callable
from html import escape
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from drawn import contrast, linear_rgb
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fcamlib import paradigms, paths, plots
from fcamlib.errors import UserError
from fcamlib.plots.curves import alpha_looks
from fcamlib.plots.look import CARD, FAINT_INK, INK
from fcamlib.store import Result

COLORS = [paradigms.style_of(name).color for name in ("soft", "hard", "lvml", "hybrid")]
DARK_PAGE = "#14181e"
CSS = Path(__file__).resolve().parents[2] / "book" / "_static" / "custom.css"


def a_figure() -> Figure:
    falling = 1.0 - np.linspace(0.0, 1.0, 11) ** 2
    return plots.saif_over_tau({"soft": [0.7 * falling, 0.9 * falling], "hybrid": [falling]})


def a_picture_figure() -> Figure:
    return plots.sample_mosaics(np.zeros((1, 3, 4, 4)), np.array([[False, True, False]]), ["bird"])


def lab(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of linear sRGB."""
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.119192, 0.9503041]]
    )
    x, y, z = np.cbrt(to_xyz @ np.clip(linear, 1e-4, 1) / to_xyz.sum(axis=1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def on_a_dark_page(color: str) -> np.ndarray:
    """A colour after CSS's invert(1) hue-rotate(180deg), screened over the page."""
    turn = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])
    shown = np.clip(turn @ (1 - np.array(to_rgb(color))), 0, 1)
    return 1 - (1 - shown) * (1 - np.array(to_rgb(DARK_PAGE)))


def test_each_paradigm_has_its_own_colour_marker_and_line() -> None:
    looks = [paradigms.style_of(name) for name in ("soft", "hard", "lvml", "hybrid", "logit_mixture")]
    for field in ("label", "color", "marker"):
        assert len({getattr(look, field) for look in looks}) == 5
    assert len({look.linestyle for look in looks[:4]}) == 4


def test_colours_differ_in_a_grey_print_and_hold_on_white_and_dark_pages() -> None:
    lightness = [lab(linear_rgb(color))[0] for color in COLORS]
    assert min(abs(one - other) for one, other in combinations(lightness, 2)) > 6.5
    for color in [*COLORS, *(look.color for look in alpha_looks(np.linspace(0, 1, 5)).values())]:
        assert contrast(color, CARD) > 2.7
    for color in COLORS:
        assert contrast(color, DARK_PAGE) > 2.8
        assert contrast(on_a_dark_page(color), DARK_PAGE) > 3.0


# Machado, Oliveira and Fernandes (2009), full deficiency, on linear sRGB.
@pytest.mark.parametrize(
    "deficiency",
    [
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ],
    ids=["protanopia", "deuteranopia", "tritanopia"],
)
def test_colours_stay_apart_for_colour_blind_readers(deficiency: list[list[float]]) -> None:
    for colors, apart in ((COLORS, 25), ([to_rgb(tuple(on_a_dark_page(color))) for color in COLORS], 10)):
        seen = [lab(np.array(deficiency) @ linear_rgb(color)) for color in colors]
        assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > apart


def test_writing_has_contrast_on_the_card_and_on_dark_pages() -> None:
    for ink in (INK, FAINT_INK):
        assert contrast(ink, CARD) > 7
        assert contrast(on_a_dark_page(ink), DARK_PAGE) > 7
    assert "filter: invert(1) hue-rotate(180deg)" in CSS.read_text() and "mix-blend-mode: screen" in CSS.read_text()


@pytest.mark.parametrize("draw", [a_figure, a_picture_figure])
def test_saving_twice_and_drawing_anew_write_the_same_bytes(draw: Callable, tmp_path: Path) -> None:
    fig = draw()
    folders = [tmp_path / part for part in ("first", "second", "anew")]
    record = {"runs": ["a", "b"], "commit": "0" * 7}
    for folder, figure in zip(folders, (fig, fig, draw()), strict=True):
        assert plots.save(figure, "key-figure", folder, record) == folder / "key-figure.svg"
    first, *others = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert others == [first, first] and len(first) == 3
    assert "<dc:date>" not in (folders[0] / "key-figure.svg").read_text()
    assert json.loads((folders[0] / "key-figure.json").read_text()) == record
    pixels = plt.imread(folders[0] / "key-figure.png")
    assert pixels.shape[1] == 1280, "6.4 inches at 200 dots per inch"
    assert np.allclose(pixels[0, 0], 1.0) and pixels[..., 3].min() == 1.0, "an opaque card"


def test_what_cannot_be_saved_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"name is '\.\./up': use lower-case letters"):
        plots.save(a_figure(), "../up", tmp_path, {})
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"^the figure 'tau' cannot be written into '.*file' \(.+\): set FCAM_FIGURES"):
        plots.save(a_figure(), "tau", tmp_path / "file", {})


def test_a_shown_figure_says_how_it_was_made_and_keeps_the_parameters_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FCAM_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setattr(paths, "recorded_dir", lambda: tmp_path / "recorded")
    plots.show(a_figure(), "of-my-own")
    mine = json.loads((tmp_path / "figures" / "of-my-own.json").read_text())
    assert (mine["notebook"], mine["rerun"], mine["parameters"]) == ("", "", {}), "no claim outside of the notebooks"
    for place, title, commit, date in (
        ("recorded/a", "<one>", "aaaaaaaaaaaa", "2029-01-01"),
        ("recorded/b", "<one>", "bbbbbbbbbbbb+", "2029-02-01"),
        ("results/c", "two", "cccccccccccc", "2030-03-03"),
    ):
        (tmp_path / place).mkdir(parents=True)
        summary = {"title": title, "provenance": {"commit": commit, "date": date}}
        (tmp_path / place / "summary.json").write_text(json.dumps(summary))
    results: list[Result[Any]] = [Result(tmp_path / place) for place in ("recorded/a", "recorded/b", "results/c")]
    given = {"dataset": "folder:a b&c", "seeds": range(2), "num_segments": np.int64(9), "momentum": 0.5}
    session = SimpleNamespace(user_ns=given | {"In": ["", "# Parameters\nmomentum = 0.5\n"]})
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: session)
    monkeypatch.setattr("IPython.display.display", lambda shown, raw=False: displayed.append(shown))
    displayed: list[Any] = []
    plots.show(figure := a_figure(), "saif-over-tau", results)
    picture, note = displayed
    assert picture is figure
    command = "papermill notebooks/02_accuracy_and_saif.ipynb out.ipynb -p "
    assert note["text/plain"].startswith(f"how it was made: {command}")
    for option in ("-p dataset 'folder:a b&c'", "-p seeds 0,1", "-p num_segments 9", "-p momentum 0.5"):
        assert option in note["text/plain"] and escape(option, quote=False) in note["text/html"]
    commits = "<code>aaaaaaa</code>, <code>bbbbbbb+</code>"
    assert note["text/html"].startswith("<details")
    assert f"&lt;one&gt;: recorded 2029-01-01 to 2029-02-01, commit {commits}. two: computed." in note["text/html"]
    record = json.loads((tmp_path / "figures" / "saif-over-tau.json").read_text())
    assert record["rerun"] in note["text/plain"] and (given | {"seeds": [0, 1]}).items() <= record["parameters"].items()
    assert "two: computed 2030-03-03, commit <code>ccccccc</code>" in plots.how_made(record, dated=True)

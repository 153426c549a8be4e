"""Colours, style, display in a notebook, and saving."""

import ast
import json
from collections.abc import Callable
from io import BytesIO
from itertools import combinations
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from fcamlib import plots
from fcamlib.plots.look import CARD, FAINT_INK, INK, PageFigure

DARK_PAGE = "#14181e"


def a_figure() -> Figure:
    falling = 1.0 - np.linspace(0.0, 1.0, 11) ** 2
    return plots.saif_over_tau({"soft": [0.7 * falling, 0.9 * falling], "hybrid": [falling]})


def a_picture_figure() -> Figure:
    return plots.sample_mosaics(np.zeros((1, 3, 4, 4)), np.array([[False, True, False]]), ["bird"])


def linear_rgb(color: str) -> np.ndarray:
    """Light intensities of a colour's channels."""
    channels = np.array(to_rgb(color))
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    """WCAG relative luminance."""
    return float(linear_rgb(color) @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def lightness(color: str) -> float:
    """CIE L*, what is left of a colour in a grey print."""
    return 116 * luminance(color) ** (1 / 3) - 16


def lab(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of linear sRGB."""
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.119192, 0.9503041]]
    )
    x, y, z = np.cbrt(to_xyz @ np.clip(linear, 1e-4, 1) / to_xyz.sum(axis=1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_each_paradigm_has_its_own_colour_marker_and_line() -> None:
    looks = list(plots.PARADIGM_STYLE.values())
    assert dict(plots.PARADIGM_LABEL) == {"soft": "SA", "hard": "HA", "lvml": "LVML", "hybrid": "hybrid"}
    for field in ("color", "marker", "linestyle"):
        assert len({getattr(look, field) for look in looks}) == 4


def test_colours_differ_in_a_grey_print_and_hold_on_white_and_dark_pages() -> None:
    colors = [look.color for look in plots.PARADIGM_STYLE.values()]
    assert min(abs(lightness(a) - lightness(b)) for a, b in combinations(colors, 2)) > 6.5
    for color in colors:
        assert contrast(color, CARD) > 2.8
        assert contrast(color, DARK_PAGE) > 2.8


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
    seen = []
    for look in plots.PARADIGM_STYLE.values():
        seen.append(lab(np.array(deficiency) @ linear_rgb(look.color)))
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 25


def test_writing_has_contrast_on_the_card() -> None:
    assert contrast(INK, CARD) > 12
    assert contrast(FAINT_INK, CARD) > 4.5


def test_style_ignores_and_restores_the_users_settings(by_gid: Callable) -> None:
    with matplotlib.rc_context({"font.size": 31.0, "axes.grid": False, "lines.linewidth": 9.0}):
        fig = a_figure()
        assert matplotlib.rcParams["font.size"] == 31.0
    assert by_gid(fig, "mean-soft")[0].get_linewidth() == 1.8
    with plots.style():
        assert matplotlib.rcParams["svg.hashsalt"]


def test_figures_show_themselves_in_a_notebook_and_leave_no_pyplot_state() -> None:
    before = plt.get_fignums()
    fig = a_figure()
    assert isinstance(fig, plots.PageFigure)
    data, _ = DisplayFormatter().format(fig)
    assert data["image/png"][:8] == b"\x89PNG\r\n\x1a\n"
    assert data["image/png"] == fig._repr_png_()
    assert plt.get_fignums() == before


def test_plots_import_nothing_else_of_the_package() -> None:
    for source in Path(plots.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] != "torch"
                assert not name.startswith("fcamlib") or name.startswith("fcamlib.plots")


@pytest.mark.parametrize("draw", [a_figure, a_picture_figure])
def test_saving_twice_and_drawing_anew_write_the_same_bytes(draw: Callable, tmp_path: Path) -> None:
    fig = draw()
    folders = [tmp_path / part for part in ("first", "second", "anew")]
    for folder, figure in zip(folders, (fig, fig, draw()), strict=True):
        saved = plots.save(figure, "key-figure", folder, {"runs": ["a", "b"], "commit": "0" * 7})
        assert saved == folder / "key-figure.svg"
        assert sorted(path.name for path in folder.iterdir()) == ["key-figure.json", "key-figure.png", "key-figure.svg"]
    for ending in ("svg", "png", "json"):
        assert len({(folder / f"key-figure.{ending}").read_bytes() for folder in folders}) == 1
    svg = (folders[0] / "key-figure.svg").read_text()
    assert "<dc:date>" not in svg
    assert json.loads((folders[0] / "key-figure.json").read_text()) == {"runs": ["a", "b"], "commit": "0" * 7}


def test_saved_pictures_have_the_fixed_size_on_an_opaque_card(tmp_path: Path) -> None:
    plots.save(a_figure(), "tau", tmp_path, {})
    pixels = plt.imread(tmp_path / "tau.png")
    assert pixels.shape[:2] == (860, 1280)  # 4.3 by 6.4 inches at 200 dots per inch
    assert np.allclose(pixels[0, 0], 1.0) and pixels[..., 3].min() == 1.0


def test_a_folder_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    fig = a_figure()
    with pytest.raises(
        OSError, match=r"^the figure 'tau' cannot be written into '.*file' \(.+\); choose a folder .*\.$"
    ):
        plots.save(fig, "tau", tmp_path / "file", {})


def test_a_failed_save_leaves_the_old_files_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fig = a_figure()
    plots.save(fig, "tau", tmp_path, {"version": 1})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def disk_full(self: Path, content: bytes) -> int:
        with self.open("wb") as stream:
            stream.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", disk_full)
    with pytest.raises(OSError, match="No space left on device"):
        plots.save(fig, "tau", tmp_path, {"version": 2})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


REFUSED = {
    "file name": (lambda: plots.save(a_figure(), "../up", ".", {}), "name is '../up'; use lower-case letters"),
    "provenance": (lambda: plots.save(a_figure(), "up", ".", {"x": {1, 2}}), "provenance does not fit into JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_in_one_sentence(case: str, assert_refused: Callable) -> None:
    assert_refused(*REFUSED[case])


def test_curves_are_kept_in_few_colours_and_photographs_in_all() -> None:
    draws = np.random.default_rng(0)
    kinds = {}
    for name, picture in (("curves", np.ones((40, 40, 3))), ("photograph", draws.random((40, 40, 3)))):
        fig = PageFigure(figsize=(2, 2))
        ax = fig.subplots()
        ax.imshow(picture)
        ax.plot([0, 39], [0, 39])
        kinds[name] = Image.open(BytesIO(fig._repr_png_()))
    assert (kinds["curves"].mode, kinds["photograph"].mode) == ("P", "RGB")
    assert kinds["curves"].size == (200, 200)

"""Pictures, series and captions: which segment is framed, whose weight stands where, and names as they are written."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import assert_legible, by_gid, texts_of
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fcamlib import plots
from fcamlib.plots import CaptionExample

PARADIGMS = ("soft", "hard", "lvml", "hybrid")
# Names as folders may have them: mathematics, other writing, a character no font has, and half of one.
STRANGE: tuple[str, ...] = ("$a", "$\\frac$", "漢字", "\U0010fffd", "a\udcffb", "b$c$ ^_{%#&<>")


def some_mosaics(num_instances: int, num_segments: int, colour: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Every segment is a flat picture of its own grey, so that a drawn picture names its segment."""
    levels = np.arange(num_instances * num_segments, dtype=np.uint8).reshape(num_instances, num_segments) + 40
    shape = (num_instances, num_segments, 4, 3) + ((3,) if colour else ())
    pictures = np.broadcast_to(levels.reshape(levels.shape + (1,) * (len(shape) - 2)), shape)
    foreground = np.zeros((num_instances, num_segments), dtype=bool)
    foreground[np.arange(num_instances), (np.arange(num_instances) * 3 + 1) % num_segments] = True
    return pictures, foreground


def a_gallery(num_instances: int = 2, num_segments: int = 5, **changes: object) -> Figure:
    segments, foreground = some_mosaics(num_instances, num_segments)
    rng = np.random.default_rng(3)
    given: dict = {
        "segments": segments,
        "foreground": foreground,
        "alpha": {name: rng.dirichlet(np.ones(num_segments), num_instances) for name in PARADIGMS},
        "label_names": ["airplane", "automobile", "a very long class name"],
        "labels": np.arange(num_instances) % 3,
        "predictions": {name: (np.arange(num_instances) + place // 2) % 3 for place, name in enumerate(PARADIGMS)},
        "scores": {name: np.full(num_instances, 0.1 + 0.2 * place) for place, name in enumerate(PARADIGMS)},
    }
    return plots.attention_gallery(**(given | changes))


def some_series(**changes: Any) -> dict[str, Any]:
    draws = np.random.default_rng(0)
    alpha = {"hard": draws.dirichlet(np.ones(3), 2), "soft": draws.dirichlet(np.ones(3), 2)}
    truth = np.array([[False, True, False], [True, False, False]])
    shown = {"segments": draws.normal(size=(2, 3, 2, 5)), "foreground": truth, "labels": [1, 0], "alpha": alpha}
    return shown | {"label_names": ("wake", "sleep"), "predictions": {"soft": [1, 1], "hard": [0, 0]}, **changes}


def middle(image: Any) -> tuple[float, float]:
    left, right, bottom, top = image.get_extent()
    return (left + right) / 2, (bottom + top) / 2


def a_caption(words: list[str], places: list[int]) -> CaptionExample:
    """A caption whose attention is mostly at one cell of a grid of 3 x 3, the one given for each word."""
    alpha = np.full((len(words), 9), 0.05)
    alpha[np.arange(len(words)), places] = 0.6
    return CaptionExample(words, alpha, np.array([word in ("dot", "bar") for word in words], dtype=bool))


@pytest.mark.parametrize(
    ("kind", "num_segments"), [("mosaics", 1), ("mosaics", 5), ("mosaics", 20), ("gallery", 1), ("gallery", 20)]
)
def test_the_frame_surrounds_the_foreground_and_nothing_else(kind: str, num_segments: int) -> None:
    segments, foreground = some_mosaics(3, num_segments)
    names = ["a label longer than most", "automobile", "c"]
    draw = {"mosaics": lambda: plots.sample_mosaics(segments, foreground, names)}
    fig = draw.get(kind, lambda: a_gallery(3, num_segments))()
    pictures = {image.get_gid(): image for image in fig.axes[0].images}
    assert len(pictures) == 3 * num_segments
    levels = [float(np.asarray(image.get_array()).flat[0]) for image in pictures.values()]
    places = [(round(top, 6), round(left, 6)) for left, _, _, top in (p.get_extent() for p in pictures.values())]
    assert levels == sorted(levels) and places == sorted(places), "segments keep their order"
    assert len([patch for patch in fig.axes[0].patches if (patch.get_gid() or "").startswith("foreground-")]) == 3
    for instance, segment in np.argwhere(foreground):
        (frame,) = by_gid(fig, f"foreground-segment-{instance}-{segment}")
        inside = [gid for gid, image in pictures.items() if frame.get_bbox().contains(*middle(image))]
        assert inside == [f"segment-{instance}-{segment}"]
        assert np.allclose(np.asarray(pictures[inside[0]].get_array()), segments[instance, segment, 0, 0] / 255)
    assert_legible(fig)


@pytest.mark.parametrize("num_segments", [5, 9])
def test_gallery_bars_and_numbers_are_the_weights_below_their_segment(num_segments: int) -> None:
    rng = np.random.default_rng(11)
    alpha = {name: rng.dirichlet(np.ones(num_segments), 2) for name in PARADIGMS}
    fig = a_gallery(2, num_segments, alpha=alpha)
    images = {image.get_gid(): image.get_extent() for image in fig.axes[0].images}
    bars = {patch.get_gid(): patch for patch in fig.axes[0].patches if isinstance(patch, Rectangle)}
    texts = {tuple(np.round(text.get_position(), 6)): text for text in fig.axes[0].texts}
    for name, instance, segment in product(PARADIGMS, range(2), range(num_segments)):
        bar, weight = bars[f"weight-{name}-{instance}-{segment}"], alpha[name][instance, segment]
        left, right, bottom, _ = images[f"segment-{instance}-{segment}"]
        assert bar.get_x() == pytest.approx(left) and bottom < bar.get_y() < bottom + 1.0
        assert bar.get_width() / (right - left) == pytest.approx(weight)
        middle = (left + (right - left) / 2, bar.get_y() + bar.get_height() / 2)
        number = texts[tuple(np.round(middle, 6))]
        assert number.get_text() == f"{weight:.2f}"
        assert (number.get_fontweight() == "bold") == (segment == alpha[name][instance].argmax())


def test_gallery_marks_right_and_wrong_by_symbol() -> None:
    predictions = {"soft": [1], "hard": [0], "lvml": [2], "hybrid": [1]}
    scores = {"soft": [0.91], "hard": [0.05], "lvml": [0.4], "hybrid": [1.0]}
    fig = a_gallery(1, 5, labels=np.array([1]), predictions=predictions, scores=scores)
    verdicts = {name: by_gid(fig, f"verdict-{name}-0")[0].get_text() for name in PARADIGMS}
    right = {"soft": "✓ automobile 0.91", "hybrid": "✓ automobile 1.00"}
    assert verdicts == right | {"hard": "✗ airplane 0.05", "lvml": "✗ a very lo… 0.40"}
    assert "label: automobile" in texts_of(fig)


def test_a_gallery_leaves_room_for_the_names_of_paradigms() -> None:
    names = ("soft", "logit_mixture", "a paradigm of one's own")
    for number in (5, 7):
        alpha = {name: np.full((1, number), 1 / number) for name in names}
        shown: Any = dict.fromkeys(("predictions", "scores"), dict.fromkeys(names, np.zeros(1, dtype=int)))
        fig = a_gallery(1, number, alpha=alpha, **shown)
        assert {"logit mixture", "a paradigm o…"} <= set(texts_of(fig))
        assert_legible(fig)


def test_names_are_shown_as_they_are_written_and_can_be_saved(tmp_path: Path) -> None:
    segments, foreground = some_mosaics(len(STRANGE), 5)
    alone = {"soft": CaptionExample(list(STRANGE), np.full((6, 4), 0.25), np.array([True] * 6))}
    drawn: list[tuple[Figure, str, tuple[str, ...]]] = [
        (plots.sample_mosaics(segments, foreground, STRANGE), "label: {}", STRANGE),
        (plots.word_attention(None, np.zeros((0, 4)), alone), "{}", STRANGE),
    ]
    for start in (0, 3):
        some = STRANGE[start : start + 3]
        drawn.append((a_gallery(3, 5, label_names=some), "label: {}", some))
    for start in (0, 2, 4):
        pair = STRANGE[start : start + 2]
        drawn.append((plots.series_attention(**some_series(label_names=pair)), "label: {}; right: ", pair))
    for fig, said, names in drawn:
        for name in names:
            wanted = said.format(name.replace("\udcff", "?"))
            assert [text for text in texts_of(fig) if text.removesuffix("SA").removesuffix("HA") == wanted], name
        plots.save(fig, "named", tmp_path, {})


def test_each_series_is_drawn_whole_with_its_weights_below() -> None:
    given = some_series()
    fig = plots.series_attention(**given)
    for number in range(2):
        series, weights = fig.axes[2 * number], fig.axes[2 * number + 1]
        lines = [line for line in series.lines if len(np.asarray(line.get_xdata())) == 15]
        for channel, line in enumerate(lines):
            np.testing.assert_allclose(np.asarray(line.get_ydata()), given["segments"][number, :, channel].reshape(-1))
        drawn = [[bar.get_height() for bar in container] for container in weights.containers]
        np.testing.assert_allclose(drawn, [given["alpha"][p][number] for p in ("soft", "hard")])
        middle = [[bar.get_x() + bar.get_width() / 2 for bar in container] for container in weights.containers]
        assert np.array_equal(np.round(middle), [[0, 1, 2]] * 2), "a bar stands outside its window"
    titles = [fig.axes[place].get_title(loc="left") for place in (0, 2)]
    assert titles == ["label: sleep; right: SA", "label: wake; right: HA"]
    many: Any = {"segments": np.zeros((2, 119, 1, 5)), "foreground": np.zeros((2, 119), dtype=bool)}
    many |= {"alpha": {"soft": np.full((2, 119), 1 / 119)}, "label_names": ("deep sleep " * 9, "wakefulness" * 9)}
    assert_legible(plots.series_attention(**some_series(**many)))


def test_word_attention_shows_the_picture_and_each_word_with_its_box_and_its_cell() -> None:
    boxes = np.array([[0.25, 0.5, 0.75, 1.0], [np.nan] * 4])
    shown = {"hybrid": a_caption(["bar"], [4]), "soft": a_caption(["a", "dot"], [5, 0])}
    fig = plots.word_attention(np.full((6, 6, 3), 51, dtype=np.uint8), boxes, shown)
    whole, *words = fig.axes
    assert np.allclose(np.asarray(whole.images[0].get_array()), 0.2) and len(whole.images) == 1
    assert [ax.get_title() for ax in words] == ["a", "dot", "bar"], "SA comes before the hybrid"
    assert [ax.title.get_fontweight() for ax in words] == ["normal", "bold", "bold"]
    for ax, (row, column) in zip(words, [(1, 2), (0, 0), (1, 1)], strict=True):
        box, cell = [(p.get_x(), p.get_y(), p.get_width()) for p in ax.patches if isinstance(p, Rectangle)]
        assert box == (0.25, 0.5, 0.5) and cell == pytest.approx((column / 3, row / 3, 1 / 3))
        assert [text.get_text() for text in ax.texts] == ["0.60"]
        darkness = np.asarray(ax.images[1].get_array())[..., 3]
        assert darkness[row, column] == 0 and np.count_nonzero(darkness == darkness.max()) == 8
        assert ax.get_position().width * 6.4 > 0.9, "inches, of which a phone shows half"
    assert_legible(fig)


def test_word_attention_wraps_long_captions_and_says_where_there_are_no_words() -> None:
    words = [f"w{number}" for number in range(7)] + ["Bahnhofsvorplatz", "Straßenbahnhaltestelle"]
    captions = {"soft": a_caption(words, list(range(9))), "hard": a_caption([], [])}
    fig = plots.word_attention(None, np.zeros((0, 4)), captions)
    assert [ax.get_title() for ax in fig.axes] == [*words, "no words"]
    heights = [round(ax.get_position().y0, 6) for ax in fig.axes]
    assert len(set(heights)) == 3 and heights == sorted(heights, reverse=True)
    assert_legible(fig)

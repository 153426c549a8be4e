"""Mosaics and the attention gallery: which segment is framed, and whose weight stands where."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fcamlib import plots

PARADIGMS = ("soft", "hard", "lvml", "hybrid")


def some_mosaics(num_instances: int, num_segments: int, colour: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Every segment is a flat picture of its own grey, so that a drawn picture names its segment."""
    levels = np.arange(num_instances * num_segments, dtype=np.uint8).reshape(num_instances, num_segments) + 40
    shape = (num_instances, num_segments, 4, 3) + ((3,) if colour else ())
    pictures = np.broadcast_to(levels.reshape(levels.shape + (1,) * (len(shape) - 2)), shape)
    foreground = np.zeros((num_instances, num_segments), dtype=bool)
    foreground[np.arange(num_instances), (np.arange(num_instances) * 3 + 1) % num_segments] = True
    return pictures, foreground


def mosaics_with(**changes: Any) -> Figure:
    segments, foreground = some_mosaics(2, 5)
    given: dict[str, Any] = {"segments": segments, "foreground": foreground, "labels": ["a", "b"]}
    return plots.sample_mosaics(**(given | changes))


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


@pytest.mark.parametrize("num_segments", [1, 5, 9, 20])
@pytest.mark.parametrize("kind", ["mosaics", "gallery"])
def test_the_frame_surrounds_the_foreground_and_nothing_else(kind: str, num_segments: int, by_gid: Callable) -> None:
    segments, foreground = some_mosaics(3, num_segments)
    fig = (
        plots.sample_mosaics(segments, foreground, ["a", "b", "c"]) if kind == "mosaics" else a_gallery(3, num_segments)
    )
    pictures = {image.get_gid(): image for image in fig.axes[0].images}
    assert len(pictures) == 3 * num_segments
    frames = [patch for patch in fig.axes[0].patches if (patch.get_gid() or "").startswith("foreground-")]
    assert len(frames) == 3
    for instance, segment in np.argwhere(foreground):
        (frame,) = by_gid(fig, f"foreground-segment-{instance}-{segment}")
        inside = []
        for gid, image in pictures.items():
            left, right, bottom, top = image.get_extent()
            if frame.get_bbox().contains((left + right) / 2, (bottom + top) / 2):
                inside.append(gid)
        assert inside == [f"segment-{instance}-{segment}"]
        level = segments[instance, segment, 0, 0] / 255
        assert np.allclose(np.asarray(pictures[inside[0]].get_array()), level)


def test_segments_keep_their_order_and_do_not_overlap() -> None:
    segments, foreground = some_mosaics(2, 20)
    fig = plots.sample_mosaics(segments, foreground, ["a", "b"])
    extents = [image.get_extent() for image in fig.axes[0].images]
    levels = [float(np.asarray(image.get_array()).flat[0]) for image in fig.axes[0].images]
    assert levels == sorted(levels)
    reading_order = [(round(top, 6), round(left, 6)) for left, _, _, top in extents]
    assert reading_order == sorted(reading_order)
    for (l1, r1, b1, t1), (l2, r2, b2, t2) in combinations(extents, 2):
        assert min(r1, r2) <= max(l1, l2) or min(b1, b2) <= max(t1, t2)


def test_bytes_and_floats_give_the_same_picture() -> None:
    segments, foreground = some_mosaics(1, 5, colour=True)
    as_bytes = plots.sample_mosaics(segments, foreground, ["bird"])
    as_floats = plots.sample_mosaics(segments / 255.0, foreground, ["bird"])
    assert as_bytes._repr_png_() == as_floats._repr_png_()


@pytest.mark.parametrize("num_segments", [5, 9, 20])
def test_gallery_bars_and_numbers_are_the_weights_below_their_segment(num_segments: int) -> None:
    rng = np.random.default_rng(11)
    alpha = {name: rng.dirichlet(np.ones(num_segments), 2) for name in PARADIGMS}
    fig = a_gallery(2, num_segments, alpha=alpha)
    images = {image.get_gid(): image.get_extent() for image in fig.axes[0].images}
    bars = {patch.get_gid(): patch for patch in fig.axes[0].patches if isinstance(patch, Rectangle)}
    texts = {tuple(np.round(text.get_position(), 6)): text for text in fig.axes[0].texts}
    for name in PARADIGMS:
        for instance, segment in np.ndindex(2, num_segments):
            bar = bars[f"weight-{name}-{instance}-{segment}"]
            left, right, bottom, _ = images[f"segment-{instance}-{segment}"]
            weight = alpha[name][instance, segment]
            assert bar.get_x() == pytest.approx(left)
            assert bar.get_width() / (right - left) == pytest.approx(weight)
            assert bottom < bar.get_y() < bottom + 1.0
            middle = (left + (right - left) / 2, bar.get_y() + bar.get_height() / 2)
            number = texts[tuple(np.round(middle, 6))]
            assert number.get_text() == f"{weight:.2f}"
            is_focus = segment == alpha[name][instance].argmax()
            assert (number.get_fontweight() == "bold") == is_focus


def test_gallery_marks_right_and_wrong_by_symbol(by_gid: Callable, texts_of: Callable) -> None:
    fig = a_gallery(
        1,
        5,
        labels=np.array([1]),
        predictions={"soft": [1], "hard": [0], "lvml": [2], "hybrid": [1]},
        scores={"soft": [0.91], "hard": [0.05], "lvml": [0.4], "hybrid": [1.0]},
    )
    verdicts = {name: by_gid(fig, f"verdict-{name}-0")[0].get_text() for name in PARADIGMS}
    assert verdicts == {
        "soft": "✓ automobile 0.91",
        "hard": "✗ airplane 0.05",
        "lvml": "✗ a very lo… 0.40",
        "hybrid": "✓ automobile 1.00",
    }
    assert "label: automobile" in texts_of(fig)


def test_class_names_with_dollar_signs_are_shown_as_written(texts_of: Callable) -> None:
    fig = a_gallery(1, 5, label_names=["$a", "b$c$", "$\\x$"])
    fig.canvas.draw()
    assert "label: $a" in texts_of(fig)


@pytest.mark.parametrize("num_segments", [5, 9, 20])
def test_pictures_are_legible(num_segments: int, assert_legible: Callable) -> None:
    segments, foreground = some_mosaics(2, num_segments)
    assert_legible(plots.sample_mosaics(segments, foreground, ["a label longer than most", "automobile"], "digits"))
    assert_legible(a_gallery(2, num_segments, title="digits"))


REFUSED = {
    "unknown paradigm in alpha": (lambda: a_gallery(alpha={"x": np.ones((2, 5)) / 5}), "unknown paradigm 'x'"),
    "flat pictures": (lambda: mosaics_with(segments=np.zeros((2, 5, 9))), r"give pictures as \(E, M, H, W\)"),
    "four channels": (lambda: mosaics_with(segments=np.zeros((2, 5, 4, 4, 4))), r"give pictures as \(E, M, H, W\)"),
    "pictures in -1..1": (lambda: mosaics_with(segments=np.full((2, 5, 4, 4), -1.0)), r"segments runs from -1 to -1"),
    "integer pictures": (lambda: mosaics_with(segments=np.zeros((2, 5, 4, 4), int)), "segments has dtype int64"),
    "foreground shape": (lambda: mosaics_with(foreground=np.ones((2, 4), bool)), r"foreground has shape \(2, 4\)"),
    "foreground index": (lambda: mosaics_with(foreground=np.ones((2, 5), int)), "foreground has dtype int64"),
    "no foreground": (lambda: mosaics_with(foreground=np.zeros((2, 5), bool)), "no segment in instance 0"),
    "labels short": (lambda: mosaics_with(labels=["a"]), "labels has 1 entries; give 2 names"),
    "logits for weights": (
        lambda: a_gallery(alpha={name: np.full((2, 5), 0.5) for name in PARADIGMS}),
        r"alpha\['soft'\] has a row that does not sum to 1",
    ),
    "weights shape": (
        lambda: a_gallery(alpha={name: np.full((2, 4), 0.25) for name in PARADIGMS}),
        r"alpha\['soft'\] has shape \(2, 4\); give an array of shape \(2, 5\)",
    ),
    "predictions of others": (
        lambda: a_gallery(predictions={"soft": [0, 0]}),
        "predictions has the paradigms soft; give",
    ),
    "label outside": (lambda: a_gallery(labels=np.array([0, 3])), r"labels must hold integers in 0\.\.2"),
    "score outside": (
        lambda: a_gallery(scores={n: [0.1, 1.2] for n in PARADIGMS}),
        r"scores\['soft'\] runs from 0.1 to 1.2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_in_one_sentence(case: str, assert_refused: Callable) -> None:
    assert_refused(*REFUSED[case])

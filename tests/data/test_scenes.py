"""Generated scenes: boxes against pixels, captions against what is drawn, and the same through COCO's layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fcamlib.config import Scenes, task_on
from fcamlib.data.captions import caption_task
from fcamlib.data.scenes import COLOURS, SHAPE_WORDS, draw_scene, scene_pictures
from fcamlib.data.sdc import SPLITS
from fcamlib.data.vocabulary import words_of

SMALL = Scenes(num_train=9, num_validation=3, num_test=5)


def test_masks_hold_the_drawn_pixels_and_boxes_cover_them() -> None:
    """Where a mask is, the picture has the shape's colour, and beyond it the grey of the ground."""
    generator = np.random.default_rng(3)
    for size in (48, 56, 64):
        for _ in range(40):
            scene = draw_scene(generator, size, 3)
            pixels = scene.picture.astype(int)
            spread = pixels.max(axis=2) - pixels.min(axis=2)  # how colourful
            shown = np.zeros((size, size), dtype=bool)
            for shape in scene.shapes:
                x, y, width, height = map(int, shape.box)
                inside = np.zeros_like(shown)
                inside[y : y + height, x : x + width] = True
                assert not (shape.mask & ~inside).any() and not (shown & inside).any()  # no overlap of boxes
                edges = (shape.mask[y], shape.mask[y + height - 1], shape.mask[:, x], shape.mask[:, x + width - 1])
                assert all(edge.any() for edge in edges)
                assert 0.15 * size <= min(width, height) <= max(width, height) <= 0.34 * size
                # The darker tone of the pattern is nearest to the ink of the shape's own colour.
                colour = pixels[shape.mask][spread[shape.mask] >= np.quantile(spread[shape.mask], 0.6)].mean(axis=0)
                nearest = min(COLOURS, key=lambda name: float(np.abs(np.array(COLOURS[name]) - colour).sum()))
                assert nearest == shape.colour
                shown |= inside
            masks = np.any([shape.mask for shape in scene.shapes], axis=0)
            assert spread[~masks].max() < 75 and np.median(spread[~masks]) < 40 < spread[masks].mean()


def test_captions_name_exactly_the_shapes_from_left_to_right() -> None:
    generator = np.random.default_rng(5)
    category = {word: name for name, words in SHAPE_WORDS.items() for word in words}
    texts, numbers = set(), set()
    for _ in range(150):
        scene = draw_scene(generator, 56, 3)
        assert len({shape.category for shape in scene.shapes}) == len(scene.shapes)
        centres = [shape.box[0] + shape.box[2] / 2 for shape in scene.shapes]
        assert centres == sorted(centres)
        drawn = [(shape.colour, shape.category) for shape in scene.shapes]
        assert len(scene.captions) == 5
        for caption in scene.captions:
            words = words_of(caption)
            named = [(words[place - 1], category[word]) for place, word in enumerate(words) if word in category]
            assert named == drawn and len(words) <= 10, caption
            assert sum(word in COLOURS for word in words) == len(drawn)
            said = {"one": 1, "two": 2, "three": 3}
            assert all(said[word] == len(drawn) for word in words if word in said)
            if {"dark", "light"} & set(words):
                masks = np.any([shape.mask for shape in scene.shapes], axis=0)
                assert ("dark" in words) == (scene.picture[~masks].mean() < 127)
            texts.add(words)
        numbers.add(len(drawn))
    assert numbers == {1, 2, 3} and 30 <= len({word for words in texts for word in words}) <= 40


def test_the_reader_of_coco_gives_what_was_drawn(tmp_path: Path, write_coco: Callable[[Path, Any, int], str]) -> None:
    source = write_coco(tmp_path / "mine", SMALL, 1)
    given = {"num_validation": 3, "image_size": 56, "min_count": 1, "max_words": 20}
    read, drawn = caption_task(task_on(source, given), 1), caption_task(SMALL, 1)
    shown = [picture for part in scene_pictures(SMALL, 1)[:2] for picture in part]
    assert len({np.asarray(picture.pixels).tobytes() for picture in shown}) == len(shown) == 17
    values = torch.cat([drawn.splits[split].pictures.values for split in SPLITS])
    assert np.array_equal(values.numpy(), np.stack([np.asarray(picture.pixels) for picture in shown]))
    assert read.title == "mine" and (read.vocabulary, read.categories) == (drawn.vocabulary, drawn.categories)
    for split, data in drawn.splits.items():
        other = read.splits[split]
        assert other.image_ids.tolist() == data.image_ids.tolist()
        assert torch.equal(other.pictures.values, data.pictures.values) and torch.equal(other.tokens, data.tokens)
        assert other.references == data.references
        for mine, known in zip(other.objects, data.objects, strict=True):
            assert mine.category == known.category and torch.equal(mine.box, known.box)

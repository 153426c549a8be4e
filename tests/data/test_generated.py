"""Generated data: the bits of each draw, the labels that they have, and boxes and captions of what is drawn."""

import hashlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.testing import assert_close

from fcamlib.config import Bags, Mosaics, Orthogonal, Scenes, Series, Text
from fcamlib.data.captions import caption_task
from fcamlib.data.coco import words_of
from fcamlib.data.mosaics import mosaic_task, orthogonal_task
from fcamlib.data.pictures import load_pictures
from fcamlib.data.posts import NUM_FILLER, PHRASES, SHORTEST, filler_words, keyword_corpus
from fcamlib.data.scenes import COLOURS, SHAPE_WORDS, draw_scene
from fcamlib.data.sdc import SPLITS, SDCData, SDCTask
from fcamlib.data.text import text_task
from fcamlib.data.vectors import bags_task, series_task

SIZES: dict[str, Any] = {"num_train": 40, "num_validation": 7, "num_test": 11}
DIGITS: dict[str, Any] = {"source": "digits", "foreground": ("3", "7", "1"), "image_size": 8, "num_segments": 5} | SIZES
KEYWORDS: dict[str, Any] = {"source": "keywords", "max_tokens": 12} | SIZES
MOTIFS: dict[str, Any] = {"window_length": 24, "num_channels": 2, "noise": 0.6, "distractors": 0.5} | SIZES
PAPER, NOISE = {"paper_split": True, "background": ("0", "8")}, {"label_noise": 0.2, "min_count": 2}
CLOUDS: dict[str, Any] = {"num_segments": 9, "num_features": 7, "num_classes": 3} | SIZES
DRAWS: list[tuple[Any, Any, str]] = [
    (mosaic_task, Mosaics(**DIGITS), "4059ae09a18cce09"),
    (mosaic_task, Mosaics(**PAPER, **DIGITS), "2ee0d21ad48e0a20"),
    (text_task, Text(**KEYWORDS), "aa41d9fe2090a50a"),
    (text_task, Text(paper_vocabulary=True, **NOISE, **KEYWORDS), "25e56c8e469db886"),
    (series_task, Series(source="motifs", num_segments=5, num_classes=3, **MOTIFS), "d0beb35854671b90"),
    (bags_task, Bags(source="clouds", **CLOUDS), "07bf8d0b598394ab"),
    (orthogonal_task, Orthogonal(num_backgrounds=13, **SIZES), "d15a5e9f29dce669"),
    (orthogonal_task, Orthogonal(num_backgrounds=0, num_classes=7, **SIZES), "86a280182b1e6c56"),
    (caption_task, Scenes(**SIZES), "5462e31efaf2183a"),
]
P_VALUE = 0.001  # fixed seeds: a correct draw passes every time


def told(task: Any) -> bytes:
    """Everything that a task holds, as bytes."""
    if hasattr(task, "vocabulary"):
        parts = [repr(task.vocabulary), task.word_category]
        for split in SPLITS:
            data = task.splits[split]
            boxes = [(objects.category, objects.box.tolist()) for objects in data.objects]
            parts += [data.pictures.values, data.picture, data.tokens, data.references, boxes, data.image_ids]
    else:
        parts = [task.bank.values, task.bank.scale, task.bank.shift]
        for split in SPLITS:
            parts += [getattr(task.splits[split], name) for name in ("segments", "label", "foreground", "mask")]
    parts += [task.class_names if hasattr(task, "class_names") else task.categories, task.title]
    return b"".join(
        f"{part.dtype}{tuple(part.shape)}".encode() + part.contiguous().numpy().tobytes()
        if isinstance(part, torch.Tensor)
        else repr(part).encode()
        for part in parts
    )


@pytest.mark.parametrize(("load", "config", "digest"), DRAWS)
def test_a_seed_draws_the_same_bits_for_ever_and_another_seed_others(load: Any, config: Any, digest: str) -> None:
    np.random.seed(1)
    before = np.random.get_state(legacy=False)["state"]["key"].copy()
    drawn = told(load(config, 3))
    assert hashlib.sha256(drawn).hexdigest()[:16] == digest
    assert drawn != told(load(config, 4))
    np.testing.assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], before)  # no global generator


def config(source: str = "digits", **changes: object) -> Mosaics:
    sizes = {"num_segments": 4, "num_train": 1200, "num_validation": 300, "num_test": 500, "image_size": 8}
    return Mosaics(source=source, **{"foreground": ("3", "7", "1"), **sizes, **changes})


@pytest.fixture(scope="module")
def task() -> SDCTask:
    return mosaic_task(config(), seed=0)


def foreground_pictures(data: SDCData) -> torch.Tensor:
    assert bool((data.foreground.sum(dim=1) == 1).all())
    return data.segments[data.foreground].long()


def used(data: SDCData) -> set[int]:
    return set(data.segments.flatten().tolist())


def test_label_is_the_class_of_the_foreground_picture_and_of_no_other(task: SDCTask) -> None:
    label = load_pictures("digits", 8).label
    for split, size in zip(SPLITS, (1200, 300, 500), strict=True):
        data = task.splits[split]
        assert data.segments.shape == (size, 4) and data.mask is None
        of_label = np.array([3, 7, 1])[data.label.numpy()]
        np.testing.assert_array_equal(label[foreground_pictures(data).numpy()], of_label)
        background = label[data.segments[~data.foreground].long().numpy()]
        assert set(background.tolist()) == {0, 2, 4, 5, 6, 8, 9}
    assert task.class_names == ("3", "7", "1")
    for data in mosaic_task(config(background=("0", "8")), seed=0).splits.values():
        assert set(label[data.segments[~data.foreground].long().numpy()].tolist()) == {0, 8}


def test_a_tenth_of_each_class_is_held_out_alike_for_every_seed() -> None:
    pictures = load_pictures("digits", 8)
    pools = pictures.pools()
    assert len(pictures.label) == 1797 and pictures.num_train == 1257
    np.testing.assert_array_equal(sum(pool.astype(int) for pool in pools.values()), 1)  # disjoint
    held_out = [pools["validation"][: pictures.num_train][pictures.label[:1257] == digit].mean() for digit in range(10)]
    assert held_out == pytest.approx([0.1] * 10, abs=0.005)  # the data card has the numbers
    for split, data in [pair for seed in (0, 1) for pair in mosaic_task(config(), seed).splits.items()]:
        assert used(data) <= set(np.flatnonzero(pools[split]))


def test_paper_split_tests_on_training_pictures_and_says_so(task: SDCTask) -> None:
    paper = mosaic_task(config(paper_split=True), seed=0)
    assert used(paper.splits["test"]) & used(paper.splits["train"])
    assert max(used(paper.splits["test"])) < load_pictures("digits", 8).num_train
    assert not used(paper.splits["test"]) & used(paper.splits["validation"])
    assert (task.title, paper.title) == ("digits", "digits (test mosaics from training pictures)")
    for split in ("train", "validation"):
        assert torch.equal(paper.splits[split].segments, task.splits[split].segments)


ORTHOGONAL = Orthogonal(num_segments=4, num_classes=3, num_train=600, num_validation=50, num_test=70)


def segments_of(task: SDCTask, split: str) -> torch.Tensor:
    data = task.splits[split]
    return data.bank.values[data.segments.long()]  # (n, M, C + 1)


def test_foreground_is_the_unit_vector_of_its_class_and_background_its_own_axis_with_the_stated_variances() -> None:
    task = orthogonal_task(ORTHOGONAL.model_copy(update={"num_train": 20_000, "num_backgrounds": 0}), seed=3)
    for (split, data), size in zip(task.splits.items(), (20_000, 50, 70), strict=True):
        values = segments_of(task, split)
        assert values.shape == (size, 4, 4) and values.dtype == torch.float64
        assert_close(values[:, 0], torch.eye(4, dtype=torch.float64)[data.label], atol=1e-4, rtol=0)
        assert float(values[:, 1:, :3].abs().max()) == 0.0
        assert data.foreground.tolist() == [[True, False, False, False]] * size
    values, label = segments_of(task, "train"), task.splits["train"].label
    noise = values[:, 0] - torch.eye(4, dtype=torch.float64)[label]  # on every axis
    assert_close(noise.var(dim=0), torch.full((4,), 1e-10, dtype=torch.float64), rtol=0.05, atol=0)
    assert_close(values[:, 1:, 3].var().item(), 1e-2, rtol=0.02, atol=0)
    assert chisquare(torch.bincount(label).numpy()).pvalue > P_VALUE


def test_backgrounds_are_drawn_from_a_pool_of_the_stated_size_and_splits_share_none() -> None:
    task = orthogonal_task(ORTHOGONAL.model_copy(update={"num_backgrounds": 7}), seed=0)
    pools = [set(segments_of(task, split)[:, 1:, 3].flatten().tolist()) for split in task.splits]
    assert [len(pool) for pool in pools] == [7, 7, 7] and len(set.union(*pools)) == 21
    assert len(task.bank.values) == 600 + 50 + 70 + 21


def test_a_post_is_filler_by_zipfs_law_around_one_phrase_of_its_class() -> None:
    sizes = {"train": 600, "validation": 40, "test": 300}
    posts, filler = keyword_corpus(sizes, max_tokens=16, seed=0).posts, filler_words()
    assert Counter(post.split for post in posts) == sizes and len(set(filler)) == NUM_FILLER
    for post in posts:
        marked = np.flatnonzero(post.rationale)
        assert {word for word, mark in zip(post.tokens, post.rationale, strict=True) if not mark} <= set(filler)
        if post.label == "neither":
            assert marked.size == 0
        else:
            assert " ".join(post.tokens[place] for place in marked) in PHRASES[str(post.label)]
            assert marked.tolist() == list(range(marked[0], marked[0] + marked.size))
    assert {len(post.tokens) for post in posts} == set(range(SHORTEST, 17))
    assert all(count > 250 for count in Counter(post.label for post in posts).values())
    first = [post.rationale.index(1) / len(post.tokens) for post in posts if any(post.rationale)]
    assert 0.3 < np.mean(first) < 0.55 and min(first) == 0
    counts = Counter(word for post in posts for word in post.tokens if word in filler)
    for rank in (1, 2, 4):
        share = counts[filler[rank - 1]] / counts.total()
        assert share == pytest.approx(1 / rank / sum(1 / r for r in range(1, NUM_FILLER + 1)), rel=0.2)


def test_masks_hold_the_drawn_pixels_and_boxes_cover_them() -> None:
    """Where a mask is, the picture has the shape's colour, and beyond it the grey of the ground."""
    generator = np.random.default_rng(3)
    for size in (48, 56, 64) * 40:
        scene = draw_scene(generator, size, 3)
        spread = np.ptp(scene.picture.astype(int), axis=2)  # how colourful
        shown = np.zeros((size, size), dtype=bool)
        for shape in scene.shapes:
            x, y, width, height = map(int, shape.box)
            inside = np.zeros_like(shown)
            inside[y : y + height, x : x + width] = True
            assert not (shape.mask & ~inside).any() and not (shown & inside).any()  # no overlap of boxes
            edges = (shape.mask[y], shape.mask[y + height - 1], shape.mask[:, x], shape.mask[:, x + width - 1])
            assert all(edge.any() for edge in edges)
            assert 0.15 * size <= min(width, height) <= max(width, height) <= 0.34 * size
            shown |= inside
        masks = np.any([shape.mask for shape in scene.shapes], axis=0)
        assert spread[~masks].max() < 75 and np.median(spread[~masks]) < 40 < spread[masks].mean()


def test_captions_name_exactly_the_shapes_from_left_to_right() -> None:
    generator = np.random.default_rng(5)
    category = {word: name for name, words in SHAPE_WORDS.items() for word in words}
    numbers = set()
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
        numbers.add(len(drawn))
    assert numbers == {1, 2, 3}


def test_draws_are_uniform_and_independent(task: SDCTask) -> None:
    data = mosaic_task(config(num_train=20_000), seed=5).splits["train"]
    place = data.foreground.float().argmax(dim=1)
    joint = torch.bincount(data.label * 4 + place, minlength=12)
    assert chisquare(joint.numpy()).pvalue > P_VALUE
    pictures = load_pictures("digits", 8)
    pool = pictures.pools()["train"]
    for number, digit in enumerate((3, 7, 1)):
        members = np.flatnonzero(pool & (pictures.label == digit))
        counts = np.bincount(foreground_pictures(data)[data.label == number].numpy(), minlength=len(pool))[members]
        assert chisquare(counts).pvalue > P_VALUE
    others = np.flatnonzero(pool & np.isin(pictures.label, [0, 2, 4, 5, 6, 8, 9]))
    background = data.segments[~data.foreground].long().numpy()
    assert chisquare(np.bincount(background, minlength=len(pool))[others]).pvalue > P_VALUE

"""`scenes`: generated pictures of coloured shapes with captions and boxes, drawn in memory.

A picture shows one to three shapes of different kinds, about a quarter of its width, on a dark or light textured
ground. Each kind of shape is a category with its own outline and pattern, so a region of 8 pixels is enough to identify
it; colours are random. Each picture has five captions of at most ten words, which name every shape with its colour,
from left to right, in varied sentences. The box of a shape encloses its pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from jaxtyping import Bool, Float, UInt8

from fcamlib.config.tasks import Scenes
from fcamlib.data.coco import Box, CocoPicture, words_of
from fcamlib.data.files import require_memory

EDITION = 1  # increased whenever the same config and seed would give different pictures or captions
NUM_CAPTIONS = 5
MAX_WORDS = 10
SMALLEST, LARGEST = 0.25, 0.33  # side of the square a shape is drawn in, as a share of the picture's
COLOURS = {"red": (205, 45, 45), "green": (45, 165, 60), "blue": (55, 80, 210), "yellow": (230, 200, 45)}
SHAPE_WORDS = {  # category -> words that name it, the most frequent first
    "circle": ("circle", "disc"),
    "square": ("square", "box"),
    "triangle": ("triangle",),
    "star": ("star",),
    "cross": ("cross", "plus"),
}
GROUNDS = {"dark": 70.0, "light": 185.0}  # mean grey value
SYNONYM_SHARE = 0.2
_NUMBERS = ("one shape", "two shapes", "three shapes")
_JOINTS = ("{} and {}", "{} beside {}", "{} next to {}", "{} with {}")
_TEMPLATES = (
    "{objects}",
    "there {verb} {objects}",
    "a picture of {objects}",
    "{number}, {objects}",
    "{objects} on a {ground} ground",
    "{objects} on {ground} ground",
    "a {ground} picture with {objects}",
    "{objects} in front of a {ground} background",
)


@dataclass(frozen=True)
class Shape:
    """A shape of a scene: category, name of its colour, and pixels."""

    category: str
    colour: str
    mask: Bool[np.ndarray, "S S"]

    @property
    def box(self) -> Box:
        """x, y, width, height around its pixels."""
        rows, columns = (np.flatnonzero(self.mask.any(axis=axis)).tolist() for axis in (1, 0))
        x, y = float(columns[0]), float(rows[0])
        return x, y, columns[-1] + 1 - x, rows[-1] + 1 - y


@dataclass(frozen=True)
class Scene:
    """A drawn picture with its shapes from left to right and its captions."""

    picture: UInt8[np.ndarray, "S S 3"]
    shapes: list[Shape]
    captions: list[str]


@lru_cache(maxsize=1)
def scene_pictures(config: Scenes, seed: int) -> tuple[list[CocoPicture], list[CocoPicture], tuple[str, ...]]:
    """Training and validation scenes, test scenes (image ids count from 1 across both), and category names."""
    number, size, names = config.num_train + config.num_validation + config.num_test, config.image_size, [*SHAPE_WORDS]
    require_memory(6 * number * size**2, f"{number:,} scenes of image_size={size}", "give fewer or smaller ones")
    pictures = []
    for image_id, scene in enumerate(chain.from_iterable(split_scenes(config, seed)), start=1):
        captions = [words_of(caption) for caption in scene.captions]
        objects = [(names.index(shape.category), shape.box) for shape in scene.shapes]
        pictures.append(CocoPicture(image_id, scene.picture, size, size, captions, objects))
    return pictures[: -config.num_test], pictures[-config.num_test :], tuple(names)


def split_scenes(config: Scenes, seed: int) -> Iterator[Iterator[Scene]]:
    """The scenes in place of train2014 and of val2014, drawn independently."""
    for number, size in enumerate((config.num_train + config.num_validation, config.num_test)):
        generator = np.random.default_rng([seed, EDITION, number])
        yield (draw_scene(generator, config.image_size, config.max_objects) for _ in range(size))


def draw_scene(generator: np.random.Generator, size: int, max_objects: int) -> Scene:
    """One scene of `size` x `size` pixels; the shapes do not overlap."""
    ground = _one_of(generator, tuple(GROUNDS))
    canvas = _texture(generator, size) + GROUNDS[ground] + generator.uniform(-12, 12, size=3)
    number = int(generator.integers(1, max_objects + 1))
    shapes = []
    kinds = generator.permutation(list(SHAPE_WORDS))[:number].tolist()
    for category, (x, y, side) in zip(kinds, _places(generator, size, number), strict=True):
        colour = _one_of(generator, tuple(COLOURS))
        outline, is_light = _stencil(category, side)
        mask = np.zeros((size, size), dtype=bool)
        mask[y : y + side, x : x + side] = outline
        ink = np.array(COLOURS[colour]) + generator.uniform(-15, 15, size=3)
        pattern = np.where(is_light[..., None], 0.35 * ink + 0.65 * 255, ink)
        canvas[y : y + side, x : x + side][outline] = pattern[outline]
        shapes.append(Shape(category, colour, mask))
    canvas += generator.normal(0, 5, size=canvas.shape)
    shapes.sort(key=lambda shape: (2 * shape.box[0] + shape.box[2], shape.box[1]))
    captions = [_caption(generator, shapes, ground) for _ in range(NUM_CAPTIONS)]
    return Scene(canvas.round().clip(0, 255).astype(np.uint8), shapes, captions)


def _one_of(generator: np.random.Generator, values: Sequence[str]) -> str:
    """One of `values`, drawn uniformly; `Generator.choice` takes ten times as long."""
    return values[int(generator.integers(len(values)))]


def _texture(generator: np.random.Generator, size: int) -> Float[np.ndarray, "S S 1"]:
    """Blotches of 7 pixels, with smooth edges."""
    coarse = generator.normal(0, 14, size=(size // 7 + 2, size // 7 + 2))
    place = np.arange(size) / 7
    low, share = place.astype(int), place % 1
    rows = coarse[low] * (1 - share)[:, None] + coarse[low + 1] * share[:, None]
    return (rows[:, low] * (1 - share) + rows[:, low + 1] * share)[..., None]


def _places(generator: np.random.Generator, size: int, number: int) -> list[tuple[int, int, int]]:
    """x, y and side of `number` squares, at least two pixels apart."""
    while True:
        places: list[tuple[int, int, int]] = []
        for _ in range(50):
            side = int(generator.integers(round(SMALLEST * size), round(LARGEST * size) + 1))
            x, y = generator.integers(0, size - side + 1, size=2).tolist()
            if all(max(abs(2 * (x - a) + side - s), abs(2 * (y - b) + side - s)) >= side + s + 4 for a, b, s in places):
                places.append((x, y, side))
                if len(places) == number:
                    return places


@lru_cache(maxsize=256)  # never written to
def _stencil(category: str, side: int) -> tuple[Bool[np.ndarray, "s s"], Bool[np.ndarray, "s s"]]:
    """Which pixels of a square belong to a shape, and which of those have the pattern's light tone."""
    row, column = np.indices((side, side))
    x, y = ((places + 0.5) / side * 2 - 1 for places in (column, row))  # of pixels' centres, in (-1, 1)
    if category == "circle":  # plain
        return x**2 + y**2 <= 1, row < 0
    if category == "square":  # chequered
        return row >= 0, (row // 3 + column // 3) % 2 == 1
    if category == "triangle":  # striped across
        return abs(x) <= (y + 1) / 2 + 1 / side, row // 2 % 2 == 1
    if category == "star":  # dotted
        angle, radius = np.arctan2(x, -y), np.hypot(x, y)
        folded = abs((angle + np.pi / 5) % (2 * np.pi / 5) - np.pi / 5)  # from the nearest tip, at most 36 degrees
        inner, turn = 0.5, np.pi / 5
        # The edge from the tip (1, 0) to the notch (inner cos 36, inner sin 36).
        along, across = radius * np.cos(folded), radius * np.sin(folded)
        is_inside = (along - 1) * inner * np.sin(turn) - across * (inner * np.cos(turn) - 1) <= 0
        return is_inside, (row % 3 == 1) & (column % 3 == 1)
    return (abs(x) <= 0.4) | (abs(y) <= 0.4), column // 2 % 2 == 1  # cross, striped down


def _caption(generator: np.random.Generator, shapes: Sequence[Shape], ground: str) -> str:
    """One sentence of at most `MAX_WORDS` words that names every shape, from left to right."""
    nouns = []
    for shape in shapes:
        first, *others = SHAPE_WORDS[shape.category]
        is_usual = not others or generator.random() >= SYNONYM_SHARE
        nouns.append(f"{shape.colour} {first if is_usual else _one_of(generator, others)}")
    if len(nouns) < 3 or generator.random() < 0.5:  # else "a red circle, blue box and green star"
        nouns[1:] = [f"a {noun}" for noun in nouns[1:]]
    joint = _one_of(generator, _JOINTS) if len(nouns) == 2 else "{} and {}"
    objects = "a " + (nouns[0] if len(nouns) == 1 else joint.format(", ".join(nouns[:-1]), nouns[-1]))
    verb, number = "is" if len(nouns) == 1 else "are", _NUMBERS[len(nouns) - 1]
    sentences = [template.format(objects=objects, verb=verb, number=number, ground=ground) for template in _TEMPLATES]
    return _one_of(generator, [text for text in sentences if len(text.split()) <= MAX_WORDS]).capitalize() + "."

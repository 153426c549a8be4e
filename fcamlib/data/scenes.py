"""`scenes`: generated pictures of coloured shapes, written as a data set in the layout of COCO 2014.

A picture shows one to three shapes of different kinds, a quarter to a third of its width, on a dark or a light textured
ground. A kind of shape is a category: it has an outline and a pattern of its own, so that a region of 8 pixels tells
it; the colour is drawn freely. Each picture has five captions of at most ten words, which name every shape with its
colour, from left to right, in varied sentences. Annotations hold the exact mask of each shape, and the box around its
pixels.

The data set is written once, beside its place and then renamed whole, into the folder of data sets, or where that is
read-only into the user's cache folder; its checksums are verified before each use.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from filelock import FileLock
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from pycocotools import mask as coco_mask

from fcamlib import paths
from fcamlib.config.captions import COCO_SPLITS, ScenesConfig
from fcamlib.errors import DataError

log = logging.getLogger(__name__)

EDITION = 1  # raised whenever the same config and seed would give other pictures or captions
MANIFEST = "SHA256SUMS"
NUM_CAPTIONS = 5
MAX_WORDS = 10
SMALLEST, LARGEST = 0.25, 0.33  # side of a shape as a share of the picture's
COLOURS = {"red": (205, 45, 45), "green": (45, 165, 60), "blue": (55, 80, 210), "yellow": (230, 200, 45)}
SHAPE_WORDS = {  # category -> the words that name it, the first one most often
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
    """A shape of a scene: its category, its colour's name, and its pixels."""

    category: str
    colour: str
    mask: Bool[np.ndarray, "S S"]

    @property
    def box(self) -> tuple[int, int, int, int]:
        """x, y, width, height around its pixels."""
        rows, columns = (np.flatnonzero(self.mask.any(axis=axis)) for axis in (1, 0))
        x, y = int(columns[0]), int(rows[0])
        return x, y, int(columns[-1]) + 1 - x, int(rows[-1]) + 1 - y


@dataclass(frozen=True)
class Scene:
    """A drawn picture with its shapes from left to right and its captions."""

    picture: UInt8[np.ndarray, "S S 3"]
    shapes: tuple[Shape, ...]
    captions: tuple[str, ...]


def scenes_files(config: ScenesConfig, seed: int) -> dict[str, Path]:
    """The files and folders of the data set by their place, as `fcamlib.config.captions.coco_files` gives them.

    It is generated where it is not there yet. Raises `DataError` in one sentence where it cannot be written.
    """
    folder = _prepared(config, seed)
    places = [f"annotations/{kind}_{split}2014.json" for kind in ("captions", "instances") for split in COCO_SPLITS]
    return {place: folder / place for place in (*places, *(f"{split}2014" for split in COCO_SPLITS))}


def _prepared(config: ScenesConfig, seed: int) -> Path:
    """The folder of the verified data set."""
    drawn = [EDITION, seed, config.num_train, config.num_validation, config.num_test]
    drawn += [config.image_size, config.max_objects]
    name = f"{config.slug}-s{seed}-{hashlib.sha256(repr(drawn).encode()).hexdigest()[:8]}"
    roots = [paths.data_dir() / "scenes", platformdirs.user_cache_path("fcam") / "scenes"]
    for root in roots:  # verified files are used without the lock, so a folder shared read-only works too
        if _is_whole(root / name):
            return root / name
    fault: OSError | None = None
    for root in roots:
        try:
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f".{name}.lock"):
                if not _is_whole(root / name):
                    _write_whole(root / name, config, seed)
            return root / name
        except OSError as error:
            fault = error
    raise DataError(
        f"dataset='scenes': cannot write into {roots[0]} nor {roots[1]} ({fault.strerror if fault else ''}): make one "
        "of them writable, free some space, or set FCAM_DATA to another folder."
    )


def _write_whole(folder: Path, config: ScenesConfig, seed: int) -> None:
    """Write the data set beside `folder`, then give it the name."""
    if folder.exists():
        log.warning("the scenes in '%s' are damaged and are drawn again.", folder)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        write_scenes(scratch, config, seed)
        files = sorted(path for path in scratch.rglob("*") if path.is_file())
        lines = "".join(f"{_sha256(path)}  {path.relative_to(scratch).as_posix()}\n" for path in files)
        (scratch / MANIFEST).write_text(lines, "ascii", newline="\n")
        scratch.chmod(0o755)  # mkdtemp gives it to its owner alone
        if folder.exists():
            os.replace(folder, scratch / "damaged")
        os.replace(scratch, folder)
        shutil.rmtree(folder / "damaged", ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_whole(folder: Path) -> bool:
    """Whether every file of the manifest is there with its checksum."""
    try:
        lines = (folder / MANIFEST).read_text("ascii").splitlines()
        return all(_sha256(folder / line[66:]) == line[:64] for line in lines)
    except (OSError, UnicodeDecodeError):
        return False


def write_scenes(folder: Path, config: ScenesConfig, seed: int) -> None:
    """Write train2014/, val2014/ and annotations/ into `folder`; image ids of train2014 come first."""
    first_id = 1
    sizes = {"train": config.num_train + config.num_validation, "val": config.num_test}
    (folder / "annotations").mkdir()
    for split, scenes in split_scenes(config, seed):
        (folder / f"{split}2014").mkdir()
        entries: list[dict[str, Any]] = []
        drawn: list[Scene] = []
        for number, scene in enumerate(scenes, start=first_id):
            name = f"COCO_{split}2014_{number:012d}.png"
            Image.fromarray(scene.picture).save(folder / f"{split}2014" / name, compress_level=1)
            entries.append(_picture_entry(number, name, config.image_size))
            drawn.append(scene)
        for kind, content in (("captions", _captions(drawn, first_id)), ("instances", _instances(drawn, first_id))):
            text = json.dumps(_header(split) | {"images": entries} | content)
            (folder / "annotations" / f"{kind}_{split}2014.json").write_text(text, "utf-8")
        first_id += sizes[split]


def split_scenes(config: ScenesConfig, seed: int) -> Iterator[tuple[str, Iterator[Scene]]]:
    """The scenes of train2014 and of val2014, each from draws of its own."""
    sizes = (config.num_train + config.num_validation, config.num_test)
    for number, (split, size) in enumerate(zip(COCO_SPLITS, sizes, strict=True)):
        generator = np.random.default_rng([seed, EDITION, number])
        yield split, (draw_scene(generator, config.image_size, config.max_objects) for _ in range(size))


def _header(split: str) -> dict[str, Any]:
    return {
        "info": {
            "description": f"fcamlib scenes, edition {EDITION}, {split}",
            "url": "https://arxiv.org/abs/2307.13421",
            "version": f"{EDITION}.0",
            "year": 2014,
            "contributor": "fcamlib",
            "date_created": "2014/01/01",
        },
        "licenses": [{"id": 1, "name": "MIT License", "url": "https://opensource.org/license/mit"}],
    }


def _picture_entry(number: int, name: str, size: int) -> dict[str, Any]:
    return {
        "id": number,
        "file_name": name,
        "width": size,
        "height": size,
        "license": 1,
        "coco_url": "",
        "flickr_url": "",
        "date_captured": "2014-01-01 00:00:00",
    }


def _captions(scenes: Sequence[Scene], first_id: int) -> dict[str, Any]:
    texts = [(number, text) for number, scene in enumerate(scenes, start=first_id) for text in scene.captions]
    start = (first_id - 1) * NUM_CAPTIONS + 1
    return {
        "annotations": [
            {"id": place, "image_id": number, "caption": text} for place, (number, text) in enumerate(texts, start)
        ]
    }


def _instances(scenes: Sequence[Scene], first_id: int) -> dict[str, Any]:
    ids = {name: number for number, name in enumerate(SHAPE_WORDS, start=1)}
    annotations = []
    for number, scene in enumerate(scenes, start=first_id):
        for place, shape in enumerate(scene.shapes):
            run_lengths = coco_mask.encode(np.asfortranarray(shape.mask.astype(np.uint8)))
            counts = run_lengths["counts"]
            annotations.append(
                {
                    "id": number * 10 + place,
                    "image_id": number,
                    "category_id": ids[shape.category],
                    "segmentation": {"size": list(shape.mask.shape), "counts": counts.decode("ascii")},
                    "area": int(shape.mask.sum()),
                    "bbox": list(shape.box),
                    "iscrowd": 0,
                }
            )
    categories = [{"id": number, "name": name, "supercategory": "shape"} for name, number in ids.items()]
    return {"annotations": annotations, "categories": categories}


def draw_scene(generator: np.random.Generator, size: int, max_objects: int) -> Scene:
    """One scene of `size` x `size` pixels; the shapes do not overlap."""
    ground = str(generator.choice(list(GROUNDS)))
    canvas = _texture(generator, size) + GROUNDS[ground] + generator.uniform(-12, 12, size=3)
    number = int(generator.integers(1, max_objects + 1))
    shapes = []
    for category, (x, y, side) in zip(
        generator.permutation(list(SHAPE_WORDS))[:number].tolist(), _places(generator, size, number), strict=True
    ):
        colour = str(generator.choice(list(COLOURS)))
        outline, is_light = _stencil(category, side)
        mask = np.zeros((size, size), dtype=bool)
        mask[y : y + side, x : x + side] = outline
        ink = np.array(COLOURS[colour]) + generator.uniform(-15, 15, size=3)
        pattern = np.where(is_light[..., None], 0.35 * ink + 0.65 * 255, ink)
        canvas[y : y + side, x : x + side][outline] = pattern[outline]
        shapes.append(Shape(category, colour, mask))
    canvas += generator.normal(0, 5, size=canvas.shape)
    ordered = tuple(sorted(shapes, key=lambda shape: (2 * shape.box[0] + shape.box[2], shape.box[1])))
    captions = tuple(_caption(generator, ordered, ground) for _ in range(NUM_CAPTIONS))
    return Scene(canvas.round().clip(0, 255).astype(np.uint8), ordered, captions)


def _texture(generator: np.random.Generator, size: int) -> Float[np.ndarray, "S S 1"]:
    """Blotches of 7 pixels, with smooth edges."""
    coarse = generator.normal(0, 14, size=(size // 7 + 2, size // 7 + 2))
    place = np.arange(size) / 7
    low, share = place.astype(int), place % 1
    rows = coarse[low] * (1 - share)[:, None] + coarse[low + 1] * share[:, None]
    return (rows[:, low] * (1 - share) + rows[:, low + 1] * share)[..., None]


def _places(generator: np.random.Generator, size: int, number: int) -> list[tuple[int, int, int]]:
    """x, y and side of `number` squares, two pixels or more apart from each other."""
    while True:
        places: list[tuple[int, int, int]] = []
        for _ in range(50):
            side = int(generator.integers(round(SMALLEST * size), round(LARGEST * size) + 1))
            x, y = generator.integers(0, size - side + 1, size=2).tolist()
            if all(max(abs(2 * (x - a) + side - s), abs(2 * (y - b) + side - s)) >= side + s + 4 for a, b, s in places):
                places.append((x, y, side))
                if len(places) == number:
                    return places


def _stencil(category: str, side: int) -> tuple[Bool[np.ndarray, "s s"], Bool[np.ndarray, "s s"]]:
    """Which pixels of a square belong to a shape, and which of them have the pattern's light tone."""
    centre = (np.arange(side) + 0.5) / side * 2 - 1  # of pixels, in (-1, 1)
    x, y = centre[None, :], centre[:, None]
    row, column = np.arange(side)[:, None], np.arange(side)[None, :]
    everywhere = np.ones((side, side), dtype=bool)
    if category == "circle":  # plain
        return x**2 + y**2 <= 1, ~everywhere
    if category == "square":  # chequered
        return everywhere, (row // 3 + column // 3) % 2 == 1
    if category == "triangle":  # striped across
        return abs(x) <= (y + 1) / 2 + 1 / side, (row // 2 + 0 * column) % 2 == 1
    if category == "star":  # dotted
        angle, radius = np.arctan2(x, -y), np.hypot(x, y)
        folded = abs((angle + np.pi / 5) % (2 * np.pi / 5) - np.pi / 5)  # from the nearest tip, at most 36 degrees
        inner, turn = 0.5, np.pi / 5
        # The edge from the tip (1, 0) to the notch (inner cos 36, inner sin 36).
        along, across = radius * np.cos(folded), radius * np.sin(folded)
        is_inside = (along - 1) * inner * np.sin(turn) - across * (inner * np.cos(turn) - 1) <= 0
        return is_inside, (row % 3 == 1) & (column % 3 == 1)
    return (abs(x) <= 0.4) | (abs(y) <= 0.4), (column // 2 + 0 * row) % 2 == 1  # cross, striped down


def _caption(generator: np.random.Generator, shapes: Sequence[Shape], ground: str) -> str:
    """One sentence of at most `MAX_WORDS` words that names every shape, from left to right."""
    nouns = []
    for shape in shapes:
        first, *others = SHAPE_WORDS[shape.category]
        is_usual = not others or generator.random() >= SYNONYM_SHARE
        nouns.append(f"{shape.colour} {first if is_usual else generator.choice(others)}")
    if len(nouns) < 3 or generator.random() < 0.5:  # else "a red circle, blue box and green star"
        nouns[1:] = [f"a {noun}" for noun in nouns[1:]]
    nouns[0] = f"a {nouns[0]}"
    joint = str(generator.choice(_JOINTS)) if len(nouns) == 2 else "{} and {}"
    objects = nouns[0] if len(nouns) == 1 else joint.format(", ".join(nouns[:-1]), nouns[-1])
    verb, number = "is" if len(nouns) == 1 else "are", _NUMBERS[len(nouns) - 1]
    sentences = [template.format(objects=objects, verb=verb, number=number, ground=ground) for template in _TEMPLATES]
    short = [sentence for sentence in sentences if len(sentence.split()) <= MAX_WORDS]
    chosen = str(generator.choice(short))
    return chosen[0].upper() + chosen[1:] + "."

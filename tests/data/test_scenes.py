"""Generated scenes: boxes against pixels, captions against what is drawn, the official layout, and the cache."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from PIL import Image
from pycocotools.coco import COCO

from fcamlib.config.captions import ScenesConfig, captions_data
from fcamlib.data import scenes
from fcamlib.data.captions import caption_task
from fcamlib.data.scenes import COLOURS, SHAPE_WORDS, draw_scene, scenes_files
from fcamlib.data.vocabulary import words_of
from fcamlib.errors import DataError, UserError

SMALL = ScenesConfig(num_train=9, num_validation=3, num_test=5)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def root_of(files: dict[str, Path]) -> Path:
    return files["train2014"].parent


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
                x, y, width, height = shape.box
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


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' decoder of masks
def test_pycocotools_reads_the_official_layout(tmp_path: Path) -> None:
    files = scenes_files(SMALL, 1)
    ids = []
    for split, number in (("train2014", 12), ("val2014", 5)):
        with contextlib.redirect_stdout(io.StringIO()):
            captions = COCO(str(files[f"annotations/captions_{split}.json"]))
            instances = COCO(str(files[f"annotations/instances_{split}.json"]))
        for index in (captions, instances):
            assert set(index.dataset) >= {"info", "licenses", "images", "annotations"} and len(index.imgs) == number
        assert [cat["name"] for cat in instances.loadCats(instances.getCatIds())] == list(SHAPE_WORDS)
        assert all(len(captions.getAnnIds(imgIds=number)) == 5 for number in captions.imgs)
        ids += list(captions.imgs)
        for annotation in instances.loadAnns(instances.getAnnIds()):
            mask = instances.annToMask(annotation)
            rows, columns = np.nonzero(mask)
            x, y, width, height = annotation["bbox"]
            assert (columns.min(), rows.min()) == (x, y) and annotation["area"] == mask.sum()
            assert (columns.max() + 1 - columns.min(), rows.max() + 1 - rows.min()) == (width, height)
        for entry in captions.imgs.values():
            with Image.open(files[split] / entry["file_name"]) as picture:
                assert picture.size == (entry["width"], entry["height"]) == (56, 56)
    assert ids == list(range(1, 18))


def test_the_loader_gives_what_was_drawn() -> None:
    task = caption_task(SMALL, 1)
    assert (task.title, task.categories) == ("scenes", tuple(SHAPE_WORDS))
    drawn = {split: list(drawn) for split, drawn in scenes.split_scenes(SMALL, 1)}
    expected = {"train": drawn["train"][:9], "validation": drawn["train"][9:], "test": drawn["val"]}
    for split, chosen in expected.items():
        data = task.splits[split]
        assert np.array_equal(data.pictures.values.numpy(), np.stack([scene.picture for scene in chosen]))
        assert data.references == tuple(tuple(map(words_of, scene.captions)) for scene in chosen)
        assert data.picture.tolist() == [row for row in range(len(chosen)) for _ in range(5)]
        for objects, scene in zip(data.objects, chosen, strict=True):
            assert [task.categories[c] for c in objects.category] == [shape.category for shape in scene.shapes]
            corners = [(x, y, x + w, y + h) for x, y, w, h in (shape.box for shape in scene.shapes)]
            assert np.allclose(objects.box.numpy() * 56, corners, atol=1e-12)
    named = {
        word: task.categories[c] for word, c in zip(task.vocabulary, task.word_category.tolist(), strict=True) if c >= 0
    }
    assert named.items() <= {word: name for name, words in SHAPE_WORDS.items() for word in words}.items()


def test_same_seed_same_files_and_other_seed_or_split_other_pictures(tmp_path: Path) -> None:
    first = scenes_files(SMALL, 1)
    kept = content(root_of(first))
    shutil.rmtree(root_of(first))
    assert content(root_of(scenes_files(SMALL, 1))) == kept
    other = scenes_files(SMALL, 2)
    pictures = [p.read_bytes() for files in (first, other) for p in root_of(files).rglob("*.png")]
    assert len(pictures) == len(set(pictures)) == 2 * 17
    bigger = scenes_files(SMALL.model_copy(update={"num_test": 6}), 1)
    assert root_of(bigger) != root_of(first)
    train = [path.read_bytes() for path in sorted(bigger["train2014"].iterdir())]
    assert train == [path.read_bytes() for path in sorted(first["train2014"].iterdir())]


def test_what_is_there_is_used_and_damage_is_drawn_again(caplog: pytest.LogCaptureFixture) -> None:
    folder = root_of(scenes_files(SMALL, 1))
    kept, made = content(folder), folder.stat().st_mtime_ns
    assert root_of(scenes_files(SMALL, 1)) == folder and folder.stat().st_mtime_ns == made
    picture = next(folder.rglob("*.png"))
    picture.write_bytes(picture.read_bytes()[:-1])
    scenes_files(SMALL, 1)
    assert content(folder) == kept and "are damaged and are drawn again" in caplog.text
    next(folder.rglob("captions_val2014.json")).unlink()
    scenes_files(SMALL, 1)
    assert content(folder) == kept
    assert [path.name for path in folder.parent.iterdir() if path.name != folder.name] == [f".{folder.name}.lock"]


def test_a_killed_writer_leaves_nothing_that_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(scenes, "_instances", broken)
    with pytest.raises(KeyboardInterrupt):
        scenes_files(SMALL, 1)
    assert not [path for path in (tmp_path / "data" / "scenes").iterdir() if path.is_dir()]


def test_read_only_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written scenes are read without a lock; new ones go to the user's cache; one sentence where neither can be."""
    folder = root_of(scenes_files(SMALL, 1))
    monkeypatch.setattr(scenes, "FileLock", denied)
    assert root_of(scenes_files(SMALL, 1)) == folder
    monkeypatch.undo()
    (tmp_path / "file").touch()
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "file"))
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    assert root_of(scenes_files(SMALL, 1)).parent == tmp_path / "cache" / "fcam" / "scenes"
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "file" / name)
    with pytest.raises(DataError, match=r"cannot write into .* nor .* \(.*\): make one of them writable"):
        scenes_files(SMALL, 1)


def denied(path: Path) -> None:
    raise PermissionError(13, "Permission denied", str(path))


def test_two_processes_at_once_write_it_once(tmp_path: Path) -> None:
    code = (
        "from fcamlib.config.captions import ScenesConfig; from fcamlib.data.scenes import scenes_files;"
        "print(scenes_files(ScenesConfig(num_train=60, num_validation=3, num_test=5), 1)['train2014'].parent)"
    )
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = {process.communicate(timeout=120)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0] and len(folders) == 1
    folder = Path(folders.pop())
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, f".{folder.name}.lock"}
    assert len(json.loads((folder / "annotations/captions_train2014.json").read_text())["images"]) == 63


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"image_size": 60}, r"image_size=60 is not allowed: give a multiple of 8"),
        ({"max_objects": 4}, r"max_objects=4 is not allowed: give 3 or less"),
        ({"num_train": 0}, r"num_train=0 is not allowed: give 1 or more"),
        ({"words": "x"}, r"'words' is not a parameter"),
    ],
)
def test_wrong_parameters_are_one_sentence(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        captions_data("scenes", parameters)

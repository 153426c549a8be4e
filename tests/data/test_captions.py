"""COCO's layout: boxes against numbers worked out by hand, splits, phrases, words of categories, faults of files."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fcamlib.config import task_on
from fcamlib.data import captions
from fcamlib.data.captions import caption_task, category_words
from fcamlib.data.coco import cropped_box
from fcamlib.errors import DataError

Json = dict[str, Any]
NAMES = {18: "dog", 1: "person", 17: "cat", 90: "dog"}  # some exports have two ids of one name
CATEGORIES = [{"id": number, "name": name} for number, name in NAMES.items()]
SMALL = {"num_validation": 2, "image_size": 32, "min_count": 1}
IDS = {"train2014": (40, 7, 23, 9, 58), "val2014": (61, 3)}


class Layout:
    """A tiny data set: per split the official file contents, and pictures of 80 x 40 in one colour each."""

    def __init__(self, root: Path) -> None:
        self.root, self.files = root, dict[str, Json]()
        (root / "annotations").mkdir(parents=True)
        for split, ids in IDS.items():
            texts = [(number, text) for number in ids for text in (f"A dog, number {number}.", "The man's dog runs")]
            said = [{"id": n, "image_id": i, "caption": t} for n, (i, t) in enumerate(texts)]
            boxes = [box(n, number, 18 if number < 50 else 90, [20, 10, 30, 20]) for n, number in enumerate(ids)]
            shown = [[picture(number, split) for number in ids] for _ in range(2)]
            self.files[f"captions_{split}"] = {"images": shown[0], "annotations": said}
            self.files[f"instances_{split}"] = {"images": shown[1], "annotations": boxes, "categories": CATEGORIES}
            (root / split).mkdir()
            for number in ids:
                Image.new("RGB", (80, 40), (number, 100, 200)).save(self.picture(number))

    def picture(self, number: int) -> Path:
        split = "train2014" if number in IDS["train2014"] else "val2014"
        return self.root / split / f"COCO_{split}_{number:012d}.png"

    def write(self) -> str:
        for name, content in self.files.items():
            (self.root / "annotations" / f"{name}.json").write_text(json.dumps(content))
        return f"coco:{self.root}"

    def resize(self, number: int, width: int, height: int, kinds: tuple[str, ...] = ("captions", "instances")) -> None:
        """Say in the files that a training picture has this size."""
        for kind in kinds:
            (entry,) = [entry for entry in self.files[f"{kind}_train2014"]["images"] if entry["id"] == number]
            entry.update(width=width, height=height)


def picture(number: int, split: str) -> Json:
    return {"id": number, "file_name": f"COCO_{split}_{number:012d}.png", "width": 80, "height": 40, "license": 1}


def box(number: int, image_id: int, category: int, edges: list[float]) -> Json:
    return {"id": number, "image_id": image_id, "category_id": category, "bbox": edges, "segmentation": []}


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)
    return Layout(tmp_path / "data" / "pets")


def task_of(source: str, **parameters: Any) -> captions.CaptionTask:
    return caption_task(task_on(source, SMALL | parameters), 0)


@pytest.mark.parametrize(
    ("edges", "size", "expected"),
    [
        ((20, 10, 30, 20), (80, 40), (0, 0.25, 0.75, 0.75)),  # the square is x = 20..60, y = 0..40
        ((30, 0, 10, 40), (80, 40), (0.25, 0, 0.5, 1)),
        ((0, 0, 80, 40), (80, 40), (0, 0, 1, 1)),
        ((0, 5, 20, 10), (80, 40), None),  # ends where the square begins
        ((0, 5, 21, 10), (80, 40), (0, 0.125, 0.025, 0.375)),
        ((5, 30, 10, 40), (40, 100), (0.125, 0, 0.375, 1)),  # the square is y = 30..70
        ((5, 71, 10, 4), (40, 100), None),
        ((0, 0, 41, 41), (41, 42), (0, 0, 1, 40.5 / 41)),  # half a pixel is cut at each end
    ],
)
def test_boxes_follow_the_crop(edges: Any, size: tuple[int, int], expected: Any) -> None:
    x, y, width, height = map(float, edges)
    found = cropped_box((x, y, width, height), *size)
    assert found is None if expected is None else found == pytest.approx(expected, abs=1e-12)


def test_a_box_covers_in_the_resized_picture_what_it_covers_in_the_file(layout: Layout) -> None:
    """A white rectangle on black stays where its box says; boxes of the high picture were drawn on a larger copy."""
    x, y, w, h = 28, 44, 16, 12
    for number, width, height, scale in ((7, 96, 64, 1), (9, 64, 128, 2)):
        canvas = np.zeros((height, width, 3), dtype=np.uint8)
        canvas[y : y + h, x : x + w] = 255
        Image.fromarray(canvas).save(layout.picture(number))
        layout.resize(number, width, height)
        layout.resize(number, scale * width, scale * height, ("instances",))
        (found,) = [a for a in layout.files["instances_train2014"]["annotations"] if a["image_id"] == number]
        found["bbox"] = [scale * edge for edge in (x, y, w, h)]
    data = task_of(layout.write(), image_size=64).splits["train"]
    assert data.image_ids.tolist() == [7, 9, 23]
    for row in (0, 1):
        x0, y0, x1, y1 = (data.objects[row].box[0] * 64).round().int().tolist()
        shown = data.pictures.rows(torch.tensor([row]), torch.float64)[0]  # (3, 64, 64)
        inside = torch.zeros(64, 64, dtype=torch.bool)
        inside[y0:y1, x0:x1] = True
        assert (shown[:, inside] == 1).all() and (shown[:, ~inside] == -1).all()


def test_splits_words_and_objects(layout: Layout) -> None:
    task = task_of(layout.write())
    ids = {split: data.image_ids.tolist() for split, data in task.splits.items()}
    assert ids == {"train": [7, 9, 23], "validation": [40, 58], "test": [3, 61]}
    assert (task.title, task.categories) == ("pets", ("person", "cat", "dog"))
    assert task.vocabulary[4:] == ("dog", "'s", "a", "man", "number", "runs", "the", "23", "7", "9")
    assert task_of(layout.write(), min_count=4).vocabulary[4:] == ("dog",)
    assert task.word_category.tolist() == [-1] * 4 + [2, -1, -1, 0] + [-1] * 6
    validation = task.splits["validation"]
    assert validation.references[0] == (("a", "dog", "number", "40"), ("the", "man", "'s", "dog", "runs"))
    assert validation.picture.tolist() == [0, 0, 1, 1]
    # 40 is no training word
    assert validation.tokens.tolist()[:2] == [[1, 6, 4, 8, 3, 2, 0], [1, 10, 7, 5, 4, 9, 2]]
    assert [objects.category for objects in validation.objects] == [(2,), (2,)]
    assert validation.pictures.values[:, 0, 0, :].tolist() == [[40, 100, 200], [58, 100, 200]]


def test_fewer_pictures_are_drawn_by_seed_and_long_captions_cut(
    layout: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    config = task_on(layout.write(), SMALL | {"num_train": 2, "num_test": 1, "max_words": 4})
    drawn = {tuple(caption_task(config, seed).splits["train"].image_ids.tolist()) for seed in range(8)}
    assert drawn == {(7, 9), (7, 23), (9, 23)}
    data = caption_task(config, 1).splits
    assert len(data["test"].image_ids) == 1 and data["validation"].image_ids.tolist() == [40, 58]
    assert data["train"].tokens.shape == (4, 6) and "captions are longer than 4 words and are cut" in caplog.text
    assert len(data["train"].references[0][1]) == 5
    for name, value, message in (
        ("num_validation", 5, "num_validation=5 leaves none of the 5 training pictures of dataset='.*': give"),
        ("num_test", 3, "3 test pictures of .* are requested, but there are only 2"),
        ("min_count", 7, "^min_count=7 leaves no words in dataset='coco:.*pets', since no word occurs that often"),
    ):
        with pytest.raises(DataError, match=message):
            task_of(config.source, **{name: value})


def test_a_run_is_named_by_the_content_of_its_data(layout: Layout, tmp_path: Path) -> None:
    source = layout.write()
    found = [task_on(source, SMALL).fingerprint]
    shutil.copytree(layout.root, tmp_path / "data" / "coco")
    official = task_on("coco", SMALL)
    assert official.fingerprint == found[0] and caption_task(official, 0).title == "COCO"
    table = tmp_path / "words.yaml"
    table.write_text("cat: [man]\n")
    moved = task_on(source, SMALL | {"words": str(table)})
    assert caption_task(moved, 0).word_category.tolist()[7] == 1
    for name in ("words", "weights"):
        with pytest.raises(DataError, match=rf"^{name}='~nosuchuser' is not a file: give the path of a file"):
            task_on(source, SMALL | {name: "~nosuchuser"})
    Image.new("RGB", (80, 40), (7, 100, 201)).save(layout.picture(9))  # a file of equal name and size
    found += [moved.fingerprint, task_on(source, SMALL).fingerprint]
    file = layout.root / "annotations" / "captions_val2014.json"
    file.write_text(file.read_text().replace("runs", "sits"))
    assert len({*found, task_on(source, SMALL).fingerprint}) == 4


def test_turned_pictures_are_shown_upright_unless_their_boxes_lie_on_the_file(layout: Layout) -> None:
    exif, canvas = Image.Exif(), np.zeros((80, 40, 3), dtype=np.uint8)
    exif[274] = 6  # shown turned clockwise by a quarter
    canvas[:40] = 255
    for number, pixels in ((7, np.rot90(canvas)), (9, canvas.swapaxes(0, 1))):
        Image.fromarray(np.ascontiguousarray(pixels)).save(layout.picture(number), exif=exif)
    layout.resize(7, 40, 80)  # annotated as shown; 9 is annotated as it lies, 80 x 40
    train = task_of(layout.write()).splits["train"].pictures.values
    assert (train[0, :15] == 255).all() and (train[0, 17:] == 0).all()
    assert (train[1, :, :15] == 255).all() and (train[1, :, 17:] == 0).all()


def test_phrases_are_linked_to_the_boxes_of_their_entity(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    """The square is x = 20..60, y = 0..40. "The man 's dog - runs" has blanks that the words do not."""
    words, boxes = (layout.files[f"{kind}_val2014"]["annotations"] for kind in ("captions", "instances"))
    words[1]["caption"] = "The man 's dog - runs"  # of picture 61, words: the man s dog runs
    links = [(0, 4, 5), (3, 4, 6), (4, 6, 6), (4, 5, 6), (5, 6, 0), (0, 2, 9), (2, 2, 5), (5, 7, 5)]
    words[1]["phrases"] = [{"start": start, "end": end, "entity": entity} for start, end, entity in links]
    boxes[0]["entities"] = [5, 6, 0]  # x = 20..50, y = 10..30
    boxes += [box(90, 61, 1, [40, 0, 10, 40]) | {"entities": [6]}, box(91, 61, 1, [0, 0, 9, 9]) | {"entities": [6]}]
    boxes += [box(92, 3, 1, [40, 0, 10, 40]) | {"entities": [9]}]  # another picture's
    with caplog.at_level(logging.WARNING):
        data = task_of(layout.write(), num_validation=2).splits["test"]
    assert "2 phrases that are not in their caption" in caplog.text
    first, second = [0.0, 0.25, 0.75, 0.75], [0.5, 0.0, 0.75, 1.0]
    found = [(phrase.caption, phrase.start, phrase.end, phrase.box.tolist()) for phrase in data.phrases]
    assert found == [(3, 0, 4, [first]), (3, 3, 4, [first, second]), (3, 4, 5, [first, second])]
    assert data.references[1][1] == ("the", "man", "s", "dog", "runs")


def test_what_is_left_out_is_counted(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    words, boxes = layout.files["captions_train2014"], layout.files["instances_train2014"]
    for number, (image_id, text) in enumerate([(999, "of no picture"), (7, " ... "), (7, "")], start=90):
        words["annotations"].append({"id": number, "image_id": image_id, "caption": text})
    words["images"] += [picture(60, "train2014")]  # without a caption, and without a file
    boxes["images"] = [entry for entry in boxes["images"] if entry["id"] != 9] + [picture(70, "train2014")]
    boxes["annotations"] = [entry for entry in boxes["annotations"] if entry["image_id"] != 9] + [
        box(80, 7, 99, [1, 1, 5, 5]),
        box(81, 7, 1, [30, 1, 0, 5]),
        box(82, 1000, 1, [30, 1, 5, 5]),
        box(83, 7, 1, [0, 0, 10, 10]),  # beside the square
        box(84, 7, 17, [40, 20, 20, 20]),
    ]
    with caplog.at_level(logging.WARNING):
        train = task_of(layout.write()).splits["train"]
    assert train.image_ids.tolist() == [7, 9, 23] and len(train.references[0]) == 2
    assert train.objects[0].category == (2, 1) and train.objects[0].box[1].tolist() == [0.5, 0.5, 1, 1]
    assert train.objects[1].category == () and train.objects[1].box.shape == (0, 4)
    assert sorted(told.removeprefix(f"dataset='coco:{layout.root}': train2014: ") for told in caplog.messages) == [
        "1 boxes of unknown categories are left out.",
        "1 boxes of unknown pictures are left out.",
        "1 boxes without area are left out.",
        "1 captions of unknown pictures are left out.",
        "1 pictures are not in 'instances_train2014.json' and have no boxes.",
        "1 pictures without a caption are left out.",
        "2 captions without a word are left out.",
    ]


PICTURE = "train2014/COCO_train2014_000000000009.png"
WORDS, BOXES = (f"annotations/{kind}_train2014.json" for kind in ("captions", "instances"))


@pytest.mark.parametrize(
    ("place", "old", "new", "message"),
    [
        ("train2014", "", "", "there is no '.*train2014': unpack http://.*/zips/train2014.zip into"),
        (PICTURE, "", "", r"1 of 5 pictures are missing; the first is '.*0009.png': unpack .*/train2014.zip again"),
        (PICTURE, "", "broken", r"picture '.*0009.png' cannot be read \(it is not a picture\): repair or remove it"),
        (PICTURE, "", "P6 40 80 255\n" + "\0" * 9_600, "is 40 x 80 pixels, but its boxes refer to 80 x 40"),
        (WORDS, "", '{"images": [], "annotations": []}', "captions_train2014.json' has no pictures with captions"),
        (WORDS, "", '{"images": [', r"captions_train2014.json': it is not JSON \(EOF while parsing"),
        (WORDS, "", "7", "captions_train2014.json': it is not a JSON object: repair it, or unpack it from http://"),
        (WORDS, '"id": 40,', '"id": 7,', "captions_train2014.json': id 7 occurs 2 times in 'images'"),
        (BOXES, "[20, 10, 30, 20]", "[20, 10, Infinity, 20]", "field annotations.0.bbox.2: input should be"),
        (WORDS, '"COCO_train2014_000000000040.png"', '"../secret.png"', "file_name '../secret.png' leaves the folder"),
        (BOXES, '"dog"', '"wolf"', "train2014 and val2014 have different categories"),
        (WORDS.replace("train", "val"), 'id": 61,', 'id": 58,', "image id 58 is in both train2014 and val2014"),
    ],
)
def test_faults_are_one_sentence_with_the_place(layout: Layout, place: str, old: str, new: str, message: str) -> None:
    """A file or folder is taken away, is replaced by `new`, or has `new` in place of `old`."""
    source, path = layout.write(), layout.root / place
    if not new:
        shutil.move(path, layout.root.parent)
    else:
        path.write_text(path.read_text().replace(old, new) if old else new)
    with pytest.raises(DataError, match=message) as caught:
        task_of(source)
    assert "\n" not in str(caught.value)


# Names and order: https://cocodataset.org, instances_train2014.json.
COCO = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign, parking
meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella, handbag, tie,
suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis
racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog,
pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, remote, keyboard, cell
phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear, hair drier, toothbrush
"""
COCO_ALL = tuple(" ".join(name.split()) for name in COCO.split(","))
PETS = ("cat", "dog")


def test_the_table_names_every_category() -> None:
    assert len(COCO_ALL) == 80 and set(category_words(COCO_ALL).values()) == set(COCO_ALL)


@pytest.mark.parametrize(
    ("categories", "table", "named", "unnamed"),
    [
        (COCO_ALL, "", "man: person, puppies: dog, bike: bicycle, mice: mouse, knives: knife", "a the red riding"),
        (COCO_ALL, "", "racquet: tennis racket, bear: bear, teddy: teddy bear", "ground stop ski tennis family"),
        (("dog", "berry"), "", "dogs: dog, puppies: dog, berries: berry", "hotdog man cat"),
        (("gizmo", "two words", "Dog"), "", "gizmo: gizmo, gizmos: gizmo", "two words Dog dogs"),
        (("person", "man"), "", "man: man, men: person", ""),  # a category's own name goes before the table
        (PETS, "# mine\ndog: [hound, kitten]\ncat:\n  - moggy", "hound: dog, moggy: cat, kitten: dog, cats: cat", ""),
        (PETS, "none: [puppy, kitten, unknown]", "kittens: cat, dogs: dog", "puppy kitten unknown"),
    ],
)
def test_words_name_categories_of_the_data(
    tmp_path: Path, categories: tuple[str, ...], table: str, named: str, unnamed: str
) -> None:
    (tmp_path / "words.yaml").write_text(table, "utf-8")
    found = category_words(categories, str(tmp_path / "words.yaml") if table else "")
    assert found.items() >= dict(pair.split(": ") for pair in named.split(", ")).items()
    assert not set(unnamed.split()) & set(found) and set(found.values()) <= set(categories)


@pytest.mark.parametrize(
    "text, message",
    [
        ("dog: [hound]\ndgo: [x]\n", r"'dgo' is not a category of the data: known are cat, dog"),
        ("dog: [hound]\ncat: [dogs]\n", r"field 'cat': the word 'dogs' already belongs to 'dog'"),
        ("dog: []\n", r"write 'category: \[word, word\]' on each line"),
        ("cat: [tom]\ndog:\n  - hound\n  - two words\n", r"field 'dog': 'two words' is not a single lower-case"),
        ("dog: &a [*a]\n", r"aliases"),
        ("# only a comment", r"write 'category: \[word, word\]' on each line"),
        ("", r"words: the file .* is empty"),
    ],
)
def test_faults_of_a_users_table_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "words.yaml"
    table.write_text(text, "utf-8")
    with pytest.raises(DataError, match=message) as caught:
        category_words(PETS, str(table))
    assert str(table) in str(caught.value) and "\n" not in str(caught.value)

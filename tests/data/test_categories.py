"""Words that name object categories: the built-in table, and a user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from fcamlib.data.categories import category_words, word_categories
from fcamlib.errors import DataError

# Names and order: https://cocodataset.org, instances_train2014.json.
COCO = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign, parking
meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella, handbag, tie,
suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis
racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog,
pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, remote, keyboard, cell
phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear, hair drier, toothbrush
"""
CATEGORIES = tuple(" ".join(name.split()) for name in COCO.split(","))


def test_every_category_of_coco_has_words_and_no_other_does() -> None:
    named = category_words(CATEGORIES)
    assert len(CATEGORIES) == 80 and set(named.values()) == set(CATEGORIES)
    for word, name in {
        "man": "person", "women": "person", "boy": "person", "people": "person", "puppies": "dog", "bike": "bicycle",
        "mice": "mouse", "knives": "knife", "racquet": "tennis racket", "phone": "cell phone", "sofa": "couch",
        "hydrant": "fire hydrant", "bear": "bear", "teddy": "teddy bear", "doughnuts": "donut", "calf": "cow",
    }.items():  # fmt: skip
        assert named[word] == name, word
    assert not {"a", "the", "red", "on", "riding", "ground", "street"} & set(named)


def test_only_categories_of_the_data_are_named() -> None:
    assert category_words(["dog"]) == {"dog": "dog", "dogs": "dog"} | {
        word: "dog" for word in ("puppy", "puppies", "pup", "bulldog", "dalmatian", "poodle", "terrier", "dachshund")
    }
    assert category_words(["gizmo", "two words"]) == {"gizmo": "gizmo"}


def test_words_of_a_vocabulary_point_to_categories_by_place() -> None:
    categories = ("cat", "person", "dog")
    named = category_words(categories)
    assert word_categories(("<pad>", "a", "man", "dog", "kitten", "orange"), categories, named) == [-1, -1, 1, 2, 0, -1]


def test_a_users_table_adds_and_moves_words(tmp_path: Path) -> None:
    table = tmp_path / "words.yaml"
    table.write_text("# mine\ndog: [hound, kitten]\ncat:\n  - moggy\n", "utf-8")
    named = category_words(("cat", "dog"), str(table))
    assert named["hound"] == "dog" and named["moggy"] == "cat" and named["kitten"] == "dog" and named["cats"] == "cat"


@pytest.mark.parametrize(
    "text, message",
    [
        ("dog: [hound]\ndgo: [x]\n", r"line 2: 'dgo' is not a category of the data: did you mean 'dog'"),
        ("house: [x]\n", r"line 1: 'house' is not a category of the data: known are cat, dog"),
        ("dog: hound\n", r"line 1: field 'dog': give a list of words"),
        ("dog: []\n", r"line 1: field 'dog': give a list of words"),
        ("cat: [tom]\ndog:\n  - hound\n  - two words\n", r"line 4: field 'dog': 'two words' is not one word in lower"),
        ("dog: [Hound]\n", r"line 1: field 'dog': 'Hound' is not one word in lower case"),
        ("dog: [[a]]\n", r"line 1: field 'dog': .* is not one word"),
        ("cat: [x]\ndog: [y,\n  x]\n", r"line 3: field 'dog': the word 'x' stands under 'cat' already"),
        ("dog: [x]\ndog: [y]\n", r"line 2: 'dog' stands in the table twice"),
        ("- dog\n", r"line 1: the table is empty or no table"),
        ("", r"line 1: the table is empty or no table"),
        ("dog: [x\ncat: [y]\n", r"line 2: it is not YAML"),
        ("dog: [\x00]\n", r"line 1: it is not YAML"),
    ],
)
def test_faults_of_a_users_table_are_one_sentence_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "words.yaml"
    table.write_text(text, "utf-8")
    with pytest.raises(DataError, match=message) as caught:
        category_words(("cat", "dog"), str(table))
    assert str(table) in str(caught.value) and "\n" not in str(caught.value)


def test_unreadable_tables_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"words='.*none.yaml': the file cannot be read \(No such file"):
        category_words(("cat",), str(tmp_path / "none.yaml"))
    (tmp_path / "bytes.yaml").write_bytes(b"cat: [\xff]")
    with pytest.raises(DataError, match=r"is not UTF-8 text: save it as UTF-8"):
        category_words(("cat",), str(tmp_path / "bytes.yaml"))

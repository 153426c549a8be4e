"""Words that name object categories: the built-in table, and a user's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fcamlib.data import captions
from fcamlib.data.captions import TABLE, category_words, own_words
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
    named = category_words(["dog"])
    assert set(named.values()) == {"dog"} and {"dog", "dogs", "puppies"} <= set(named) and "hotdog" not in named
    assert category_words(["gizmo", "two words"]) == {"gizmo": "gizmo", "gizmos": "gizmo"}


def test_a_name_and_its_simple_plural_always_count() -> None:
    for name, plural in {
        "bus": "buses", "bench": "benches", "toothbrush": "toothbrushes", "box": "boxes", "berry": "berries",
        "toy": "toys", "giraffe": "giraffes", "tv": "tvs",
    }.items():  # fmt: skip
        assert category_words([name])[plural] == name == category_words([name])[name]
    assert own_words("hot dog") == () == own_words("Dog")
    # "man" names persons, unless there is a category of that name.
    assert category_words(["person", "man"])["man"] == "man" and category_words(["person", "man"])["men"] == "person"


def test_the_table_is_in_order_and_repeats_no_name() -> None:
    text = (Path(captions.__file__).with_name(TABLE)).read_text("utf-8")
    table = yaml.safe_load(text)
    assert list(table) == [name for name in CATEGORIES if name in table]
    own = {word for name in CATEGORIES for word in own_words(name)}
    assert not own & {word for words in table.values() for word in words}
    quoted = set(re.findall(r'"([a-z]+)"', text.split("Left\n# out")[1].split("Kept though")[0]))
    assert len(quoted) > 10 and not quoted & set(category_words(CATEGORIES)), "left out, says the head"


def test_a_users_table_adds_and_moves_words(tmp_path: Path) -> None:
    table = tmp_path / "words.yaml"
    table.write_text("# mine\ndog: [hound, kitten]\ncat:\n  - moggy\n", "utf-8")
    named = category_words(("cat", "dog"), str(table))
    assert named["hound"] == "dog" and named["moggy"] == "cat" and named["kitten"] == "dog" and named["cats"] == "cat"
    table.write_text("none: [puppy, kitten, unknown]\n", "utf-8")
    named = category_words(("cat", "dog"), str(table))
    assert not {"puppy", "kitten", "unknown"} & set(named) and named["kittens"] == "cat"


@pytest.mark.parametrize(
    "text, message",
    [
        ("dog: [hound]\ndgo: [x]\n", r"'dgo' is not a category of the data: known are cat, dog"),
        ("dog: [hound]\ncat: [dogs]\n", r"field 'cat': the word 'dogs' belongs to 'dog' already"),
        ("none: [cat]\n", r"field 'none': the word 'cat' belongs to 'cat' already"),
        ("dog: hound\n", r"field 'dog': give a list of words"),
        ("dog: []\n", r"field 'dog': give a list of words"),
        ("cat: [tom]\ndog:\n  - hound\n  - two words\n", r"field 'dog': 'two words' is not one word in lower"),
        ("dog: [Hound]\n", r"field 'dog': 'Hound' is not one word in lower case"),
        ("dog: [[a]]\n", r"field 'dog': .* is not one word"),
        ("cat: [x]\ndog: [y,\n  x]\n", r"field 'dog': the word 'x' belongs to 'cat' already"),
        ("dog: [x]\ndog: [x]\n", r"it names dog twice"),
        ("[" * 9_000, r"words.yaml' is no YAML table of words \("),
        ("dog: &a [*a]\n", r"aliases"),
        ("- dog\n", r"it is no table"),
        ("", r"words: the file .* is empty"),
        ("dog: [x\ncat: [y]\n", r"words.yaml' is no YAML table of words \("),
        ("dog: [\x00]\n", r"words.yaml' is no YAML table of words \("),
    ],
)
def test_faults_of_a_users_table_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "words.yaml"
    table.write_text(text, "utf-8")
    with pytest.raises(DataError, match=message) as caught:
        category_words(("cat", "dog"), str(table))
    assert str(table) in str(caught.value) and "\n" not in str(caught.value)

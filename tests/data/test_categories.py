"""Words that name object categories: the built-in table, and a user's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fcamlib.data import captions
from fcamlib.data.captions import TABLE, category_words
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


PETS = ("cat", "dog")


def test_the_table_names_every_category_and_no_word_that_its_head_leaves_out() -> None:
    found = category_words(CATEGORIES)
    assert len(CATEGORIES) == 80 and set(found.values()) == set(CATEGORIES)
    text = Path(captions.__file__).with_name(TABLE).read_text("utf-8")
    quoted = set(re.findall(r'"([a-z]+)"', text.split("Left\n# out")[1].split("Kept though")[0]))
    assert len(quoted) > 10 and not quoted & set(found)


@pytest.mark.parametrize(
    ("categories", "table", "named", "unnamed"),
    [
        (CATEGORIES, "", "man: person, women: person, puppies: dog, bike: bicycle, mice: mouse", "a the red riding"),
        (CATEGORIES, "", "racquet: tennis racket, knives: knife, bear: bear, teddy: teddy bear", "on ground street"),
        (("dog", "berry"), "", "dogs: dog, puppies: dog, berries: berry", "hotdog man cat"),
        (("gizmo", "two words", "Dog"), "", "gizmo: gizmo, gizmos: gizmo", "two words Dog dogs"),
        (("bus", "bench", "box", "toy"), "", "buses: bus, benches: bench, boxes: box, toys: toy", "toies boxs"),
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
        ("none: [cat]\n", r"field 'none': the word 'cat' already belongs to 'cat'"),
        ("dog: []\n", r"field 'dog': give a list of words"),
        ("cat: [tom]\ndog:\n  - hound\n  - two words\n", r"field 'dog': 'two words' is not a single lower-case"),
        ("dog: [Hound]\n", r"field 'dog': 'Hound' is not a single lower-case word"),
        ("dog: [x]\ndog: [x]\n", r"it names dog twice"),
        ("[" * 9_000, r"words.yaml' is not a YAML table of words \("),
        ("dog: &a [*a]\n", r"aliases"),
        ("- dog\n", r"it is not a table"),
        ("", r"words: the file .* is empty"),
        ("dog: [\x00]\n", r"words.yaml' is not a YAML table of words \("),
    ],
)
def test_faults_of_a_users_table_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "words.yaml"
    table.write_text(text, "utf-8")
    with pytest.raises(DataError, match=message) as caught:
        category_words(PETS, str(table))
    assert str(table) in str(caught.value) and "\n" not in str(caught.value)

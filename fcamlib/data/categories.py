"""Which words of captions name which object category.

The table for COCO's 80 categories is `coco_words.yaml` beside this module: a category, then the words that name it,
singular, plural and common synonyms. A category outside the table is named by its own name where that is one word.
A user's YAML file of the same form adds words and moves words from one category to another.
Where a word can mean other things too ("orange", "light"), it counts only for pictures that show an object of its
category, since attention is measured against that object's boxes.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import yaml

from fcamlib.data.vocabulary import words_of
from fcamlib.errors import DataError

TABLE = "coco_words.yaml"


def category_words(
    categories: Sequence[str], words_file: str = "", extra: Mapping[str, Sequence[str]] | None = None
) -> dict[str, str]:
    """Word -> the category that it names.

    Parameters
    ----------
    categories : sequence of str
        The categories of the data; others of the table are left out.
    words_file : str
        A user's table, or empty.
    extra : category -> words, optional
        The words of generated data.

    Raises
    ------
    DataError
        One sentence with the line and field of the user's table that is wrong.
    """
    named = {name: name for name in categories if words_of(name) == (name,)}
    built_in = resources.files("fcamlib.data").joinpath(TABLE).read_text("utf-8")
    for table in (_parsed(built_in, TABLE), extra or {}):
        named |= {word: name for name, words in table.items() if name in categories for word in words}
    if words_file:
        named |= _user_words(Path(words_file).expanduser(), categories)
    return named


def word_categories(vocabulary: Sequence[str], categories: Sequence[str], named: Mapping[str, str]) -> list[int]:
    """For each word of the vocabulary, the index of the category that it names, or -1."""
    index = {name: place for place, name in enumerate(categories)}
    return [index[named[word]] if word in named else -1 for word in vocabulary]


def _user_words(path: Path, categories: Sequence[str]) -> dict[str, str]:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise DataError(f"words='{path}': the file cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise DataError(f"words='{path}': the file is not UTF-8 text: save it as UTF-8.") from None
    table = _parsed(text, str(path), categories)
    return {word: name for name, words in table.items() for word in words}


def _parsed(text: str, place: str, categories: Sequence[str] | None = None) -> dict[str, tuple[str, ...]]:
    """Category -> words of a table; the first fault is one sentence with its line."""

    def wrong(line: int, what: str) -> DataError:
        return DataError(f"words='{place}', line {line}: {what}.")

    try:
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise wrong(line, f"it is not YAML ({error.problem})") from None
    except yaml.YAMLError as error:
        raise wrong(1, f"it is not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(node, yaml.MappingNode):
        raise wrong(1, "the table is empty or no table: write 'category: [word, word]' on each line")
    table: dict[str, tuple[str, ...]] = {}
    owner: dict[str, str] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if categories is not None and name not in categories:
            near = difflib.get_close_matches(name, categories, n=1)
            hint = f"did you mean '{near[0]}'" if near else f"known are {', '.join(categories)}"
            raise wrong(line, f"'{name}' is not a category of the data: {hint}")
        if name in table:
            raise wrong(line, f"'{name}' stands in the table twice: join its words")
        if not isinstance(value, yaml.SequenceNode) or not value.value:
            raise wrong(line, f"field '{name}': give a list of words, such as [man, woman]")
        words = []
        for item in value.value:
            word, line = str(item.value), item.start_mark.line + 1
            if not isinstance(item, yaml.ScalarNode) or words_of(word) != (word,):
                raise wrong(line, f"field '{name}': {word!r} is not one word in lower case, as captions are cut")
            if word in owner:
                raise wrong(line, f"field '{name}': the word '{word}' stands under '{owner[word]}' already")
            owner[word] = name
            words.append(word)
        table[name] = tuple(words)
    return table

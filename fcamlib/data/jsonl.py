"""`text:PATH`: a user's posts, one JSON object a line.

PATH is a folder with `train.jsonl`, `test.jsonl` and, if there is one, `validation.jsonl`; or one file, whose lines
either all name their `split` or none does. Without a validation file a tenth of the training posts of each class is
held out; a file without `split` is divided 80 : 10 : 10 in each class. Both are drawn once, alike for every seed.

| field       | value                                                                                             |
|-------------|---------------------------------------------------------------------------------------------------|
| `tokens`    | list of words, used as they are                                                                   |
| `text`      | or, instead of `tokens`, text: made lower-case and split into words and punctuation marks         |
| `label`     | text or whole number; the classes are those of the training posts                                 |
| `rationale` | optional: list of 0 and 1, one a token, 1 where the label comes from; all 0 means there is none   |
| `split`     | only in a single file: train, validation or test                                                  |

Other fields are not read. Posts without a word are left out, and their number is logged.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError, model_validator

from fcamlib.config.text import text_files
from fcamlib.data.posts import Corpus, Post, read_text
from fcamlib.data.sdc import SPLITS
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
HELD_OUT = 0.1  # of each class, for each of validation and test that has no posts of its own
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]")


class _Line(BaseModel):
    """One line of a file."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    tokens: list[StrictStr] | None = None
    text: StrictStr | None = None
    label: StrictStr | StrictInt
    rationale: list[Annotated[StrictInt, Field(ge=0, le=1)]] | None = None
    split: Literal["train", "validation", "test"] | None = None

    @model_validator(mode="after")
    def _check_together(self) -> _Line:
        if (self.tokens is None) == (self.text is None):
            raise ValueError("give either tokens or text, not both")
        if self.rationale is not None and len(self.rationale) != len(self.words()):
            raise ValueError(
                f"field rationale has {len(self.rationale)} entries for {len(self.words())} tokens: give one a token"
            )
        return self

    def words(self) -> tuple[str, ...]:
        return tuple(self.tokens) if self.tokens is not None else tuple(_WORD.findall((self.text or "").lower()))


@dataclass(frozen=True)
class _Placed:
    """A line with the place that it stands at."""

    line: _Line
    place: str


def jsonl_corpus(source: str) -> Corpus:
    """The posts of a `text:PATH` source. Raises `DataError` in one sentence that names file, line and field."""
    files = text_files(source)
    if "train.jsonl" in files and "test.jsonl" in files:
        splits = _with_validation({file.stem: _lines(file, source) for file in files.values()})
    else:
        (file,) = files.values()
        splits = _by_line(_lines(file, source), source)
    names = _class_names(splits["train"], source)
    posts = {split: _posts(splits[split], names) for split in SPLITS}
    for split in SPLITS:
        if not posts[split]:
            raise DataError(f"dataset='{source}': no post is left for {split}: give more posts.")
    return Corpus(posts, tuple(names), Path(source.removeprefix("text:")).stem)


def _lines(file: Path, source: str) -> list[_Placed]:
    """The checked lines of a file that hold a post; blank lines are passed over, posts without a word counted."""
    placed, num_empty = [], 0
    for number, content in enumerate(read_text(file, source).split("\n"), start=1):
        if not content.strip():
            continue
        place = f"line {number} of '{file}'"
        try:
            line = _Line.model_validate_json(content)
        except ValidationError as error:
            raise DataError(f"dataset='{source}': {place}: {_fault(error)}.") from None
        num_empty += not line.words()
        if line.words():
            placed.append(_Placed(line, place))
    if num_empty:
        log.warning("%d posts of '%s' have no word and are left out.", num_empty, file)
    return placed


def _fault(error: ValidationError) -> str:
    """The first fault, without the post's words."""
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return f"it is not JSON ({fault['ctx']['error']})"
    if fault["type"] == "value_error":
        return fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return "it is not a JSON object with fields such as tokens and label"
    field = str(fault["loc"][0])
    if fault["type"] == "missing":
        return f"field {field} is missing"
    needed = {
        "tokens": "give a list of words",
        "text": "give text",
        "label": "give text or a whole number",
        "rationale": "give a list of 0 and 1",
        "split": "choose train, validation or test",
    }
    return f"field {field} is not allowed as it is: {needed[field]}"


def _by_line(lines: list[_Placed], source: str) -> dict[str, list[_Placed]]:
    """Posts of a single file: by their field `split`, or drawn where none has it."""
    named = [placed for placed in lines if placed.line.split]
    if not named:
        rest, validation = _held_out(lines, 2 * HELD_OUT)
        validation, test = _held_out(validation, 0.5)
        return {"train": rest, "validation": validation, "test": test}
    for placed in lines:
        if not placed.line.split:
            raise DataError(f"dataset='{source}': {placed.place}: field split is missing, though other lines have it.")
    splits = {split: [placed for placed in lines if placed.line.split == split] for split in SPLITS}
    return splits if splits["validation"] else _with_validation(splits)


def _with_validation(splits: dict[str, list[_Placed]]) -> dict[str, list[_Placed]]:
    if splits.get("validation"):
        return splits
    train, validation = _held_out(splits["train"], HELD_OUT)
    return {"train": train, "validation": validation, "test": splits["test"]}


def _held_out(lines: list[_Placed], share: float) -> tuple[list[_Placed], list[_Placed]]:
    """Part the lines into the rest and a `share` of each class, at least one where there are two."""
    generator = np.random.default_rng(0)  # fixed: every seed of a run holds out the same posts
    chosen: set[int] = set()
    for name in sorted({str(placed.line.label) for placed in lines}):
        members = [i for i, placed in enumerate(lines) if str(placed.line.label) == name]
        number = min(max(1, round(share * len(members))), len(members) - 1)
        chosen |= {members[i] for i in generator.permutation(len(members))[:number]}
    return [p for i, p in enumerate(lines) if i not in chosen], [p for i, p in enumerate(lines) if i in chosen]


def _class_names(train: list[_Placed], source: str) -> dict[str, int]:
    """Labels of the training posts in order, whole numbers by value, with their indices."""
    names = {str(placed.line.label) for placed in train}
    if len(names) < 2:
        raise DataError(f"dataset='{source}': the training posts have {len(names)} class: give at least two.")
    are_numbers = all(name.lstrip("-").isdecimal() for name in names)
    return {name: i for i, name in enumerate(sorted(names, key=int) if are_numbers else sorted(names))}


def _posts(lines: list[_Placed], names: dict[str, int]) -> list[Post]:
    posts = []
    for placed in lines:
        line = placed.line
        if str(line.label) not in names:
            raise DataError(
                f"{placed.place}: field label names a class that no training post has: known are {', '.join(names)}."
            )
        rationale = tuple(bool(mark) for mark in line.rationale or ())
        posts.append(Post(line.words(), names[str(line.label)], rationale))
    return posts

"""Posts of a text source, and a user's own as JSON lines: one post per line with the fields of `Post`.

PATH of `text:PATH` is a folder with `train.jsonl`, `test.jsonl` and optionally `validation.jsonl`; or one file, in
which either all lines name their `split` or none does. Without validation posts a tenth of the training posts of each
class is held out; a file without `split` is divided 80 : 10 : 10 in each class. Both divisions are the same for every
seed. Posts without words are left out and counted in the log.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, PlainValidator, StrictInt, StrictStr, ValidationError, model_validator

from fcamlib.config.sources import source_path
from fcamlib.data import SPLITS
from fcamlib.data.files import json_fault, read_text
from fcamlib.data.npz import required
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
FILES = tuple(f"{split}.jsonl" for split in SPLITS)
HELD_OUT = 0.1  # share of each class for validation, and for test, if the source has no such posts
WORD = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]")


def _label(value: object) -> str | int:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return value
    raise ValueError("field label must be text or a whole number")


class Post(BaseModel):
    """A text as words, and its class.

    Instead of `tokens` a line may have `text`, which is lower-cased and split into words and punctuation marks.
    `rationale` has 0 or 1 per word, 1 for words that decide the label; leave it out or all 0 if they are not known.
    """

    tokens: list[StrictStr] = []
    text: StrictStr | None = None
    label: Annotated[str | int, PlainValidator(_label)]
    rationale: list[Annotated[StrictInt, Field(ge=0, le=1)]] = []
    split: Literal["train", "validation", "test"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Post:
        if ("tokens" in self.model_fields_set) == (self.text is not None):
            raise ValueError("give either tokens or text, not both")
        self.tokens = self.tokens if self.text is None else WORD.findall(self.text.lower())
        if self.rationale and len(self.rationale) != (number := len(self.tokens)):
            raise ValueError(f"field rationale has {len(self.rationale)} entries for {number} tokens: give one each")
        return self


class Corpus(NamedTuple):
    """Posts that all have a split, the names of the classes, and a title."""

    posts: list[Post]
    class_names: tuple[str, ...]
    title: str


def jsonl_files(source: str) -> dict[str, Path]:
    """The files of a `text:PATH` source by name; other .jsonl files in the folder are reported in the log."""
    path = source_path(source)
    if not path.is_dir():
        return {path.name: path}
    files = {name: path / name for name in FILES if (path / name).is_file()}
    if missing := {"train.jsonl", "test.jsonl"} - files.keys():
        raise DataError(f"dataset='{source}': the folder '{path}' has no {max(missing)}: put the file there.")
    for other in sorted(path.glob("[!.]*.jsonl")):
        if other.name not in files:
            log.warning("'%s' is ignored: only %s are read.", other, ", ".join(FILES))
    return files


def jsonl_corpus(source: str) -> Corpus:
    """The posts of a `text:PATH` source. Raises `DataError` with one sentence that names file, line and field."""
    files = jsonl_files(source)
    posts = [post for file in files.values() for post in _posts(file, source, in_folder=len(files) > 1)]
    if without := [place for place, post in enumerate(posts, start=1) if not post.split]:
        if len(without) < len(posts):
            raise DataError(f"dataset='{source}': post {without[0]} has no field split, though others have one.")
        for post in posts:
            post.split = "train"
        _move(posts, 2 * HELD_OUT, "train", "validation")
        _move(posts, 0.5, "validation", "test")
    if not any(post.split == "validation" for post in posts):
        _move(posts, HELD_OUT, "train", "validation")
    names = sorted({str(post.label) for post in posts})
    if all(re.fullmatch(r"-?[0-9]{1,19}", name) for name in names):
        names.sort(key=int)
    if len(names) < 2:
        raise DataError(f"dataset='{source}': the posts have {len(names)} class: give at least two.")
    index = {name: place for place, name in enumerate(names)}
    label = np.array([index[str(post.label)] for post in posts])
    required(np.array([post.split for post in posts]), label, names, source)
    return Corpus(posts, tuple(names), Path(source.removeprefix("text:")).stem)


def _posts(file: Path, source: str, in_folder: bool) -> list[Post]:
    """The posts of a file; the split is named by each line or, in a folder, by the file."""
    posts = []
    for number, line in enumerate(read_text(file, f"dataset='{source}'").split("\n"), start=1):
        if line.strip():
            try:
                posts.append(Post.model_validate_json(line))
            except ValidationError as error:
                place = f"dataset='{source}': line {number} of '{file}'"
                raise DataError(f"{place}: {json_fault(error)}.") from None
    if num_empty := sum(not post.tokens for post in posts):
        log.warning("%d posts of '%s' have no words and are left out.", num_empty, file)
    return [post.model_copy(update={"split": file.stem} if in_folder else {}) for post in posts if post.tokens]


def _move(posts: list[Post], share: float, from_split: str, to_split: Literal["validation", "test"]) -> None:
    """Move a `share` of the posts of each class: at least one if there are two, never all."""
    generator = np.random.default_rng(0)  # fixed: every seed of a run holds out the same posts
    by_label = defaultdict(list)
    for post in posts:
        if post.split == from_split:
            by_label[str(post.label)].append(post)
    for _, members in sorted(by_label.items()):
        number = min(max(1, round(share * len(members))), len(members) - 1)
        for place in generator.permutation(len(members))[:number]:
            members[place].split = to_split

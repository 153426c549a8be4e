"""Posts of the three text sources, each with words, class, rationale and split.

`text:PATH` is a user's own, as JSON lines: one post per line with the fields of `Post`. PATH is a folder with
`train.jsonl`, `test.jsonl` and optionally `validation.jsonl`; or one file, in which either all lines name their `split`
or none does. Without validation posts a tenth of the training posts of each class is held out; a file without `split`
is divided 80 : 10 : 10 in each class. Both divisions are the same for every seed. Posts without words are left out and
counted in the log.

`hatexplain` is `dataset.json`, with each annotator's label and rationales (a list of 0 and 1, one per token, from each
annotator who marked tokens, if at least two did), and the official split in `post_id_divisions.json`. Both are
downloaded from a fixed commit and verified by checksum. The official edition has 20,148 posts; the reduced copy has the
19,229 of the split, with the majority label as the only annotation and without rationales of training posts. The posts
are offensive, so no message quotes one.
Source: Mathew et al., HateXplain, AAAI 2021, https://github.com/hate-alert/HateXplain (MIT licence).

`keywords` are harmless generated posts: made-up filler words by Zipf's law, as in natural language, around one phrase
of the post's class, of one to three words, which is the rationale; posts of the last class, "neither", contain none.
Words of a phrase occur only in phrases of one class, so a single word can decide.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, StrictInt, StrictStr, ValidationError, model_validator

from fcamlib.config.sources import portable_source, source_path
from fcamlib.data import SPLITS
from fcamlib.data.files import download, json_fault, read_json, read_text, required
from fcamlib.errors import DataError, shown

log = logging.getLogger(__name__)
HELD_OUT = 0.1  # share of each class for validation, and for test, if the source has no such posts
WORD = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]")
A_LINE = "give one JSON object a line, with tokens or text, label and, if known, rationale and split"
Marks = list[Annotated[StrictInt, Field(ge=0, le=1)]]


class Post(BaseModel, extra="allow"):
    """A text as words, and its class.

    Instead of `tokens` a line may have `text`, which is lower-cased and split into words and punctuation marks.
    `rationale` has 0 or 1 per word, 1 for words that decide the label; leave it out or all 0 if they are not known.
    """

    tokens: list[StrictStr] = []
    text: StrictStr | None = None
    label: StrictStr | StrictInt
    rationale: Marks = []
    split: Literal["train", "validation", "test"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Post:
        if ("tokens" in self.model_fields_set) == (self.text is not None):
            raise ValueError("give one of tokens and text")
        self.tokens = self.tokens if self.text is None else WORD.findall(self.text.lower())
        if self.rationale and len(self.rationale) != (number := len(self.tokens)):
            raise ValueError(f"field rationale has {len(self.rationale)} entries for {number} tokens: give one each")
        return self


class Corpus(NamedTuple):
    """Posts that all have a split, the names of the classes, and a title."""

    posts: list[Post]
    class_names: tuple[str, ...]
    title: str


# --- a user's posts ---------------------------------------------------------------------------------------------------


def post_files(task: Any) -> Mapping[str, Path | str]:
    """The files of a text task by name; for those of `hatexplain` that are yet to be downloaded, their sha256."""
    if task.source == "hatexplain":
        folder = source_path(task.source)
        return {name: folder / name if (folder / name).is_file() else known for name, known in OFFICIAL_FILES.items()}
    return (hatexplain_files if task.kind == "hatexplain" else jsonl_files)(task.source)


def jsonl_files(source: str) -> dict[str, Path]:
    """The files of a folder by name, or a single file, whose name does not count; unknown .jsonl files are logged."""
    path = source_path(source)
    if not path.is_dir():
        return {"": path}
    names = [f"{split}.jsonl" for split in SPLITS]
    files = {name: path / name for name in names if (path / name).is_file()}
    if missing := {"train.jsonl", "test.jsonl"} - files.keys():
        raise DataError(f"dataset='{source}': the folder '{path}' has no {max(missing)}: put the file there.")
    for other in sorted(path.glob("[!.]*.jsonl")):
        if other.name not in files:
            log.warning("'%s' is ignored: only %s are read.", other, ", ".join(names))
    return files


def jsonl_corpus(source: str) -> Corpus:
    """The posts of a `text:PATH` source; a fault is one sentence that names file, line and field."""
    files = jsonl_files(source)
    posts = [post for file in files.values() for post in _posts(file, source, in_folder=len(files) > 1)]
    if (without := sum(not post.split for post in posts)) not in (0, len(posts)):
        raise DataError(f"dataset='{source}': {without} of {len(posts)} posts have no split: name all or none.")
    if without:
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
        raise DataError(
            f"dataset='{source}': the {len(posts)} posts with words have fewer than two classes: give at least two."
        )
    label = np.array([names.index(str(post.label)) for post in posts])
    required(np.array([post.split for post in posts]), label, names, source)
    return Corpus(posts, tuple(names), portable_source(source)[5:].removesuffix(".jsonl"))


def _posts(file: Path, source: str, in_folder: bool) -> list[Post]:
    """The posts of a file; the split is named by each line or, in a folder, by the file."""
    posts = []
    for number, line in enumerate(read_text(file, f"dataset='{source}'").split("\n"), start=1):
        if line.strip():
            try:
                posts.append(Post.model_validate_json(line))
            except ValidationError as error:
                place = f"dataset='{source}': line {number} of '{file}'"
                raise DataError(f"{place}: {json_fault(error)}: {A_LINE}.") from None
    if others := sorted({name for post in posts for name in post.model_extra or ()}):
        log.warning(
            "'%s': fields other than %s are ignored: %s.", file, ", ".join(Post.model_fields), ", ".join(others)
        )
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


# --- HateXplain -------------------------------------------------------------------------------------------------------

URL = "https://raw.githubusercontent.com/hate-alert/HateXplain/b94c830456f2088714a5635a2c79edac652a5c7b/Data"
POSTS, DIVISIONS = "dataset.json", "post_id_divisions.json"
OFFICIAL_FILES = {  # sha256: datasets/hatexplain/dataset_infos.json of huggingface/datasets, commit 040102f
    POSTS: "63bb3340fee0ec469b09690d04cb68f7c187787dd8b83807f071892c084967fb",
    DIVISIONS: "c2fb0d89862e7897b11ea3e9380753f15a793482b4b70ad0532dfb1212212835",
}
NUM_POSTS = 20_148
SPLIT_SIZES = {"train": 15_383, "val": 1_922, "test": 1_924}  # by their official names


class Annotation(BaseModel):
    """One annotator's label."""

    label: Literal["normal", "offensive", "hatespeech"]


class Entry(BaseModel):
    """One post of dataset.json; other fields are not read."""

    post_tokens: list[StrictStr] = Field(min_length=1)
    annotators: list[Annotation] = Field(min_length=1)
    rationales: list[Marks]


def hatexplain_files(source: str) -> dict[str, Path]:
    """Both files of `hatexplain` or `hatexplain:PATH`; without a path, missing files are downloaded."""
    files = {name: source_path(source) / name for name in OFFICIAL_FILES}
    for name, file in files.items():
        if ":" not in source:
            download(f"{URL}/{name}", file, OFFICIAL_FILES[name])
        if not file.is_file():
            raise DataError(f"dataset='{source}': the folder '{file.parent}' has no {name}: put the file there.")
    return files


def hatexplain_corpus(
    source: str, label: Literal["majority", "first"], rationale: Literal["union", "majority", "first"]
) -> Corpus:
    """The posts of the official split.

    A label is the annotators' most frequent one (posts without one are left out and counted), or the first annotator's.
    A word belongs to a rationale if any, more than half, or the first of the annotators with a rationale marked it.
    """
    files, anew = hatexplain_files(source), f"get the files again from {URL}"
    entries: dict[str, Entry] = read_json(files[POSTS], source, dict[str, Entry], anew)
    divisions: dict[str, list[str]] = read_json(files[DIVISIONS], source, dict[str, list[StrictStr]], anew)
    if fault := _fault(entries, divisions):
        raise DataError(f"dataset='{source}': '{files[POSTS].parent}': {fault}: {anew}.")
    if label == "first" and len(entries) != NUM_POSTS:
        raise DataError(f"label=first does not fit dataset='{source}': the reduced copy has only the majority label.")
    posts: list[Post] = []
    for split, name in zip(SPLITS, SPLIT_SIZES, strict=True):
        found = [_post(entries[number], label, rationale, split) for number in divisions[name] if number in entries]
        if lost := found.count(None):
            log.warning("%d posts of HateXplain's %s split have no majority label and are left out.", lost, split)
        posts += filter(None, found)
    title = "HateXplain" if len(entries) == NUM_POSTS else "HateXplain (reduced copy)"
    return Corpus(posts, ("normal", "offensive", "hatespeech"), title)


def _fault(entries: dict[str, Entry], divisions: dict[str, list[str]]) -> str:
    """The first fault, or ""."""
    for number, entry in entries.items():
        if odd := [len(mask) for mask in entry.rationales if len(mask) != len(entry.post_tokens)]:
            return f"post '{shown(number, 50)}': a rationale has {odd[0]} entries for {len(entry.post_tokens)} tokens"
    members = {name: {number for number in divisions.get(name, ()) if number in entries} for name in SPLIT_SIZES}
    sizes, total = {name: len(numbers) for name, numbers in members.items()}, len(set().union(*members.values()))
    if sizes != SPLIT_SIZES or total != sum(SPLIT_SIZES.values()) or len(entries) not in (NUM_POSTS, total):
        found = f"{len(entries):,} posts, of which {DIVISIONS} names {total:,} different ones, {sizes}"
        return f"{POSTS} holds {found} instead of {NUM_POSTS:,}, {SPLIT_SIZES}"
    return ""


def _post(entry: Entry, label: str, rationale: str, split: str) -> Post | None:
    """The post under the given rules; None without a majority label."""
    votes = [annotation.label for annotation in entry.annotators]
    (chosen, most), *others = Counter(votes).most_common(2)
    if label == "majority" and others and others[0][1] == most:
        return None
    masks = entry.rationales[:1] if rationale == "first" else entry.rationales
    needed = len(masks) // 2 + 1 if rationale == "majority" else 1
    marks = [int(sum(each) >= needed) for each in zip(*masks, strict=True)]
    own = chosen if label == "majority" else votes[0]
    return Post(tokens=entry.post_tokens, label=own, rationale=marks, split=split)


# --- generated posts --------------------------------------------------------------------------------------------------

CLASS_NAMES = ("weather", "music", "neither")
PHRASES = {
    "weather": ("heavy rain", "strong wind", "clear blue sky", "morning fog", "thunder", "snowfall", "a mild breeze"),
    "music": ("grand piano", "string quartet", "slow jazz tune", "choir rehearsal", "violin", "drummer", "an old song"),
}
NUM_FILLER, SHORTEST = 600, 4


def filler_words() -> tuple[str, ...]:
    """Made-up words of two or three syllables in a fixed order; none of them occurs in a phrase."""
    syllables = [a + b for a, b in product("bdfklmnprstv", "aeiou")]
    generator = np.random.default_rng(0)  # fixed: all tasks use the same words
    taken = {word for phrases in PHRASES.values() for phrase in phrases for word in phrase.split()}
    words: dict[str, None] = {}
    while len(words) < NUM_FILLER:
        word = "".join(generator.choice(syllables, size=generator.integers(2, 4)))
        if word not in taken:
            words[word] = None
    return tuple(words)


def keyword_corpus(sizes: dict[str, int], max_tokens: int, seed: int) -> Corpus:
    """Posts for each split (`sizes`), with lengths uniform from `SHORTEST` to `max_tokens` words."""
    filler, frequency = filler_words(), 1.0 / np.arange(1, NUM_FILLER + 1)  # Zipf's law
    posts = []
    for number, split in enumerate(SPLITS):
        generator = np.random.default_rng([seed, number])
        for _ in range(sizes[split]):
            label = CLASS_NAMES[generator.integers(len(CLASS_NAMES))]
            length = int(generator.integers(SHORTEST, max_tokens + 1))
            chosen = generator.choice(NUM_FILLER, size=length, p=frequency / frequency.sum())
            tokens, rationale = [filler[rank] for rank in chosen], [0] * length
            if phrases := PHRASES.get(label):
                phrase = phrases[generator.integers(len(phrases))].split()
                start = int(generator.integers(length - len(phrase) + 1))
                tokens[start : start + len(phrase)] = phrase
                rationale[start : start + len(phrase)] = [1] * len(phrase)
            posts.append(Post(tokens=tokens, label=label, rationale=rationale, split=split))
    return Corpus(posts, CLASS_NAMES, "keywords")

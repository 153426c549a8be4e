"""Text tasks: segments are words, an instance is a post, its foreground the words of its rationale.

| source                          | posts                                | read by                      |
|---------------------------------|--------------------------------------|------------------------------|
| `hatexplain`, `hatexplain:PATH` | HateXplain, official files           | `fcamlib.data.hatexplain`    |
| `keywords`                      | generated, harmless                  | `fcamlib.data.keywords`      |
| `text:PATH`                     | a user's, one JSON object a line     | `jsonl_corpus`               |

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

The vocabulary holds the words of the training posts that occur `min_count` times; every other word has the number 0,
one vector for all. With `paper_vocabulary` the words of all splits are in it, as in the public scripts, and the title
says so. Posts without a word are left out with a count in the log; posts without a rationale have no foreground. A post
longer than `max_tokens` is cut, and so is its rationale. Source: arXiv 2307.13421, experiments on HateXplain.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import BaseModel, Field, StrictInt, StrictStr, ValidationError, model_validator

from fcamlib.config.tasks import Text
from fcamlib.data.files import json_fault, read_text
from fcamlib.data.hatexplain import hatexplain_corpus
from fcamlib.data.keywords import keyword_corpus
from fcamlib.data.posts import Corpus, Post, jsonl_files
from fcamlib.data.sdc import SPLITS, Bank, SDCData, SDCTask, drawn
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
UNKNOWN = 0  # number of every word outside the vocabulary
HELD_OUT = 0.1  # of each class, for each of validation and test that has no posts of its own
_DRAW, _NOISE = 100, 200  # keep these draws apart from others of the same seed
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]")


def text_task(config: Text, seed: int) -> SDCTask:
    """Train, validation and test posts of `config` on one bank of words.

    `seed` draws generated posts, parts of a source where fewer than all are asked for, and label noise. Raises
    `DataError` in one sentence where the source is missing or damaged, or holds fewer posts than are asked for.
    """
    splits, words, corpus = _prepared(config, seed)
    splits["train"] = _noisy(splits["train"], len(corpus.class_names), config.label_noise, seed)
    bank = word_bank(words)
    data = {split: as_segments(splits[split], words, bank) for split in SPLITS}
    return SDCTask(data, corpus.class_names, _title(corpus, config))


def text_words(config: Text, seed: int) -> tuple[str, ...]:
    """The words of the bank of `text_task(config, seed)` by number; number 0 is every unknown word."""
    _, words, _ = _prepared(config, seed)
    return ("(unknown)", *words)


def _prepared(config: Text, seed: int) -> tuple[dict[str, list[Post]], dict[str, int], Corpus]:
    """The posts of each split, the vocabulary, and the corpus that they come from."""
    sizes = {"train": config.num_train, "validation": config.num_validation, "test": config.num_test}
    corpus = _corpus(config, sizes, seed)
    splits = {}
    for number, split in enumerate(SPLITS):
        what = f"{split} posts of dataset='{config.source}'"
        posts = drawn(corpus.splits[split], sizes[split], [seed, _DRAW + number], what)
        splits[split] = _cut(posts, config.max_tokens, split)
    known = chain.from_iterable(splits.values()) if config.paper_vocabulary else splits["train"]
    words = vocabulary(known, config.min_count)
    if not words:
        fault = f"min_count={config.min_count:,} leaves no word of dataset='{config.source}'"
        raise DataError(f"{fault}: no word of the training posts occurs so often, give a smaller number.")
    return splits, words, corpus


def vocabulary(posts: Iterable[Post], min_count: int = 1) -> dict[str, int]:
    """Words that occur at least `min_count` times, in alphabetical order, numbered from 1; 0 is every other word."""
    counts = Counter(token for post in posts for token in post.tokens)
    words = sorted(word for word, count in counts.items() if count >= min_count)
    return {word: number for number, word in enumerate(words, start=UNKNOWN + 1)}


def word_bank(words: Mapping[str, int]) -> Bank:
    """The bank of a vocabulary: row i is word number i, row 0 stands for unknown words."""
    return Bank(torch.arange(len(words) + 1), words=True)


def as_segments(posts: Sequence[Post], words: Mapping[str, int], bank: Bank) -> SDCData:
    """Posts as instances, padded to the longest one; a post without a known rationale has no foreground."""
    longest = max(len(post.tokens) for post in posts)
    shape = (len(posts), longest)
    segments = np.full(shape, UNKNOWN, dtype=np.int32)
    mask, foreground = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for row, post in enumerate(posts):
        length = len(post.tokens)
        segments[row, :length] = [words.get(token, UNKNOWN) for token in post.tokens]
        mask[row, :length] = True
        foreground[row, : len(post.rationale)] = post.rationale
    label = torch.tensor([post.label for post in posts])
    return SDCData(bank, torch.from_numpy(segments), label, torch.from_numpy(foreground), torch.from_numpy(mask))


def _corpus(config: Text, sizes: dict[str, int], seed: int) -> Corpus:
    kind = config.source.split(":", 1)[0]
    if kind == "hatexplain":
        return hatexplain_corpus(config.source, config.label, config.rationale)
    if kind == "text":
        return jsonl_corpus(config.source)
    if config.source != "keywords":
        raise DataError(f"dataset='{config.source}' is unknown: choose hatexplain, text:PATH or keywords.")
    for split, size in sizes.items():
        if not size:
            raise DataError(f"num_{split}=0 is not allowed with dataset='keywords': say how many posts to generate.")
    return keyword_corpus(sizes, config.max_tokens, seed)


def _cut(posts: list[Post], max_tokens: int, split: str) -> list[Post]:
    """The first `max_tokens` words of each post, with their part of the rationale."""
    num_longer = sum(len(post.tokens) > max_tokens for post in posts)
    if num_longer:
        log.warning("%d %s posts are longer than max_tokens=%d and are cut.", num_longer, split, max_tokens)
    return [replace(p, tokens=p.tokens[:max_tokens], rationale=p.rationale[:max_tokens]) for p in posts]


def _noisy(posts: list[Post], num_classes: int, share: float, seed: int) -> list[Post]:
    """Give a `share` of the posts another label, uniform over the others."""
    if not share:
        return posts
    generator = np.random.default_rng([seed, _NOISE])
    chosen = generator.permutation(len(posts))[: round(share * len(posts))]
    shift = dict(zip(chosen.tolist(), generator.integers(1, num_classes, size=len(chosen)).tolist(), strict=True))
    return [replace(post, label=(post.label + shift.get(i, 0)) % num_classes) for i, post in enumerate(posts)]


def _title(corpus: Corpus, config: Text) -> str:
    notes = []
    if config.paper_vocabulary:
        notes.append("vocabulary of all splits")
    if config.label == "first" and config.source.startswith("hatexplain"):
        notes.append("first annotator's labels")
    if config.label_noise:
        notes.append(f"{config.label_noise:.0%} of training labels changed")
    return corpus.title + (f" ({', '.join(notes)})" if notes else "")


class _Line(BaseModel):
    """One line of a user's file; each field says what it has to hold."""

    tokens: list[StrictStr] | None = Field(None, description="give a list of words")
    text: StrictStr | None = Field(None, description="give text")
    label: StrictStr | Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)] = Field(
        description="give text or a whole number of at most 18 digits"
    )
    rationale: list[Annotated[StrictInt, Field(ge=0, le=1)]] = Field(
        [], description="give a list of 0 and 1, one a token"
    )
    split: Literal["train", "validation", "test"] | None = Field(None, description="choose train, validation or test")
    _place: str = ""

    @model_validator(mode="after")
    def _check_together(self) -> _Line:
        if (self.tokens is None) == (self.text is None):
            raise ValueError("give either tokens or text, not both")
        if self.rationale and len(self.rationale) != (number := len(self.words)):
            raise ValueError(f"field rationale has {len(self.rationale)} entries for {number} tokens: give one a token")
        return self

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(self.tokens) if self.tokens is not None else tuple(_WORD.findall((self.text or "").lower()))


def jsonl_corpus(source: str) -> Corpus:
    """The posts of a `text:PATH` source. Raises `DataError` in one sentence that names file, line and field."""
    files = jsonl_files(source)
    if len(files) > 1:
        splits = {file.stem: _lines(file, source) for file in files.values()}
    else:
        splits = _by_line([line for file in files.values() for line in _lines(file, source)], source)
    if not splits.get("validation"):
        splits["train"], splits["validation"] = _held_out(splits["train"], HELD_OUT)
    names = {str(line.label) for line in splits["train"]}
    if len(names) < 2:
        raise DataError(f"dataset='{source}': the training posts have {len(names)} class: give at least two.")
    for split in SPLITS:
        if not splits[split]:
            raise DataError(f"dataset='{source}': no post is left for {split}: give more posts.")
    are_numbers = all(re.fullmatch(r"-?[0-9]{1,19}", name) for name in names)
    index = {name: i for i, name in enumerate(sorted(names, key=int) if are_numbers else sorted(names))}
    for line in chain.from_iterable(splits.values()):
        if str(line.label) not in index:
            known = ", ".join(index)[:200]
            raise DataError(f"{line._place}: field label names a class that no training post has: known are {known}.")
    posts = {
        split: [Post(p.words, index[str(p.label)], tuple(map(bool, p.rationale))) for p in splits[split]]
        for split in SPLITS
    }
    return Corpus(posts, tuple(index), Path(source.removeprefix("text:")).stem)


def _lines(file: Path, source: str) -> list[_Line]:
    """The checked lines of a file that hold a post; blank lines are passed over, posts without a word counted."""
    lines, num_empty = [], 0
    for number, content in enumerate(read_text(file, f"dataset='{source}'").split("\n"), start=1):
        if not content.strip():
            continue
        place = f"line {number} of '{file}'"
        try:
            line = _Line.model_validate_json(content)
        except ValidationError as error:
            raise DataError(f"dataset='{source}': {place}: {_fault(error)}.") from None
        line._place = place
        num_empty += not line.words
        if line.words:
            lines.append(line)
    if num_empty:
        log.warning("%d posts of '%s' have no word and are left out.", num_empty, file)
    return lines


def _fault(error: ValidationError) -> str:
    """The first fault of a line; that of a field says what it has to hold."""
    fault = error.errors(include_url=False, include_input=False)[0]
    if not fault["loc"]:
        return json_fault(error)
    name = str(fault["loc"][0])
    if fault["type"] == "missing":
        return f"field {name} is missing"
    return f"field {name} is not allowed as it is: {_Line.model_fields[name].description}"


def _by_line(lines: list[_Line], source: str) -> dict[str, list[_Line]]:
    """Posts of a single file: by their field `split`, or drawn where none has it."""
    if not any(line.split for line in lines):
        rest, held_out = _held_out(lines, 2 * HELD_OUT)
        validation, test = _held_out(held_out, 0.5)
        return {"train": rest, "validation": validation, "test": test}
    for line in lines:
        if not line.split:
            raise DataError(f"dataset='{source}': {line._place}: field split is missing, though other lines have it.")
    return {split: [line for line in lines if line.split == split] for split in SPLITS}


def _held_out(lines: list[_Line], share: float) -> tuple[list[_Line], list[_Line]]:
    """Part the lines into the rest and a `share` of each class, at least one where there are two."""
    generator = np.random.default_rng(0)  # fixed: every seed of a run holds out the same posts
    chosen: set[int] = set()
    by_class: dict[str, list[int]] = {}
    for i, line in enumerate(lines):
        by_class.setdefault(str(line.label), []).append(i)
    for _, members in sorted(by_class.items()):
        number = min(max(1, round(share * len(members))), len(members) - 1)
        chosen |= {members[i] for i in generator.permutation(len(members))[:number]}
    return [p for i, p in enumerate(lines) if i not in chosen], [p for i, p in enumerate(lines) if i in chosen]

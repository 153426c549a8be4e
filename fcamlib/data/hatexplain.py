"""HateXplain from its official files, verified by content.

`dataset.json` holds the posts with each annotator's label and, where at least two found one, rationales: a list of 0
and 1, one a token, from each annotator who marked some. `post_id_divisions.json` holds the official split. A download
comes from a fixed commit and has its checksums. Two editions are known by their content, and named wherever results
are shown:

| edition      | posts                                | training posts                                          |
|--------------|--------------------------------------|---------------------------------------------------------|
| official     | 20,148, of which 19,229 in the split | with all annotators and rationales                      |
| reduced copy | the 19,229 of the split              | with the majority label as only annotator, no rationale |

Source: Mathew et al., HateXplain, AAAI 2021, https://github.com/hate-alert/HateXplain (MIT licence). The posts are
offensive: no message here ever quotes one.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StrictInt, StrictStr

from fcamlib.config.sources import source_path
from fcamlib.data.files import download as download_file
from fcamlib.data.files import read_json
from fcamlib.data.posts import Corpus, Post
from fcamlib.errors import DataError

log = logging.getLogger(__name__)

URL = "https://raw.githubusercontent.com/hate-alert/HateXplain/b94c830456f2088714a5635a2c79edac652a5c7b/Data"
POSTS, DIVISIONS = "dataset.json", "post_id_divisions.json"
# Size and sha256: datasets/hatexplain/dataset_infos.json of huggingface/datasets, commit 040102f.
OFFICIAL_FILES = {
    POSTS: (12_256_170, "63bb3340fee0ec469b09690d04cb68f7c187787dd8b83807f071892c084967fb"),
    DIVISIONS: (591_921, "c2fb0d89862e7897b11ea3e9380753f15a793482b4b70ad0532dfb1212212835"),
}
NUM_POSTS = 20_148
SPLIT_SIZES = {"train": 15_383, "val": 1_922, "test": 1_924}  # by their official names
CLASS_NAMES = ("normal", "offensive", "hatespeech")
SPLIT_NAMES = {"train": "train", "validation": "val", "test": "test"}


class Annotation(BaseModel):
    """One annotator's label."""

    label: Literal["normal", "offensive", "hatespeech"]


class Entry(BaseModel):
    """One post of dataset.json; other fields are not read."""

    post_tokens: list[StrictStr] = Field(min_length=1)
    annotators: list[Annotation] = Field(min_length=1)
    rationales: list[list[Annotated[StrictInt, Field(ge=0, le=1)]]]


def hatexplain_files(source: str) -> dict[str, Path]:
    """Both files of `hatexplain` or `hatexplain:PATH`; without a path they are downloaded where they are missing."""
    folder = source_path(source)
    if ":" not in source:
        for name, (size, sha256) in OFFICIAL_FILES.items():
            download_file(f"{URL}/{name}", folder / name, size, sha256)
    for name in OFFICIAL_FILES:
        if not (folder / name).is_file():
            raise DataError(f"dataset='{source}': the folder '{folder}' has no {name}: put one there.")
    return {name: folder / name for name in OFFICIAL_FILES}


def hatexplain_corpus(
    source: str, label: Literal["majority", "first"], rationale: Literal["union", "majority", "first"]
) -> Corpus:
    """The posts of the official split. Raises `DataError` in one sentence that names file and place.

    A label is the annotators' most frequent one (posts without one are left out and counted), or the first one's. A
    word belongs to a rationale where any, more than half, or the first of those who marked words marked it.
    """
    entries, divisions = _verified(hatexplain_files(source), source)
    splits = {}
    for split, name in SPLIT_NAMES.items():
        posts = [_post(entries[number], label, rationale) for number in divisions[name]]
        splits[split] = [post for post in posts if post is not None]
        if lost := len(posts) - len(splits[split]):
            log.warning("%d posts of HateXplain's %s split have no majority label and are left out.", lost, split)
        if not splits[split]:
            raise DataError(f"dataset='{source}': no post of the split '{name}' has a majority label: use label=first.")
    is_official = len(entries) == NUM_POSTS
    return Corpus(splits, CLASS_NAMES, "HateXplain" if is_official else "HateXplain (reduced copy)")


def _verified(files: dict[str, Path], source: str) -> tuple[dict[str, Entry], dict[str, list[str]]]:
    """The content of both files: masks as long as their posts, and a split of the official sizes."""

    def wrong(name: str, what: str) -> DataError:
        return DataError(f"dataset='{source}': '{files[name]}': {what}: get the file anew from {URL}/{name}.")

    anew = f"get the file anew from {URL}"
    entries: dict[str, Entry] = read_json(files[POSTS], source, dict[str, Entry], anew)
    divisions: dict[str, list[str]] = read_json(files[DIVISIONS], source, dict[str, list[StrictStr]], anew)
    for number, entry in entries.items():
        if odd := [len(mask) for mask in entry.rationales if len(mask) != len(entry.post_tokens)]:
            raise wrong(
                POSTS, f"post '{number[:50]}': a rationale has {odd[0]} entries for {len(entry.post_tokens)} tokens"
            )
    for split, size in SPLIT_SIZES.items():
        if (found := len(divisions.get(split, ()))) != size:
            raise wrong(DIVISIONS, f"the split '{split}' has {found:,} posts, it has to hold {size:,}")
    numbers = Counter(number for split in SPLIT_SIZES for number in divisions[split])
    for number, count in numbers.items():
        if count > 1 or number not in entries:
            fault = f"stands in the split {count} times" if count > 1 else f"of the split is not in {POSTS}"
            raise wrong(DIVISIONS, f"post '{number[:50]}' {fault}")
    if len(entries) not in (NUM_POSTS, len(numbers)):
        raise wrong(POSTS, f"it holds {len(entries):,} posts, it has to hold {NUM_POSTS:,} or {len(numbers):,}")
    return entries, divisions


def _post(entry: Entry, label: str, rationale: str) -> Post | None:
    """The post under the rules; None without a majority label."""
    votes = [annotation.label for annotation in entry.annotators]
    chosen = votes[0]
    if label == "majority":
        ranked = Counter(votes).most_common(2)
        if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
            return None
        chosen = ranked[0][0]
    return Post(tuple(entry.post_tokens), CLASS_NAMES.index(chosen), _combined(entry.rationales, rationale))


def _combined(masks: list[list[int]], rule: str) -> tuple[bool, ...]:
    """One mask from the annotators' masks; empty where there is none."""
    if not masks:
        return ()
    if rule == "first":
        return tuple(bool(mark) for mark in masks[0])
    needed = 1 if rule == "union" else len(masks) // 2 + 1
    return tuple(sum(marks) >= needed for marks in zip(*masks, strict=True))

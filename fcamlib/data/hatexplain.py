"""HateXplain from its official files, verified by content.

`dataset.json` holds the posts with each annotator's label and rationales: a list of 0 and 1, one per token, from each
annotator who marked tokens, if at least two did. `post_id_divisions.json` holds the official split. Downloads come from
a fixed commit and are verified by checksum. The official edition has 20,148 posts; the reduced copy has the 19,229 of
the split, with the majority label as the only annotation and without rationales of training posts.

Source: Mathew et al., HateXplain, AAAI 2021, https://github.com/hate-alert/HateXplain (MIT licence). The posts are
offensive, so no message quotes one.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StrictInt, StrictStr

from fcamlib.config.sources import source_path
from fcamlib.data import SPLITS
from fcamlib.data.files import download, read_json
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


class Annotation(BaseModel):
    """One annotator's label."""

    label: Literal["normal", "offensive", "hatespeech"]


class Entry(BaseModel):
    """One post of dataset.json; other fields are not read."""

    post_tokens: list[StrictStr] = Field(min_length=1)
    annotators: list[Annotation] = Field(min_length=1)
    rationales: list[list[Annotated[StrictInt, Field(ge=0, le=1)]]]


def hatexplain_files(source: str) -> dict[str, Path]:
    """Both files of `hatexplain` or `hatexplain:PATH`; without a path, missing files are downloaded."""
    files = {name: source_path(source) / name for name in OFFICIAL_FILES}
    for name, file in files.items():
        if ":" not in source:
            download(f"{URL}/{name}", file, *OFFICIAL_FILES[name])
        if not file.is_file():
            raise DataError(f"dataset='{source}': the folder '{file.parent}' has no {name}: put the file there.")
    return files


def hatexplain_corpus(
    source: str, label: Literal["majority", "first"], rationale: Literal["union", "majority", "first"]
) -> Corpus:
    """The posts of the official split. Raises `DataError` with one sentence that names file and location.

    A label is the annotators' most frequent one (posts without one are left out and counted), or the first annotator's.
    A word belongs to a rationale if any, more than half, or the first of the annotators with a rationale marked it.
    """
    entries, divisions = _verified(hatexplain_files(source), source)
    posts: list[Post] = []
    for split, name in zip(SPLITS, SPLIT_SIZES, strict=True):
        found = [_post(entries[number], label, rationale, split) for number in divisions[name]]
        if lost := found.count(None):
            log.warning("%d posts of HateXplain's %s split have no majority label and are left out.", lost, split)
        if lost == len(found):
            raise DataError(f"dataset='{source}': no post of the split '{name}' has a majority label: use label=first.")
        posts += filter(None, found)
    return Corpus(posts, CLASS_NAMES, "HateXplain" if len(entries) == NUM_POSTS else "HateXplain (reduced copy)")


def _verified(files: dict[str, Path], source: str) -> tuple[dict[str, Entry], dict[str, list[str]]]:
    """The content of both files, complete and consistent."""
    anew = f"get the files again from {URL}"
    entries: dict[str, Entry] = read_json(files[POSTS], source, dict[str, Entry], anew)
    divisions: dict[str, list[str]] = read_json(files[DIVISIONS], source, dict[str, list[StrictStr]], anew)
    if fault := _fault(entries, divisions):
        raise DataError(f"dataset='{source}': '{files[POSTS].parent}': {fault}: {anew}.")
    return entries, divisions


def _fault(entries: dict[str, Entry], divisions: dict[str, list[str]]) -> str:
    """The first fault, or "": masks must fit their posts, the split must have its sizes and name each post once."""
    for number, entry in entries.items():
        if odd := [len(mask) for mask in entry.rationales if len(mask) != len(entry.post_tokens)]:
            return f"post '{number[:50]}': a rationale has {odd[0]} entries for {len(entry.post_tokens)} tokens"
    split = {name: [number for number in divisions.get(name, ()) if number in entries] for name in SPLIT_SIZES}
    numbers = {number for name in SPLIT_SIZES for number in split[name]}
    if (sizes := {name: len(members) for name, members in split.items()}) != SPLIT_SIZES:
        return f"{DIVISIONS} names {sizes} posts of {POSTS} instead of {SPLIT_SIZES}"
    if len(numbers) < sum(SPLIT_SIZES.values()):
        return f"{DIVISIONS} names a post twice"
    if len(entries) not in (NUM_POSTS, len(numbers)):
        return f"{POSTS} holds {len(entries):,} posts instead of {NUM_POSTS:,} or {len(numbers):,}"
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
    return Post(
        tokens=entry.post_tokens, label=chosen if label == "majority" else votes[0], rationale=marks, split=split
    )

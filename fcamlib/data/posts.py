"""Posts of a text source: words, a label, and which of the words it comes from."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fcamlib.config.sources import source_path
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
JSONL_FILES = ("train.jsonl", "validation.jsonl", "test.jsonl")


@dataclass(frozen=True)
class Post:
    """A text as a tuple of words.

    `label` is an index into the corpus's class names; `rationale` tells for each word whether the label comes from it,
    and is empty where that is not known.
    """

    tokens: tuple[str, ...]
    label: int
    rationale: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Corpus:
    """The posts of each split, with the names of the classes."""

    splits: Mapping[str, Sequence[Post]]
    class_names: tuple[str, ...]
    title: str


def jsonl_files(source: str) -> dict[str, Path]:
    """The files of a `text:PATH` source by name; other .jsonl files beside them are named in the log."""
    path = source_path(source)
    if not path.is_dir():
        return {path.name: path}
    files = {name: path / name for name in JSONL_FILES if (path / name).is_file()}
    for name in ("train.jsonl", "test.jsonl"):
        if name not in files:
            raise DataError(f"dataset='{source}': the folder '{path}' has no {name}: put one there.")
    for other in sorted(path.glob("[!.]*.jsonl")):
        if other.name not in files:
            log.warning("'%s' is not read: a folder holds %s.", other, ", ".join(JSONL_FILES))
    return files

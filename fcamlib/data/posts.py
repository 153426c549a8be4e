"""Posts of a text source: words, a label, and which of the words it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fcamlib.errors import DataError


@dataclass(frozen=True)
class Post:
    """A text as a tuple of words.

    Parameters
    ----------
    tokens : tuple of str
    label : int
        Index into the corpus's class names.
    rationale : tuple of bool
        Which words the label comes from, one entry a word; empty where that is not known.
    """

    tokens: tuple[str, ...]
    label: int
    rationale: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if self.rationale and len(self.rationale) != len(self.tokens):
            raise ValueError(f"a rationale of {len(self.rationale)} entries does not fit {len(self.tokens)} tokens.")


@dataclass(frozen=True)
class Corpus:
    """The posts of each split, with the names of the classes."""

    splits: Mapping[str, Sequence[Post]]
    class_names: tuple[str, ...]
    title: str


def read_text(path: Path, dataset: str) -> str:
    """The text of a file; one sentence that names the place where it is missing, empty or not UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"dataset='{dataset}': the file '{path}' cannot be read ({error.strerror}).") from None
    if not content.strip():
        raise DataError(f"dataset='{dataset}': the file '{path}' is empty.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"dataset='{dataset}': line {line} of '{path}' is not UTF-8 text "
            f"(byte 0x{content[error.start]:02x}): save the file as UTF-8."
        ) from None

"""Words of captions: splitting captions into words, and numbering the words.

A caption is converted to lower case and split into words: runs of letters and digits, joined by single hyphens or
apostrophes inside a word ("t-shirt", "don't"); the ending 's is a separate word ("man's" is "man", "'s"). Everything
else, such as punctuation, is left out. The vocabulary holds the words that occur often enough, ordered by falling
frequency, then by spelling. Source: arXiv 2307.13421, experiments on MSCOCO, for lower case and the least count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

PAD, START, END, UNKNOWN = 0, 1, 2, 3
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")  # by number; no word of a caption holds < or >
_WORD = re.compile(r"[^\W_]+(?:[-'](?!s\b)[^\W_]+)*|(?<=[^\W_])'s\b")


def words_of(caption: str) -> tuple[str, ...]:
    """The words of a caption under the rule above; empty if it has none."""
    return tuple(_WORD.findall(caption.lower().replace("\u2019", "'")))


def build_vocabulary(captions: Iterable[Sequence[str]], min_count: int = 1) -> tuple[str, ...]:
    """The special words, then those that occur at least `min_count` times, by falling frequency, then spelling."""
    counts = Counter(word for caption in captions for word in caption)
    kept = [word for word, count in counts.items() if count >= min_count]
    return (*SPECIAL, *sorted(kept, key=lambda word: (-counts[word], word)))


def encode(words: Sequence[str], numbers: Mapping[str, int]) -> list[int]:
    """START, the numbers of the words (UNKNOWN outside the vocabulary), END."""
    return [START, *(numbers.get(word, UNKNOWN) for word in words), END]


def decode(tokens: Iterable[int], vocabulary: Sequence[str]) -> tuple[str, ...]:
    """The words of `tokens` up to the first END, without START and PAD; UNKNOWN stays as `<unk>`."""
    words = []
    for token in tokens:
        if token == END:
            break
        if token not in (PAD, START):
            words.append(vocabulary[token])
    return tuple(words)

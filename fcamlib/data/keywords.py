"""`keywords`: harmless generated posts, whose class is decided by one phrase among filler words.

A post is a row of made-up filler words, drawn by Zipf's law as the words of a language are, of varying length. In it
stands one phrase of its class, one to three words, which is the rationale; posts of the last class, "neither",
have no phrase and no rationale. Words of a phrase occur in phrases of that class only, so that a single word can
decide; filler occurs everywhere.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from fcamlib.data.posts import Corpus, Post
from fcamlib.data.sdc import SPLITS

CLASS_NAMES = ("weather", "music", "neither")
PHRASES = {
    "weather": ("heavy rain", "strong wind", "clear blue sky", "morning fog", "thunder", "snowfall", "a mild breeze"),
    "music": ("grand piano", "string quartet", "slow jazz tune", "choir rehearsal", "violin", "drummer", "an old song"),
}
NUM_FILLER = 600
ZIPF_EXPONENT = 1.0
SHORTEST = 4


def filler_words() -> tuple[str, ...]:
    """Made-up words of two or three syllables, in a fixed order, none of them part of a phrase."""
    syllables = [a + b for a, b in product("bdfklmnprstv", "aeiou")]
    generator = np.random.default_rng(0)  # fixed: every task speaks the same language
    taken = {word for phrases in PHRASES.values() for phrase in phrases for word in phrase.split()}
    words: dict[str, None] = {}
    while len(words) < NUM_FILLER:
        word = "".join(generator.choice(syllables, size=generator.integers(2, 4)))
        if word not in taken:
            words[word] = None
    return tuple(words)


def keyword_corpus(sizes: dict[str, int], max_tokens: int, seed: int) -> Corpus:
    """As many posts of each split as `sizes` says, of `SHORTEST` to `max_tokens` words, each length as likely."""
    filler = filler_words()
    frequency = zipf(NUM_FILLER)
    splits = {}
    for number, split in enumerate(SPLITS):
        generator = np.random.default_rng([seed, number])
        splits[split] = [_post(generator, filler, frequency, max_tokens) for _ in range(sizes[split])]
    return Corpus(splits, CLASS_NAMES, "keywords")


def zipf(num_words: int) -> NDArray[np.float64]:
    """Frequency of each rank, proportional to 1 / rank ** `ZIPF_EXPONENT`; sums to 1."""
    frequency: NDArray[np.float64] = 1.0 / np.arange(1, num_words + 1, dtype=np.float64) ** ZIPF_EXPONENT
    return frequency / frequency.sum()


def _post(
    generator: np.random.Generator, filler: tuple[str, ...], frequency: NDArray[np.float64], max_tokens: int
) -> Post:
    label = int(generator.integers(len(CLASS_NAMES)))
    length = int(generator.integers(SHORTEST, max_tokens + 1))
    tokens = [filler[rank] for rank in generator.choice(NUM_FILLER, size=length, p=frequency)]
    rationale = [False] * length
    if phrases := PHRASES.get(CLASS_NAMES[label]):
        phrase = phrases[generator.integers(len(phrases))].split()
        start = int(generator.integers(length - len(phrase) + 1))
        tokens[start : start + len(phrase)] = phrase
        rationale[start : start + len(phrase)] = [True] * len(phrase)
    return Post(tuple(tokens), label, tuple(rationale))

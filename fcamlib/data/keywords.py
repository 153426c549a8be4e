"""`keywords`: harmless generated posts whose class is decided by one phrase among filler words.

A post is a sequence of made-up filler words of varying length; words follow Zipf's law, as in natural language. It
contains one phrase of its class, of one to three words, which is the rationale; posts of the last class, "neither",
contain none. Words of a phrase occur only in phrases of one class, so a single word can decide.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from fcamlib.data import SPLITS
from fcamlib.data.posts import Corpus, Post

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

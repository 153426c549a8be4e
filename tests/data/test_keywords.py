"""Generated posts: one phrase decides the class, and the rationale lies on it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fcamlib.data.keywords import CLASS_NAMES, NUM_FILLER, PHRASES, SHORTEST, filler_words, keyword_corpus
from fcamlib.data.posts import Corpus

SIZES = {"train": 600, "validation": 40, "test": 300}
LONGEST = 16


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return keyword_corpus(SIZES, LONGEST, seed=0)


def test_the_rationale_is_one_phrase_of_the_class(corpus: Corpus) -> None:
    filler = set(filler_words())
    for split, size in SIZES.items():
        assert len(corpus.splits[split]) == size
        for post in corpus.splits[split]:
            assert len(post.rationale) == len(post.tokens)
            marked = np.flatnonzero(post.rationale)
            rest = [word for word, mark in zip(post.tokens, post.rationale, strict=True) if not mark]
            assert set(rest) <= filler
            name = CLASS_NAMES[post.label]
            if name == "neither":
                assert marked.size == 0
            else:
                phrase = " ".join(post.tokens[place] for place in marked)
                assert phrase in PHRASES[name]
                assert marked.tolist() == list(range(marked[0], marked[0] + marked.size))


def test_a_single_word_decides() -> None:
    words = {name: {word for phrase in phrases for word in phrase.split()} for name, phrases in PHRASES.items()}
    assert not words["weather"] & words["music"]
    assert not (words["weather"] | words["music"]) & set(filler_words())
    assert len(set(filler_words())) == NUM_FILLER


def test_lengths_places_and_classes_vary(corpus: Corpus) -> None:
    posts = corpus.splits["train"]
    assert {len(post.tokens) for post in posts} == set(range(SHORTEST, LONGEST + 1))
    assert all(count > 150 for count in Counter(post.label for post in posts).values())
    first = [int(np.argmax(post.rationale)) / len(post.tokens) for post in posts if any(post.rationale)]
    assert 0.3 < float(np.mean(first)) < 0.55
    assert min(first) == 0.0


def test_filler_follows_zipfs_law(corpus: Corpus) -> None:
    counts = Counter(word for post in corpus.splits["train"] for word in post.tokens)
    total = sum(counts[word] for word in filler_words())
    wanted = 1 / sum(1 / rank for rank in range(1, NUM_FILLER + 1))
    for rank in (1, 2, 4):
        share = counts[filler_words()[rank - 1]] / total
        assert share == pytest.approx(wanted / rank, rel=0.2)

"""Generated posts: one phrase decides the class, and the rationale lies on it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fcamlib.data.keywords import NUM_FILLER, PHRASES, SHORTEST, filler_words, keyword_corpus

LONGEST = 16


def test_a_post_is_filler_by_zipfs_law_around_one_phrase_of_its_class() -> None:
    sizes = {"train": 600, "validation": 40, "test": 300}
    posts, filler = keyword_corpus(sizes, LONGEST, seed=0).posts, filler_words()
    assert Counter(post.split for post in posts) == sizes and len(set(filler)) == NUM_FILLER
    for post in posts:
        marked = np.flatnonzero(post.rationale)
        assert {word for word, mark in zip(post.tokens, post.rationale, strict=True) if not mark} <= set(filler)
        if post.label == "neither":
            assert marked.size == 0
        else:
            assert " ".join(post.tokens[place] for place in marked) in PHRASES[str(post.label)]
            assert marked.tolist() == list(range(marked[0], marked[0] + marked.size))
    assert {len(post.tokens) for post in posts} == set(range(SHORTEST, LONGEST + 1))
    assert all(count > 250 for count in Counter(post.label for post in posts).values())
    first = [post.rationale.index(1) / len(post.tokens) for post in posts if any(post.rationale)]
    assert 0.3 < np.mean(first) < 0.55 and min(first) == 0
    counts = Counter(word for post in posts for word in post.tokens if word in filler)
    for rank in (1, 2, 4):
        share = counts[filler[rank - 1]] / counts.total()
        assert share == pytest.approx(1 / rank / sum(1 / r for r in range(1, NUM_FILLER + 1)), rel=0.2)


def test_a_single_word_decides() -> None:
    words = {name: {word for phrase in phrases for word in phrase.split()} for name, phrases in PHRASES.items()}
    assert not words["weather"] & words["music"]
    assert not (words["weather"] | words["music"]) & set(filler_words())

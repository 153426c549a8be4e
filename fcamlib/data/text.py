"""Text tasks: segments are words, an instance is a post, and its foreground is its rationale.

Posts come from `fcamlib.data.posts`. The vocabulary holds the words that occur at least `min_count` times in the
training posts; all other words share the number 0 and one vector. With `paper_vocabulary` it is built from all splits,
as in the public scripts, and the title says so. Posts without a rationale have no foreground. A post longer than
`max_tokens` is cut, and so is its rationale. Source: arXiv 2307.13421, experiments on HateXplain.
"""

from __future__ import annotations

import logging

import numpy as np
import torch

from fcamlib.config.tasks import Text
from fcamlib.data import SPLITS
from fcamlib.data.posts import Corpus, hatexplain_corpus, jsonl_corpus, keyword_corpus
from fcamlib.data.sdc import UNKNOWN, Bank, SDCTask, by_split, drawn, frequent_words
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
_DRAW, _NOISE = 100, 200  # make these draws independent of others with the same seed


def text_task(config: Text, seed: int) -> SDCTask:
    """Train, validation and test posts of `config` on one bank of words.

    `seed` draws generated posts, subsets of a source, and label noise.
    """
    (posts, names, title), words = _prepared(config, seed)
    split = np.array([post.split for post in posts])
    label = np.array([names.index(str(post.label)) for post in posts])
    if config.label_noise:  # a share of the training labels becomes one of the other classes, uniformly
        generator, train = np.random.default_rng([seed, _NOISE]), np.flatnonzero(split == "train")
        chosen = train[generator.permutation(len(train))[: round(config.label_noise * len(train))]]
        label[chosen] = (label[chosen] + generator.integers(1, len(names), size=len(chosen))) % len(names)
    owner = np.repeat(np.arange(len(posts)), [len(post.tokens) for post in posts])
    rows = np.array([words.get(token, UNKNOWN) for post in posts for token in post.tokens])
    marks = np.array([mark for post in posts for mark in post.rationale or [0] * len(post.tokens)], dtype=bool)
    notes = {
        "vocabulary of all splits": config.paper_vocabulary,
        "first annotator's labels": config.label == "first" and config.kind == "hatexplain",
        f"{100 * config.label_noise:g}% of training labels changed": config.label_noise,
    }
    if said := ", ".join(note for note, holds in notes.items() if holds):
        title = f"{title} ({said})"
    bank = Bank(torch.arange(len(words) + 1), words=True)  # row i is word number i; row 0 represents unknown words
    return SDCTask(by_split(bank, owner, marks, label, split, rows), names, title)


def text_words(config: Text, seed: int) -> tuple[str, ...]:
    """The words of the bank of `text_task(config, seed)` by number; number 0 represents unknown words."""
    return ("(unknown)", *_prepared(config, seed)[1])


def _prepared(config: Text, seed: int) -> tuple[Corpus, dict[str, int]]:
    """The requested posts, and the vocabulary: words in alphabetical order, numbered from 1."""
    sizes, posts = {split: getattr(config, f"num_{split}") for split in SPLITS}, []
    if config.kind == "hatexplain":
        corpus = hatexplain_corpus(config.source, config.label, config.rationale)
    elif config.kind == "text":
        corpus = jsonl_corpus(config.source)
    elif none := [split for split, size in sizes.items() if not size]:
        raise DataError(f"num_{none[0]}=0 is not allowed with dataset='keywords': give how many posts to generate.")
    else:
        corpus = keyword_corpus(sizes, config.max_tokens, seed)
    for number, (split, size) in enumerate(sizes.items()):
        what = f"{split} posts of dataset='{config.source}'"
        part = drawn([post for post in corpus.posts if post.split == split], size, [seed, _DRAW + number], what)
        if num_longer := sum(len(post.tokens) > config.max_tokens for post in part):
            log.warning("%d %s posts are longer than max_tokens=%d and are cut.", num_longer, split, config.max_tokens)
        kept = slice(config.max_tokens)
        posts += [p.model_copy(update={"tokens": p.tokens[kept], "rationale": p.rationale[kept]}) for p in part]
    known = (post.tokens for post in posts if config.paper_vocabulary or post.split == "train")
    words = sorted(frequent_words(known, config))
    return corpus._replace(posts=posts), {word: place for place, word in enumerate(words, start=UNKNOWN + 1)}

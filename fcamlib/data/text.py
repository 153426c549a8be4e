"""Text tasks: segments are words, an instance is a post, its foreground the words of its rationale.

| source                          | posts                      | read by                   |
|---------------------------------|----------------------------|---------------------------|
| `hatexplain`, `hatexplain:PATH` | HateXplain, official files | `fcamlib.data.hatexplain` |
| `keywords`                      | generated, harmless        | `fcamlib.data.keywords`   |
| `text:PATH`                     | a user's JSON lines        | `fcamlib.data.posts`      |

The vocabulary holds the words of the training posts that occur `min_count` times; every other word has the number 0,
one vector for all. With `paper_vocabulary` the words of all splits are in it, as in the public scripts, and the title
says so. Posts without a rationale have no foreground. A post longer than `max_tokens` is cut, and so is its rationale.
Source: arXiv 2307.13421, experiments on HateXplain.
"""

from __future__ import annotations

import logging
from collections import Counter
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Int64

from fcamlib.config.tasks import Text
from fcamlib.data import SPLITS
from fcamlib.data.hatexplain import hatexplain_corpus
from fcamlib.data.keywords import keyword_corpus
from fcamlib.data.posts import Corpus, jsonl_corpus
from fcamlib.data.sdc import Bank, SDCTask, by_split, drawn
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
UNKNOWN = 0  # number of every word outside the vocabulary
_DRAW, _NOISE = 100, 200  # keep these draws apart from others of the same seed


def text_task(config: Text, seed: int) -> SDCTask:
    """Train, validation and test posts of `config` on one bank of words.

    `seed` draws generated posts, parts of a source where fewer than all are asked for, and label noise. Raises
    `DataError` in one sentence where the source is missing or damaged, or holds fewer posts than are asked for.
    """
    (posts, names, title), words = _prepared(config, seed)
    split, index = np.array([post.split for post in posts]), {name: place for place, name in enumerate(names)}
    label = np.array([index[str(post.label)] for post in posts])
    if config.label_noise:
        label = _noisy(label, split == "train", len(names), config.label_noise, seed)
    owner = np.repeat(np.arange(len(posts)), [len(post.tokens) for post in posts])
    rows = np.array([words.get(token, UNKNOWN) for post in posts for token in post.tokens])
    marks = np.array([mark for post in posts for mark in post.rationale or [0] * len(post.tokens)], dtype=bool)
    notes = {
        "vocabulary of all splits": config.paper_vocabulary,
        "first annotator's labels": config.label == "first" and config.kind == "hatexplain",
        f"{config.label_noise:.0%} of training labels changed": config.label_noise,
    }
    if said := ", ".join(note for note, holds in notes.items() if holds):
        title = f"{title} ({said})"
    bank = Bank(torch.arange(len(words) + 1), words=True)  # row i is word number i, row 0 stands for unknown words
    return SDCTask(by_split(bank, rows, owner, marks, label, split), names, title)


def text_words(config: Text, seed: int) -> tuple[str, ...]:
    """The words of the bank of `text_task(config, seed)` by number; number 0 is every unknown word."""
    return ("(unknown)", *_prepared(config, seed)[1])


def _prepared(config: Text, seed: int) -> tuple[Corpus, dict[str, int]]:
    """The posts that are asked for, and the vocabulary: words in alphabetical order, numbered from 1."""
    corpus, posts = _corpus(config, seed), []
    for number, split in enumerate(SPLITS):
        what, size = f"{split} posts of dataset='{config.source}'", getattr(config, f"num_{split}")
        part = drawn([post for post in corpus.posts if post.split == split], size, [seed, _DRAW + number], what)
        if num_longer := sum(len(post.tokens) > config.max_tokens for post in part):
            log.warning("%d %s posts are longer than max_tokens=%d and are cut.", num_longer, split, config.max_tokens)
        kept = slice(config.max_tokens)
        posts += [p.model_copy(update={"tokens": p.tokens[kept], "rationale": p.rationale[kept]}) for p in part]
    known = [post.tokens for post in posts if config.paper_vocabulary or post.split == "train"]
    counts = Counter(chain.from_iterable(known))
    words = sorted(word for word, count in counts.items() if count >= config.min_count)
    if not words:
        fault = f"min_count={config.min_count:,} leaves no word of dataset='{config.source}'"
        raise DataError(f"{fault}: no word of the training posts occurs so often, give a smaller number.")
    return corpus._replace(posts=posts), {word: place for place, word in enumerate(words, start=UNKNOWN + 1)}


def _corpus(config: Text, seed: int) -> Corpus:
    if config.kind == "hatexplain":
        return hatexplain_corpus(config.source, config.label, config.rationale)
    if config.kind == "text":
        return jsonl_corpus(config.source)
    sizes = {split: getattr(config, f"num_{split}") for split in SPLITS}
    if none := [split for split, size in sizes.items() if not size]:
        raise DataError(f"num_{none[0]}=0 is not allowed with dataset='keywords': say how many posts to generate.")
    return keyword_corpus(sizes, config.max_tokens, seed)


def _noisy(
    label: Int64[np.ndarray, " n"], is_train: Bool[np.ndarray, " n"], num_classes: int, share: float, seed: int
) -> Int64[np.ndarray, " n"]:
    """The labels with a `share` of the training posts' changed, uniform over the other classes."""
    generator, train = np.random.default_rng([seed, _NOISE]), np.flatnonzero(is_train)
    chosen = train[generator.permutation(len(train))[: round(share * len(train))]]
    changed = label.copy()
    changed[chosen] = (label[chosen] + generator.integers(1, num_classes, size=len(chosen))) % num_classes
    return changed

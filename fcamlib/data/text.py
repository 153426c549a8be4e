"""Text tasks: segments are words, an instance is a post, its foreground the words of its rationale.

| source                         | posts                                         | module                     |
|--------------------------------|-----------------------------------------------|----------------------------|
| `hatexplain`, `hatexplain:PATH` | HateXplain, official files                   | `fcamlib.data.hatexplain`  |
| `text:PATH`                    | a user's, one JSON object a line              | `fcamlib.data.jsonl`       |
| `keywords`                     | generated, harmless                           | `fcamlib.data.keywords`    |

The vocabulary holds the words of the training posts; every other word has the number 0, one vector for all. With
`paper_vocabulary` the words of all splits are in it, as in the public scripts, and the title says so. Posts without
a word are left out with a count in the log; posts without a rationale have no foreground. A post that is longer than
`max_tokens` is cut, and so is its rationale. Source: arXiv 2307.13421, experiments on HateXplain.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import torch

from fcamlib.config import TextConfig
from fcamlib.data.hatexplain import hatexplain_corpus
from fcamlib.data.jsonl import jsonl_corpus
from fcamlib.data.keywords import keyword_corpus
from fcamlib.data.posts import Corpus, Post
from fcamlib.data.sdc import SPLITS, Bank, SDCData, SDCTask
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
UNKNOWN = 0  # number of every word outside the vocabulary
_DRAW, _NOISE = 100, 200  # keep these draws apart from others of the same seed


def text_task(config: TextConfig, seed: int) -> SDCTask:
    """Train, validation and test posts of `config` on one bank of words.

    Parameters
    ----------
    config : TextConfig
    seed : int
        Draws generated posts, parts of a source where fewer than all are asked for, and label noise.

    Raises
    ------
    DataError
        In one sentence where the source is missing or damaged, or holds fewer posts than are asked for.
    """
    splits, words, corpus = _prepared(config, seed)
    splits["train"] = _noisy(splits["train"], len(corpus.class_names), config.label_noise, seed)
    bank = word_bank(words)
    data = {split: as_segments(splits[split], words, bank) for split in SPLITS}
    return SDCTask(data, corpus.class_names, _title(corpus, config))


def text_words(config: TextConfig, seed: int) -> tuple[str, ...]:
    """The words of the bank of `text_task(config, seed)` by number; number 0 is every unknown word."""
    _, words, _ = _prepared(config, seed)
    return ("(unknown)", *words)


def _prepared(config: TextConfig, seed: int) -> tuple[dict[str, list[Post]], dict[str, int], Corpus]:
    """The posts of each split, the vocabulary, and the corpus that they come from."""
    corpus = _corpus(config, seed)
    sizes = _sizes(config)
    splits = {}
    for number, split in enumerate(SPLITS):
        generator = np.random.default_rng([seed, _DRAW + number])
        posts = _drawn(corpus.splits[split], sizes[split], generator, f"{split} posts of dataset='{config.source}'")
        splits[split] = _cut(posts, config.max_tokens, split)
    known = chain.from_iterable(splits.values()) if config.paper_vocabulary else splits["train"]
    return splits, vocabulary(known, config.min_count), corpus


def vocabulary(posts: Iterable[Post], min_count: int = 1) -> dict[str, int]:
    """Words that occur at least `min_count` times, in alphabetical order, numbered from 1; 0 is every other word."""
    counts = Counter(token for post in posts for token in post.tokens)
    words = sorted(word for word, count in counts.items() if count >= min_count)
    return {word: number for number, word in enumerate(words, start=UNKNOWN + 1)}


def word_bank(words: Mapping[str, int]) -> Bank:
    """The bank of a vocabulary: row i is word number i, row 0 stands for unknown words."""
    return Bank(torch.arange(len(words) + 1), words=True)


def as_segments(posts: Sequence[Post], words: Mapping[str, int], bank: Bank) -> SDCData:
    """Posts as instances, padded to the longest one; a post without a known rationale has no foreground."""
    longest = max(len(post.tokens) for post in posts)
    shape = (len(posts), longest)
    segments = np.full(shape, UNKNOWN, dtype=np.int32)
    mask, foreground = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for row, post in enumerate(posts):
        length = len(post.tokens)
        segments[row, :length] = [words.get(token, UNKNOWN) for token in post.tokens]
        mask[row, :length] = True
        foreground[row, : len(post.rationale)] = post.rationale
    label = torch.tensor([post.label for post in posts])
    return SDCData(bank, torch.from_numpy(segments), label, torch.from_numpy(foreground), torch.from_numpy(mask))


def _corpus(config: TextConfig, seed: int) -> Corpus:
    kind = config.source.split(":", 1)[0]
    if kind == "hatexplain":
        return hatexplain_corpus(config.source, config.label, config.rationale)
    if kind == "text":
        return jsonl_corpus(config.source)
    if config.source != "keywords":
        raise DataError(f"dataset='{config.source}' is unknown: choose hatexplain, text:PATH or keywords.")
    sizes = _sizes(config)
    for split, size in sizes.items():
        if not size:
            raise DataError(f"num_{split}=0 is not allowed with dataset='keywords': say how many posts to generate.")
    return keyword_corpus(sizes, config.max_tokens, seed)


def _sizes(config: TextConfig) -> dict[str, int]:
    return {"train": config.num_train, "validation": config.num_validation, "test": config.num_test}


def _drawn(posts: Sequence[Post], number: int, generator: np.random.Generator, what: str) -> list[Post]:
    """All posts for 0, else that many, drawn without replacement and in their own order."""
    if number > len(posts):
        raise DataError(f"{number:,} {what} are asked for, and there are {len(posts):,}: ask for at most those.")
    if number in (0, len(posts)):
        return list(posts)
    return [posts[i] for i in sorted(generator.permutation(len(posts))[:number])]


def _cut(posts: list[Post], max_tokens: int, split: str) -> list[Post]:
    """The first `max_tokens` words of each post, with their part of the rationale."""
    num_longer = sum(len(post.tokens) > max_tokens for post in posts)
    if num_longer:
        log.warning("%d %s posts are longer than max_tokens=%d and are cut.", num_longer, split, max_tokens)
    return [replace(p, tokens=p.tokens[:max_tokens], rationale=p.rationale[:max_tokens]) for p in posts]


def _noisy(posts: list[Post], num_classes: int, share: float, seed: int) -> list[Post]:
    """Give a `share` of the posts another label, uniform over the others."""
    if not share:
        return posts
    generator = np.random.default_rng([seed, _NOISE])
    chosen = generator.permutation(len(posts))[: round(share * len(posts))]
    shift = dict(zip(chosen.tolist(), generator.integers(1, num_classes, size=len(chosen)).tolist(), strict=True))
    return [replace(post, label=(post.label + shift.get(i, 0)) % num_classes) for i, post in enumerate(posts)]


def _title(corpus: Corpus, config: TextConfig) -> str:
    notes = []
    if config.paper_vocabulary:
        notes.append("vocabulary of all splits")
    if config.label == "first" and config.source.startswith("hatexplain"):
        notes.append("first annotator's labels")
    if config.label_noise:
        notes.append(f"{config.label_noise:.0%} of training labels changed")
    return corpus.title + (f" ({', '.join(notes)})" if notes else "")

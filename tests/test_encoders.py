"""Encoders: against loops written in numpy; padding and duplicates change nothing; order matters where it should."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import Tensor
from torch.testing import assert_close

from fcamlib.config import Text
from fcamlib.data.sdc import Bank, SDCData, SDCTask, distinct
from fcamlib.fcam import FCAM
from fcamlib.networks import (
    EMBEDDING_DIM,
    NUM_HEADS,
    Transformer,
    build_encoder,
    classification_network,
    focus_network,
    positions,
)
from fcamlib.paradigms import PAPER

NUM_WORDS, K = 23, 3
POSTS = ([5, 2, 9, 2], [7], [1, 4, 6, 8, 3, 5, 20])  # word 2 twice in a post, word 5 in two
Y = torch.tensor([2, 0, 1])


def task(posts: tuple[list[int], ...] = POSTS, extra: int = 0, filler: int = 0, label: Tensor = Y) -> SDCTask:
    """Posts padded to their longest plus `extra` places, with `filler` as the word of the padding."""
    longest = max(map(len, posts)) + extra
    segments = torch.full((len(posts), longest), filler, dtype=torch.int32)
    mask = torch.zeros(len(posts), longest, dtype=torch.bool)
    for row, post in enumerate(posts):
        segments[row, : len(post)] = torch.tensor(post, dtype=torch.int32)
        mask[row, : len(post)] = True
    foreground = torch.zeros_like(mask)
    foreground[:, 0] = True
    data = SDCData(Bank(torch.arange(NUM_WORDS), words=True), segments, label, foreground, mask)
    return SDCTask({"train": data}, tuple("abc"), "toy")


def model(encoder: str) -> FCAM:
    generator = torch.Generator().manual_seed(0)
    built, shape = build_encoder(encoder, task(), generator, torch.float64)
    focus = focus_network("text50", shape, generator, torch.float64)
    return FCAM(focus, classification_network("text200", shape, K, generator, torch.float64), built)


def numbers(fcam: FCAM, data: SDCData, paradigm: str) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Losses (B,), log probabilities (B, K) and the gradients of the mean loss."""
    rows, index = distinct(data.segments)
    segments = data.bank.rows(rows, torch.float32)
    output = fcam(segments, index, paradigm, data.mask)
    fcam.zero_grad()
    output.loss(paradigm, data.label).backward()
    gradients = [p.grad.clone() for p in fcam.parameters() if p.grad is not None]
    return output.loss(paradigm, data.label, "none").detach(), output.log_prob(paradigm).detach(), gradients


@pytest.mark.parametrize("paradigm", PAPER)
@pytest.mark.parametrize("encoder", Text.encoders)
def test_padding_changes_no_number(encoder: str, paradigm: str) -> None:
    fcam = model(encoder)
    wanted = numbers(fcam, task().splits["train"], paradigm)
    for changed in (task(extra=4), task(filler=11), task(extra=9, filler=5), task(extra=3)):
        data = changed.splits["train"]
        for got in (numbers(fcam, data, paradigm), numbers(fcam, data.trimmed(), paradigm)):
            for a, b in zip((*got[:2], *got[2]), (*wanted[:2], *wanted[2]), strict=True):
                assert_close(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("paradigm", PAPER)
def test_word_order_matters_to_the_transformer_alone(paradigm: str) -> None:
    one, other = task(([5, 2, 9, 1],), label=Y[:1]).splits["train"], task(([9, 1, 2, 5],), label=Y[:1]).splits["train"]
    simple, transformer = model("embedding"), model("transformer")
    assert_close(numbers(simple, one, paradigm)[1], numbers(simple, other, paradigm)[1], rtol=1e-12, atol=0)
    gap = (numbers(transformer, one, paradigm)[1] - numbers(transformer, other, paradigm)[1]).abs().max()
    assert gap > 1e-3


def test_positions_are_sinusoids_of_the_place() -> None:
    wanted = [[0, 1, 0, 1], [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)]]
    wanted.append([np.sin(2), np.cos(2), np.sin(0.02), np.cos(0.02)])
    assert_close(positions(3, 4), torch.tensor(wanted, dtype=torch.float64))


def test_transformer_equals_loops_over_heads_and_words() -> None:
    encoder = model("transformer").encoder
    assert isinstance(encoder, Transformer)
    data = task(extra=2, filler=3).splits["train"]
    got = encoder(data.bank.values[data.segments.long()], data.mask).detach().numpy()
    state = {name: value.numpy() for name, value in encoder.state_dict().items()}
    size = EMBEDDING_DIM // NUM_HEADS
    assert size == 50
    for row, post in enumerate(POSTS):
        h = state["embedding.words.weight"][post] + positions(len(post), EMBEDDING_DIM).numpy()
        projected = h @ state["attention.in_proj_weight"].T + state["attention.in_proj_bias"]
        query, key, value = np.split(projected, 3, axis=1)
        heads = []
        for head in range(NUM_HEADS):
            part = slice(head * size, (head + 1) * size)
            weight = softmax(query[:, part] @ key[:, part].T / np.sqrt(size), axis=1)
            heads.append(weight @ value[:, part])
        mixed = np.concatenate(heads, axis=1) @ state["attention.out_proj.weight"].T
        wanted = h + mixed + state["attention.out_proj.bias"]
        np.testing.assert_allclose(got[row, : len(post)], wanted, rtol=1e-10, atol=1e-12)

"""A small captioning task and its runs, for the tests of this folder."""

from typing import Any

import numpy as np
import torch

from fcamlib.captioning.model import Captioner
from fcamlib.captioning.training import new_model
from fcamlib.config import CaptionGrid, CaptionRun
from fcamlib.data.captions import CaptionData, CaptionTask, ObjectBoxes
from fcamlib.data.sdc import Bank

WORDS = ("<pad>", "<start>", "<end>", "<unk>", "a", "dark", "light", "dot", "bar", "spot")
CATEGORIES = ("dot", "bar")
SIZES = {"train": 20, "validation": 5, "test": 9}
SMALL = {
    "epochs": 4, "switch_epoch": 2, "batch_size": 7, "precision": "float64", "device": "cpu", "region_dim": 8,
    "attention_dim": 4, "embedding_dim": 4, "hidden_dim": 6, "encoder_learning_rate": 0.01,
    "decoder_learning_rate": 0.01,
}  # fmt: skip


def split(number: int, seed: int) -> CaptionData:
    """Pictures of 16 x 16 pixels with an object in one of their four cells, each with two captions of two lengths."""
    draws = np.random.default_rng(seed)
    cell, category, shade = (draws.integers(high, size=number) for high in (4, 2, 2))
    pixels = np.full((number, 16, 16, 3), 90, dtype=np.uint8)
    captions, boxes = [], []
    for row in range(number):
        y, x = divmod(int(cell[row]), 2)
        part = pixels[row, 8 * y : 8 * y + 8, 8 * x : 8 * x + 8]
        part[:, :, category[row]] = 255 * shade[row]
        noun = CATEGORIES[category[row]]
        captions.append((("a", ("dark", "light")[shade[row]], noun), (noun,)))
        boxes.append(ObjectBoxes((int(category[row]),), torch.tensor([[x / 2, y / 2, x / 2 + 0.5, y / 2 + 0.5]])))
    flat = [(row, words) for row, own in enumerate(captions) for words in own]
    tokens = torch.zeros(len(flat), 5, dtype=torch.long)
    for place, (_, words) in enumerate(flat):
        numbers = [1, *(WORDS.index(word) for word in words), 2]
        tokens[place, : len(numbers)] = torch.tensor(numbers)
    picture = torch.tensor([row for row, _ in flat])
    bank = Bank(torch.from_numpy(pixels), 1 / 127.5, -1.0, pictures=True)
    return CaptionData(bank, picture, tokens, tuple(captions), tuple(boxes), torch.arange(number))


def small_task(seed: int = 0) -> CaptionTask:
    splits = {name: split(number, seed + place) for place, (name, number) in enumerate(SIZES.items())}
    naming = torch.tensor([-1] * 7 + [0, 1, 0])  # a spot is a dot
    return CaptionTask(splits, WORDS, CATEGORIES, naming, "scenes")


def config(paradigm: str = "hybrid", **changes: Any) -> CaptionRun:
    (found,) = CaptionGrid.of({**SMALL, "paradigms": paradigm, **changes}).configs()
    return found


def model_of(run_config: CaptionRun, task: CaptionTask) -> Captioner:
    return new_model(run_config, task)

"""Generated and embedded data keep every bit: recorded results hold for these draws and no others."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch

from fcamlib.config import Bags, Mosaics, Orthogonal, Scenes, Series, Text
from fcamlib.data.bags import bags_task
from fcamlib.data.captions import caption_task
from fcamlib.data.mosaics import mosaic_task
from fcamlib.data.orthogonal import orthogonal_task
from fcamlib.data.sdc import SPLITS
from fcamlib.data.series import series_task
from fcamlib.data.text import text_task

SIZES: dict[str, Any] = {"num_train": 40, "num_validation": 7, "num_test": 11}
DIGITS: dict[str, Any] = {"source": "digits", "foreground": ("3", "7", "1"), "image_size": 8, "num_segments": 5} | SIZES
KEYWORDS: dict[str, Any] = {"source": "keywords", "max_tokens": 12} | SIZES
MOTIFS: dict[str, Any] = {"window_length": 24, "num_channels": 2, "noise": 0.6, "distractors": 0.5} | SIZES
PAPER, NOISE = {"paper_split": True, "background": ("0", "8")}, {"label_noise": 0.2, "min_count": 2}
CLOUDS: dict[str, Any] = {"num_segments": 9, "num_features": 7, "num_classes": 3} | SIZES
DRAWS: list[tuple[Any, Any, str]] = [
    (mosaic_task, Mosaics(**DIGITS), "4059ae09a18cce09"),
    (mosaic_task, Mosaics(**PAPER, **DIGITS), "2ee0d21ad48e0a20"),
    (text_task, Text(**KEYWORDS), "aa41d9fe2090a50a"),
    (text_task, Text(paper_vocabulary=True, **NOISE, **KEYWORDS), "25e56c8e469db886"),
    (series_task, Series(source="motifs", num_segments=5, num_classes=3, **MOTIFS), "d0beb35854671b90"),
    (bags_task, Bags(source="clouds", **CLOUDS), "07bf8d0b598394ab"),
    (orthogonal_task, Orthogonal(num_backgrounds=13, **SIZES), "d15a5e9f29dce669"),
    (orthogonal_task, Orthogonal(num_backgrounds=0, num_classes=7, **SIZES), "86a280182b1e6c56"),
    (caption_task, Scenes(**SIZES), "5462e31efaf2183a"),
]


def told(task: Any) -> bytes:
    """Everything that a task holds, as bytes."""
    if hasattr(task, "vocabulary"):
        parts = [repr(task.vocabulary), task.word_category]
        for split in SPLITS:
            data = task.splits[split]
            boxes = [(objects.category, objects.box.tolist()) for objects in data.objects]
            parts += [data.pictures.values, data.picture, data.tokens, data.references, boxes, data.image_ids]
    else:
        parts = [task.bank.values, task.bank.scale, task.bank.shift]
        for split in SPLITS:
            parts += [getattr(task.splits[split], name) for name in ("segments", "label", "foreground", "mask")]
    parts += [task.class_names if hasattr(task, "class_names") else task.categories, task.title]
    return b"".join(
        f"{part.dtype}{tuple(part.shape)}".encode() + part.contiguous().numpy().tobytes()
        if isinstance(part, torch.Tensor)
        else repr(part).encode()
        for part in parts
    )


@pytest.mark.parametrize(("load", "config", "digest"), DRAWS)
def test_a_seed_draws_the_same_bits_for_ever_and_another_seed_others(load: Any, config: Any, digest: str) -> None:
    np.random.seed(1)
    before = np.random.get_state(legacy=False)["state"]["key"].copy()
    drawn = told(load(config, 3))
    assert hashlib.sha256(drawn).hexdigest()[:16] == digest
    assert drawn != told(load(config, 4))
    np.testing.assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], before)  # no global generator

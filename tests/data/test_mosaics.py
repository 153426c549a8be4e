"""Mosaics: composed as stated, of disjoint pictures, and cheaply."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from fcamlib.config import Mosaics
from fcamlib.data import mosaics
from fcamlib.data.mosaics import mosaic_task
from fcamlib.data.pictures import Pictures, load_pictures
from fcamlib.data.sdc import SPLITS, SDCData, SDCTask

P_VALUE = 0.001  # fixed seeds: a correct draw passes every time


def config(source: str = "digits", **changes: object) -> Mosaics:
    sizes = {"num_segments": 4, "num_train": 1200, "num_validation": 300, "num_test": 500, "image_size": 8}
    return Mosaics(source=source, **{"foreground": ("3", "7", "1"), **sizes, **changes})


@pytest.fixture(scope="module")
def task() -> SDCTask:
    return mosaic_task(config(), seed=0)


def foreground_pictures(data: SDCData) -> torch.Tensor:
    assert bool((data.foreground.sum(dim=1) == 1).all())
    return data.segments[data.foreground].long()


def used(data: SDCData) -> set[int]:
    return set(data.segments.flatten().tolist())


def test_label_is_the_class_of_the_foreground_picture_and_of_no_other(task: SDCTask) -> None:
    label = load_pictures("digits", 8).label
    for split, size in zip(SPLITS, (1200, 300, 500), strict=True):
        data = task.splits[split]
        assert data.segments.shape == (size, 4) and data.mask is None
        of_label = np.array([3, 7, 1])[data.label.numpy()]
        np.testing.assert_array_equal(label[foreground_pictures(data).numpy()], of_label)
        background = label[data.segments[~data.foreground].long().numpy()]
        assert set(background.tolist()) == {0, 2, 4, 5, 6, 8, 9}
    assert task.class_names == ("3", "7", "1")
    for data in mosaic_task(config(background=("0", "8")), seed=0).splits.values():
        assert set(label[data.segments[~data.foreground].long().numpy()].tolist()) == {0, 8}


def test_draws_are_uniform_and_independent(task: SDCTask) -> None:
    data = mosaic_task(config(num_train=20_000), seed=5).splits["train"]
    place = data.foreground.float().argmax(dim=1)
    joint = torch.bincount(data.label * 4 + place, minlength=12)
    assert chisquare(joint.numpy()).pvalue > P_VALUE
    pictures = load_pictures("digits", 8)
    pool = pictures.pools()["train"]
    for number, digit in enumerate((3, 7, 1)):
        members = np.flatnonzero(pool & (pictures.label == digit))
        counts = np.bincount(foreground_pictures(data)[data.label == number].numpy(), minlength=len(pool))[members]
        assert chisquare(counts).pvalue > P_VALUE
    others = np.flatnonzero(pool & np.isin(pictures.label, [0, 2, 4, 5, 6, 8, 9]))
    background = data.segments[~data.foreground].long().numpy()
    assert chisquare(np.bincount(background, minlength=len(pool))[others]).pvalue > P_VALUE


def test_a_tenth_of_each_class_is_held_out_alike_for_every_seed() -> None:
    pictures = load_pictures("digits", 8)
    pools = pictures.pools()
    assert len(pictures.label) == 1797 and pictures.num_train == 1257
    np.testing.assert_array_equal(sum(pool.astype(int) for pool in pools.values()), 1)  # disjoint
    for digit in range(10):
        sizes = {split: int((pools[split] & (pictures.label == digit)).sum()) for split in SPLITS}
        held_out = round(0.1 * (sizes["train"] + sizes["validation"]))
        assert sizes["validation"] == held_out
        assert sizes["test"] == pytest.approx(0.3 * sum(sizes.values()), abs=1)
    for split, data in [pair for seed in (0, 1) for pair in mosaic_task(config(), seed).splits.items()]:
        assert used(data) <= set(np.flatnonzero(pools[split]))


def test_paper_split_tests_on_training_pictures_and_says_so(task: SDCTask) -> None:
    paper = mosaic_task(config(paper_split=True), seed=0)
    assert used(paper.splits["test"]) & used(paper.splits["train"])
    assert max(used(paper.splits["test"])) < load_pictures("digits", 8).num_train
    assert not used(paper.splits["test"]) & used(paper.splits["validation"])
    assert (task.title, paper.title) == ("digits", "digits (test mosaics from training pictures)")
    for split in ("train", "validation"):
        assert torch.equal(paper.splits[split].segments, task.splits[split].segments)


def test_sixty_thousand_mosaics_of_twenty_pictures_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.zeros((60_000, 32, 32, 3), dtype=np.uint8)
    pictures = Pictures(values, np.arange(60_000) % 10, 50_000, tuple("abcdefghij"))
    monkeypatch.setattr(mosaics, "load_pictures", lambda source, image_size: pictures)
    sizes = {"num_train": 30_000, "num_validation": 10_000, "num_test": 20_000, "num_segments": 20, "image_size": 32}
    wanted = config("cifar10", foreground=("a", "b", "c"), **sizes)
    began = time.process_time()
    drawn = mosaic_task(wanted, seed=0)
    assert time.process_time() - began < 2
    assert drawn.bank.values.data_ptr() == values.ctypes.data  # the base pictures themselves
    assert sum(data.segments.nbytes + data.foreground.nbytes for data in drawn.splits.values()) == 60_000 * 20 * 5

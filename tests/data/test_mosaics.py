"""Mosaics: composed as stated, of disjoint pictures, cheaply, and with clear sentences where a source is wrong."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import chisquare

from fcamlib.config import MosaicsConfig, source_fingerprint
from fcamlib.data import mosaics
from fcamlib.data.mosaics import mosaic_task
from fcamlib.data.pictures import Pictures, load_pictures, source_title
from fcamlib.data.sdc import SPLITS, SDCData, SDCTask
from fcamlib.errors import DataError

COLOURS = {"ant": (250, 10, 20), "bee": (30, 240, 40), "cow": (50, 60, 230)}
P_VALUE = 0.001  # fixed seeds: a correct draw passes every time


def config(source: str = "digits", **changes: object) -> MosaicsConfig:
    sizes = {"num_segments": 4, "num_train": 1200, "num_validation": 300, "num_test": 500, "image_size": 8}
    return MosaicsConfig(source=source, **{"foreground": ("3", "7", "1"), **sizes, **changes})


@pytest.fixture(scope="module")
def task() -> SDCTask:
    return mosaic_task(config(), seed=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four training and two test pictures of each class, in one colour, 9 x 6 pixels."""
    root = tmp_path / "my pictures"
    for split, number in (("train", 4), ("test", 2)):
        for name, colour in COLOURS.items():
            (root / split / name).mkdir(parents=True)
            for index in range(number):
                Image.new("RGB", (9, 6), colour).save(root / split / name / f"{index}.png")
    return root


def folder_config(folder: Path, **changes: object) -> MosaicsConfig:
    return config(f"folder:{folder}", **{"foreground": ("bee", "ant"), **changes})


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


def test_named_background_classes_are_the_only_ones() -> None:
    label = load_pictures("digits", 8).label
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


def test_splits_are_composed_of_disjoint_pictures(task: SDCTask) -> None:
    train, validation, test = (used(task.splits[split]) for split in SPLITS)
    assert not train & validation and not train & test and not validation & test
    num_train = load_pictures("digits", 8).num_train
    assert max(train | validation) < num_train <= min(test)


def test_a_tenth_of_each_class_is_held_out_alike_for_every_seed() -> None:
    pictures = load_pictures("digits", 8)
    pools = pictures.pools()
    assert len(pictures.label) == 1797 and pictures.num_train == 1257
    np.testing.assert_array_equal(sum(pool.astype(int) for pool in pools.values()), 1)
    for digit in range(10):
        sizes = {split: int((pools[split] & (pictures.label == digit)).sum()) for split in SPLITS}
        held_out = round(0.1 * (sizes["train"] + sizes["validation"]))
        assert sizes["validation"] == held_out
        assert sizes["test"] == pytest.approx(0.3 * sum(sizes.values()), abs=1)
    for seed in (0, 1):
        assert used(mosaic_task(config(), seed).splits["validation"]) <= set(np.flatnonzero(pools["validation"]))


def test_paper_split_tests_on_training_pictures_and_says_so(task: SDCTask) -> None:
    paper = mosaic_task(config(paper_split=True), seed=0)
    assert used(paper.splits["test"]) & used(paper.splits["train"])
    assert max(used(paper.splits["test"])) < load_pictures("digits", 8).num_train
    assert not used(paper.splits["test"]) & used(paper.splits["validation"])
    assert (task.title, paper.title) == ("digits", "digits (test mosaics from training pictures)")
    for split in ("train", "validation"):
        assert torch.equal(paper.splits[split].segments, task.splits[split].segments)


def test_same_seed_same_mosaics(task: SDCTask) -> None:
    np.random.seed(1)
    before = np.random.get_state(legacy=False)["state"]["key"].copy()
    again, other = mosaic_task(config(), seed=0), mosaic_task(config(), seed=1)
    np.testing.assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], before)
    for split in SPLITS:
        for field in ("segments", "label", "foreground"):
            assert torch.equal(getattr(again.splits[split], field), getattr(task.splits[split], field))
            assert not torch.equal(getattr(other.splits[split], field), getattr(task.splits[split], field))


def test_digits_reach_from_minus_one_to_one(task: SDCTask) -> None:
    rows = task.bank.rows(torch.arange(len(task.bank.values)), torch.float64)
    assert rows.shape == (1797, 1, 8, 8)
    assert (rows.min().item(), rows.max().item()) == (-1.0, 1.0)


def test_sixty_thousand_mosaics_of_twenty_pictures_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.zeros((60_000, 32, 32, 3), dtype=np.uint8)
    pictures = Pictures(values, np.arange(60_000) % 10, 50_000, tuple("abcdefghij"))
    monkeypatch.setattr(mosaics, "load_pictures", lambda source, image_size: pictures)
    sizes = {"num_train": 30_000, "num_validation": 10_000, "num_test": 20_000, "num_segments": 20, "image_size": 32}
    wanted = config("cifar10", foreground=("a", "b", "c"), **sizes)
    began = time.process_time()
    drawn = mosaic_task(wanted, seed=0)
    assert time.process_time() - began < 2
    tensors = [getattr(d, name) for d in drawn.splits.values() for name in ("segments", "label", "foreground")]
    tensors += [split.bank.values for split in drawn.splits.values()]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    assert sum(storages.values()) < 250e6
    assert drawn.bank.values.data_ptr() == values.ctypes.data  # the base pictures themselves


def test_folder_is_read_as_it_lies(folder: Path) -> None:
    drawn = mosaic_task(folder_config(folder, image_size=6), seed=0)
    pictures = load_pictures(f"folder:{folder}", 6)
    assert pictures.class_names == ("ant", "bee", "cow") and pictures.num_train == 12
    assert drawn.class_names == ("bee", "ant") and drawn.title == "my pictures"
    for data in drawn.splits.values():
        colour = data.bank.values[foreground_pictures(data), 0, 0]
        wanted = torch.tensor([COLOURS["bee"], COLOURS["ant"]], dtype=torch.uint8)[data.label]
        assert torch.equal(colour, wanted)
        background = data.bank.values[data.segments[~data.foreground].long()]
        assert background.shape[1:] == (6, 6, 3)
        assert torch.equal(background, torch.tensor(COLOURS["cow"], dtype=torch.uint8).expand_as(background))
    train, validation, test = (used(drawn.splits[split]) for split in SPLITS)
    assert len(train) == 9 and len(validation) == 3 and len(test) == 6


def test_grey_cmyk_palette_and_transparent_pictures_become_rgb(folder: Path) -> None:
    ants = folder / "test" / "ant"
    shutil.rmtree(ants)
    ants.mkdir()
    Image.new("L", (8, 8), 77).save(ants / "0.png")
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(ants / "1.tiff")
    Image.new("RGB", (8, 8), (9, 99, 199)).quantize(4).save(ants / "2.png")
    Image.new("RGBA", (8, 8), (1, 2, 3, 255)).save(ants / "3.png")
    Image.new("1", (8, 8), 1).save(ants / "4.png")
    pictures = load_pictures(f"folder:{folder}", 8)
    found = pictures.values[12:17]
    expected = [(77, 77, 77), (255, 0, 0), (9, 99, 199), (1, 2, 3), (255, 255, 255)]
    for picture, colour in zip(found, expected, strict=True):
        np.testing.assert_array_equal(picture, np.broadcast_to(np.array(colour, dtype=np.uint8), (8, 8, 3)))


def test_fingerprint_follows_names_and_sizes_but_not_the_place(folder: Path, tmp_path: Path) -> None:
    first = source_fingerprint(f"folder:{folder}")
    assert first == source_fingerprint(f"folder:{shutil.copytree(folder, tmp_path / 'copy')}")
    picture = folder / "test" / "cow" / "0.png"
    picture.rename(picture.with_name("9.png"))
    renamed = source_fingerprint(f"folder:{folder}")
    picture.with_name("9.png").write_bytes(b"longer" * 100)
    grown = source_fingerprint(f"folder:{folder}")
    assert len({first, renamed, grown}) == 3


def test_titles_of_sources() -> None:
    found = [source_title(s) for s in ("digits", "cifar10", "cifar100", "folder:/a/cifar10-jpeg", "folder:/a/birds")]
    assert found == ["digits", "CIFAR-10", "CIFAR-100", "CIFAR-10 (JPEG copy)", "birds"]


def remove_test(folder: Path) -> None:
    shutil.rmtree(folder / "test")


def add_class(folder: Path) -> None:
    shutil.copytree(folder / "train" / "cow", folder / "train" / "dog")


def spoil_picture(folder: Path) -> None:
    (folder / "train" / "cow" / "2.png").write_text("not a picture")


def keep_one_picture(folder: Path) -> None:
    for index in (1, 2, 3):
        os.remove(folder / "train" / "bee" / f"{index}.png")


def leave_alone(folder: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("damage", "changes", "sentence"),
    [
        (
            remove_test,
            {},
            "dataset='folder:{0}': the folder '{0}' has no test/ in it: "
            "it needs train/<class>/ and test/<class>/ with pictures.",
        ),
        (
            shutil.rmtree,
            {},
            "dataset='folder:{0}': there is no folder '{0}'; give the path of a folder that holds "
            "train/<class>/ and test/<class>/ with pictures, or set FCAM_DATA to the folder around it.",
        ),
        (
            add_class,
            {},
            "dataset='folder:{0}': class 'dog' is in only one of train/ and test/: both need it.",
        ),
        (
            spoil_picture,
            {},
            "the picture '{0}/train/cow/2.png' cannot be read (cannot identify image file): mend or remove it.",
        ),
        (
            keep_one_picture,
            {},
            "class 'bee' has no picture left for train: give at least two training pictures and one test picture.",
        ),
        (
            leave_alone,
            {"foreground": ("bee", "owl")},
            "foreground names 'owl', which is not a class of dataset='folder:{0}': choose from ant, bee, cow.",
        ),
        (
            leave_alone,
            {"background": ("elk",)},
            "background names 'elk', which is not a class of dataset='folder:{0}': choose from ant, bee, cow.",
        ),
        (
            leave_alone,
            {"foreground": ("ant", "bee", "cow")},
            "background is empty: foreground names every class, so leave at least one of them out.",
        ),
    ],
)
def test_faults_are_one_sentence(
    folder: Path, damage: Callable[[Path], None], changes: dict[str, object], sentence: str
) -> None:
    damage(folder)
    with pytest.raises(DataError) as error:
        mosaic_task(folder_config(folder, **changes), seed=0)
    assert str(error.value) == sentence.format(folder)


def test_truncated_and_empty_pictures_are_named(folder: Path) -> None:
    picture = folder / "train" / "ant" / "1.png"
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(picture)
    for content in (picture.read_bytes()[:2000], b""):
        picture.write_bytes(content)
        with pytest.raises(DataError) as error:
            load_pictures(f"folder:{folder}", 8)
        message = str(error.value)
        assert message.startswith(f"the picture '{picture}' cannot be read (") and "\n" not in message
        assert message.endswith("): mend or remove it.") and message.count(str(picture)) == 1


def test_class_without_pictures_is_one_sentence(folder: Path) -> None:
    shutil.rmtree(folder / "test" / "cow")
    (folder / "test" / "cow").mkdir()
    with pytest.raises(DataError) as error:
        load_pictures(f"folder:{folder}", 8)
    message = str(error.value)
    assert message.startswith(f"dataset='folder:{folder}': ") and "cow" in message and "\n" not in message


def test_size_of_a_fixed_source_cannot_be_changed() -> None:
    with pytest.raises(DataError) as error:
        load_pictures("digits", 32)
    assert str(error.value) == (
        "image_size=32 does not fit dataset='digits', whose pictures have 8 pixels a side: leave image_size out."
    )


def test_folder_is_also_found_below_the_data_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FCAM_DATA", str(folder.parent))
    assert load_pictures("folder:my pictures", 8).class_names == ("ant", "bee", "cow")

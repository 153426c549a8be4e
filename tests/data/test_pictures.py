"""Pictures: CIFAR's official files and no others, folders as they lie, each picture as a viewer shows it."""

import hashlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fcamlib.config import Mosaics
from fcamlib.config.parameters import LIVING
from fcamlib.data import files, pictures
from fcamlib.data.files import content_hash
from fcamlib.data.mosaics import mosaic_task
from fcamlib.data.pictures import CIFAR, as_shown, cifar_state, load_pictures
from fcamlib.data.sdc import SDCTask
from fcamlib.errors import DataError

COLOURS = {"ant": (250, 10, 20), "bee": (30, 240, 40), "cow": (50, 60, 230)}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder; nothing is remembered from other tests."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "data"))
    load_pictures.cache_clear()
    return tmp_path / "data"


# --- CIFAR ------------------------------------------------------------------------------------------------------------


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


POSITIONS = np.arange(3072)
LOW, HIGH = (part.astype(np.uint8).tobytes() for part in (POSITIONS % 256, POSITIONS // 256))  # tell every position
CONTENT = {
    "data_batch_1.bin": b"\0" + LOW + b"\1" + LOW[::-1],
    "data_batch_2.bin": b"\2" + HIGH,
    "test_batch.bin": b"\1" + HIGH + b"\0" + LOW,
    "batches.meta.txt": b"airplane\nautomobile\nbird\n\n",
}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CIFAR-10's layout with 2 + 1 training and 2 test records; the archive lies at a file: address."""
    root = tmp_path / "remote"
    (root / "cifar-10-batches-bin").mkdir(parents=True)
    for name, content in (CONTENT | {"readme.html": b"not needed"}).items():
        (root / "cifar-10-batches-bin" / name).write_bytes(content)
    path = Path(shutil.make_archive(str(root / "cifar-10-binary"), "gztar", root, "cifar-10-batches-bin"))
    made: dict[str, Any] = {"url": path.as_uri(), "sha256": sha256(path.read_bytes())}
    sums = {name: (sha256(content.rstrip(b"\n")),) for name, content in CONTENT.items()}
    monkeypatch.setitem(pictures.CIFAR, "cifar10", replace(CIFAR["cifar10"], files=sums, **made))
    return path


def check_values() -> None:
    """Every value stands at its position in the record."""
    load_pictures.cache_clear()
    found = load_pictures("cifar10", 32)
    row, column, channel = np.meshgrid(np.arange(32), np.arange(32), np.arange(3), indexing="ij")
    position = 1024 * channel + 32 * row + column  # (32, 32, 3)
    low, high = position % 256, position // 256
    np.testing.assert_array_equal(found.values, [low, 255 - low, high, high, low])
    assert found.label.tolist() == [0, 1, 2, 1, 0] and found.num_train == 3
    assert found.class_names == ("airplane", "automobile", "bird")


def test_unpacked_files_are_read_without_an_archive(archive: Path, data: Path) -> None:
    archive.unlink()
    assert cifar_state("cifar10") == "absent"
    folder = data / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for ending in (b"\n\n", b"\n", b""):
        for name, content in CONTENT.items():
            (folder / name).write_bytes(content if name.endswith(".bin") else content.rstrip() + ending)
        assert cifar_state("cifar10") == "verified"
        check_values()
    assert {path.name for path in folder.iterdir()} == set(CONTENT)  # nothing is written


def test_the_archive_is_downloaded_once_and_repairs_what_is_damaged(archive: Path, data: Path) -> None:
    with ThreadPoolExecutor() as pool:  # several runs begin at once
        list(pool.map(pictures._cifar, ["cifar10"] * 8))
    check_values()
    folder = data / "cifar-10-batches-bin"
    assert {path.name for path in folder.iterdir()} == set(CONTENT)
    archive.write_bytes(b"other")
    for name, content in CONTENT.items():
        for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:-9], b""):
            (folder / name).write_bytes(damaged)
            assert cifar_state("cifar10") == f"damaged: cifar-10-batches-bin/{name}"
            check_values()
        (folder / name).unlink()
        check_values()
    shutil.rmtree(folder)
    (data / "cifar-10-binary.tar.gz").write_bytes(b"other")
    with pytest.raises(DataError, match=r"tar.gz' is not the official archive \(sha256 [0-9a-f]{64}\): remove it"):
        check_values()
    (data / "cifar-10-binary.tar.gz").unlink()
    with pytest.raises(DataError, match=r"download of file:.* failed \(invalid hash value .*\): run again, or put"):
        check_values()
    assert [path.name for path in data.iterdir() if not path.name.startswith(".")] == []


def test_the_second_byte_of_cifar100_is_the_class(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"a": b"\0\3" + LOW + b"\1\2" + HIGH, "b": b"\0\1" + HIGH, "names.txt": b"a b c d"}
    (data / "cifar-100-binary").mkdir(parents=True)
    for name, part in content.items():
        (data / "cifar-100-binary" / name).write_bytes(part)
    sums = {name: (sha256(part),) for name, part in content.items()}
    monkeypatch.setitem(pictures.CIFAR, "cifar100", replace(CIFAR["cifar100"], files=sums))
    found = load_pictures("cifar100", 32)
    assert found.label.tolist() == [3, 2, 1] and found.num_train == 2
    assert found.values[0, 0, :3].tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]


OTHERS = """
apple bed bicycle bottle bowl bridge bus can castle chair clock cloud couch cup forest house keyboard lamp lawn_mower
maple_tree motorcycle mountain mushroom oak_tree orange orchid palm_tree pear pickup_truck pine_tree plain plate poppy
road rocket rose sea skyscraper streetcar sunflower sweet_pepper table tank telephone television tractor train tulip
wardrobe willow_tree
"""  # names of the archive's fine_label_names.txt, which is sorted, without the foreground
# Class numbers of superclasses 0, 1, 7, 8 and 11 to 16, as counted in the data (discuss.pytorch.org/t/81323).
FOREGROUND_NUMBERS = """
72 4 95 30 55 73 32 67 91 1 14 24 6 7 18 43 97 42 3 88 15 21 19 31 38
75 63 66 64 34 77 26 45 99 79 11 2 35 46 98 29 93 27 78 44 65 50 74 36 80
"""


def test_foreground_classes_agree_with_the_numbers_in_the_data() -> None:
    fine = sorted([*LIVING, *OTHERS.split()])
    assert sha256("\n".join(fine).encode()) in CIFAR["cifar100"].files["fine_label_names.txt"]
    assert set(LIVING) == {fine[int(number)] for number in FOREGROUND_NUMBERS.split()} and len(LIVING) == 50


# --- folders ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(data: Path) -> Path:
    """Four training and two test pictures of each class, in one colour, 9 x 6 pixels."""
    root = data / "my pictures"
    for split, number in (("train", 4), ("test", 2)):
        for name, colour in COLOURS.items():
            (root / split / name).mkdir(parents=True)
            for index in range(number):
                Image.new("RGB", (9, 6), colour).save(root / split / name / f"{index}.png")
    return root


def folder_task(folder: Path, **changes: Any) -> SDCTask:
    sizes = {"num_segments": 4, "num_train": 1200, "num_validation": 300, "num_test": 500, "image_size": 8}
    given: dict[str, Any] = {"source": f"folder:{folder}", "foreground": ("bee", "ant"), **sizes, **changes}
    return mosaic_task(Mosaics(**given), seed=0)


def test_folder_is_read_as_it_lies(folder: Path) -> None:
    drawn = folder_task(folder, image_size=6)
    found = load_pictures("folder:my pictures", 6)
    assert found.class_names == ("ant", "bee", "cow") and found.num_train == 12
    assert drawn.class_names == ("bee", "ant") and drawn.title == "my pictures"
    for data in drawn.splits.values():
        colour = data.bank.values[data.segments[data.foreground].long(), 0, 0]
        assert torch.equal(colour, torch.tensor([COLOURS["bee"], COLOURS["ant"]], dtype=torch.uint8)[data.label])
        background = data.bank.values[data.segments[~data.foreground].long()]
        assert torch.equal(background, torch.tensor(COLOURS["cow"], dtype=torch.uint8).expand_as(background))
    assert [len(set(data.segments.flatten().tolist())) for data in drawn.splits.values()] == [9, 3, 6]
    Image.new("RGB", (9, 6)).save(folder / "train" / "cow" / "2.png")  # of one process, before and after the change
    assert not torch.equal(folder_task(folder, image_size=6, fingerprint="other").bank.values, drawn.bank.values)


def test_names_with_a_dot_are_no_data_and_other_files_are_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    before, hash_before = load_pictures(f"folder:{folder}", 6), content_hash(folder)
    for place in (".ipynb_checkpoints", "ant/.ipynb_checkpoints"):
        shutil.copytree(folder / "train" / "bee", folder / "train" / place)
    shutil.copy(folder / "train" / "bee" / "0.png", folder / "train" / "ant" / "._0.png")
    assert content_hash(folder) == hash_before
    (folder / "train" / "ant" / "x.gif").touch()
    (folder / "train" / "loose.png").touch()
    (folder / "train" / "cow" / "loop").symlink_to(folder / "train")
    load_pictures.cache_clear()
    after = load_pictures(f"folder:{folder}", 6)
    assert after.class_names == before.class_names and np.array_equal(after.values, before.values)
    assert "loose.png' and 1 more files are not pictures of a class and are ignored" in caplog.text
    assert content_hash(folder) != hash_before


UNREADABLE = "the picture '{0}/train/cow/2.png' cannot be read ("


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("rm -r test", "dataset='folder:{0}': the folder '{0}' has no test/: it needs train/<class>/ and test/"),
        ('rm -r "$PWD"', "dataset='folder:{0}': there is no folder '{0}'; give the path of a folder"),
        ("cp -r train/cow train/dog", "dataset='folder:{0}': class 'dog' is in only one of train/ and test/: add"),
        ("echo no picture > train/cow/2.png", UNREADABLE + "it is not a picture): repair or remove it."),
        ("cp ../bomb.bmp train/cow/2.png", UNREADABLE + "Image size (144000000 pixels) exceeds limit"),
        ("rm train/cow/2.png; mkfifo train/cow/2.png", UNREADABLE + "it is not a regular file): repair or remove it."),
        ("rm train/bee/[123].png", "class 'bee' has no pictures left for train: give at least two training pictures"),
        ("rm test/cow/*", "dataset='folder:{0}': class 'cow' has no pictures in test/: add at least one."),
        ("rm -r train/*", "dataset='folder:{0}': '{0}/train' has no classes: put pictures into train/<class>/."),
    ],
)
def test_faults_of_a_folder_are_one_sentence(folder: Path, damage: str, sentence: str) -> None:
    Image.new("RGB", (32, 32)).save(folder.parent / "bomb.bmp")
    with (folder.parent / "bomb.bmp").open("r+b") as header:  # a damaged header says 12,000 x 12,000
        header.seek(18)
        header.write(np.array([12_000, 12_000], "<u4").tobytes())
    subprocess.run(["bash", "-c", damage], cwd=folder, check=True)
    with pytest.raises(DataError) as error:
        folder_task(folder)
    message = str(error.value)
    assert message.startswith(sentence.format(folder)) and message.endswith(".") and "\n" not in message


def test_parameters_that_do_not_fit_are_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for changes, sentence in (
        ({"foreground": ("bee", "owl")}, "foreground names 'owl', which is not a class of dataset='folder:.*': choose"),
        ({"background": ("elk",)}, "background names 'elk', which is not a class of dataset='folder:.*': choose from"),
        ({"foreground": ("ant", "bee", "cow")}, "background is empty because foreground names every class: leave"),
    ):
        with pytest.raises(DataError, match=f"^{sentence}"):
            folder_task(folder, **changes)
    with pytest.raises(DataError, match="image_size=32 does not fit dataset='digits' with pictures of 8 x 8 pixels"):
        load_pictures("digits", 32)
    monkeypatch.setattr(pictures, "as_shown", None)  # nothing is decoded before
    monkeypatch.setattr(files.Path, "read_text", lambda *_: "MemAvailable: 50 kB")
    with pytest.raises(DataError, match=r"pictures of image_size=1024 need 0.1 GB, but only 0.0 GB of memory are free"):
        load_pictures(f"folder:{folder}", 1024)


# --- as a viewer shows it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr", "I;16"])
def test_every_mode_is_read_turned_as_it_is_shown(tmp_path: Path, mode: str) -> None:
    shown, exif = np.zeros((24, 16, 3), dtype=np.uint8), Image.Exif()
    shown[:8, :8], shown[16:, 8:10], exif[274] = 255, 255, 6
    deep = Image.fromarray(shown[..., 0].astype(np.uint16) * 257)
    picture = deep if mode == "I;16" else Image.fromarray(shown).convert(mode)
    path = tmp_path / ("p.png" if mode in ("I;16", "1", "P") else "p.jpg")
    picture.save(path, exif=exif, quality=100)
    found = np.asarray(as_shown(path)).astype(int)
    assert np.abs(found - np.rot90(shown, -1)).max() <= 3


@pytest.mark.parametrize("ending", ["png", "webp", "tif"])
def test_transparent_pixels_lie_on_white(tmp_path: Path, ending: str) -> None:
    picture = Image.new("RGBA", (3, 1), (200, 0, 100, 255))
    picture.putpixel((1, 0), (200, 0, 100, 0))
    picture.putpixel((2, 0), (200, 0, 100, 51))  # a fifth
    picture.save(tmp_path / f"p.{ending}", lossless=True, exact=True)
    found = np.asarray(as_shown(tmp_path / f"p.{ending}")).tolist()[0]
    assert found[:2] == [[200, 0, 100], [255, 255, 255]] and found[2] == pytest.approx([244, 204, 224], abs=1)

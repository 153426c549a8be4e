"""Pictures: CIFAR's official files and no others, folders as they lie, each picture as a viewer shows it."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from fcamlib.config import Mosaics
from fcamlib.config.defaults import LIVING
from fcamlib.data import files, pictures
from fcamlib.data.files import content_hash
from fcamlib.data.mosaics import mosaic_task
from fcamlib.data.pictures import CIFAR, Cifar, as_shown, cifar_state, load_pictures
from fcamlib.data.sdc import SDCTask
from fcamlib.errors import DataError

COLOURS = {"ant": (250, 10, 20), "bee": (30, 240, 40), "cow": (50, 60, 230)}
POSITIONS = np.arange(3072)


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered from other tests; the data folder is an empty one."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "data"))
    load_pictures.cache_clear()


# --- CIFAR ------------------------------------------------------------------------------------------------------------


def record(labels: tuple[int, ...], pixels: np.ndarray) -> bytes:
    return bytes(labels) + pixels.astype(np.uint8).tobytes()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


LOW, HIGH = POSITIONS % 256, POSITIONS // 256  # together they tell every position of a record
CONTENT = {
    "data_batch_1.bin": record((0,), LOW) + record((1,), 255 - LOW),
    "data_batch_2.bin": record((2,), HIGH),
    "test_batch.bin": record((1,), HIGH) + record((0,), LOW),
    "batches.meta.txt": b"airplane\nautomobile\nbird\n\n",
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cifar:
    """CIFAR-10's layout with 2 + 1 training and 2 test records; the archive lies at a file: address."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in (CONTENT | {"readme.html": b"not needed"}).items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    archive = tmp_path / "remote" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    archive.write_bytes(stream.getvalue())
    made = replace(
        CIFAR["cifar10"],
        url=archive.as_uri(),
        size=len(stream.getvalue()),
        sha256=sha256(stream.getvalue()),
        files={name: (sha256(content.rstrip(b"\n")),) for name, content in CONTENT.items()},
    )
    monkeypatch.setitem(pictures.CIFAR, "cifar10", made)
    return made


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


def put(root: Path, content: dict[str, bytes]) -> Path:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("ending", [b"\n\n", b"\n", b""])
def test_unpacked_files_are_read_without_archive_or_manifest(small: Cifar, tmp_path: Path, ending: bytes) -> None:
    Path(small.url.removeprefix("file://")).unlink()
    assert cifar_state("cifar10") == "absent"
    names = {"batches.meta.txt": CONTENT["batches.meta.txt"].rstrip() + ending}
    folder = put(tmp_path / "data", CONTENT | names)
    assert cifar_state("cifar10") == "verified"
    check_values()
    assert {path.name for path in folder.iterdir()} == set(CONTENT)  # nothing is written


def test_the_archive_is_downloaded_verified_and_unpacked_once(small: Cifar, tmp_path: Path) -> None:
    check_values()
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    assert {path.name for path in folder.iterdir()} == set(CONTENT)
    Path(small.url.removeprefix("file://")).unlink()
    check_values()
    for name, content in CONTENT.items():  # what is damaged or missing comes from the archive again
        for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:-9], b""):
            (folder / name).write_bytes(damaged)
            assert cifar_state("cifar10") == f"damaged: cifar-10-batches-bin/{name}"
            check_values()
        (folder / name).unlink()
        check_values()
    (tmp_path / "data" / "cifar-10-binary.tar.gz").write_bytes(b"other")
    check_values()
    (folder / "test_batch.bin").unlink()
    with pytest.raises(DataError, match=rf"tar.gz' is not the official archive \(sha256 {small.sha256}\): remove it"):
        check_values()


def test_a_wrong_archive_is_refused_and_leaves_nothing(
    small: Cifar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pictures.CIFAR, "cifar10", replace(small, sha256="0" * 64))
    with pytest.raises(DataError, match=r"download of file:.* failed \(its sha256 is .*\): run again, or put it at '"):
        check_values()
    assert [path.name for path in (tmp_path / "data").iterdir() if not path.name.startswith(".")] == []
    (tmp_path / "file").touch()
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"\(Not a directory\)|\(File exists\)"):
        check_values()


def test_class_and_planes_of_cifar100(tmp_path: Path) -> None:
    content = record((0, 3), LOW) + record((1, 2), 255 - LOW)
    (tmp_path / "data" / "cifar-100-binary").mkdir(parents=True)
    for name, data in {"train.bin": content, "test.bin": record((0, 1), HIGH), "fine_label_names.txt": b"a b"}.items():
        (tmp_path / "data" / "cifar-100-binary" / name).write_bytes(data)
    found = CIFAR["cifar100"].read()
    assert found.label.tolist() == [3, 2, 1] and found.num_train == 2  # the second byte is the class
    assert found.values[0, 0, :3].tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    assert found.values[1, 1, :2].tolist() == [[223, 223, 223], [222, 222, 222]]


# The archive's fine_label_names.txt, in its order.
FINE_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
# Class numbers of superclasses 0, 1, 7, 8 and 11 to 16, as counted in the data (discuss.pytorch.org/t/81323).
FOREGROUND_NUMBERS = """
72 4 95 30 55 73 32 67 91 1 14 24 6 7 18 43 97 42 3 88 15 21 19 31 38
75 63 66 64 34 77 26 45 99 79 11 2 35 46 98 29 93 27 78 44 65 50 74 36 80
"""


def test_foreground_classes_agree_with_the_numbers_in_the_data() -> None:
    fine = FINE_NAMES.split()
    assert sha256("\n".join(fine).encode()) in CIFAR["cifar100"].files["fine_label_names.txt"]
    assert set(LIVING) == {fine[int(number)] for number in FOREGROUND_NUMBERS.split()}
    assert len(LIVING) == 50


# --- folders ----------------------------------------------------------------------------------------------------------


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


def folder_task(folder: Path, **changes: Any) -> SDCTask:
    sizes = {"num_segments": 4, "num_train": 1200, "num_validation": 300, "num_test": 500, "image_size": 8}
    given: dict[str, Any] = {"source": f"folder:{folder}", "foreground": ("bee", "ant"), **sizes, **changes}
    return mosaic_task(Mosaics(**given), seed=0)


def test_folder_is_read_as_it_lies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = folder_task(folder, image_size=6)
    found = load_pictures(f"folder:{folder}", 6)
    assert found.class_names == ("ant", "bee", "cow") and found.num_train == 12
    assert drawn.class_names == ("bee", "ant") and drawn.title == "my pictures"
    for data in drawn.splits.values():
        colour = data.bank.values[data.segments[data.foreground].long(), 0, 0]
        assert torch.equal(colour, torch.tensor([COLOURS["bee"], COLOURS["ant"]], dtype=torch.uint8)[data.label])
        background = data.bank.values[data.segments[~data.foreground].long()]
        assert torch.equal(background, torch.tensor(COLOURS["cow"], dtype=torch.uint8).expand_as(background))
    train, validation, test = (set(data.segments.flatten().tolist()) for data in drawn.splits.values())
    assert len(train) == 9 and len(validation) == 3 and len(test) == 6
    monkeypatch.setenv("FCAM_DATA", str(folder.parent))
    assert load_pictures("folder:my pictures", 8).class_names == ("ant", "bee", "cow")


def test_names_with_a_dot_are_no_data_and_other_files_are_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = load_pictures(f"folder:{folder}", 6)
    for place in (".ipynb_checkpoints", "ant/.ipynb_checkpoints"):
        shutil.copytree(folder / "train" / "bee", folder / "train" / place)
    shutil.copy(folder / "train" / "bee" / "0.png", folder / "train" / "ant" / "._0.png")
    hash_before = content_hash(folder)
    (folder / "train" / "ant" / "x.gif").touch()
    (folder / "train" / "loose.png").touch()
    (folder / "train" / "cow" / "loop").symlink_to(folder / "train")
    load_pictures.cache_clear()
    after = load_pictures(f"folder:{folder}", 6)
    assert after.class_names == before.class_names and np.array_equal(after.values, before.values)
    assert "loose.png' and 1 more files are no pictures of a class and are left out" in caplog.text
    assert content_hash(folder) != hash_before


def damage(folder: Path, what: str) -> None:
    cow = folder / "train" / "cow"
    if what in ("no test", "no folder"):
        shutil.rmtree(folder / "test" if what == "no test" else folder)
    elif what == "more classes":
        shutil.copytree(cow, folder / "train" / "dog")
    elif what in ("few", "empty class"):
        for picture in sorted((folder / "train" / "bee" if what == "few" else folder / "test" / "cow").iterdir())[-3:]:
            picture.unlink()
    elif what == "no class":
        shutil.rmtree(folder / "train")
        (folder / "train").mkdir()
    elif what == "pipe":
        os.mkfifo(cow / "9.png")
    elif what == "odd name":
        os.mkdir(os.fsencode(folder / "train") + b"/\xff")
    elif what:
        spoiled = {"no picture": b"not a picture", "emptied": b"", "bomb": bomb(), "cut off": noise()[:2000]}
        (cow / "2.png").write_bytes(spoiled[what])


def noise() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(stream, "png")
    return stream.getvalue()


def bomb() -> bytes:
    """A picture of 32 x 32 pixels whose damaged header says 12,000 x 12,000."""
    stream = io.BytesIO()
    Image.new("RGB", (32, 32)).save(stream, "bmp")
    content = bytearray(stream.getvalue())
    content[18:26] = np.array([12_000, 12_000], "<u4").tobytes()
    return bytes(content)


@pytest.mark.parametrize(
    ("what", "changes", "sentence"),
    [
        ("no test", {}, "dataset='folder:{0}': the folder '{0}' has no test/ in it: it needs train/<class>/ and test/"),
        ("no folder", {}, "dataset='folder:{0}': there is no folder '{0}'; give the path of a folder"),
        ("more classes", {}, "dataset='folder:{0}': class 'dog' is in only one of train/ and test/: both need it."),
        ("no picture", {}, "the picture '{0}/train/cow/2.png' cannot be read (it is no picture): mend or"),
        ("emptied", {}, "the picture '{0}/train/cow/2.png' cannot be read (it is no picture): mend or"),
        ("cut off", {}, "the picture '{0}/train/cow/2.png' cannot be read ("),
        ("few", {}, "class 'bee' has no picture left for train: give at least two training pictures and one test"),
        ("empty class", {}, "dataset='folder:{0}': class 'cow' has no picture in test/: give it one."),
        ("no class", {}, "dataset='folder:{0}': '{0}/train' has no class: put pictures into train/<class>/."),
        ("pipe", {}, "the picture '{0}/train/cow/9.png' cannot be read (it is no regular file): mend or remove it."),
        ("odd name", {}, "dataset='folder:{0}': the class '\\udcff' of train/ is not readable text: rename it."),
        ("bomb", {}, "the picture '{0}/train/cow/2.png' cannot be read (Image size (144000000 pixels) exceeds limit"),
        ("", {"foreground": ("bee", "owl")}, "foreground names 'owl', which is not a class of dataset='folder:{0}'"),
        ("", {"background": ("elk",)}, "background names 'elk', which is not a class of dataset='folder:{0}'"),
        ("", {"foreground": ("ant", "bee", "cow")}, "background is empty: foreground names every class, so leave at"),
    ],
)
def test_faults_are_one_sentence(folder: Path, what: str, changes: dict[str, object], sentence: str) -> None:
    damage(folder, what)
    with pytest.raises(DataError) as error:
        folder_task(folder, **changes)
    message = str(error.value)
    assert message.startswith(sentence.format(folder)) and message.endswith(".") and "\n" not in message


def test_sizes_that_do_not_fit_are_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="image_size=32 does not fit dataset='digits', whose pictures have 8 pixels"):
        load_pictures("digits", 32)
    monkeypatch.setattr(pictures, "as_shown", None)  # nothing is decoded before
    monkeypatch.setattr(files.Path, "read_text", lambda *_: "MemAvailable: 50 kB")
    with pytest.raises(DataError, match=r"18 pictures of image_size=1024 take 0.1 GB, and 0.0 GB of memory are free"):
        load_pictures(f"folder:{folder}", 1024)


# --- as a viewer shows it ---------------------------------------------------------------------------------------------

MODES = [
    "1",
    "L",
    "LA",
    "P",
    "PA",
    "RGB",
    "RGBA",
    "RGBX",
    "CMYK",
    "YCbCr",
    "I;16",
    "I",
    "F",
    "HSV",
    "LAB",
    "La",
    "RGBa",
]
FORMATS = {"bmp": "BMP", "jpg": "JPEG", "png": "PNG", "ppm": "PPM", "tif": "TIFF", "webp": "WEBP"}
# What a position of the shown picture is in the file, for each EXIF orientation (https://sirv.com/help/articles/rotate-photos-to-be-upright).
TURNED: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda a: a, 2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud, 5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1), 7: lambda a: np.rot90(a, 2).swapaxes(0, 1), 8: np.rot90,
}  # fmt: skip


@settings(max_examples=300)
@given(st.sampled_from(MODES), st.sampled_from(sorted(FORMATS)), st.sampled_from(sorted(TURNED)), st.booleans())
def test_every_mode_and_format_is_read_as_it_is_shown(
    tmp_path_factory: pytest.TempPathFactory, mode: str, ending: str, orientation: int, is_clear: bool
) -> None:
    """Whatever Pillow writes is read turned and on white, or refused in one sentence."""
    shown = np.zeros((24, 16, 3), dtype=np.uint8)
    shown[:8, :8], shown[16:, 8:10] = 255, 255
    path = tmp_path_factory.mktemp("pictures") / f"p.{ending}"
    picture = Image.fromarray(shown)
    if mode in ("I;16", "I", "F"):
        deep = Image.fromarray(shown[..., 0].astype(np.uint16) * 257)
        picture = deep if mode == "I;16" else deep.convert("I").convert(mode)
    elif mode in ("LAB",):
        picture = Image.new("LAB", (16, 24))
    elif mode in ("La", "PA"):
        picture = picture.convert("LA" if mode == "La" else "P").convert(mode)
    else:
        picture = picture.convert("RGBA" if mode == "RGBa" else mode).convert(mode)
    options: dict[str, Any] = {"lossless": True} if ending == "webp" else {}
    if ending in ("jpg", "webp", "png", "tif"):
        exif = Image.Exif()
        exif[274] = orientation
        options["exif"] = exif
        shown = TURNED[orientation](shown)
    if is_clear and mode in ("LA", "RGBA"):
        picture.putalpha(0)
        shown = np.full_like(shown, 255)
    try:
        picture.save(path, FORMATS[ending], quality=100, **options)
    except (OSError, KeyError, ValueError):
        return  # Pillow does not write this mode in this format
    if is_clear and mode in ("LA", "RGBA") and ending in ("bmp", "jpg", "ppm"):
        return  # written without its transparency, or with black
    try:
        found = np.asarray(as_shown(path)).astype(int)
    except DataError as error:
        assert "cannot be read" in str(error) and "\n" not in str(error)
        assert mode in ("I", "F", "LAB", "HSV"), error
        return
    tolerance = 3 if ending == "jpg" or mode in ("YCbCr", "CMYK", "HSV", "P", "PA") else 0
    assert mode == "LAB" or np.abs(found - shown).max() <= tolerance, (mode, ending, orientation)


@pytest.mark.parametrize("ending", ["png", "webp", "tif"])
def test_half_transparent_pixels_lie_on_white(tmp_path: Path, ending: str) -> None:
    picture = Image.new("RGBA", (4, 2), (200, 0, 100, 255))
    picture.putpixel((1, 0), (200, 0, 100, 0))
    picture.putpixel((2, 1), (200, 0, 100, 51))  # a fifth
    picture.save(tmp_path / f"p.{ending}", lossless=True, exact=True)
    found = as_shown(tmp_path / f"p.{ending}")
    assert found.getpixel((0, 0)) == (200, 0, 100) and found.getpixel((1, 0)) == (255, 255, 255)
    assert found.getpixel((2, 1)) == pytest.approx((244, 204, 224), abs=1)
    palette = ImageOps.grayscale(Image.new("RGB", (2, 1), (9, 9, 9))).convert("P")
    palette.putpixel((1, 0), 77)
    palette.save(tmp_path / "p.png", transparency=77)
    assert as_shown(tmp_path / "p.png").getpixel((1, 0)) == (255, 255, 255)
    deep = Image.fromarray(np.array([[0x1234, 0xFFFF, 7]], dtype=np.uint16))
    deep.save(tmp_path / "d.png", transparency=7)
    assert np.asarray(as_shown(tmp_path / "d.png"))[0, :, 0].tolist() == [0x12, 255, 255]

"""The photographs belong to their makers: none of them, and no caption of theirs, is in the repository or its pages."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from fcamlib import paths, store
from fcamlib.config import CaptionRun

ROOT = Path(__file__).resolve().parent.parent.parent
PHOTOGRAPH = (b"\xff\xd8\xff", b"RIFF", b"II*\x00", b"MM\x00*")  # JPEG, WebP, TIFF
FLICKR = re.compile(rb"\b\d{8,10}(_[0-9a-f]{10})?\.jpg\b")  # names of their files
LENGTH = 8  # words by which a caption is known


def contents() -> dict[Path, bytes]:
    """Every file that git knows, and every file of the built site, if there is one."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    tracked = [ROOT / name for name in listed.split("\0") if name]
    site = (ROOT / "book" / "_build" / "html").rglob("*")
    return {path: path.read_bytes() for path in (*tracked, *site) if path.is_file()}


def test_no_photograph_and_no_name_of_one() -> None:
    for path, content in contents().items():
        assert not content.startswith(PHOTOGRAPH), f"{path} is a photograph"
        assert not (found := FLICKR.search(content)), f"{path} names the photograph {found}"
        assert path.name not in {"captions_train2014.json", "captions_val2014.json", "words.yaml"}, path


def test_no_caption_of_flickr8k() -> None:
    folder = paths.data_dir() / "flickr8k" / "annotations"
    if not folder.is_dir():
        pytest.skip("Flickr8k is not in FCAM_DATA: there is nothing to look for")
    captions = {
        window
        for file in folder.glob("captions_*.json")
        for entry in json.loads(file.read_text("utf-8"))["annotations"]
        for window in windows(entry["caption"].encode())
    }
    assert len(captions) > 100_000
    for path, content in contents().items():
        assert not (found := captions & windows(content)), f"{path} holds {found}"


def windows(text: bytes) -> set[tuple[bytes, ...]]:
    """Every run of eight words."""
    words = re.findall(rb"[a-z0-9'-]+", text.lower())
    return set(zip(*(words[start:] for start in range(LENGTH)), strict=False))


def test_records_of_photographs_hold_numbers_and_the_models_own_words() -> None:
    photographs = [run for run in store.every(CaptionRun, recorded=True) if run.config.data.source != "scenes"]
    assert photographs
    for run in photographs:
        if (run.folder / "examples.npz").exists():
            kept = run.arrays("examples.npz")
            assert set(kept) == {"word", "alpha", "real", "names_category", "box", "image_id"} and not kept["box"].size

"""Numbers on the data cards against the data, as generated here or as recorded."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from fcamlib import paths
from fcamlib.config import Grid, Scenes, SweepGrid
from fcamlib.data.coco import words_of
from fcamlib.data.mosaics import orthogonal_task
from fcamlib.data.pictures import CIFAR, load_pictures
from fcamlib.data.scenes import split_scenes
from fcamlib.data.sdc import SDCData, SDCTask
from fcamlib.running import data as task

BOOK = Path(__file__).resolve().parents[2] / "book"
RECORDED = paths.recorded_dir() or BOOK
SPLITS = ("train", "validation", "test")
# Each source of a card, and what the card has to say of it.
CARDS = {
    "data": ("digits", "cifar10", "cifar100", "folder:PATH"),
    "data_text": ("keywords", "hatexplain", "text:PATH"),
    "data_captions": ("scenes", "coco"),
    "data_vectors": ("motifs", "series:PATH", "clouds", "bags:PATH", "orthogonal"),
}


def card(name: str) -> str:
    return (BOOK / f"{name}.md").read_text("utf-8")


def rows(name: str, first: str) -> dict[str, list[str]]:
    """The table whose head begins with `first`: first cell of each row -> its other cells."""
    (table,) = (part for part in card(name).split("\n\n") if part.startswith(f"| {first}"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    return {row[0]: row[1:] for row in cells[2:]}


def numbers(cells: Sequence[str]) -> list[float]:
    return [float(cell.replace(",", "").removesuffix("%")) for cell in cells]


def generated(dataset: str) -> SDCTask:
    return task(Grid.of({"dataset": dataset}).configs()[0].data, 0)


def counts(data: SDCData) -> list[int]:
    return torch.bincount(data.label).tolist()


def sizes(data: SDCData) -> tuple[torch.Tensor, torch.Tensor]:
    """Segments of each instance, and how many of them are foreground."""
    mask = torch.ones_like(data.segments, dtype=torch.bool) if data.mask is None else data.mask
    return mask.sum(dim=1), (data.foreground & mask).sum(dim=1)


@pytest.mark.parametrize("name", CARDS)
def test_every_source_stands_on_its_card_with_its_licence_and_download(name: str) -> None:
    head, *_ = [line for line in card(name).splitlines() if line.startswith("| name in the code")]
    assert "licence" in head and "download" in head
    for source in CARDS[name]:
        assert f"| `{source}` |" in card(name)


def test_digits_of_each_class_and_split() -> None:
    shown = rows("data", "digit")
    pictures = load_pictures("digits", 8)
    for split, members in pictures.pools().items():
        found = np.bincount(pictures.label[members], minlength=10).tolist()
        assert numbers(shown["training" if split == "train" else split]) == [*found, sum(found)]


def test_checksums_are_those_of_the_data_the_code_and_the_records() -> None:
    said = [hashlib.sha256(load_digits().data.astype(np.uint8).tobytes()).hexdigest()]
    for cifar in CIFAR.values():
        said += [cifar.url.rsplit("/", 1)[-1], cifar.sha256, cifar.folder]
        said += [digest for name, (digest, *_) in cifar.files.items() if name.endswith(".bin")]
    assert not [part for part in said if part not in card("data")]
    configs = [json.loads(path.read_text("utf-8")) for path in RECORDED.glob("*-cv*/config.json")]
    assert configs and all(config["fingerprint"] in card("data_vectors") for config in configs)


def test_generated_posts() -> None:
    shown, made = rows("data_text", "split | posts | weather"), generated("keywords")
    assert made.class_names == ("weather", "music", "neither")
    for split, data in made.splits.items():
        words, marked = sizes(data)
        measured = [round(words.double().mean().item(), 1), round(marked[marked > 0].double().mean().item(), 1)]
        assert numbers(shown[split]) == [len(data.label), *counts(data), *measured]


@pytest.mark.parametrize("source", ["motifs", "clouds"])
def test_generated_series_and_bags(source: str) -> None:
    for split, data in generated(source).splits.items():
        segments, foreground = sizes(data)
        low, high = int(segments.min()), int(segments.max())
        spread = str(low) if low == high else f"{low} to {high}, mean {segments.double().mean():.1f}"
        of_classes, marked = ", ".join(map(str, counts(data))), f"{foreground.double().mean():.3g}"
        row = f"| `{source}` | {split} | {len(data.label)} | {of_classes} | {spread} | {marked} |"
        assert row in card("data_vectors")


def test_the_orthogonal_task() -> None:
    data = orthogonal_task(SweepGrid.of({}).config().data, 0).splits["train"]
    found = counts(data)
    spread = f"{min(found)} to {max(found)}, {len(found)} classes"
    row = f"| `orthogonal` | train | {len(data.label):,} | {spread} | {data.segments.shape[1]} |"
    assert row in card("data_vectors")


def test_generated_scenes() -> None:
    shown, seen = rows("data_captions", "split | pictures | captions"), set()
    config = Scenes()
    scenes = [scene for drawn in split_scenes(config, 0) for scene in drawn]
    ends = np.cumsum([0, config.num_train, config.num_validation, config.num_test])
    for split, start, end in zip(SPLITS, ends, ends[1:], strict=False):
        part = scenes[start:end]
        captions = [caption for scene in part for caption in scene.captions]
        kinds = Counter(shape.category for scene in part for shape in scene.shapes)
        words = round(mean(len(words_of(caption)) for caption in captions), 1)
        found = [len(part), len(captions), len(set(captions)), words]
        found += [kinds[kind] for kind in ("circle", "square", "triangle", "star", "cross")]
        assert numbers(shown[split]) == found
        seen |= set(captions) if split == "train" else set()
    share = 100 * mean(caption in seen for scene in scenes[ends[2] :] for caption in scene.captions)
    assert f"but {share:.0f}% of the test captions are" in " ".join(card("data_captions").split())

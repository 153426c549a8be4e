"""Numbers on the data cards against the data: generated here, recorded, or, where they lie on this machine, real."""

import functools
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
from fcamlib.data.posts import Post, hatexplain_corpus
from fcamlib.data.scenes import split_scenes
from fcamlib.data.sdc import SDCData, SDCTask
from fcamlib.running import data as task

BOOK = Path(__file__).resolve().parents[2] / "book"
RECORDED = paths.recorded_dir() or BOOK
SPLITS = ("train", "validation", "test")
# Each source of a card, and what the card has to say of it.
CARDS = {
    "data.md": ("digits", "cifar10", "cifar100", "folder:PATH"),
    "data_text.md": ("keywords", "hatexplain", "text:PATH"),
    "data_captions.md": ("scenes", "coco"),
    "data_vectors.md": ("motifs", "series:PATH", "clouds", "bags:PATH", "orthogonal"),
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
    head, *_ = [line for line in card(name.removesuffix(".md")).splitlines() if line.startswith("| name in the code")]
    assert "licence" in head and "download" in head
    for source in CARDS[name]:
        assert f"| `{source}` |" in card(name.removesuffix(".md"))


def test_digits_of_each_class_and_split() -> None:
    shown = rows("data", "digit")
    pictures = load_pictures("digits", 8)
    for split, members in pictures.pools().items():
        found = np.bincount(pictures.label[members], minlength=10).tolist()
        assert numbers(shown["training" if split == "train" else split]) == [*found, sum(found)]


def test_checksum_of_the_digits() -> None:
    content = load_digits().data.astype(np.uint8).tobytes()
    assert hashlib.sha256(content).hexdigest() in card("data")


def test_checksums_of_cifar_are_those_of_the_code() -> None:
    for cifar in CIFAR.values():
        digests = [digest for name, (digest, *_) in cifar.files.items() if name.endswith(".bin")]
        for part in (cifar.url.rsplit("/", 1)[-1], cifar.sha256, cifar.folder, *digests):
            assert part in card("data")


@pytest.mark.parametrize(
    ("run", "name"),
    [("cifar10-jpeg-*", "data"), ("fixed-focus-cifar10-jpeg-*", "data"), ("*-cv*", "data_vectors")],
)
def test_the_card_has_the_fingerprint_of_recorded_data(run: str, name: str) -> None:
    configs = [json.loads(path.read_text("utf-8")) for path in RECORDED.glob(f"{run}/config.json")]
    assert configs
    assert all(config.get("data", config)["fingerprint"] in card(name) for config in configs)


def test_generated_posts() -> None:
    shown, made = rows("data_text", "split | posts | weather"), generated("keywords")
    assert made.class_names == ("weather", "music", "neither")
    for split, data in made.splits.items():
        words, marked = sizes(data)
        measured = [round(words.double().mean().item(), 1), round(marked[marked > 0].double().mean().item(), 1)]
        assert numbers(shown[split]) == [len(data.label), *counts(data), *measured]


@pytest.mark.parametrize("source", ["motifs", "clouds"])
def test_generated_series_and_bags(source: str) -> None:
    lines = [line for line in card("data_vectors").splitlines() if line.startswith(f"| `{source}` | ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    table = {row[1]: row for row in cells if row[1] in SPLITS}
    assert set(table) == set(SPLITS)
    for split, data in generated(source).splits.items():
        segments, foreground = sizes(data)
        low, high = int(segments.min()), int(segments.max())
        spread = str(low) if low == high else f"{low} to {high}, mean {segments.double().mean():.1f}"
        found = [str(len(data.label)), ", ".join(map(str, counts(data))), spread]
        assert table[split][2:] == [*found, f"{foreground.double().mean():.3g}"]


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


@functools.cache
def real(name: str) -> Path:
    folder = paths.data_dir() / name
    if not folder.exists():
        pytest.skip(f"{name} is not in the data folder: set FCAM_DATA to a folder that holds it")
    return folder


def test_hatexplain() -> None:
    folder = real("hatexplain")
    corpus = hatexplain_corpus(f"hatexplain:{folder}", "majority", "union")
    if corpus.title != "HateXplain (reduced copy)":
        pytest.skip("the data folder holds the full edition; the card's numbers are of the reduced copy")
    for name in ("dataset.json", "post_id_divisions.json"):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() in card("data_text")
    shown = rows("data_text", "split | posts | words per post")
    known = {word for post in corpus.posts if post.split == "train" for word in post.tokens}
    for split in SPLITS:
        assert numbers(shown[split]) == summary([post for post in corpus.posts if post.split == split], known)


def summary(posts: Sequence[Post], known: set[str]) -> list[float]:
    """Numbers of a split as the card shows them."""
    lengths, labels = [len(post.tokens) for post in posts], Counter(post.label for post in posts)
    unknown = mean(word not in known for post in posts for word in post.tokens)
    marked = sum(any(post.rationale) for post in posts)
    per_label = [labels[label] for label in ("normal", "offensive", "hatespeech")]
    return [len(posts), round(mean(lengths), 1), max(lengths), round(100 * unknown, 1), *per_label, marked]


@pytest.mark.parametrize("name", ["musk1", "fox", "tiger", "elephant"])
def test_benchmark_bags(name: str) -> None:
    path = real("bags") / f"{name}.npz"
    with np.load(path, allow_pickle=False) as arrays:
        features, bag, label = arrays["features"], arrays["bag"], arrays["label"]
    in_bag = np.bincount(bag)
    shown = rows("data_vectors", "data | bags")[name.capitalize()]
    classes = " + ".join(map(str, np.bincount(label)))
    found = [classes, f"{len(features):,}", f"{in_bag.min()} to {in_bag.max()}", str(features.shape[1])]
    assert shown == [*found, f"`{hashlib.sha256(path.read_bytes()).hexdigest()}`"]
    constant = int((features == features[0]).all(axis=0).sum())
    assert name == "musk1" or 106 <= constant <= 120

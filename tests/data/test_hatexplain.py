"""HateXplain: what the files must hold, labels and rationales by rule, and the download. All posts here are made up."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fcamlib.config import task_on
from fcamlib.data import posts as official
from fcamlib.data.posts import DIVISIONS, POSTS, hatexplain_corpus, hatexplain_files
from fcamlib.errors import DataError

NUM_POSTS, SIZES = official.NUM_POSTS, dict(official.SPLIT_SIZES)
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def of_eight_posts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edition of eight posts instead of 20,148."""
    monkeypatch.setattr(official, "NUM_POSTS", 8)
    monkeypatch.setattr(official, "SPLIT_SIZES", {"train": 3, "val": 2, "test": 2})


def entry(tokens: str, labels: str, *rationales: str) -> Json:
    """A post of the official layout; labels by their first letter."""
    names = {"n": "normal", "o": "offensive", "h": "hatespeech"}
    return {
        "post_id": "x",
        "annotators": [{"label": names[label], "annotator_id": 1, "target": ["None"]} for label in labels],
        "rationales": [[int(mark) for mark in rationale] for rationale in rationales],
        "post_tokens": tokens.split(),
    }


def small() -> tuple[Json, Json]:
    posts = {
        "a": entry("mild grey morning", "nnh"),
        "b": entry("loud bang over there", "ohh", "0110", "0100", "0011"),
        "c": entry("two words", "ohn", "01", "10"),  # no majority
        "d": entry("one more calm day", "nnn"),
        "e": entry("a b c d e", "oho", "10000", "11000"),  # of an even number of marks more than half are needed
        "f": entry("quiet", "nno"),
        "g": entry("far away thunder", "hhh", "001", "001", "011"),
        "h": entry("not in the split", "non"),
    }
    return posts, {"train": ["a", "b", "c"], "val": ["d", "e"], "test": ["f", "g"]}


def put(folder: Path, posts: Any, divisions: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((POSTS, posts), (DIVISIONS, divisions)):
        (folder / name).write_text(json.dumps(content))
    return f"hatexplain:{folder}"


def test_editions_are_told_by_the_number_of_posts(tmp_path: Path) -> None:
    assert (NUM_POSTS, sum(SIZES.values())) == (20_148, 19_229)  # of the official files
    posts, divisions = small()
    assert hatexplain_corpus(put(tmp_path / "official", posts, divisions), "majority", "union").title == "HateXplain"
    del posts["h"]
    corpus = hatexplain_corpus(put(tmp_path / "reduced", posts, divisions), "majority", "union")
    assert corpus.title == "HateXplain (reduced copy)"
    with pytest.raises(DataError, match=r"^label=first does not fit .* the reduced copy has only the majority label"):
        hatexplain_corpus(f"hatexplain:{tmp_path}/reduced", "first", "union")
    posts |= {"h": entry("one", "nnn"), "i": entry("two", "nnn")}
    with pytest.raises(DataError, match=r"dataset.json holds 9 posts, .* instead of 8"):
        hatexplain_corpus(put(tmp_path / "more", posts, divisions), "majority", "union")


@pytest.mark.parametrize(
    "label, rationale, labels, b, e",
    [
        ("majority", "union", [0, 2], "0111", "11000"),
        ("majority", "majority", [0, 2], "0110", "10000"),
        ("majority", "first", [0, 2], "0110", "10000"),
        ("first", "union", [0, 1, 1], "0111", "11000"),
    ],
)
def test_labels_and_rationales_by_rule(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, label: Any, rationale: Any, labels: list[int], b: str, e: str
) -> None:
    corpus = hatexplain_corpus(put(tmp_path, *small()), label, rationale)
    train, validation = ([p for p in corpus.posts if p.split == split] for split in ("train", "validation"))
    assert [corpus.class_names.index(str(post.label)) for post in train] == labels
    assert "".join(map(str, train[1].rationale)) == b and "".join(map(str, validation[1].rationale)) == e
    assert train[0].rationale == [] and train[0].tokens == ["mild", "grey", "morning"]
    lost = "1 posts of HateXplain's train split have no majority label" in caplog.text
    assert lost == (label == "majority")


Change = Callable[[Json, Json], Any]
FAULTS: list[tuple[Change, str]] = [
    (lambda posts, _: posts.update({"x\ny": {}}), r"dataset.json': field x\\ny.post_tokens: field required"),
    (lambda posts, _: posts["b"].update(rationales=[[0, 1, 1]]), r"post 'b': a rationale has 3 entries for 4 tokens"),
    (lambda posts, _: posts.pop("g"), r"holds 7 posts, of which .* names 6 different ones, .* 'test': 1} instead"),
    (lambda _, divisions: divisions["val"].__setitem__(0, "a"), r"divisions.json names 6 different ones"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS)
def test_wrong_content_is_one_sentence_without_a_word_of_a_post(tmp_path: Path, change: Change, message: str) -> None:
    posts, divisions = small()
    change(posts, divisions)
    with pytest.raises(DataError, match=message) as caught:
        hatexplain_corpus(put(tmp_path, posts, divisions), "majority", "union")
    assert "\n" not in str(caught.value) and "bang" not in str(caught.value)


def test_missing_files_are_downloaded_from_a_fixed_commit_with_their_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posts, divisions = small()
    put(tmp_path / "remote", posts, divisions)
    assert len(official.URL.split("/")[-2]) == 40  # a commit, no branch
    monkeypatch.setattr(official, "URL", (tmp_path / "remote").as_uri())
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "data"))
    with pytest.raises(DataError, match=r"dataset.json' failed \(invalid hash value .*\): run again, or put it at"):
        hatexplain_files("hatexplain")
    files = {name: tmp_path / "remote" / name for name in (POSTS, DIVISIONS)}
    known = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    monkeypatch.setattr(official, "OFFICIAL_FILES", known)
    fingerprint = task_on("hatexplain").fingerprint
    assert not [*(tmp_path / "data" / "hatexplain").glob("*.json")], "naming a run downloads nothing"
    hatexplain_files("hatexplain")
    assert {path.name for path in (tmp_path / "data" / "hatexplain").iterdir() if path.suffix == ".json"} == set(files)
    put(tmp_path / "remote", {}, {})  # not asked again
    assert task_on("hatexplain").fingerprint == fingerprint
    assert len(hatexplain_corpus("hatexplain", "majority", "union").posts) == 6
    with pytest.raises(DataError, match=r"has no dataset.json: put the file there"):  # a given folder is never filled
        hatexplain_corpus(f"hatexplain:{tmp_path}", "majority", "union")

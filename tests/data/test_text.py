"""Words of posts and captions: numbers, a user's files, parameters; each fault is one sentence that names its place."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fcamlib.config import Text
from fcamlib.data.captions import decode
from fcamlib.data.coco import words_of
from fcamlib.data.posts import Corpus, Post, jsonl_corpus
from fcamlib.data.sdc import UNKNOWN
from fcamlib.data.text import text_task
from fcamlib.errors import DataError

Line = dict[str, Any]
TRAIN: list[Line] = [
    {"tokens": ["red", "apple", "pie"], "label": "food", "rationale": [0, 1, 1]},
    {"tokens": ["old", "red", "car"], "label": "ride", "rationale": [0, 0, 1]},
    {"text": "An APPLE, don't you think?", "label": "food"},
    {"tokens": ["car"], "label": "ride", "id": 17},
]
TEST: list[Line] = [{"tokens": ["green", "car", "pie"], "label": "food", "rationale": [0, 0, 0]}]


def of_split(corpus: Corpus, split: str) -> list[Post]:
    return [post for post in corpus.posts if post.split == split]


def put(folder: Path, **splits: list[Line]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for split, lines in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return f"text:{folder}"


def test_words_of_training_posts_get_numbers_and_others_share_one(tmp_path: Path) -> None:
    source = put(tmp_path, train=TRAIN, validation=TEST, test=TEST)
    task = text_task(Text(source=source), 0)
    words = sorted({"red", "apple", "pie", "old", "car", "an", ",", "don't", "you", "think", "?"})
    number = {word: place for place, word in enumerate(words, start=1)}
    assert task.class_names == ("food", "ride") and task.title == tmp_path.name
    assert task.bank.values.tolist() == list(range(len(words) + 1)) and task.bank.words
    train, test = task.splits["train"], task.splits["test"]
    assert train.segments[2].tolist() == [number[w] for w in ("an", "apple", ",", "don't", "you", "think", "?")]
    assert train.segments[0, :3].tolist() == [number[w] for w in ("red", "apple", "pie")]
    assert train.mask is not None and train.mask.sum(dim=1).tolist() == [3, 3, 7, 1]
    assert train.foreground[0].tolist() == [False, True, True, False, False, False, False]
    assert train.has_foreground.tolist() == [True, True, False, False]
    assert train.label.tolist() == [0, 1, 0, 1]
    assert test.segments.tolist() == [[UNKNOWN, number["car"], number["pie"]]]
    assert not bool(test.has_foreground.any())
    every = text_task(Text(source=source, paper_vocabulary=True), 0)
    assert UNKNOWN not in every.splits["test"].segments[0].tolist()
    assert every.title == f"{tmp_path.name} (vocabulary of all splits)"
    rare = text_task(Text(source=source, min_count=2), 0)
    assert len(rare.bank.values) == 1 + len({"red", "apple", "car"})
    assert rare.splits["train"].segments[0, :3].tolist() == [3, 1, UNKNOWN]


def test_long_posts_are_cut_and_empty_ones_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    long = {"tokens": [f"w{i}" for i in range(600)], "label": "food", "rationale": [0] * 510 + [1] * 90}
    empty: list[Line] = [{"tokens": [], "label": "food"}, {"text": "  ", "label": "ride"}]
    source = put(tmp_path, train=[*empty, *TRAIN, long], validation=TEST, test=[long, TEST[0]])
    splits = text_task(Text(source=source), 0).splits
    assert len(splits["train"]) == len(TRAIN) + 1
    assert splits["test"].num_segments == 512 and int(splits["test"].foreground.sum()) == 2
    assert f"2 posts of '{tmp_path}/train.jsonl' have no words and are left out" in caplog.text
    assert "1 test posts are longer than max_tokens=512 and are cut" in caplog.text
    assert text_task(Text(source=source, max_tokens=700), 0).splits["test"].num_segments == 600


def test_classes_go_by_value_where_all_are_whole_numbers(tmp_path: Path) -> None:
    for labels, order in ((["--1", "1"], ["--1", "1"]), (["10", 9], ["9", "10"]), ([10**29, 2], ["1" + "0" * 29, "2"])):
        lines = [{"tokens": ["a"], "label": label} for label in labels * 3]
        assert list(jsonl_corpus(put(tmp_path, train=lines, test=lines)).class_names) == order


def test_splits_are_held_out_in_each_class_or_named_by_a_field(tmp_path: Path) -> None:
    lines = [{"tokens": [f"w{i}"], "label": i % 2 - 5 * (i % 2)} for i in range(40)]
    held_out = jsonl_corpus(put(tmp_path / "posts.v2", train=lines, test=lines[:2]))
    put(tmp_path, all=lines)
    drawn = jsonl_corpus(f"text:{tmp_path}/all.jsonl")
    for corpus, sizes in ((held_out, [36, 4, 2]), (drawn, [32, 4, 4])):
        assert [len(of_split(corpus, split)) for split in ("train", "validation", "test")] == sizes
        assert sorted(str(post.label) for post in of_split(corpus, "validation")) == ["-4", "-4", "0", "0"]
        assert [post.tokens for post in corpus.posts][:40] == [line["tokens"] for line in lines]  # each once
    assert {str(post.label) for post in of_split(drawn, "test")} == {"-4", "0"}
    assert (drawn.title, held_out.title) == ("all", "posts.v2")
    splits = ["test", "train", "train", "validation"] * 10
    put(tmp_path, named=[line | {"split": split} for line, split in zip(lines, splits, strict=True)])
    named = jsonl_corpus(f"text:{tmp_path}/named.jsonl")
    assert [post.tokens[0] for post in of_split(named, "validation")] == [f"w{i}" for i in range(3, 40, 4)]
    put(tmp_path, mixed=[lines[0], lines[1] | {"split": "test"}])
    with pytest.raises(DataError, match=r"mixed.jsonl': 1 of 2 posts have no split: name all or none"):
        jsonl_corpus(f"text:{tmp_path}/mixed.jsonl")


@pytest.mark.parametrize(
    "line, message",
    [
        (b'{"tokens": ["a"], "label": ', r"line 2 of '.*train.jsonl': it is not JSON \(EOF while parsing"),
        (b'{"tokens": ["a"]}', r"line 2 of .*: field label: field required"),
        (b'{"label": "food"}', r"line 2 of .*: give one of tokens and text"),
        (
            b'{"label": 0.5, "tokens": ["a"]}',
            r"line 2 of .*: field label: input should be a valid string or i.* integer: give one",
        ),
        (b'{"label": "food", "tokens": ["a"], "rationale": [2]}', r"field rationale.0: input should be less than"),
        (b'{"label": "food", "tokens": ["a"], "rationale": [1, 0]}', r"field rationale has 2 entries for 1 tokens"),
        (b'{"label": "food", "text": "caf\xe9"}', r"line 2 of '.*train.jsonl' is not UTF-8 text \(byte 0xe9\)"),
    ],
)
def test_a_wrong_line_is_one_sentence(tmp_path: Path, line: bytes, message: str) -> None:
    source = put(tmp_path, train=TRAIN, validation=TEST, test=TEST)
    first, *rest = (tmp_path / "train.jsonl").read_bytes().splitlines()
    (tmp_path / "train.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join([first, line, *rest]))
    with pytest.raises(DataError, match=message) as caught:
        jsonl_corpus(source)
    assert "\n" not in str(caught.value)


def test_missing_and_empty_files_and_strange_ones_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = put(tmp_path, train=TRAIN, val=TEST, test=[TEST[0] | {"label": "music"}])
    (tmp_path / ".hidden.jsonl").touch()
    with pytest.raises(DataError, match="class 'music' has no training instance: give it some"):
        jsonl_corpus(source)
    fields = f"'{tmp_path}/train.jsonl': fields other than tokens, text, label, rationale, split are ignored: id."
    assert fields in caplog.messages
    (told,) = {message for message in caplog.messages if "is ignored" in message}
    assert told == f"'{tmp_path}/val.jsonl' is ignored: only train.jsonl, validation.jsonl, test.jsonl are read."
    (tmp_path / "test.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"the file '.*test.jsonl' is empty"):
        jsonl_corpus(source)
    (tmp_path / "test.jsonl").unlink()
    with pytest.raises(DataError, match=r"the folder '.*' has no test.jsonl: put the file there"):
        jsonl_corpus(source)
    with pytest.raises(DataError, match="posts with words have fewer than two classes: give at least two"):
        jsonl_corpus(put(tmp_path / "one", train=TRAIN[:1], test=TRAIN[:1]))
    with pytest.raises(DataError, match="no instance is left for test"):
        jsonl_corpus(put(tmp_path / "empty", train=TRAIN, test=[{"tokens": [], "label": "food"}]))


def test_sizes_draw_a_part_with_the_seed(tmp_path: Path) -> None:
    lines = [{"tokens": [f"w{i}"], "label": i % 2} for i in range(20)]
    source = put(tmp_path, train=lines, validation=lines, test=lines)
    config = Text(source=source, num_train=12, num_test=5, paper_vocabulary=True)
    first, again, other = (text_task(config, seed).splits for seed in (0, 0, 1))
    assert [len(first[split]) for split in ("train", "validation", "test")] == [12, 20, 5]
    assert len(set(first["train"].segments.flatten().tolist())) == 12
    assert torch.equal(first["train"].segments, again["train"].segments)
    assert not torch.equal(first["train"].segments, other["train"].segments)
    with pytest.raises(DataError, match=r"21 train posts of dataset='text:.*' are requested, but there are only 20"):
        text_task(Text(source=source, num_train=21), 0)


def test_noise_changes_the_stated_share_of_training_labels_alone() -> None:
    sizes = {"num_train": 300, "num_validation": 50, "num_test": 50, "max_tokens": 8}
    clean, noisy = (text_task(Text(source="keywords", label_noise=p, **sizes), 3) for p in (0.0, 0.2))
    train, other = clean.splits["train"], noisy.splits["train"]
    assert torch.equal(train.segments, other.segments) and torch.equal(train.foreground, other.foreground)
    changed = train.label != other.label
    assert int(changed.sum()) == 60
    shift = (other.label - train.label)[changed] % 3
    assert 15 < int((shift == 1).sum()) < 45
    for split in ("validation", "test"):
        assert torch.equal(clean.splits[split].label, noisy.splits[split].label)
    assert noisy.title == "keywords (20% of training labels changed)"


def test_parameters_that_cannot_be_are_one_sentence() -> None:
    for changes, message in (
        ({"num_train": 0}, "num_train=0 is not allowed with dataset='keywords'"),
        ({"min_count": 10**6}, "min_count=1,000,000 leaves no words in dataset='keywords', since no word occurs"),
    ):
        with pytest.raises(DataError, match=rf"^{message}"):
            text_task(Text(**{"source": "keywords", "num_train": 9, "num_validation": 2, "num_test": 2} | changes), 0)


@pytest.mark.parametrize(
    "caption, words",
    [
        ("A man's T-shirt, and 2 dogs.", "a man 's t-shirt and 2 dogs"),
        ("Don't  stop\nat 3 o'clock!", "don't stop at 3 o'clock"),
        ("The girls' (red) hats; it\u2019s late", "the girls red hats it 's late"),
        ('A "black-and-white" caf\u00c9 - open', "a black-and-white caf\u00e9 open"),
        ("one_two 'three' --four-- s's <unk>", "one two three four s 's unk"),
        (" .,;!? -' ", ""),
    ],
)
def test_captions_are_cut_by_the_stated_rule(caption: str, words: str) -> None:
    assert words_of(caption) == tuple(words.split())


def test_words_of_numbers() -> None:
    vocabulary = ("<pad>", "<start>", "<end>", "<unk>", "a", "cat", "dog")
    assert decode([1, 4, 6, 3, 2, 5, 0], vocabulary) == ("a", "dog", "<unk>")
    assert decode([4, 0, 5], vocabulary) == ("a", "cat") and decode([], vocabulary) == ()

"""The bank, and instances as rows of indices into it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from fcamlib.data.sdc import Bank, SDCData, SDCTask, by_split, distinct, every_occurrence
from fcamlib.errors import DataError

SEGMENTS = torch.tensor([[4, 0, 4], [1, 3, 0]], dtype=torch.int32)


@pytest.fixture
def data() -> SDCData:
    foreground = torch.tensor([[True, False, False], [False, False, True]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    return SDCData(Bank(torch.arange(35.0).reshape(5, 7)), SEGMENTS, torch.tensor([2, 0]), foreground, mask)


def test_pictures_become_channels_first_and_scaled() -> None:
    """Of five pictures of 2 x 4 pixels and 3 channels every value is another one."""
    values = torch.arange(120, dtype=torch.uint8).reshape(5, 2, 4, 3)
    pictures = Bank(values, scale=2 / 255, shift=-1.0, pictures=True)
    assert pictures.segment_shape == (3, 2, 4)
    for channels_last in (False, True):
        rows = pictures.rows(torch.tensor([3, 1, 3]), torch.float64, channels_last)
        for place, picture in enumerate([3, 1, 3]):
            value = 24 * picture + 12 * 1 + 3 * 3 + 2
            assert rows[place, 2, 1, 3].item() == pytest.approx(2 * value / 255 - 1, abs=1e-12)
        assert rows.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def test_rows_are_scaled_and_words_stay_whole_numbers() -> None:
    bank = Bank(torch.ones(2, 7), scale=3.0, shift=4.0)
    assert_close(bank.rows(torch.tensor([0, 1]), torch.float32), torch.full((2, 7), 7.0))
    assert_close(bank.values, torch.ones(2, 7))  # as it was
    words = Bank(torch.tensor([0, 1, 30_000_001]), words=True)  # float32 has no such number
    rows = words.rows(torch.tensor([2, 0, 2], dtype=torch.int32), torch.float32)
    assert words.segment_shape == () and rows.dtype == torch.int64 and rows.tolist() == [30_000_001, 0, 30_000_001]


def test_instances_of_each_split_are_padded_to_its_longest() -> None:
    """Segments come in any order, of an instance in their own; the bank's row of a segment is free."""
    owner = np.array([3, 0, 2, 0, 3, 1, 3])
    rows, truth = np.array([11, 12, 13, 14, 15, 16, 17]), np.array([0, 1, 1, 0, 0, 1, 1], dtype=bool)
    split = np.array(["train", "test", "validation", "train"])
    splits = by_split(Bank(torch.zeros(20, 2)), owner, truth, np.array([5, 6, 7, 8]), split, rows)
    train = splits["train"]
    assert train.label.tolist() == [5, 8] and train.mask is not None
    assert train.mask.tolist() == [[True, True, False], [True, True, True]]
    assert train.segments[train.mask].tolist() == [12, 14, 11, 15, 17]
    assert train.foreground.tolist() == [[True, False, False], [False, False, True]]
    for name, row, label in (("validation", 13, 7), ("test", 16, 6)):
        one = splits[name]
        assert (one.segments.tolist(), one.label.tolist(), one.foreground.tolist()) == ([[row]], [label], [[True]])
        assert one.mask is None  # nothing is padded


def test_distinct_rows_rebuild_the_instances() -> None:
    for find, number in ((distinct, 4), (every_occurrence, 6)):
        rows, places = find(SEGMENTS)
        assert torch.equal(rows[places], SEGMENTS) and len(rows) == number


def test_trimmed_drops_only_what_is_padding_everywhere(data: SDCData) -> None:
    assert data.trimmed() is data  # the second instance fills every place
    assert data.mask is not None
    hole = replace(data, mask=torch.tensor([[False, True, False], [True, False, False]]))
    trimmed = hole.trimmed()
    assert trimmed.segments.tolist() == [[4, 0], [1, 3]]
    assert trimmed.foreground.tolist() == [[True, False], [False, False]]
    assert trimmed.mask is not None and trimmed.mask.tolist() == [[False, True], [True, False]]
    assert trimmed.label.tolist() == data.label.tolist()
    assert replace(data, mask=None).trimmed().num_segments == 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"segments": SEGMENTS + 1}, "outside the bank"),
        ({"segments": SEGMENTS - 1}, "outside the bank"),
        ({"segments": SEGMENTS[:0], "label": SEGMENTS[:0, 0], "foreground": SEGMENTS[:0] > 0}, "need one .* at least"),
        ({"mask": torch.tensor([[True] * 3, [False] * 3])}, "every row of mask needs at least one True"),
    ],
)
def test_impossible_instances_are_refused(data: SDCData, fault: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"^toy, test: .*{message}"):
        SDCTask({"train": data, "test": replace(data, **{"mask": None, **fault})}, ("a", "b", "c"), "toy")


def test_take_keeps_what_belongs_together(data: SDCData) -> None:
    taken = data.take(torch.tensor([1, 0, 1]))
    assert taken.segments.tolist() == [[1, 3, 0], [4, 0, 4], [1, 3, 0]] and taken.label.tolist() == [0, 2, 0]
    assert taken.foreground.int().argmax(dim=1).tolist() == [2, 0, 2]
    assert taken.mask is not None and taken.mask.sum(dim=1).tolist() == [3, 2, 3] and taken.bank is data.bank

"""The container of every SDC task: segments are stored once, in a bank; an instance is a row of indices into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from fcamlib.data import SPLITS
from fcamlib.errors import DataError

Item = TypeVar("Item")
# Segments (N, ...); of each place the row among them and whether it is foreground; of each instance size and label.
Drawn = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
UNKNOWN = 0  # number of every word outside the vocabulary


@dataclass(frozen=True)
class Bank:
    """All N segments of a task, stored once; a model sees `values * scale + shift`.

    `pictures` are uint8 (N, height, width, channels), seen as [-1, 1] with channels first; `words` are int64 word
    numbers, which stay integers because an encoder looks them up.
    """

    values: Tensor
    scale: float = 1.0
    shift: float = 0.0
    pictures: bool = False
    words: bool = False

    @property
    def segment_shape(self) -> tuple[int, ...]:
        """Shape of one segment as a model sees it (channels first for pictures)."""
        shape = tuple(self.values.shape[1:])
        return (shape[-1], *shape[:-1]) if self.pictures else shape

    def rows(self, index: Int[Tensor, " n"], dtype: torch.dtype, channels_last: bool = False) -> Tensor:
        """The scaled segments at `index` as a model sees them: (n, *segment_shape); words as numbers (n,)."""
        if self.words:
            return self.values.index_select(0, index.long())
        rows = self.values.index_select(0, index.long()).to(dtype).mul_(self.scale).add_(self.shift)
        if not self.pictures:
            return rows
        rows = rows.movedim(-1, 1)  # a view, channels last in memory
        return rows if channels_last else rows.contiguous()

    def to(self, device: torch.device) -> Bank:
        """The same bank on `device`."""
        return replace(self, values=self.values.to(device))


@dataclass(frozen=True)
class SDCData:
    """Instances of selective dependence classification."""

    bank: Bank
    segments: Int[Tensor, "n M"]  # row of the bank at each place; padding holds any valid row
    label: Int[Tensor, " n"]
    foreground: Bool[Tensor, "n M"]  # all False if it is not known; used in measures, never in training
    mask: Bool[Tensor, "n M"] | None = None  # True for real segments; None if no instance is padded

    def __len__(self) -> int:
        return len(self.label)

    @property
    def num_segments(self) -> int:
        """Number of places M, padding included."""
        return self.segments.shape[1]

    @property
    def has_foreground(self) -> Bool[Tensor, " n"]:
        """Whether the foreground of an instance is known; focus measures cover only these instances."""
        return (self.foreground if self.mask is None else self.foreground & self.mask).any(dim=1)

    def _each(self, change: Callable[[Tensor], Tensor], *names: str) -> SDCData:
        """The same data with the fields `names` changed."""
        values = {name: value for name in names if (value := getattr(self, name)) is not None}
        return replace(self, **{name: change(value) for name, value in values.items()})  # type: ignore

    def take(self, index: Int[Tensor, " b"]) -> SDCData:
        """The instances at `index`, on the same bank."""
        return self._each(lambda values: values[index], "segments", "label", "foreground", "mask")

    def trimmed(self) -> SDCData:
        """The same instances without trailing places that are padding in all of them.

        Applies only to a mask on the CPU: elsewhere, finding the longest instance would synchronise the device.
        """
        if self.mask is None or self.mask.device.type != "cpu":
            return self
        length = int(np.flatnonzero(self.mask.numpy().any(axis=0))[-1]) + 1
        if length == self.num_segments:
            return self
        return self._each(lambda values: values[:, :length], "segments", "foreground", "mask")

    def to(self, device: torch.device) -> SDCData:
        """The same data on `device`."""
        return self._each(lambda values: values.to(device), "bank", "segments", "label", "foreground", "mask")


@dataclass(frozen=True)
class SDCTask:
    """Train, validation and test data on one bank, with the names of the classes; what a data source returns."""

    splits: dict[str, SDCData]
    class_names: tuple[str, ...]
    title: str

    def __post_init__(self) -> None:
        for split, data in self.splits.items():
            rows, fault = data.segments, ""
            if rows.numel() == 0 or len(data.label) != len(rows) or data.foreground.shape != rows.shape:
                fault = "segments, label and foreground need one row per instance, and at least one"
            elif int(rows.min()) < 0 or int(rows.max()) >= len(data.bank.values):
                fault = "segments point outside the bank: indices run from 0 to its number of rows minus one"
            elif data.mask is not None and not bool(data.mask.any(dim=1).all()):
                fault = "an instance has no segment: every row of mask needs at least one True"
            if fault:
                raise DataError(f"{self.title}, {split}: {fault}.")

    @property
    def bank(self) -> Bank:
        """The bank that the splits share."""
        return self.splits["train"].bank

    def to(self, device: torch.device) -> SDCTask:
        """The same task on `device`; the bank is moved once."""
        bank = self.bank.to(device)
        return replace(self, splits={k: replace(v, bank=bank).to(device) for k, v in self.splits.items()})


def distinct(index: Int[Tensor, "B M"]) -> tuple[Int[Tensor, " N"], Int[Tensor, "B M"]]:
    """Distinct rows that occur in `index`, and the position of each entry among them."""
    rows, inverse = torch.unique(index, return_inverse=True)
    return rows, inverse


def every_occurrence(index: Int[Tensor, "B M"]) -> tuple[Int[Tensor, " BM"], Int[Tensor, "B M"]]:
    """The plain counterpart of `distinct`: every entry of `index` is a separate row."""
    return index.flatten(), torch.arange(index.numel(), device=index.device).view(index.shape)


def by_split(
    bank: Bank,
    owner: Int[np.ndarray, " N"],
    foreground: Bool[np.ndarray, " N"],
    label: Int[np.ndarray, " n"],
    split: np.ndarray,
    rows: Int[np.ndarray, " N"] | None = None,
) -> dict[str, SDCData]:
    """Instances of each split, padded to the longest; `owner` is each segment's instance.

    Each segment has a row of the bank of its own, unless `rows` gives its row.
    """
    rows = np.arange(len(owner)) if rows is None else rows
    order, sizes = np.argsort(owner, kind="stable"), np.bincount(owner)
    splits = {}
    for name in SPLITS:
        chosen = split == name
        part = order[chosen[owner[order]]]  # segments of the split, instance after instance
        mask = np.arange(sizes[chosen].max()) < sizes[chosen, None]  # (n, M)
        segments, truth = np.zeros(mask.shape, dtype=np.int32), np.zeros(mask.shape, dtype=bool)
        segments[mask], truth[mask] = rows[part], foreground[part]
        index, labels, marks, real = map(torch.from_numpy, (segments, label[chosen], truth, mask))
        splits[name] = SDCData(bank, index, labels, marks, None if mask.all() else real)
    return splits


def generators(config: Any, seed: int) -> Iterator[tuple[str, int, np.random.Generator]]:
    """Yield the name, the number of instances and the generator of each split of generated data."""
    for number, split in enumerate(SPLITS):
        yield split, getattr(config, f"num_{split}"), np.random.default_rng([seed, number])


def generated(draw: Callable[..., Drawn], config: Any, seed: int, names: Iterable[str], title: str) -> SDCTask:
    """The task whose splits `draw(config, number of instances, generator)` returns, each with its own segments."""
    parts, first = [], 0
    for name, count, generator in generators(config, seed):
        values, rows, *others = draw(config, count, generator)
        parts.append((values, first + rows, *others, np.full(count, name)))
        first += len(values)
    values, rows, foreground, sizes, label, split = (np.concatenate(column) for column in zip(*parts, strict=True))
    owner, bank = np.arange(len(label)).repeat(sizes), Bank(torch.from_numpy(values))
    return SDCTask(by_split(bank, owner, foreground, label, split, rows), tuple(names), title)


def drawn(items: Sequence[Item], number: int, seed: Sequence[int], what: str) -> list[Item]:
    """All items if `number` is 0, else that many, drawn without replacement and in their original order."""
    if number > len(items):
        raise DataError(f"{number:,} {what} are requested, but there are only {len(items):,}: give a smaller number.")
    if number in (0, len(items)):
        return list(items)
    return [items[place] for place in sorted(np.random.default_rng(seed).permutation(len(items))[:number].tolist())]


def frequent_words(texts: Iterable[Sequence[str]], config: Any) -> dict[str, int]:
    """How often each word occurs in the training texts, without those that occur less than `min_count` times."""
    counts = {word: count for word, count in Counter(chain(*texts)).items() if count >= config.min_count}
    if not counts:
        fault = f"min_count={config.min_count:,} leaves no words in dataset='{config.source}'"
        raise DataError(f"{fault}, since no word occurs that often in the training texts: give a smaller number.")
    return counts

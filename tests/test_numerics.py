"""Threads and subnormal numbers: set while something trains, and put back."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from fcamlib import numerics
from fcamlib.numerics import PLAIN, reproducible


def flushed(values: Tensor) -> list[float]:
    """Share of numbers below the normal ones that a product makes zero, in each quarter of the values."""
    zeros = (values * 0.5 == 0).float()
    return [float(part.mean()) for part in zeros.chunk(4)]


@pytest.mark.skipif(sys.platform != "linux", reason="OpenMP's library is found through /proc")
@pytest.mark.parametrize("threads", [1, 2])
def test_subnormal_numbers_are_flushed_in_every_thread_and_come_back(threads: int) -> None:
    values, before = torch.full((2**18,), 1e-39), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert flushed(values) == [0.0] * 4  # OpenMP's workers run now and stay
        with reproducible(threads):
            assert flushed(values) == [1.0] * 4
            with reproducible(threads):
                pass
            assert flushed(values) == [1.0] * 4, "on before, on after"
        assert flushed(values) == [0.0] * 4
    finally:
        torch.set_num_threads(before)


def test_rows_at_once_fill_the_budget_and_are_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "BUDGET", 1_000)
    assert [PLAIN.rows_at_once(each) for each in (0, 7, 1_000, 5_000)] == [1_000, 142, 1, 1]

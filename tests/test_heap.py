"""Freed memory: kept for the next step, given back beyond a bound."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from fcamlib import chunked, heap
from fcamlib.data.sdc import Bank, SDCData
from fcamlib.fcam import FCAM
from fcamlib.numerics import PLAIN

# Resident megabytes of a process of its own, since what glibc is told holds for a whole process.
SCRIPT = """
import ctypes, sys
from fcamlib import heap

def resident():
    return heap._resident() / 2**20

def use_and_free(number):  # blocks of one megabyte, every byte written, then all freed
    library = ctypes.CDLL("libc.so.6")
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    blocks = [library.malloc(2**20) for _ in range(number)]
    for block in blocks:
        ctypes.memset(block, 1, 2**20)
    for block in blocks:
        library.free(block)

if sys.argv[1] == "kept":
    heap.keep_freed_memory()
before = resident()
use_and_free(256)
after = resident()
heap.give_back_surplus()
below = resident()
heap.SURPLUS = 64 * 2**20
heap.give_back_surplus()
beyond = resident()
use_and_free(32)
heap.give_back_surplus()
print(*(measured - before for measured in (after, below, beyond, resident())))
"""


def megabytes(how: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


@pytest.mark.skipif(heap._glibc() is None, reason="the C library is not glibc 2.33 or later")
def test_freed_memory_is_kept_up_to_the_surplus_and_by_default_not_at_all() -> None:
    after, below, beyond, again = megabytes("kept")
    assert 250 < after < 300 and 250 < below < 300, "kept, and not given back while it is no surplus"
    assert beyond < 16 and 30 < again - beyond < 48, "given back, and what comes after it is kept again"
    assert max(megabytes("default")) < 16


def test_large_passes_alone_look_for_a_surplus(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bool] = []
    monkeypatch.setattr(chunked, "give_back_surplus", lambda: looked.append(True))
    monkeypatch.setattr(chunked, "ALWAYS_WHOLE", 6)
    model = FCAM(torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0)), torch.nn.Linear(2, 3))
    bank = Bank(torch.randn(10, 2), 1.0, 0.0)
    for num_segments, expected in ((3, 0), (4, 1)):
        segments = torch.arange(2 * num_segments, dtype=torch.int32).reshape(2, num_segments)
        data = SDCData(bank, segments, torch.tensor([0, 1]), segments == segments[:, :1])
        chunked.batch_output(model, data, "hard", PLAIN)
        assert len(looked) == expected, "six segments are a small pass, eight are not"

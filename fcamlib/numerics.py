"""Device, floating-point format, memory layout, threads and memory budget of a run, as set by its config."""

from __future__ import annotations

import ctypes
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor, nn

from fcamlib.config import Training
from fcamlib.data.sdc import distinct, every_occurrence
from fcamlib.errors import UserError
from fcamlib.provenance import slow_bfloat16

log = logging.getLogger(__name__)
BUDGET = 2**31  # bytes for the tensors of one pass on a CPU; on a GPU half of its memory
ROWS = 1024  # segments or instances per evaluation pass on a CPU, so that they fit its caches; 16 times that on a GPU


@dataclass(frozen=True)
class Numerics:
    """Device, floating-point format and memory layout of a computation."""

    device: torch.device
    dtype: torch.dtype  # of weights and segments; float32 under bfloat16 autocast
    channels_last: bool = False  # memory layout of pictures
    autocast: bool = False  # whether convolutions and dense layers run in bfloat16
    tf32: bool = False  # whether they round inputs to TensorFloat-32 on a GPU that supports it; otherwise float32

    @classmethod
    def of(cls, config: Training) -> Numerics:
        """The numerics of a config on this machine."""
        device = config.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() and config.precision != "float64" else "cpu"
        _warn_once(slow_bfloat16(config))
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError("device='cuda' is not available here: choose device=cpu, or auto to use CUDA when present.")
        return cls(
            torch.device(device),
            torch.float64 if config.precision == "float64" else torch.float32,
            config.memory_layout == "channels_last",
            config.precision == "bfloat16",
            config.precision == "tfloat32",
        )

    def rows_at_once(self, bytes_each: float | int) -> int:
        """How many rows (at least one) fit into memory if each takes `bytes_each` over all its tensors."""
        budget = BUDGET
        if self.device.type == "cuda":
            budget = torch.cuda.get_device_properties(self.device).total_memory // 2
        return max(1, int(budget / max(bytes_each, 1.0)))

    @property
    def evaluated_at_once(self) -> int:
        """Largest number of segments or instances in an evaluation pass."""
        return 16 * ROWS if self.device.type == "cuda" else ROWS

    def autocasting(self) -> AbstractContextManager[None]:
        """The context in which a model is called."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast)

    def rows_of(self, segments: Int[Tensor, "B M"], num_rows: int) -> tuple[Int[Tensor, " N"], Int[Tensor, "B M"]]:
        """Rows of a bank of `num_rows` to evaluate for a batch, and the position of each segment among them.

        On a CPU these are the distinct rows. On a GPU they are all occurrences, or the whole bank if that is smaller:
        counting the distinct rows would force a synchronisation at each step.
        """
        if self.device.type != "cuda":
            return distinct(segments)
        if segments.numel() < num_rows:
            return every_occurrence(segments)
        return torch.arange(num_rows, device=segments.device), segments.long()

    def place(self, model: nn.Module) -> nn.Module:
        """Move a model to this device, format and layout."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        return model.to(device=self.device, dtype=self.dtype, memory_format=layout)  # type: ignore[call-overload]


PLAIN = Numerics(torch.device("cpu"), torch.float32)


@contextmanager
def reproducible(threads: int, tf32: bool = False) -> Iterator[None]:
    """Fix the number of CPU threads, cuDNN's choice of algorithms and TensorFloat-32, and restore them afterwards.

    Subnormal numbers are flushed to zero in every thread. Confident attention produces them, and they make a step up
    to four times as slow; they are too small to change any number they are added to.
    """
    before, matmul = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    flushed = sys.float_info.min / 2 == 0.0
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = tf32
    _flush_subnormals(True)
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        _flush_subnormals(flushed)
        torch.set_num_threads(before)
        torch.backends.cuda.matmul.allow_tf32 = matmul


def _flush_subnormals(on: bool) -> None:
    """Flush subnormal numbers to zero, or keep them, in this thread and in OpenMP's worker threads.

    The flag is per thread, and torch sets it only in the calling thread; OpenMP workers that already run do not inherit
    it. The function therefore sets it in each worker through OpenMP itself, if its library can be found.
    """
    torch.set_flush_denormal(on)
    if torch.get_num_threads() == 1:
        return
    with suppress(OSError, AttributeError):
        each = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: torch.set_flush_denormal(on) and None)
        maps = Path("/proc/self/maps").read_text("utf-8")
        for library in set(re.findall(r"/.*/lib[gi]?omp5?[-.][^/\n]*", maps)):
            ctypes.CDLL(library).GOMP_parallel(each, None, torch.get_num_threads(), 0)


@cache
def _warn_once(sentence: str) -> None:
    if sentence:
        log.warning("%s", sentence)


def keep_freed_memory() -> None:
    """Tell glibc to keep freed blocks for the next training step; page faults were a quarter of a step's time."""
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # mallopt(3)
    with suppress(OSError, AttributeError):
        for option, value in ((mmap_max, 0), (trim_threshold, -1), (top_pad, 2**28)):  # -1: at no size
            ctypes.CDLL("libc.so.6").mallopt(option, value)

"""Device, floating-point format and memory layout of a run, as its config states them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from fcamlib.config import TrainingConfig
from fcamlib.data.sdc import distinct, every_occurrence
from fcamlib.errors import UserError


@dataclass(frozen=True)
class Numerics:
    """What numbers are computed with.

    Parameters
    ----------
    device : torch.device
    dtype : torch.dtype
        Of weights and segments; float32 under bfloat16 autocast.
    channels_last : bool
        Memory layout of pictures.
    autocast : bool
        Whether convolutions and dense layers run in bfloat16.
    tf32 : bool
        Whether they round their inputs to TensorFloat-32 on a GPU that can; elsewhere the same as float32.
    """

    device: torch.device
    dtype: torch.dtype
    channels_last: bool = False
    autocast: bool = False
    tf32: bool = False

    @classmethod
    def of(cls, config: TrainingConfig) -> Numerics:
        """The numerics that a config asks for on this machine."""
        device = config.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() and config.precision != "float64" else "cpu"
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError("device='cuda' is not available here: choose device=cpu, or auto to use CUDA when present.")
        return cls(
            torch.device(device),
            torch.float64 if config.precision == "float64" else torch.float32,
            config.memory_layout == "channels_last",
            config.precision == "bfloat16",
            config.precision == "tfloat32",
        )

    def autocasting(self) -> AbstractContextManager[None]:
        """The context in which a model is called."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast)

    def rows_of(self, segments: Int[Tensor, "B M"], num_rows: int) -> tuple[Int[Tensor, " N"], Int[Tensor, "B M"]]:
        """Rows to evaluate for a batch, out of a bank of `num_rows`, and the place of each segment among them.

        Distinct rows on a CPU, where work counts; on a GPU every occurrence, or the whole bank where that is less,
        since finding out how many rows are distinct would wait for the device at each step.
        """
        if self.device.type != "cuda":
            return distinct(segments)
        if segments.numel() < num_rows:
            return every_occurrence(segments)
        return torch.arange(num_rows, device=segments.device), segments.long()

    def place(self, model: nn.Module) -> nn.Module:
        """Move a model to the device, format and layout."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        return model.to(device=self.device, dtype=self.dtype, memory_format=layout)  # type: ignore[call-overload]


PLAIN = Numerics(torch.device("cpu"), torch.float32)


@contextmanager
def reproducible(threads: int, tf32: bool = False) -> Iterator[None]:
    """Fix the number of CPU threads, cuDNN's choice of algorithms and the use of TensorFloat-32, and restore them."""
    before, matmul = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        torch.set_num_threads(before)
        torch.backends.cuda.matmul.allow_tf32 = matmul

"""What `fcam bench` measures, known without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class BenchSettings:
    """What is measured; the defaults are the paper's CIFAR-10 sizes.

    Parameters
    ----------
    num_pictures, num_train, num_test : int
        Base pictures, training and test mosaics.
    segments : tuple of int
        Numbers of segments M.
    batch_size : int
        Mosaics per step.
    steps : int
        Training steps that an epoch is scaled up from, on both sides.
    evaluation_mosaics, setup_mosaics : int
        Mosaics that the plain evaluation and set-up are scaled up from; the library's are measured in whole,
        because their time is not proportional to the mosaics.
    repeats : int
        Times that each measure is taken.
    epochs : int
        Times that the library goes through its steps, so that what it does once is shared as in a run. The plain
        procedure does nothing once.
    device : "cpu" or "cuda"
        Of both sides.
    precision : str
        The library's floating-point format. The plain procedure takes torch's defaults: float32, with convolutions in
        TensorFloat-32 on a GPU that has it.
    clock : "wall" or "cpu"
        Seconds that pass, or seconds of the processor: the latter mind other programs less.
    """

    num_pictures: int = 60_000
    num_train: int = 30_000
    num_test: int = 10_000
    segments: tuple[int, ...] = (5, 20)
    batch_size: int = 256
    steps: int = 3
    evaluation_mosaics: int = 512
    setup_mosaics: int = 1_000
    repeats: int = 3
    threads: int = 1
    clock: str = "wall"
    epochs: int = 1
    device: str = "cpu"
    precision: str = "float32"
    seed: int = 0

    @property
    def num_mosaics(self) -> int:
        """Mosaics in all."""
        return self.num_train + self.num_test

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a whole epoch."""
        return math.ceil(self.num_train / self.batch_size)


QUICK = BenchSettings(
    num_pictures=20_000,
    num_train=10_000,
    num_test=3_000,
    batch_size=64,
    steps=2,
    evaluation_mosaics=128,
    setup_mosaics=256,
    repeats=1,
)

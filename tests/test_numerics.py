"""Threads, subnormal numbers and instruction sets: the same numbers, and nothing left as it was set."""

import json
import os
import subprocess
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


PROGRAM = """
import json
import torch
from fcamlib.config import Grid
from fcamlib.data.mosaics import mosaic_task
from fcamlib.running import build_model
from fcamlib.training import fit

torch.set_num_threads({threads})
small = {{"num_train": 256, "num_validation": 64, "num_test": 64, "epochs": 4, "paradigms": "hybrid"}}
config = Grid.of(small | {{"threads": {threads}}}).configs()[0]
task = mosaic_task(config.data, config.seed)
history = fit(build_model(config, task), task, config.phases, config.training, config.seed).history
print(json.dumps([torch.backends.cpu.get_cpu_capability(), history]))
"""


def history_under(capability: str) -> tuple[str, list[dict[str, float]]]:
    """The capability that torch reports and the history of a small float64 run in a process of its own, one thread."""
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM.format(threads=1)]
    used, history = json.loads(subprocess.check_output(command, env=environment, text=True))
    return used, history


def test_numbers_agree_across_instruction_sets_and_threads(capsys: pytest.CaptureFixture[str]) -> None:
    """This process has the instructions that the processor offers, and here two threads; the other has the least."""
    used, expected = history_under("default")
    assert used in ("DEFAULT", "NO AVX")
    threads = torch.get_num_threads()
    try:
        exec(PROGRAM.format(threads=2), {})
    finally:
        torch.set_num_threads(threads)
    used, history = json.loads(capsys.readouterr().out)
    assert used == torch.backends.cpu.get_cpu_capability()
    for row, other in zip(expected, history, strict=True):
        assert row.keys() == other.keys()
        for name in row.keys() - {"seconds", "paradigm"}:
            assert other[name] == pytest.approx(row[name], rel=1e-9, abs=1e-9), f"{name} of epoch {row['epoch']}"

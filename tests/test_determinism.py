"""The embedded profile prints the same numbers whatever the processor's instruction set and the number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

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

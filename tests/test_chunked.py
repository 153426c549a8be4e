"""Passes in chunks, threads and instruction sets: the same numbers, in memory that does not grow with m."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from toys import Centred, mlp, vectors

from fcamlib import chunked, numerics
from fcamlib.chunked import batch_output, chunk_size, kept_of_each
from fcamlib.cost import PeakMemory
from fcamlib.data.sdc import Bank, SDCData, distinct
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM, FCAMOutput, TableOutput
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import PLAIN, Numerics, reproducible
from fcamlib.paradigms import PAPER

N, B, M, K, D = 23, 7, 11, 5, 6
FLOAT64 = Numerics(torch.device("cpu"), torch.float64)
PARADIGMS = ("soft", "hard", "lvml", "logit_mixture")
each_paradigm = pytest.mark.parametrize("paradigm", PARADIGMS)


class Neighbours(Centred):
    """Maps segments by learned weights, and subtracts the instance's mean."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.map = nn.Linear(dim, dim, dtype=torch.float64)

    def forward(self, segments: Tensor, mask: Tensor | None) -> Tensor:
        return super().forward(self.map(segments).tanh(), mask)


def instances(masked: bool = True) -> SDCData:
    return vectors(B, M, N, D, K, masked)


def network(encoder: str = "") -> FCAM:
    torch.manual_seed(0)
    if encoder == "context-free":
        return mlp(8, K, nn.Sequential(nn.Linear(D, 8), nn.ReLU()))
    return mlp(D, K, Neighbours(D) if encoder == "neighbours" else None)


def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for chunks wherever more than one segment is evaluated, and for tables of class logits."""
    monkeypatch.setattr(numerics, "ROWS", 1)
    monkeypatch.setattr(numerics, "BUDGET", 15_000)
    monkeypatch.setattr(chunked, "_KEPT", type(chunked._KEPT)())


def results_of(output: FCAMOutput, model: FCAM, data: SDCData, paradigm: str) -> list[Tensor]:
    """Losses, log probabilities and gradients of a pass."""
    each, mean = output.loss(paradigm, data.label, "none"), output.loss(paradigm, data.label)
    assert_close(each.mean(), mean, rtol=1e-12, atol=0)
    return [each.detach(), output.log_prob(paradigm).detach(), *torch.autograd.grad(mean, list(model.parameters()))]


@each_paradigm
@pytest.mark.parametrize("encoder", ["", "context-free", "neighbours"])
@pytest.mark.parametrize("masked", [False, True])
def test_chunks_give_the_gradients_of_one_piece(
    monkeypatch: pytest.MonkeyPatch, paradigm: str, encoder: str, masked: bool
) -> None:
    model, data = network(encoder), instances(masked)
    rows, places = distinct(data.segments)
    whole = model(data.bank.rows(rows, torch.float64), places, paradigm, data.mask)
    expected = results_of(whole, model, data, paradigm)
    small_chunks(monkeypatch)
    size = chunk_size(model, data, len(rows), paradigm, FLOAT64)
    assert size is not None and 1 <= size < (len(data) if encoder == "neighbours" else len(rows)) / 2
    sizes = []
    output = batch_output(model, data, paradigm, FLOAT64)
    assert isinstance(output, TableOutput) == (encoder != "neighbours" and paradigm != "soft")
    for found, wanted in zip(results_of(output, model, data, paradigm), expected, strict=True):
        assert (found - wanted).abs().max() <= 1e-10 * wanted.abs().max() + 1e-15
        sizes.append(wanted.abs().max().item())
    assert sum(size < 1e-6 for size in sizes) == 1  # the focus model's last bias, which changes no attention weight


@each_paradigm
def test_small_batches_take_the_pass_in_one_piece_bit_for_bit(paradigm: str) -> None:
    model, data = network(), instances()
    rows, places = distinct(data.segments)
    before = model(data.bank.rows(rows, torch.float64), places, paradigm, data.mask)
    now = batch_output(model, data, paradigm, FLOAT64)
    assert chunk_size(model, data, len(rows), paradigm, FLOAT64) is None and type(now) is FCAMOutput
    assert all(map(torch.equal, *(results_of(output, model, data, paradigm) for output in (before, now))))


def test_ten_thousand_segments_fit_where_a_hundred_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peak bytes of tensors in forward and backward pass: bounded in chunks, a hundred times as much in one piece."""
    peaks = {}
    for num_segments in (100, 10_000):
        data = vectors(1, num_segments, num_segments, D, K, masked=False)
        data = replace(data, segments=torch.arange(num_segments, dtype=torch.int32)[None])
        for whole in (True, False):
            monkeypatch.setattr(numerics, "BUDGET", 2**40 if whole else 2**20)
            model = network()
            with PeakMemory() as memory:
                batch_output(model, data, "hard", FLOAT64).loss("hard", data.label).backward()
            peaks[num_segments, whole] = memory.peak
    scores = 10_000 * (K + 8) * 8 * 3  # numbers for each place: weights, logits, their gradients
    assert peaks[10_000, False] < 2**20 * 2.5 + scores
    assert peaks[10_000, True] > 50 * peaks[100, True]
    assert peaks[10_000, True] > 4 * peaks[10_000, False]


def test_large_pictures_are_never_passed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty photographs in a network with wide layers take more than the budget, in training and in evaluation."""
    monkeypatch.setattr(numerics, "BUDGET", 2**25)
    bank = Bank(torch.zeros(20, 128, 128, 3, dtype=torch.uint8), pictures=True)
    data = replace(vectors(20, 5, 1, 1, K, masked=False), bank=bank, segments=torch.arange(100).view(20, 5) % 20)
    name, shape, generator = "cnn:1x24", (3, 128, 128), torch.Generator()
    model = FCAM(focus_network(name, shape, generator), classification_network(name, shape, K, generator))
    calls: list[Callable[[], Any]] = [partial(evaluate, model, data, [paradigm]) for paradigm in PAPER]
    calls.append(lambda: batch_output(model, data, "hard", PLAIN))
    for call in calls:
        with PeakMemory() as memory:
            call()
        assert memory.peak < 1.25 * 2**25


def test_kept_bytes_are_those_of_the_layers() -> None:
    """Of an mlp autograd keeps the input and the activations after each ReLU, 128 and 64 numbers, and no logits."""
    model, data = network(), instances()
    assert kept_of_each(model, data, "soft", FLOAT64) == 8 * (D + 128 + 64)
    assert kept_of_each(model, data, "hard", FLOAT64) == 8 * (D + 2 * (128 + 64))


def test_peak_memory_counts_storages_once_and_until_they_are_freed() -> None:
    with PeakMemory() as memory:
        first = torch.zeros(1000)
        view = first.view(10, 100)[2:]
        first.add_(1.0)
        assert (memory.live, memory.peak) == (4000, 4000)
        second = torch.ones(500, dtype=torch.float64) * 2  # two storages at once, then one
        assert (memory.live, memory.peak) == (8000, 12000)
        del first
        assert memory.live == 8000  # the view holds it
        del view, second
        assert (memory.live, memory.peak) == (0, 12000)


def test_a_gpu_evaluates_the_bank_where_it_is_smaller_than_the_batch() -> None:
    on_gpu = Numerics(torch.device("cuda"), torch.float32)  # only its kind is looked at
    segments = torch.tensor([[3, 0, 3], [1, 3, 2]], dtype=torch.int32)
    for num_rows, expected in ((6, [0, 1, 2, 3, 4, 5]), (7, [3, 0, 3, 1, 3, 2])):
        rows, places = on_gpu.rows_of(segments, num_rows)
        assert rows.tolist() == expected
        assert torch.equal(rows[places], segments.long().to(rows))


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


PROGRAM = """
import json
import torch
from fcamlib.config import Grid
from fcamlib.data.mosaics import mosaic_task
from fcamlib.running import build_model
from fcamlib.training import fit

torch.set_num_threads({threads})
small = {{"num_train": 128, "num_validation": 32, "num_test": 32, "epochs": 4, "paradigms": "hybrid"}}
config = Grid.of(small | {{"threads": {threads}}}).configs()[0]
task = mosaic_task(config.data, config.seed)
history = fit(build_model(config, task), task, config.phases, config.training, config.seed).history
print(json.dumps([torch.backends.cpu.get_cpu_capability(), history]))
"""


def test_numbers_agree_across_instruction_sets_and_threads(capsys: pytest.CaptureFixture[str]) -> None:
    """This process has the instructions that the processor offers, and here two threads; the other has the least."""
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM.format(threads=1)]
    used, expected = json.loads(subprocess.check_output(command, env=environment, text=True))
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

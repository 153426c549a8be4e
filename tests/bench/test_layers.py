"""The benchmark by layer: work counted as torch counts it, and time attributed to the layer that it was spent in."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fcamlib.__main__ import main
from fcamlib.bench import command
from fcamlib.bench import layers as bench_layers
from fcamlib.bench.layers import Layer, by_layer, layers_of, rows_of, watched_step, why
from fcamlib.bench.settings import BenchSettings
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network, focus_network


def model() -> FCAM:
    generator = torch.Generator().manual_seed(0)
    shape = (3, 32, 32)
    return FCAM(focus_network("cifar10", shape, generator), classification_network("cifar10", shape, 4, generator))


def backward(built: FCAM, pictures: torch.Tensor) -> None:
    (built.focus_model(pictures).sum() + built.classification_model(pictures).sum()).backward()


def test_operations_are_those_that_torch_counts() -> None:
    built, pictures = model(), torch.rand(3, 3, 32, 32)
    layers = layers_of(built)
    watched_step(layers, lambda: backward(built, pictures))
    with FlopCounterMode(display=False) as counter:
        backward(built, pictures)
    operations = sum(layer.work(direction)[0] for layer in layers for direction in ("forward", "backward"))
    assert operations == counter.get_total_flops() > 0


def event(name: str, sequence: int, microseconds: float, *children: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(name=name, sequence_nr=sequence, cpu_time_total=microseconds, cpu_children=children)


def test_backward_time_goes_to_the_layer_whose_operation_has_the_same_number() -> None:
    backward = "autograd::engine::evaluate_function: "
    events = [
        event("layer 2", -1, 1.0, event("slice", 7, 1.0)),  # needs no gradient, so it uses up no number
        event("layer 1", -1, 30.0, event("conv", 7, 20.0, event("inner", -1, 19.0)), event("bias", 8, 5.0)),
        event("layer 0", -1, 4.0, event("relu", 9, 3.0)),
        event("loss", 10, 2.0),
        event(f"{backward}ConvBackward", 7, 50.0),
        event(f"{backward}BiasBackward", 8, 6.0),
        event(f"{backward}ReluBackward", 9, 9.0),
        event(f"{backward}LossBackward", 10, 100.0),
        event("ConvBackward", 7, 49.0),  # within the first, not counted twice
    ]
    found = by_layer(events)
    assert found == {
        2: {"forward": 1.0, "backward": 0.0},
        1: {"forward": 30.0, "backward": 56.0},
        0: {"forward": 4.0, "backward": 9.0},
    }


def test_every_layer_of_a_real_pass_has_its_time() -> None:
    built = model()
    layers = layers_of(built)
    for _ in range(2):
        watched_step(layers, lambda: backward(built, torch.rand(2, 3, 32, 32)))
    assert [len(layer.seconds[way]) for layer in layers for way in ("forward", "backward")] == [2] * 2 * len(layers)
    for layer in layers:
        views = isinstance(layer.module, nn.Flatten) or not list(layer.module.parameters())
        assert min(layer.seconds["forward"]) > 0 and (views or min(layer.seconds["backward"]) > 0), layer.name
    assert layers[0].name == "focus crop" and max(layers[0].seconds["backward"]) == 0  # pictures need no gradient


def test_bytes_of_pooling_and_of_a_first_layer_by_hand() -> None:
    pooled = Layer("pooling", nn.MaxPool2d(2), True, torch.empty(2, 3, 8, 8), torch.empty(2, 3, 4, 4))
    assert pooled.work("forward") == (0, 4 * (384 + 96) + 8 * 96)
    assert pooled.work("backward") == (0, 4 * 96 + 8 * 96 + 4 * 384)
    first = Layer("first", nn.Linear(5, 7), False, torch.empty(2, 5), torch.empty(2, 7))
    assert first.work("forward") == (2 * 2 * 5 * 7, 4 * (10 + 14 + 42))
    assert first.work("backward") == (2 * 2 * 5 * 7, 4 * (14 + 10 + 2 * 42))  # no gradient of its input


def test_a_row_takes_the_greater_of_both_floors_and_explains_what_is_below_half() -> None:
    layer = Layer("dense", nn.Linear(5, 7), True, torch.empty(2, 5), torch.empty(2, 7))
    layer.seconds = {"forward": [0.004, 0.002, 0.003], "backward": [1.0]}
    flops, moved = layer.work("forward")
    row, slow = rows_of(layer, rate=flops / 0.002, bandwidth=moved / 0.001, step_seconds=2.0)
    assert row["ms"] == {"median": 3.0, "low": 2.0, "high": 4.0}
    assert (row["floor_ms"], row["bound"]) == (pytest.approx(2.0), "compute")
    assert row["fraction"] == pytest.approx(2 / 3) and row["why"] == ""
    assert slow["fraction"] < 0.5 and slow["why"].endswith(".")
    assert rows_of(layer, rate=1e12, bandwidth=moved / 0.001, step_seconds=2.0)[0]["bound"] == "memory"


def test_every_kind_of_layer_has_one_sentence_why() -> None:
    kinds: list[nn.Module] = [nn.Conv2d(3, 6, 5), nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.Linear(4, 4), nn.ReLU()]
    for kind in kinds:
        for direction in ("forward", "backward"):
            for share in (0.001, 0.1):
                sentence = why(kind, direction, share, channels=6)
                assert sentence.endswith(".") and len(sentence) < 200


def test_command_writes_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "QUICK", BenchSettings(num_pictures=60, num_train=12, batch_size=4, repeats=2))
    monkeypatch.setattr(bench_layers, "MATRIX", 64)
    monkeypatch.setattr(bench_layers, "COPIED", 2**16)
    path = tmp_path / "layers.json"
    shown = CliRunner().invoke(main, ["bench", "--measure", "layers", "--quick", "--json", str(path)])
    assert shown.exit_code == 0, shown.output
    content: dict[str, Any] = json.loads(path.read_text())
    rows = content["rows"]
    assert {row["layer"].split()[0] for row in rows} == {"focus", "classification"}
    assert content["floor_ms"] == pytest.approx(sum(row["floor_ms"] for row in rows))
    assert 0 < content["rest_ms"] < content["step_ms"]["high"]
    assert content["fraction"] == pytest.approx(content["floor_ms"] / content["step_ms"]["median"])
    assert all(bool(row["why"]) == (row["fraction"] < 0.5) for row in rows)
    assert "focus convolution 32 to 64, 3 x 3" in shown.output and "median of 2 steps" in shown.output

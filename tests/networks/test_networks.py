"""Networks against the paper's table of layers, counted by hand, and against plain functional versions."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from fcamlib.errors import UserError
from fcamlib.networks import CLASSIFICATION_NETWORKS, FOCUS_NETWORKS, classification_network, focus_network

PICTURE, DIGIT, VECTOR, WINDOW = (3, 32, 32), (1, 8, 8), (7,), (2, 17)
SHAPES: dict[str, tuple[int, ...]] = {
    "cifar10": PICTURE,
    "cifar100": PICTURE,
    "digits": DIGIT,
    "mlp": DIGIT,
    "linear": DIGIT,
    "conv1d": WINDOW,
    "text200": VECTOR,
    "text50": VECTOR,
}
K = 5


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(kind: str, name: str, seed: int = 0) -> nn.Module:
    if kind == "focus":
        return focus_network(name, SHAPES[name], generator(seed))
    return classification_network(name, SHAPES[name], K, generator(seed))


ALL = [("focus", name) for name in FOCUS_NETWORKS] + [("classifier", name) for name in CLASSIFICATION_NETWORKS]

# Convolutions (out, in, size, size), then dense layers (out, in), in order.
TRUNK_1D = [(8, 2, 7), (8, 8, 3)]
FOCUS_CONV = [(32, 3, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3)]
WEIGHTS = {
    ("focus", "cifar10"): [*FOCUS_CONV, (512, 1024), (64, 512), (10, 64), (1, 10)],
    ("focus", "cifar100"): [*FOCUS_CONV, (512, 1024), (64, 512), (1, 64)],
    ("classifier", "cifar10"): [(6, 3, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84), (K, 10)],
    ("classifier", "cifar100"): [(16, 3, 5, 5), (32, 16, 5, 5), (120, 800), (K, 120)],
    ("focus", "digits"): [(16, 1, 4, 4), (32, 144), (1, 32)],
    ("classifier", "digits"): [(8, 1, 4, 4), (32, 72), (K, 32)],
    ("focus", "mlp"): [(128, 64), (64, 128), (1, 64)],
    ("classifier", "mlp"): [(128, 64), (64, 128), (K, 64)],
    ("focus", "linear"): [(1, 64)],
    ("classifier", "linear"): [(K, 64)],
    ("focus", "conv1d"): [*TRUNK_1D, (8, 8), (1, 8)],
    ("classifier", "conv1d"): [*TRUNK_1D, (8, 8), (K, 8)],
    ("focus", "text200"): [(200, 7), (1, 200)],
    ("focus", "text50"): [(50, 7), (1, 50)],
    ("classifier", "text200"): [(200, 7), (K, 200)],
}


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_layers_start_xavier_normal_from_the_generator_alone_and_biases_at_zero(kind: str, name: str) -> None:
    before, draws = torch.get_rng_state(), generator()
    parameters = dict(build(kind, name).named_parameters())
    assert torch.equal(torch.get_rng_state(), before)
    weights = [parameter for key, parameter in parameters.items() if key.endswith("weight")]
    biases = [parameter for key, parameter in parameters.items() if key.endswith("bias")]
    assert [tuple(weight.shape) for weight in weights] == WEIGHTS[kind, name]
    without = name == "linear" or (kind == "focus" and name.startswith("cifar"))
    assert [bias.tolist() for bias in biases] == ([] if without else [[0.0] * len(weight) for weight in weights])
    for weight in weights:
        assert weight.dtype == torch.float32 and weight.requires_grad
        assert torch.equal(weight, nn.init.xavier_normal_(torch.empty(weight.shape), generator=draws))


def relu_then_pool(segments: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    return functional.max_pool2d(functional.conv2d(segments, kernel, bias).relu(), 2)


def dense(values: Tensor, layers: list[tuple[Tensor, Tensor | None]]) -> Tensor:
    """Dense layers, ReLU after each but the last."""
    for weight, bias in layers[:-1]:
        values = functional.linear(values, weight, bias).relu()
    return functional.linear(values, *layers[-1])


def layers_of(network: nn.Module) -> list[tuple[Tensor, Tensor | None]]:
    """Weights and biases in order, the biases moved off zero so that they count."""
    layers: list[tuple[Tensor, Tensor | None]] = []
    for layer in network.modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear):
            if layer.bias is not None:
                nn.init.normal_(layer.bias, generator=generator(len(layers)))
            layers.append((layer.weight, layer.bias))
    return layers


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_networks_equal_their_layers_written_out(kind: str, name: str) -> None:
    """Pooling before ReLU, as the CIFAR networks do, equals ReLU before pooling, as the paper's table says."""
    network, hidden = build(kind, name), torch.randn(2, *SHAPES[name], generator=generator())
    expected, layers = hidden, layers_of(network)
    if name.startswith("cifar"):
        expected = relu_then_pool(relu_then_pool(hidden, *layers[0]), *layers[1])
        layers = layers[2:]
        if kind == "focus":
            expected, layers = functional.conv2d(expected, *layers[0]).relu(), layers[1:]
    elif name == "digits":
        expected, layers = functional.conv2d(hidden, *layers[0], stride=2).relu(), layers[1:]
    elif name == "conv1d":
        expected = functional.conv1d(functional.conv1d(hidden, *layers[0], stride=2).relu(), *layers[1])
        expected, layers = expected.relu().amax(dim=2), layers[2:]
    expected = dense(expected.flatten(1), layers)
    assert_close(network(hidden), expected.squeeze(1) if kind == "focus" else expected)


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        (
            "resnet",
            PICTURE,
            "classification_network='resnet' is unknown: choose one of cifar10, cifar100, digits, mlp, ",
        ),
        *(
            (name, DIGIT, "segments of shape (1, 8, 8) do not fit the CIFAR networks, which need (3, 32, 32): set ")
            for name in ("cifar10", "cifar100")
        ),
        ("digits", PICTURE, "segments of shape (3, 32, 32) do not fit the digits networks, which need (1, 8, 8): set "),
        (
            "conv1d",
            (2, 10),
            "segments of shape (2, 10) do not fit the conv1d networks, which need (channels, samples) ",
        ),
        ("conv1d", (20,), "segments of shape (20,) do not fit the conv1d networks, which need (channels, samples) "),
    ],
)
def test_unknown_names_and_shapes_are_one_sentence(name: str, shape: tuple[int, ...], sentence: str) -> None:
    for build_one, field in (
        (lambda: classification_network(name, shape, K, generator()), "classification"),
        (lambda: focus_network(name, shape, generator()), "focus"),
    ):
        with pytest.raises(UserError, match=f"^{re.escape(sentence.replace('classification', field))}"):
            build_one()

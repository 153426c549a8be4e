"""Networks against the paper's table of layers, counted by hand, and against plain functional versions."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from fcamlib.errors import UserError
from fcamlib.networks import CLASSIFICATION_NETWORKS, FOCUS_NETWORKS, classification_network, focus_network

PICTURE, DIGIT, VECTOR, WINDOW = (3, 32, 32), (1, 8, 8), (7,), (2, 16)
SHAPES: dict[str, tuple[int, ...]] = {
    "cifar10": PICTURE,
    "cifar100": PICTURE,
    "digits": DIGIT,
    "mlp": VECTOR,
    "linear": VECTOR,
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
    ("focus", "mlp"): [(128, 7), (64, 128), (1, 64)],
    ("classifier", "mlp"): [(128, 7), (64, 128), (K, 64)],
    ("focus", "linear"): [(1, 7)],
    ("classifier", "linear"): [(K, 7)],
    ("focus", "conv1d"): [*TRUNK_1D, (8, 8), (1, 8)],
    ("classifier", "conv1d"): [*TRUNK_1D, (8, 8), (K, 8)],
    ("focus", "text200"): [(200, 7), (1, 200)],
    ("focus", "text50"): [(50, 7), (1, 50)],
    ("classifier", "text200"): [(200, 7), (K, 200)],
}


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_layers_and_biases(kind: str, name: str) -> None:
    network = build(kind, name)
    shapes = [tuple(parameter.shape) for key, parameter in network.named_parameters() if key.endswith("weight")]
    biases = [parameter for key, parameter in network.named_parameters() if key.endswith("bias")]
    assert shapes == WEIGHTS[kind, name]
    without = name == "linear" or (kind == "focus" and name.startswith("cifar"))
    assert [len(bias) for bias in biases] == ([] if without else [shape[0] for shape in shapes])
    assert all(bool((bias == 0).all()) for bias in biases)


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_weights_start_xavier_normal(kind: str, name: str) -> None:
    """Over many draws each layer's mean is 0 and its standard deviation sqrt(2 / (fan in + fan out))."""
    draws = [[w for w in build(kind, name, seed).parameters() if w.dim() > 1] for seed in range(5)]
    for layer in zip(*draws, strict=True):
        values = torch.stack(layer).detach().flatten().double()
        fan_out, fan_in, *window = layer[0].shape
        expected = sqrt(2 / ((fan_in + fan_out) * torch.Size(window).numel()))
        spread = 4 * expected / sqrt(len(values))  # four standard errors
        assert abs(float(values.mean())) < spread
        assert abs(float(values.std()) - expected) < spread
    large = [w.detach().flatten() for w in draws[0] if w.numel() > 1_000]
    if large:
        kurtosis = torch.cat([w / w.std() for w in large]).pow(4).mean()
        assert float(kurtosis) == pytest.approx(3, abs=0.35)  # normal; a uniform draw has 1.8


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_weights_come_from_the_generator_alone(kind: str, name: str) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = build(kind, name)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    again, other = build(kind, name), build(kind, name, seed=1)
    pairs = list(zip(first.parameters(), again.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not any(torch.equal(a, c) for a, _, c in pairs if a.dim() > 1)
    assert all(a.dtype == torch.float32 and a.device.type == "cpu" and a.requires_grad for a, _, _ in pairs)


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
        if isinstance(layer, nn.Conv2d | nn.Linear):
            if layer.bias is not None:
                nn.init.normal_(layer.bias, generator=generator(len(layers)))
            layers.append((layer.weight, layer.bias))
    return layers


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_focus_is_conv_pool_conv_pool_conv_dense(name: str) -> None:
    """Pooling before ReLU, as the network does, equals ReLU before pooling, as the table says."""
    network, segments = build("focus", name), torch.randn(2, *PICTURE, generator=generator())
    layers = layers_of(network)
    hidden = relu_then_pool(relu_then_pool(segments, *layers[0]), *layers[1])
    hidden = functional.conv2d(hidden, *layers[2]).relu()
    assert hidden.shape == (2, 64, 4, 4)
    assert_close(network(segments), dense(hidden.flatten(1), layers[3:]).squeeze(1))


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_classifier_is_conv_pool_conv_pool_dense(name: str) -> None:
    network, segments = build("classifier", name), torch.randn(2, *PICTURE, generator=generator())
    layers = layers_of(network)
    hidden = relu_then_pool(relu_then_pool(segments, *layers[0]), *layers[1])
    assert_close(network(segments), dense(hidden.flatten(1), layers[2:]))


@pytest.mark.parametrize("kind", ["focus", "classifier"])
def test_digits_network_is_strided_conv_dense(kind: str) -> None:
    network, segments = build(kind, "digits"), torch.randn(2, *DIGIT, generator=generator())
    layers = layers_of(network)
    hidden = functional.conv2d(segments, *layers[0], stride=2).relu()
    assert hidden.shape[2:] == (3, 3)
    expected = dense(hidden.flatten(1), layers[1:])
    assert_close(network(segments), expected.squeeze(1) if kind == "focus" else expected)


@pytest.mark.parametrize("kind", ["focus", "classifier"])
@pytest.mark.parametrize("name", ["mlp", "linear"])
def test_dense_networks_take_any_shape(kind: str, name: str) -> None:
    segments = torch.randn(2, *DIGIT, generator=generator())
    if kind == "focus":
        network = focus_network(name, DIGIT, generator())
    else:
        network = classification_network(name, DIGIT, K, generator())
    expected = dense(segments.flatten(1), layers_of(network))
    assert_close(network(segments), expected.squeeze(1) if kind == "focus" else expected)


def test_unknown_names_and_shapes_are_one_sentence() -> None:
    with pytest.raises(UserError) as error:
        focus_network("resnet", PICTURE, generator())
    choice = f"{', '.join(FOCUS_NETWORKS)}, or mlp:DEPTHxWIDTH or cnn:DEPTHxWIDTH, such as mlp:2x64"
    assert str(error.value) == f"focus_network='resnet' is unknown: choose one of {choice}."
    with pytest.raises(UserError) as error:
        classification_network("vgg", PICTURE, K, generator())
    assert str(error.value).startswith("classification_network='vgg' is unknown: choose one of cifar10, ")
    sentence = (
        "segments of shape (1, 8, 8) do not fit the CIFAR networks, which take (3, 32, 32): "
        "set image_size to the network's, or choose the network 'mlp' or 'linear'."
    )
    for name in ("cifar10", "cifar100"):
        for wrong in (
            lambda name=name: focus_network(name, DIGIT, generator()),
            lambda name=name: classification_network(name, DIGIT, K, generator()),
        ):
            with pytest.raises(UserError) as error:
                wrong()
            assert str(error.value) == sentence


def test_conv1d_networks_see_a_motif_wherever_it_lies_and_report_windows_that_are_too_short() -> None:
    window = torch.zeros(1, 2, 40, dtype=torch.float64)
    window[..., 12:20] = torch.randn(1, 2, 8, generator=generator(), dtype=torch.float64)
    for network in (
        focus_network("conv1d", (2, 40), generator(), torch.float64),
        classification_network("conv1d", (2, 40), K, generator(), torch.float64),
    ):
        assert_close(network(torch.roll(window, 6, dims=2)), network(window))  # a multiple of the stride
        assert not torch.allclose(network(window), network(torch.zeros_like(window)))
    for shape in ((2, 10), (20,)):
        with pytest.raises(UserError, match=r"do not fit the conv1d networks.*at least 11 samples: set window_length"):
            focus_network("conv1d", shape, generator())

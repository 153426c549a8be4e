"""Focus and classification networks by name.

A focus network maps segments (N, ...) to one score each (N,); a classification network maps them to class
logits (N, K). Convolutional weights and dense weights start Xavier normal, biases at zero, drawn from the
generator that is passed in. Max-pooling stands before ReLU: both commute, and pooling first is cheaper. Pixels
that reach no score, because pooling drops the odd row and column of what they feed, are cut off first.
Sizes of the CIFAR networks: arXiv 2307.13421, experiments; the others are this project's. A name may also say depth,
width and normalisation, as `mlp:2x64:layer` does, see `fcamlib.networks.parametric`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from fcamlib.config.networks import network_fault
from fcamlib.errors import UserError
from fcamlib.networks.parametric import CountedBatchNorm, CountedSequential, parametric_layers
from fcamlib.networks.series import FILTERS, conv1d_trunk
from fcamlib.networks.text import TEXT_CLASSIFIERS, TEXT_FOCUS

Shape = tuple[int, ...]


class _Score(nn.Module):
    """Drop the last axis, of size one: (N, 1) -> (N,)."""

    def forward(self, score: Tensor) -> Tensor:
        return score.squeeze(-1)


class _Crop(nn.Module):
    """Keep the first `size` rows and columns: (N, C, H, W) -> (N, C, size, size)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, pictures: Tensor) -> Tensor:
        return pictures[..., : self.size, : self.size]


def _dense(sizes: Sequence[int], bias: bool = True) -> list[nn.Module]:
    """Dense layers with ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out, bias=bias), nn.ReLU()]
    return layers[:-1]


def _conv(fan_in: int, fan_out: int, kernel: int, *, pool: bool, bias: bool = True) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(fan_in, fan_out, kernel, bias=bias)]
    return [*layers, nn.MaxPool2d(2), nn.ReLU()] if pool else [*layers, nn.ReLU()]


def _cifar_focus(shape: Shape, dense: Sequence[int]) -> list[nn.Module]:
    _require("CIFAR", shape, (3, 32, 32))
    return [
        _Crop(30),  # 32 -> 30, pooled 15 -> 13, pooled 6: the last row and column of 13, so 2 of 32, are dropped
        *_conv(3, 32, 3, pool=True, bias=False),
        *_conv(32, 64, 3, pool=True, bias=False),
        *_conv(64, 64, 3, pool=False, bias=False),
        nn.Flatten(),
        *_dense([1024, *dense], bias=False),
        _Score(),
    ]


def _cifar_classifier(shape: Shape, channels: tuple[int, int], dense: Sequence[int]) -> list[nn.Module]:
    _require("CIFAR", shape, (3, 32, 32))
    first, second = channels
    return [*_conv(3, first, 5, pool=True), *_conv(first, second, 5, pool=True), nn.Flatten(), *_dense(dense)]


def _digits_trunk(shape: Shape, channels: int, dense: Sequence[int]) -> list[nn.Module]:
    """One strided convolution, 8 x 8 to 3 x 3; strides in place of pooling halve the cost in float64."""
    _require("digits", shape, (1, 8, 8))
    return [nn.Conv2d(1, channels, 4, stride=2), nn.ReLU(), nn.Flatten(), *_dense([9 * channels, *dense])]


def _require(name: str, shape: Shape, needed: Shape) -> None:
    if shape != needed:
        raise UserError(
            f"segments of shape {shape} do not fit the {name} networks, which take {needed}: "
            "set image_size to the network's, or choose the network 'mlp' or 'linear'."
        )


_FOCUS: dict[str, Callable[[Shape], list[nn.Module]]] = {
    "cifar10": lambda shape: _cifar_focus(shape, [512, 64, 10, 1]),
    "cifar100": lambda shape: _cifar_focus(shape, [512, 64, 1]),
    "digits": lambda shape: [*_digits_trunk(shape, 16, [32, 1]), _Score()],
    "mlp": lambda shape: [nn.Flatten(), *_dense([prod(shape), 128, 64, 1]), _Score()],
    "linear": lambda shape: [nn.Flatten(), *_dense([prod(shape), 1], bias=False), _Score()],
    "conv1d": lambda shape: [*conv1d_trunk(shape), *_dense([FILTERS, FILTERS, 1]), _Score()],
    **TEXT_FOCUS,
}

_CLASSIFIER: dict[str, Callable[[Shape, int], list[nn.Module]]] = {
    "cifar10": lambda shape, k: _cifar_classifier(shape, (6, 16), [400, 120, 84, 10, k]),
    "cifar100": lambda shape, k: _cifar_classifier(shape, (16, 32), [800, 120, k]),
    "digits": lambda shape, k: _digits_trunk(shape, 8, [32, k]),
    "mlp": lambda shape, k: [nn.Flatten(), *_dense([prod(shape), 128, 64, k])],
    "linear": lambda shape, k: [nn.Flatten(), *_dense([prod(shape), k], bias=False)],
    "conv1d": lambda shape, k: [*conv1d_trunk(shape), *_dense([FILTERS, FILTERS, k])],
    **TEXT_CLASSIFIERS,
}

FOCUS_NETWORKS = tuple(_FOCUS)
CLASSIFICATION_NETWORKS = tuple(_CLASSIFIER)


def focus_network(
    name: str, segment_shape: Shape, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> nn.Module:
    """Focus network `name` for segments of `segment_shape`: (N, *segment_shape) -> scores (N,).

    Names: `cifar10`, `cifar100` (3 x 32 x 32 pictures), `digits` (1 x 8 x 8), `conv1d` (channels x samples), `mlp`,
    `linear` (any shape), `mlp:DEPTHxWIDTH` (any shape), `cnn:DEPTHxWIDTH` (pictures), the last two also with `:batch`
    or `:layer`.
    """
    _require_known("focus_network", name, FOCUS_NETWORKS)
    with torch.device("meta"):  # the constructors' own initial values would draw from the global generator
        fixed = _FOCUS.get(name)
        layers = fixed(segment_shape) if fixed else [*parametric_layers(name, segment_shape, 1), _Score()]
    return _initialise(_in_a_row(layers), generator, dtype)


def classification_network(
    name: str,
    segment_shape: Shape,
    num_classes: int,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
) -> nn.Module:
    """Classification network `name`: (N, *segment_shape) -> class logits (N, num_classes).

    Names as in `focus_network`.
    """
    _require_known("classification_network", name, CLASSIFICATION_NETWORKS)
    with torch.device("meta"):
        fixed = _CLASSIFIER.get(name)
        layers = fixed(segment_shape, num_classes) if fixed else parametric_layers(name, segment_shape, num_classes)
    return _initialise(_in_a_row(layers), generator, dtype)


def _require_known(field: str, name: str, known: Sequence[str]) -> None:
    if fault := network_fault(field, name, known):
        raise UserError(f"{fault}.")


def _in_a_row(layers: list[nn.Module]) -> nn.Sequential:
    is_counted = any(isinstance(layer, CountedBatchNorm) for layer in layers)
    return CountedSequential(*layers) if is_counted else nn.Sequential(*layers)


def _initialise(network: nn.Sequential, generator: torch.Generator, dtype: torch.dtype) -> nn.Module:
    """Draw initial weights in `dtype`: float32 draws differ in their last bit between instruction sets."""
    network.to(dtype)
    network.to_empty(device="cpu")
    for layer in network:
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear):
            nn.init.xavier_normal_(layer.weight, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.LayerNorm | nn.GroupNorm | nn.BatchNorm1d):
            layer.reset_parameters()  # constants
    return network

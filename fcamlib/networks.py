r"""Focus and classification networks by name, and batch normalisation for segments that are counted.

A focus network maps segments (N, ...) to one score each (N,); a classification network maps them to class logits
(N, K). Convolutional and dense weights start Xavier normal, biases at zero, drawn from the generator that is passed in.
Max-pooling stands before ReLU: both commute, and pooling first is cheaper. Pixels that reach no score, because pooling
drops the odd row and column of what they feed, are cut off first. `register` adds a network from outside.

| name | segments | layers |
|---|---|---|
| `cifar10`, `cifar100` | 3 x 32 x 32 pictures | those of arXiv 2307.13421, experiments |
| `digits` | 1 x 8 x 8 pictures | one strided convolution, two dense layers |
| `conv1d` | channels x samples | two convolutions along time, maximum over time, two dense layers |
| `text200`, `text50` | a word's vector | one hidden dense layer (100-200-1 and 100-50-1 in the paper) |
| `mlp`, `linear` | any | dense 128 and 64; a matrix |
| `mlp:DxW` | any | D times: dense to W units, ReLU; then dense to the output |
| `cnn:DxW` | pictures | D times: 3 x 3 convolution to W filters, padded, max-pooling by 2, ReLU; then dense |
| `...:layer` | | layer normalisation before each ReLU: over an instance's units, or its filters and pixels |
| `...:batch` | | batch normalisation before each ReLU |

**Batch normalisation and distinct segments.** The library evaluates a segment that occurs $c_i$ times in a batch once.
Batch normalisation looks at the whole batch, so its statistics have to be those of all occurrences, each row weighted
by its count:

$$\mu = \frac{\sum_i c_i x_i}{\sum_i c_i}, \qquad \sigma^2 = \frac{\sum_i c_i (x_i - \mu)^2}{\sum_i c_i}$$

With them, and their gradients, training equals the plain pass over every place of every instance; padding counts
nothing. In evaluation the running statistics are used, so that a segment's scores again depend on it alone. Those of a
classifier follow weighted sums under soft attention and single segments under the other losses: the hybrid's switch
changes its function at the first step, and with momentum 0.1 the old ones have less than 4 % of their weight after 32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fcamlib.config.sources import OUTSIDE, network_shape, require_network
from fcamlib.errors import UserError

Shape = tuple[int, ...]
Layers = Callable[[Shape, int], list[nn.Module]]  # (segment shape, output size) -> layers, (N, *shape) -> (N, size)
CIFAR, DIGITS = (3, 32, 32), (1, 8, 8)
FILTERS = 8  # of both convolutions along time
SHORTEST = 11  # samples that they need


class CountedBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of (N, C) or (N, C, height, width), whose rows may stand for several places each."""

    def forward(self, values: Tensor, counts: Float[Tensor, " N"] | None = None) -> Tensor:
        """Normalise each channel; `counts` says how often each row occurs in the batch, by default once."""
        flat = values.flatten(2) if values.dim() > 2 else values[..., None]  # (N, C, pixels)
        if not self.training:
            return super().forward(flat).view(values.shape)
        if counts is None:
            counts = torch.ones(len(values), device=values.device)
        assert self.running_mean is not None and self.running_var is not None
        flat = flat.to(self.running_mean.dtype)
        share = counts.to(flat) / counts.sum()  # (N,)
        num_values = counts.sum() * flat.shape[2]
        mean = torch.einsum("n,nc->c", share, flat.mean(dim=2))  # (C,)
        centred = flat - mean[:, None]
        variance = torch.einsum("n,nc->c", share, centred.square().mean(dim=2))  # (C,)
        self._follow(mean.detach(), variance.detach(), num_values)
        normalised = centred * ((variance + self.eps).rsqrt() * self.weight)[:, None] + self.bias[:, None]
        return normalised.view(values.shape)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor, num_values: Tensor) -> None:
        """Move the running statistics; the variance is unbiased there, as in torch."""
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * num_values / (num_values - 1).clamp(min=1), self.momentum)


class CountedSequential(nn.Sequential):
    """Layers in a row, some of which have to know how often each of their rows occurs in the batch."""

    takes_counts = True

    def forward(self, values: Tensor, counts: Float[Tensor, " N"] | None = None) -> Tensor:
        """Call the layers; `counts` as in `CountedBatchNorm`, used in training mode alone."""
        if self.training and counts is None and len(values) < 2:
            raise UserError(
                "a step has one instance, which batch normalisation cannot learn from: choose a batch_size that "
                "leaves no last batch of one, or :layer in place of :batch."
            )
        for layer in self:
            values = layer(values, counts) if isinstance(layer, CountedBatchNorm) else layer(values)
        return values


def takes_counts(model: nn.Module) -> bool:
    """Whether a network has to be told how often each segment occurs in the batch."""
    return bool(getattr(model, "takes_counts", False))


def occurrences(index: Int[Tensor, "B M"], mask: Tensor | None, num_rows: int) -> Float[Tensor, " N"]:
    """How many real places of a batch point at each of `num_rows` rows; padding counts nothing."""
    places = torch.ones_like(index, dtype=torch.float32) if mask is None else mask.float()
    counts = torch.zeros(num_rows, device=index.device)
    return counts.index_add_(0, index.flatten(), places.flatten())


class _Crop(nn.Module):
    """Keep the first `size` rows and columns: (N, C, H, W) -> (N, C, size, size)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, pictures: Tensor) -> Tensor:
        return pictures[..., : self.size, : self.size]


class _MaxOverTime(nn.Module):
    """Largest value of each filter over time: (N, C, T) -> (N, C). A motif counts wherever it lies."""

    def forward(self, values: Tensor) -> Tensor:
        return values.amax(dim=2)


def _dense(sizes: Sequence[int], bias: bool = True) -> list[nn.Module]:
    """Dense layers with ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out, bias=bias), nn.ReLU()]
    return layers[:-1]


def _conv(fan_in: int, fan_out: int, kernel: int, *, pool: bool, bias: bool = True) -> list[nn.Module]:
    return [nn.Conv2d(fan_in, fan_out, kernel, bias=bias), *([nn.MaxPool2d(2)] if pool else []), nn.ReLU()]


def _cifar_focus(shape: Shape, dense: Sequence[int]) -> list[nn.Module]:
    _require("CIFAR", shape, CIFAR)
    return [
        _Crop(30),  # 32 -> 30, pooled 15 -> 13, pooled 6: the last row and column of 13, so 2 of 32, are dropped
        *_conv(3, 32, 3, pool=True, bias=False),
        *_conv(32, 64, 3, pool=True, bias=False),
        *_conv(64, 64, 3, pool=False, bias=False),
        nn.Flatten(),
        *_dense([1024, *dense], bias=False),
    ]


def _cifar_classifier(shape: Shape, channels: tuple[int, int], dense: Sequence[int]) -> list[nn.Module]:
    _require("CIFAR", shape, CIFAR)
    first, second = channels
    return [*_conv(3, first, 5, pool=True), *_conv(first, second, 5, pool=True), nn.Flatten(), *_dense(dense)]


def _digits(shape: Shape, channels: int, dense: Sequence[int]) -> list[nn.Module]:
    """One strided convolution, 8 x 8 to 3 x 3; strides in place of pooling halve the cost in float64."""
    _require("digits", shape, DIGITS)
    return [nn.Conv2d(1, channels, 4, stride=2), nn.ReLU(), nn.Flatten(), *_dense([9 * channels, *dense])]


def _conv1d(shape: Shape, out_dim: int) -> list[nn.Module]:
    if len(shape) != 2 or shape[1] < SHORTEST:
        raise UserError(
            f"segments of shape {shape} do not fit the conv1d networks, which take (channels, samples) with at least "
            f"{SHORTEST} samples: set window_length, or choose the network 'mlp' or 'linear'."
        )
    first, second = nn.Conv1d(shape[0], FILTERS, 7, stride=2), nn.Conv1d(FILTERS, FILTERS, 3)
    return [first, nn.ReLU(), second, nn.ReLU(), _MaxOverTime(), *_dense([FILTERS, FILTERS, out_dim])]


def _require(name: str, shape: Shape, needed: Shape) -> None:
    if shape != needed:
        resize = "set image_size to the network's, or " if len(shape) == len(needed) else ""
        raise UserError(
            f"segments of shape {shape} do not fit the {name} networks, which take {needed}: "
            f"{resize}choose the network 'mlp' or 'linear'."
        )


_BOTH: dict[str, Layers] = {
    "mlp": lambda shape, k: [nn.Flatten(), *_dense([prod(shape), 128, 64, k])],
    "linear": lambda shape, k: [nn.Flatten(), *_dense([prod(shape), k], bias=False)],
    "conv1d": _conv1d,
    "text200": lambda shape, k: _dense([prod(shape), 200, k]),
}
_FOCUS: dict[str, Layers] = {
    "cifar10": lambda shape, k: _cifar_focus(shape, [512, 64, 10, k]),
    "cifar100": lambda shape, k: _cifar_focus(shape, [512, 64, k]),
    "digits": lambda shape, k: _digits(shape, 16, [32, k]),
    **_BOTH,
    "text50": lambda shape, k: _dense([prod(shape), 50, k]),
}
_CLASSIFIER: dict[str, Layers] = {
    "cifar10": lambda shape, k: _cifar_classifier(shape, (6, 16), [400, 120, 84, 10, k]),
    "cifar100": lambda shape, k: _cifar_classifier(shape, (16, 32), [800, 120, k]),
    "digits": lambda shape, k: _digits(shape, 8, [32, k]),
    **_BOTH,
}
FOCUS_NETWORKS, CLASSIFICATION_NETWORKS = tuple(_FOCUS), tuple(_CLASSIFIER)


def register(name: str, layers: Layers) -> None:
    """Add a network that focus and classification models may name.

    `layers(segment_shape, out_dim)` gives modules that are called in a row, (N, *segment_shape) -> (N, out_dim); a
    focus network has one output. Modules with weights of their own kind are drawn by their `reset_parameters`.
    """
    if name in _FOCUS or name in _CLASSIFIER:
        raise UserError(f"the network '{name}' exists already: choose another name.")
    _FOCUS[name] = _CLASSIFIER[name] = layers
    OUTSIDE.append(name)


def focus_network(
    name: str, segment_shape: Shape, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> nn.Module:
    """Focus network `name` for segments of `segment_shape`: (N, *segment_shape) -> scores (N,)."""
    layers = _layers("focus_network", name, _FOCUS, segment_shape, 1)
    return _initialised([*layers, nn.Flatten(0)], generator, dtype)  # (N, 1) -> (N,)


def classification_network(
    name: str, segment_shape: Shape, num_classes: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> nn.Module:
    """Classification network `name`: (N, *segment_shape) -> class logits (N, num_classes)."""
    layers = _layers("classification_network", name, _CLASSIFIER, segment_shape, num_classes)
    return _initialised(layers, generator, dtype)


def _layers(field: str, name: str, known: dict[str, Layers], shape: Shape, out_dim: int) -> list[nn.Module]:
    """The layers of a network, without memory: their constructors would draw from the global generator."""
    require_network(field, name, tuple(known))
    with torch.device("meta"):
        return known.get(name, lambda shape, k: _parametric(name, shape, k))(shape, out_dim)


def _parametric(name: str, segment_shape: Shape, out_dim: int) -> list[nn.Module]:
    """The layers of a network such as `mlp:2x64:layer`."""
    shape, size = network_shape(name), segment_shape
    is_picture, bias = shape.kind == "cnn", shape.norm != "batch"
    if is_picture and len(size) != 3:
        raise UserError(f"'{name}' takes pictures, and segments have shape {size}: choose mlp:DEPTHxWIDTH.")
    if is_picture and shape.depth > (most := min(size[1:]).bit_length() - 1):
        raise UserError(
            f"'{name}' halves pictures {shape.depth} times, and {size[1]} x {size[2]} pixels allow {most}: "
            "choose a smaller depth."
        )
    layers: list[nn.Module] = [] if is_picture else [nn.Flatten()]
    for _ in range(shape.depth):
        if is_picture:
            layers.append(nn.Conv2d(size[0], shape.width, 3, padding=1, bias=bias))
            size = (shape.width, size[1] // 2, size[2] // 2)
        else:
            layers.append(nn.Linear(prod(size), shape.width, bias=bias))
            size = (shape.width,)
        if shape.norm == "layer":
            layers.append(nn.GroupNorm(1, shape.width) if is_picture else nn.LayerNorm(shape.width))
        elif shape.norm == "batch":
            layers.append(CountedBatchNorm(shape.width))
        layers += [nn.MaxPool2d(2), nn.ReLU()] if is_picture else [nn.ReLU()]
    return [*layers, *([nn.Flatten()] if is_picture else []), nn.Linear(prod(size), out_dim)]


def _initialised(layers: list[nn.Module], generator: torch.Generator, dtype: torch.dtype) -> nn.Module:
    """The network with initial weights in `dtype`: float32 draws differ in their last bit between instruction sets."""
    is_counted = any(isinstance(layer, CountedBatchNorm) for layer in layers)
    network = CountedSequential(*layers) if is_counted else nn.Sequential(*layers)
    network.to(dtype).to_empty(device="cpu")
    for module in network.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            nn.init.xavier_normal_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.BatchNorm1d):
            module.reset_parameters()  # constants
        elif [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
                module.reset_parameters()  # type: ignore[operator]
    return network

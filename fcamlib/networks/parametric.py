r"""Networks whose name says depth, width and normalisation, and batch normalisation for segments that are counted.

| name | layers |
|---|---|
| `mlp:DxW` | flatten, then D times: dense to W units, ReLU; then dense to the output |
| `cnn:DxW` | D times: 3 x 3 convolution to W filters, padded, max-pooling by 2, ReLU; then dense to the output |
| `...:layer` | layer normalisation before each ReLU: over an instance's units, or its filters and pixels |
| `...:batch` | batch normalisation before each ReLU |

**Batch normalisation and distinct segments.** The library evaluates a segment that occurs $c_i$ times in a batch once.
Batch normalisation looks at the whole batch, so its statistics have to be those of all occurrences, each row weighted
by its count:

$$\mu = \frac{\sum_i c_i x_i}{\sum_i c_i}, \qquad \sigma^2 = \frac{\sum_i c_i (x_i - \mu)^2}{\sum_i c_i}$$

With them, and their gradients, training equals the plain pass over every place of every instance; padding counts
nothing. In evaluation the running statistics are used, so that a segment's scores again depend on it alone.

**What the running statistics are of.** The focus network always sees single segments. The classification network sees
weighted sums under soft attention, which vary less than segments do, and all single segments under hard attention and
LVML, most of them background. So a classifier that was trained one way and is evaluated the other (the table of
aggregations in a run's summary) normalises with statistics of another distribution; and when the hybrid switches from
soft to hard, the function that the classifier computes changes at the first step, beside its loss. The running
statistics follow with momentum 0.1: of 32 steps before, less than 4 % of their weight is left.
"""

from __future__ import annotations

from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fcamlib.config.networks import NetworkShape, network_shape
from fcamlib.errors import UserError

Shape = tuple[int, ...]


class CountedBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of (N, C) or (N, C, height, width), whose rows may stand for several places each."""

    def forward(self, values: Tensor, counts: Float[Tensor, " N"] | None = None) -> Tensor:
        """Normalise each channel; `counts` says how often each row occurs in the batch, once where it is left out."""
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
        num_rows = len(values) if counts is None else 2
        if self.training and num_rows < 2:
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


def parametric_layers(name: str, segment_shape: Shape, out_dim: int) -> list[nn.Module]:
    """The layers of a network such as `mlp:2x64:layer` for segments of a shape: (N, *segment_shape) -> (N, out_dim)."""
    shape = network_shape(name)
    hidden, features = (
        _convolutions(name, shape, segment_shape) if shape.kind == "cnn" else _dense(shape, segment_shape)
    )
    return [*hidden, nn.Linear(features, out_dim)]


def _dense(shape: NetworkShape, segment_shape: Shape) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = [nn.Flatten()]
    fan_in = prod(segment_shape)
    for _ in range(shape.depth):
        layers.append(nn.Linear(fan_in, shape.width, bias=shape.norm != "batch"))
        layers += [*_norm(shape, nn.LayerNorm(shape.width)), nn.ReLU()]
        fan_in = shape.width
    return layers, fan_in


def _convolutions(name: str, shape: NetworkShape, segment_shape: Shape) -> tuple[list[nn.Module], int]:
    if len(segment_shape) != 3:
        raise UserError(f"'{name}' takes pictures, and segments have shape {segment_shape}: choose mlp:DEPTHxWIDTH.")
    channels, height, width = segment_shape
    most = min(height, width).bit_length() - 1
    if shape.depth > most:
        raise UserError(
            f"'{name}' halves pictures {shape.depth} times, and {height} x {width} pixels allow {most}: "
            "choose a smaller depth."
        )
    layers: list[nn.Module] = []
    for _ in range(shape.depth):
        layers.append(nn.Conv2d(channels, shape.width, 3, padding=1, bias=shape.norm != "batch"))
        layers += [*_norm(shape, nn.GroupNorm(1, shape.width)), nn.MaxPool2d(2), nn.ReLU()]
        channels, height, width = shape.width, height // 2, width // 2
    return [*layers, nn.Flatten()], channels * height * width


def _norm(shape: NetworkShape, layer_norm: nn.Module) -> list[nn.Module]:
    if shape.norm == "layer":
        return [layer_norm]
    return [CountedBatchNorm(shape.width)] if shape.norm == "batch" else []

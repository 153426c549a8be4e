r"""Focus and classification networks by name, encoders, and batch normalisation weighted by how often a segment occurs.

A focus network maps segments (N, ...) to one score each (N,); a classification network maps them to class logits
(N, K). Convolutional and dense weights are Xavier normal, drawn from the given generator; biases are zero.
Max-pooling precedes ReLU: the two commute, and pooling first is cheaper. Pixels that cannot affect a score, because
pooling drops an odd last row and column, are cropped first. `register` adds a network from outside.

| name | segments | layers |
|---|---|---|
| `cifar10`, `cifar100` | 3 x 32 x 32 pictures | as in arXiv 2307.13421, experiments |
| `digits` | 1 x 8 x 8 pictures | one strided convolution, two dense layers |
| `conv1d` | channels x samples | two convolutions along time, maximum over time, two dense layers |
| `text200`, `text50` | a word's vector | one hidden dense layer (100-200-1 and 100-50-1 in the paper) |
| `mlp`, `linear` | any | two hidden dense layers (128, 64); a single matrix |
| `mlp:DxW` | any | D times: dense to W units, ReLU; then dense to the output |
| `cnn:DxW` | pictures | D times: 3 x 3 convolution to W filters, padded, max-pooling by 2, ReLU; then dense |
| `...:layer` | | layer normalisation before each ReLU: over a segment's units, or its filters and pixels |
| `...:batch` | | batch normalisation before each ReLU |

**Batch normalisation and distinct segments.** The library evaluates a segment that occurs $c_i$ times in a batch once.
Batch normalisation uses the whole batch, so its statistics must cover all occurrences: each row is weighted by its
count:

$$\mu = \frac{\sum_i c_i x_i}{\sum_i c_i}, \qquad \sigma^2 = \frac{\sum_i c_i (x_i - \mu)^2}{\sum_i c_i}$$

With these statistics and their gradients, training equals the plain pass over every place of every instance; padding
has count zero. Evaluation uses the running statistics, so a segment's scores depend only on that segment. A
classifier's running statistics describe weighted sums under soft attention and single segments under the other losses.
After the hybrid's switch they adapt with momentum 0.1: after 32 steps the old ones keep less than 4% of their weight.

**Encoders** turn segments into the vectors that focus and classification networks see. A context-free encoder maps
single segments, (N, ...) -> (N, D), and is called once per distinct segment of a batch. Any other is called as
`encoder(segments, mask)` on whole instances, (B, M, ...) -> (B, M, D).
Axes: B batch, M segments, N distinct segments, D features. Source: arXiv 2307.13421, experiments on HateXplain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from fcamlib.config.sources import OUTSIDE, network_shape, require_network
from fcamlib.data.sdc import UNKNOWN, SDCTask
from fcamlib.errors import UserError

Shape = tuple[int, ...]
Layers = Callable[[Shape, int], list[nn.Module]]  # (segment shape, output size) -> layers, (N, *shape) -> (N, size)
CIFAR, DIGITS = (3, 32, 32), (1, 8, 8)
FILTERS = 8  # of both convolutions along time
SHORTEST = 11  # least number of samples for both convolutions
EMBEDDING_DIM = 100  # features of a word
NUM_HEADS = 2  # of size 50 each
WAVELENGTH = 10_000.0  # of the slowest sinusoid, over 2 pi


class CountedBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of (N, C) or (N, C, height, width), in which a row may represent several places."""

    def forward(self, values: Tensor, counts: Float[Tensor, " N"] | None = None) -> Tensor:
        """Normalise each channel; `counts` is how often each row occurs in the batch, by default once."""
        flat = values.flatten(2) if values.dim() > 2 else values[..., None]  # (N, C, pixels)
        if not self.training:
            return super().forward(flat).view(values.shape)
        if counts is None:
            counts = torch.ones(len(values), device=values.device)
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        assert self.num_batches_tracked is not None
        flat = flat.to(self.running_mean.dtype)
        share = counts.to(flat) / counts.sum()  # (N,)
        num_values = counts.sum() * flat.shape[2]
        mean = torch.einsum("n,nc->c", share, flat.mean(dim=2))  # (C,)
        centred = flat - mean[:, None]
        variance = torch.einsum("n,nc->c", share, centred.square().mean(dim=2))  # (C,)
        with torch.no_grad():  # as in torch, the running variance is the unbiased one
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * num_values / (num_values - 1).clamp(min=1), self.momentum)
        normalised = centred * ((variance + self.eps).rsqrt() * self.weight)[:, None] + self.bias[:, None]
        return normalised.view(values.shape)


class CountedSequential(nn.Sequential):
    """A sequence of layers, some of which use how often each row occurs in the batch."""

    def forward(self, values: Tensor, counts: Float[Tensor, " N"] | None = None) -> Tensor:
        """Call the layers; `counts` as in `CountedBatchNorm`, used only in training mode."""
        if self.training and counts is None and len(values) < 2:
            fault = "a batch holds one instance, which batch normalisation cannot use"
            raise UserError(f"{fault}: choose another batch_size, or :layer instead of :batch.")
        for layer in self:
            values = layer(values, counts) if isinstance(layer, CountedBatchNorm) else layer(values)
        return values


def occurrences(index: Int[Tensor, "B M"], mask: Tensor | None, num_rows: int) -> Float[Tensor, " N"]:
    """How many real places of a batch point to each of `num_rows` rows; padding is not counted."""
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
    """Largest value of each filter over time, wherever the motif is: (N, C, T) -> (N, C)."""

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
    _require(shape == CIFAR, "CIFAR", shape, CIFAR)
    return [
        _Crop(30),  # 32 -> 30, pooled 15 -> 13, pooled 6: the last row and column of 13, so 2 of 32, are dropped
        *_conv(3, 32, 3, pool=True, bias=False),
        *_conv(32, 64, 3, pool=True, bias=False),
        *_conv(64, 64, 3, pool=False, bias=False),
        nn.Flatten(),
        *_dense([1024, *dense], bias=False),
    ]


def _cifar_classifier(shape: Shape, channels: tuple[int, int], dense: Sequence[int]) -> list[nn.Module]:
    _require(shape == CIFAR, "CIFAR", shape, CIFAR)
    first, second = channels
    return [*_conv(3, first, 5, pool=True), *_conv(first, second, 5, pool=True), nn.Flatten(), *_dense(dense)]


def _digits(shape: Shape, channels: int, dense: Sequence[int]) -> list[nn.Module]:
    """One strided convolution, 8 x 8 to 3 x 3; strides instead of pooling halve the cost in float64."""
    _require(shape == DIGITS, "digits", shape, DIGITS)
    return [nn.Conv2d(1, channels, 4, stride=2), nn.ReLU(), nn.Flatten(), *_dense([9 * channels, *dense])]


def _conv1d(shape: Shape, out_dim: int) -> list[nn.Module]:
    _require(len(shape) == 2 and shape[1] >= SHORTEST, "conv1d", shape, f"(channels, {SHORTEST} samples or more)")
    first, second = nn.Conv1d(shape[0], FILTERS, 7, stride=2), nn.Conv1d(FILTERS, FILTERS, 3)
    return [first, nn.ReLU(), second, nn.ReLU(), _MaxOverTime(), *_dense([FILTERS, FILTERS, out_dim])]


def _require(fits: bool, name: str, shape: Shape, needed: Shape | str) -> None:
    if not fits:
        fault = f"segments of shape {shape} do not fit the {name} networks, which need {needed}"
        raise UserError(f"{fault}: set image_size or window_length, or choose the network 'mlp' or 'linear'.")


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
    """Register a network under a name for focus and classification models.

    `layers(segment_shape, out_dim)` returns modules that are applied in sequence, (N, *segment_shape) -> (N, out_dim);
    a focus network has one output. Modules of other types initialise their weights with `reset_parameters`.
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
    """The layers of a network on the meta device: their constructors would draw from the global generator."""
    require_network(field, name, tuple(known))
    with torch.device("meta"):
        return known.get(name, lambda shape, k: _parametric(name, shape, k))(shape, out_dim)


def _parametric(name: str, segment_shape: Shape, out_dim: int) -> list[nn.Module]:
    """The layers of a network such as `mlp:2x64:layer`."""
    (kind, depth, width, norm), size = network_shape(name), segment_shape
    is_picture, bias = kind == "cnn", norm != "batch"
    if is_picture and len(size) != 3:
        raise UserError(f"'{name}' needs pictures, but the segments have shape {size}: choose mlp:DEPTHxWIDTH.")
    if is_picture and depth > (most := min(size[1:]).bit_length() - 1):
        fault = f"'{name}' halves pictures {depth} times, but {size[1]} x {size[2]} pixels allow only {most}"
        raise UserError(f"{fault}: choose a smaller depth.")
    layers: list[nn.Module] = [] if is_picture else [nn.Flatten()]
    for _ in range(depth):
        if is_picture:
            layers.append(nn.Conv2d(size[0], width, 3, padding=1, bias=bias))
            size = (width, size[1] // 2, size[2] // 2)
        else:
            layers.append(nn.Linear(prod(size), width, bias=bias))
            size = (width,)
        if norm == "layer":
            layers.append(nn.GroupNorm(1, width) if is_picture else nn.LayerNorm(width))
        elif norm == "batch":
            layers.append(CountedBatchNorm(width))
        layers += [nn.MaxPool2d(2), nn.ReLU()] if is_picture else [nn.ReLU()]
    return [*layers, *([nn.Flatten()] if is_picture else []), nn.Linear(prod(size), out_dim)]


def _initialised(layers: list[nn.Module], generator: torch.Generator, dtype: torch.dtype) -> nn.Module:
    """The network with initial weights drawn in `dtype`; float32 draws can differ in the last bit between CPUs."""
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


# --- encoders ---------------------------------------------------------------------------------------------------------


class Embedding(nn.Module):
    """One vector per word, (N,) -> (N, D), initially standard normal; the vector of unknown words starts at zero."""

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(num_words, EMBEDDING_DIM)

    def reset(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.words.weight, generator=generator)
        with torch.no_grad():
            self.words.weight[UNKNOWN] = 0.0

    def forward(self, segments: Int[Tensor, "*axes"]) -> Float[Tensor, "*axes D"]:
        return self.words(segments)


class Transformer(nn.Module):
    r"""Word vectors with positions, then one self-attention layer of two heads with a residual.

    $$h = e + p, \qquad \mathrm{out} = h + \mathrm{MultiHead}(h, h, h)$$

    Positions $p$ are sinusoids along the token axis, and padding is masked. The public scripts instead add positions
    along the batch axis and repeat the padding mask in the wrong order.
    """

    context_free = False

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.embedding = Embedding(num_words)
        self.attention = nn.MultiheadAttention(EMBEDDING_DIM, NUM_HEADS, batch_first=True)

    def reset(self, generator: torch.Generator) -> None:
        self.embedding.reset(generator)
        nn.init.xavier_uniform_(self.attention.in_proj_weight, generator=generator)
        nn.init.xavier_uniform_(self.attention.out_proj.weight, generator=generator)
        nn.init.zeros_(self.attention.in_proj_bias)
        nn.init.zeros_(self.attention.out_proj.bias)

    def forward(self, segments: Int[Tensor, "B M"], mask: Bool[Tensor, "B M"] | None = None) -> Float[Tensor, "B M D"]:
        words = self.embedding(segments)
        vectors = words + positions(segments.shape[1], EMBEDDING_DIM).to(words)  # (B, M, D)
        ignored = None if mask is None else ~mask
        attended, _ = self.attention(vectors, vectors, vectors, key_padding_mask=ignored, need_weights=False)
        return vectors + attended


def positions(num_places: int, num_features: int) -> Float[Tensor, "M D"]:
    r"""Sinusoids: feature 2i is $\sin(j / 10000^{2i/D})$, feature 2i + 1 the cosine, at place j from 0; D is even.

    Source: Vaswani et al., Attention Is All You Need, sec. 3.5.
    """
    place = torch.arange(num_places, dtype=torch.float64)[:, None]
    angle = place / WAVELENGTH ** (torch.arange(0, num_features, 2, dtype=torch.float64) / num_features)  # (M, D / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


WORD_ENCODERS: dict[str, type[Embedding | Transformer]] = {"embedding": Embedding, "transformer": Transformer}


def build_encoder(
    name: str, task: SDCTask, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, tuple[int, ...]]:
    """Encoder `name` for the segments of `task`, and the shape of its output for one segment.

    `embedding` and `transformer` encode words; `mlp` has two dense layers with ReLU, (N, ...) -> (N, 64).
    """
    if name not in (known := (*WORD_ENCODERS, "mlp")):
        raise UserError(f"encoder={name!r} is unknown: choose one of {', '.join(known)}.")
    if task.bank.words == (name == "mlp"):
        needs, has = ("numbers", "words") if name == "mlp" else ("words", "none")
        raise UserError(f"encoder={name!r} needs {needs}, but this dataset has {has}: leave encoder out.")
    with torch.device("meta"):  # the constructors' own initial values would draw from the global generator
        layers = [nn.Flatten(), *_dense([prod(task.bank.segment_shape), 128, 64]), nn.ReLU()]
        encoder = None if name == "mlp" else WORD_ENCODERS[name](len(task.bank.values))
    if encoder is None:
        return _initialised(layers, generator, dtype), (64,)
    encoder.to(dtype).to_empty(device="cpu")
    encoder.reset(generator)
    return encoder, (EMBEDDING_DIM,)

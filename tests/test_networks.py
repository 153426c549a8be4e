"""Networks against their layers written out; names with depth, width and norm; batch norm of distinct segments."""

import itertools
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from fcamlib import store
from fcamlib.config import Grid
from fcamlib.data.sdc import distinct, every_occurrence
from fcamlib.errors import UserError
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.networks import (
    CLASSIFICATION_NETWORKS,
    FOCUS_NETWORKS,
    CountedBatchNorm,
    classification_network,
    focus_network,
)
from fcamlib.numerics import Numerics
from fcamlib.running import build_model
from fcamlib.running import data as task
from fcamlib.training import fit

PICTURE, DIGIT, VECTOR, WINDOW = (3, 32, 32), (1, 8, 8), (7,), (2, 17)
SHAPES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("cifar10", "cifar100"), PICTURE),
    **dict.fromkeys(("digits", "mlp", "linear"), DIGIT),
    **dict.fromkeys(("text200", "text50"), VECTOR),
    "conv1d": WINDOW,
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


NUM_CLASSES = 3
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def model_of(name: str, classifier: str = "") -> FCAM:
    focus = focus_network(name, DIGIT, generator(1), torch.float64)
    return FCAM(focus, classification_network(classifier or name, DIGIT, NUM_CLASSES, generator(2), torch.float64))


NEED = "segments of shape {} do not fit the {} networks, which need"
FORM = (
    "is not understood: write KIND:DEPTHxWIDTH, at most 32x9999, optionally followed by :batch or :layer, such as mlp:"
)


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("resnet", PICTURE, "focus_network='resnet' is unknown: choose one of cifar10, cifar100, digits, mlp, "),
        ("digits:2x3", DIGIT, "focus_network='digits:2x3' is unknown: choose one of cifar10, cifar100, digits, mlp, "),
        ("cifar10", DIGIT, NEED.format(DIGIT, "CIFAR") + " (3, 32, 32): set "),
        ("digits", PICTURE, NEED.format(PICTURE, "digits") + " (1, 8, 8): set "),
        ("conv1d", (2, 10), NEED.format((2, 10), "conv1d") + " (channels, 11 samples or more): set "),
        ("mlp:2", DIGIT, f"focus_network='mlp:2' {FORM}"),
        ("mlp:33x1", DIGIT, f"focus_network='mlp:33x1' {FORM}"),
        ("cnn:1x10000", DIGIT, f"focus_network='cnn:1x10000' {FORM}"),
        ("cnn:4x2", DIGIT, "'cnn:4x2' halves pictures 4 times, but 8 x 8 pixels allow only 3: choose a smaller depth."),
        ("cnn:1x2", (100,), "'cnn:1x2' needs pictures, but the segments have shape (100,): choose mlp:DEPTHxWIDTH."),
    ],
)
def test_wrong_names_and_shapes_are_one_sentence(name: str, shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}"):
        focus_network(name, shape, generator())
    with pytest.raises(UserError, match=f"^{re.escape(sentence.replace('focus', 'classification'))}"):
        classification_network(name, shape, K, generator())


def by_hand(network: nn.Module, kind: str, norm: str, depth: int, values: Tensor) -> Tensor:
    """The table of `fcamlib.networks`, from the network's numbers alone, ReLU before pooling."""
    weights = iter(network.parameters())
    hidden = values.flatten(1) if kind == "mlp" else values
    for _ in range(depth):
        kernel = next(weights)
        bias = next(weights) if norm != "batch" else None
        if kind == "mlp":
            hidden = functional.linear(hidden, kernel, bias)
        else:
            hidden = functional.conv2d(hidden, kernel, bias, padding=1)
        if norm:
            scale, offset = next(weights), next(weights)
            over = [0] if norm == "batch" else [1]
            over += [2, 3] if kind == "cnn" else []
            mean, variance = hidden.mean(over, keepdim=True), hidden.var(over, unbiased=False, keepdim=True)
            per_unit = (1, -1, 1, 1)[: hidden.dim()]
            hidden = (hidden - mean) / (variance + 1e-5).sqrt() * scale.view(per_unit) + offset.view(per_unit)
        hidden = hidden.relu()
        if kind == "cnn":
            hidden = functional.max_pool2d(hidden, 2)
    return functional.linear(hidden.flatten(1), *weights)


@pytest.mark.parametrize(
    ("kind", "norm", "depth"), list(itertools.product(("mlp", "cnn"), ("", "layer", "batch"), (1, 3)))
)
def test_layers_are_those_of_the_name(kind: str, norm: str, depth: int) -> None:
    name = f"{kind}:{depth}x5{norm and ':'}{norm}"
    network = classification_network(name, DIGIT, NUM_CLASSES, generator(), torch.float64)
    for number, weight in enumerate(network.parameters()):
        if weight.dim() == 1:  # off their constants, so that they count
            nn.init.normal_(weight, mean=0.5, generator=generator(number))
    values = torch.randn(6, *DIGIT, generator=generator(9), dtype=torch.float64)
    assert_close(network(values), by_hand(network, kind, norm, depth, values), **CLOSE)
    focus = focus_network(name, DIGIT, generator(), torch.float64)
    assert_close(focus(values), by_hand(focus, kind, norm, depth, values).squeeze(1), **CLOSE)


@pytest.mark.parametrize("channels_and_pixels", [(3,), (3, 2, 4)])
def test_counted_statistics_equal_those_of_torch_on_repeated_rows(channels_and_pixels: tuple[int, ...]) -> None:
    """Output, gradients and running statistics, over two steps, and the output in evaluation."""
    counted, plain, times = CountedBatchNorm(3).double(), nn.BatchNorm1d(3).double(), torch.tensor([1, 4, 0, 2, 1])
    for step in range(2):
        rows = torch.randn(5, *channels_and_pixels, generator=generator(step), dtype=torch.float64) * 3 + 1
        places = rows.requires_grad_().repeat_interleave(times, dim=0)
        target = torch.randn(places.shape, generator=generator(7 + step), dtype=torch.float64)
        found = counted(rows, times.double()).repeat_interleave(times, dim=0)
        expected = plain(places.flatten(2) if places.dim() > 2 else places).view(places.shape)
        assert_close(found, expected, **CLOSE)
        gradients = [torch.autograd.grad((of * target).sum(), rows, retain_graph=True) for of in (found, expected)]
        assert_close(*gradients, **CLOSE)
    assert_close(list(counted.state_dict().values()), list(plain.state_dict().values()), **CLOSE)
    flat = rows.flatten(2) if rows.dim() > 2 else rows
    assert_close(counted.eval()(rows), plain.eval()(flat).view(rows.shape), **CLOSE)


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("paradigm", ["soft", "hard", "lvml"])
@pytest.mark.parametrize("names", [("mlp:2x7:batch", "mlp:2x7"), ("cnn:2x3:batch",)])
def test_training_on_distinct_segments_equals_the_plain_pass(
    names: tuple[str, ...], paradigm: str, is_masked: bool
) -> None:
    """Three steps of SGD; the plain side evaluates every place, and of padded instances the real places alone."""
    bank = torch.randn(9, *DIGIT, generator=generator(3), dtype=torch.float64)
    ours, plain = model_of(*names), model_of(*names)
    steps = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in (ours, plain)]
    for step in range(3):
        segments = torch.randint(0, 9, (6, 5), generator=generator(10 + step))
        mask = torch.rand(6, 5, generator=generator(20 + step)) > 0.4 if is_masked else None
        if mask is not None:
            mask[:, 0] = True
        label = torch.arange(6) % NUM_CLASSES
        rows, places = distinct(segments)
        loss = ours(bank[rows], places, paradigm, mask).loss(paradigm, label)
        rows, places = every_occurrence(segments)
        if mask is not None:  # the table holds real places alone; padding may point at any of them
            rows, places = rows[mask.flatten()], (mask.flatten().cumsum(0) - 1).view(mask.shape)
        expected = plain(bank[rows], places, paradigm, mask).loss(paradigm, label)
        assert_close(loss, expected, **CLOSE)
        for value, optimizer in zip((loss, expected), steps, strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    start = model_of(*names).state_dict()
    assert not any(torch.equal(value, start[key]) for key, value in ours.state_dict().items() if "running" in key)
    assert_close(list(ours.state_dict().values()), list(plain.state_dict().values()), **CLOSE)


def small(**changes: object) -> dict[str, object]:
    sizes = {"num_train": 40, "num_validation": 30, "num_test": 30, "batch_size": 16, "num_segments": 3, "epochs": 4}
    networks = {"focus_network": "mlp:1x8:batch", "classification_network": "mlp:1x6:batch"}
    return {**sizes, **networks, "paradigms": "hybrid", "learning_rates": "0.2,0.05", **changes}


def test_the_table_of_distinct_segments_uses_the_running_statistics() -> None:
    """The scores of an instance do not depend on what it is evaluated with; each candidate has its own statistics."""
    config = Grid.of(small()).configs()[0]
    data = task(config.data, 0)
    model = build_model(config, data)
    fit(model, data, config.phases, config.training, 0)
    assert int(model.state_dict()["focus_model.2.num_batches_tracked"]) == 4 * 3  # steps of the chosen rates alone
    test, numerics = data.splits["test"], Numerics.of(config.training)
    together = evaluate(model, test, ["hard", "soft"], numerics)
    for paradigm, scores in together.items():
        alone = [evaluate(model, test.take(torch.tensor([i])), [paradigm], numerics)[paradigm] for i in range(4)]
        assert_close(torch.tensor([s.s_y[0] for s in alone]), torch.tensor(scores.s_y[:4]), **CLOSE)
        assert_close(torch.tensor([s.a_z[0] for s in alone]), torch.tensor(scores.a_z[:4]), **CLOSE)


def test_a_last_batch_of_one_is_refused(results: Path) -> None:
    (config,) = Grid.of(small(num_train=33, paradigms="soft")).configs()
    with pytest.raises(UserError, match=r"^a batch holds one instance, which batch normalisation cannot use: choo"):
        store.get(config)

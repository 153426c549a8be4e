"""Networks named with depth, width and normalisation; batch-normalised distinct segments equal the plain pass."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from fcamlib import store
from fcamlib.config import Grid, NetworkShape, network_shape
from fcamlib.data.sdc import distinct, every_occurrence
from fcamlib.errors import UserError
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.networks import CountedBatchNorm, classification_network, focus_network, occurrences
from fcamlib.numerics import Numerics
from fcamlib.running import build_model
from fcamlib.running import data as task
from fcamlib.training import fit

DIGIT, K = (1, 8, 8), 3
EXACT = {"rtol": 1e-10, "atol": 1e-10}
BATCHED = ("mlp:2x7:batch", "cnn:2x3:batch")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def model_of(focus: str, classifier: str) -> FCAM:
    f = focus_network(focus, DIGIT, generator(1), torch.float64)
    return FCAM(f, classification_network(classifier, DIGIT, K, generator(2), torch.float64))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mlp:2x64", NetworkShape("mlp", 2, 64)),
        ("cnn:1x8:layer", NetworkShape("cnn", 1, 8, "layer")),
        ("mlp:32x8192:batch", NetworkShape("mlp", 32, 8192, "batch")),
    ],
)
def test_a_name_says_depth_width_and_normalisation(name: str, expected: NetworkShape) -> None:
    assert network_shape(name) == expected


FORM = "write KIND:DEPTHxWIDTH, and :batch or :layer after it for a normalisation, such as mlp:2x64 or mlp:2x64:layer."


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mlp:2", f"focus_network='mlp:2' is not understood: {FORM}"),
        ("mlp:0x3", f"focus_network='mlp:0x3' is not understood: {FORM}"),
        ("mlp:02x3", f"focus_network='mlp:02x3' is not understood: {FORM}"),  # one spelling for one network
        ("mlp:2x64:none", f"focus_network='mlp:2x64:none' is not understood: {FORM}"),
        ("mlp:33x1", "focus_network='mlp:33x1' has depth 33: give at most 32."),
        ("cnn:1x9000", "focus_network='cnn:1x9000' has width 9000: give at most 8192."),
        (
            "digits:2x3",
            "focus_network='digits:2x3' is unknown: choose one of cifar10, cifar100, digits, mlp, linear, or",
        ),
    ],
)
def test_wrong_names_are_one_sentence_wherever_they_enter(name: str, sentence: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}") as shown:
        Grid.of({"focus_network": name})
    assert str(shown.value).endswith(".") and "\n" not in str(shown.value)
    with pytest.raises(UserError, match=re.escape(sentence.split(": choose")[0])):
        focus_network(name, DIGIT, generator())


def test_convolutions_are_for_pictures_that_are_large_enough() -> None:
    with pytest.raises(UserError, match=r"^'cnn:4x2' halves pictures 4 times, and 8 x 8 pixels allow 3: choose a sm"):
        focus_network("cnn:4x2", DIGIT, generator())
    with pytest.raises(UserError, match=r"^'cnn:1x2' takes pictures, and segments have shape \(100,\): choose mlp:DEP"):
        focus_network("cnn:1x2", (100,), generator())
    with pytest.raises(
        UserError, match=r"^focus_network='cnn:1x2' is unknown: choose one of text200, text50, mlp, lin"
    ):
        Grid.of({"dataset": "keywords", "focus_network": "cnn:1x2"})
    assert isinstance(Grid.of({"focus_network": "cnn:3x2", "classification_network": "mlp:1x8:layer"}), Grid)


def by_hand(network: nn.Module, shape: NetworkShape, values: Tensor) -> Tensor:
    """The table of `fcamlib.networks`, from the network's numbers alone, ReLU before pooling."""
    weights = iter(network.parameters())
    hidden = values.flatten(1) if shape.kind == "mlp" else values
    for _ in range(shape.depth):
        kernel = next(weights)
        bias = next(weights) if shape.norm != "batch" else None
        if shape.kind == "mlp":
            hidden = functional.linear(hidden, kernel, bias)
        else:
            hidden = functional.conv2d(hidden, kernel, bias, padding=1)
        if shape.norm:
            scale, offset = next(weights), next(weights)
            over = [0] if shape.norm == "batch" else [1]
            over += [2, 3] if shape.kind == "cnn" else []
            mean, variance = hidden.mean(over, keepdim=True), hidden.var(over, unbiased=False, keepdim=True)
            per_unit = (1, -1, 1, 1)[: hidden.dim()]
            hidden = (hidden - mean) / (variance + 1e-5).sqrt() * scale.view(per_unit) + offset.view(per_unit)
        hidden = hidden.relu()
        if shape.kind == "cnn":
            hidden = functional.max_pool2d(hidden, 2)
    return functional.linear(hidden.flatten(1), *weights)


@pytest.mark.parametrize(
    ("kind", "norm", "depth"), list(itertools.product(("mlp", "cnn"), ("", ":layer", ":batch"), (1, 3)))
)
def test_layers_are_those_of_the_name(kind: str, norm: str, depth: int) -> None:
    name = f"{kind}:{depth}x5{norm}"
    network = classification_network(name, DIGIT, K, generator(), torch.float64)
    for number, weight in enumerate(network.parameters()):
        if weight.dim() == 1:  # off their constants, so that they count
            nn.init.normal_(weight, mean=0.5, generator=generator(number))
    values = torch.randn(6, *DIGIT, generator=generator(9), dtype=torch.float64)
    assert_close(network(values), by_hand(network, network_shape(name), values), **EXACT)
    focus = focus_network(name, DIGIT, generator(), torch.float64)
    assert_close(focus(values), by_hand(focus, network_shape(name), values).squeeze(1), **EXACT)


def test_normalisation_starts_as_the_identity() -> None:
    state = focus_network("cnn:2x4:batch", DIGIT, generator()).state_dict()
    norm = {name: value.unique().tolist() for name, value in state.items() if name.startswith("1.")}
    expected = {"weight": [1.0], "bias": [0.0], "running_mean": [0.0], "running_var": [1.0], "num_batches_tracked": [0]}
    assert norm == {f"1.{name}": value for name, value in expected.items()}


@pytest.mark.parametrize("channels_and_pixels", [(3,), (3, 2, 4)])
def test_counted_statistics_equal_those_of_torch_on_repeated_rows(channels_and_pixels: tuple[int, ...]) -> None:
    """Output, gradients and running statistics, over two steps."""
    counted, plain = CountedBatchNorm(3).double(), nn.BatchNorm1d(3).double()
    for step in range(2):
        values = torch.randn(5, *channels_and_pixels, generator=generator(step), dtype=torch.float64) * 3 + 1
        counts = torch.tensor([1.0, 4.0, 0.0, 2.0, 1.0])
        repeated = values.repeat_interleave(counts.long(), dim=0)
        rows, places = values.clone().requires_grad_(), repeated.clone().requires_grad_()
        target = torch.randn(repeated.shape, generator=generator(7 + step), dtype=torch.float64)
        found = counted(rows, counts)
        flat = places.flatten(2) if places.dim() > 2 else places
        expected = plain(flat).view(places.shape)
        assert_close(found.repeat_interleave(counts.long(), dim=0), expected, **EXACT)
        (found.repeat_interleave(counts.long(), dim=0) * target).sum().backward()
        (expected * target).sum().backward()
        assert places.grad is not None
        owner = torch.arange(5).repeat_interleave(counts.long())
        assert_close(rows.grad, torch.zeros_like(values).index_add_(0, owner, places.grad), **EXACT)
    for found, expected in zip(counted.state_dict().values(), plain.state_dict().values(), strict=True):
        assert_close(found, expected, **EXACT)
    values = torch.randn(2, *channels_and_pixels, generator=generator(), dtype=torch.float64)
    flat = values.flatten(2) if values.dim() > 2 else values
    assert_close(counted.eval()(values), plain.eval()(flat).view(values.shape), **EXACT)


def test_occurrences_count_real_places() -> None:
    index = torch.tensor([[0, 2, 2], [1, 2, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert occurrences(index, None, 4).tolist() == [2, 1, 3, 0]
    assert occurrences(index, mask, 4).tolist() == [1, 1, 3, 0]


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("paradigm", ["soft", "hard", "lvml"])
@pytest.mark.parametrize("name", BATCHED)
def test_training_on_distinct_segments_equals_the_plain_pass(name: str, paradigm: str, is_masked: bool) -> None:
    """Three steps of SGD; the plain side evaluates every place, and of padded instances the real places alone."""
    bank = torch.randn(9, *DIGIT, generator=generator(3), dtype=torch.float64)
    ours, plain = model_of(name, name), model_of(name, name)
    steps = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in (ours, plain)]
    for step in range(3):
        segments = torch.randint(0, 9, (6, 5), generator=generator(10 + step))
        mask = torch.rand(6, 5, generator=generator(20 + step)) > 0.4 if is_masked else None
        if mask is not None:
            mask[:, 0] = True
        label = torch.arange(6) % K
        rows, places = distinct(segments)
        loss = ours(bank[rows], places, paradigm, mask).loss(paradigm, label)
        rows, places = every_occurrence(segments)
        if mask is not None:  # the table holds real places alone; padding may point at any of them
            rows, places = rows[mask.flatten()], (mask.flatten().cumsum(0) - 1).view(mask.shape)
        expected = plain(bank[rows], places, paradigm, mask).loss(paradigm, label)
        assert_close(loss, expected, **EXACT)
        for value, optimizer in zip((loss, expected), steps, strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    start = model_of(name, name).state_dict()
    assert not any(torch.equal(value, start[key]) for key, value in ours.state_dict().items() if "running" in key)
    for found, expected in zip(ours.state_dict().values(), plain.state_dict().values(), strict=True):
        assert_close(found, expected, **EXACT)


def small(**changes: object) -> dict[str, object]:
    sizes = {"num_train": 40, "num_validation": 30, "num_test": 30, "batch_size": 16, "num_segments": 3, "epochs": 4}
    networks = {"focus_network": "mlp:1x8:batch", "classification_network": "mlp:1x6:batch"}
    return {**sizes, **networks, "paradigms": "hybrid", "learning_rates": "0.2,0.05", **changes}


def test_the_table_of_distinct_segments_uses_the_running_statistics() -> None:
    """The scores of an instance do not depend on what it is evaluated with."""
    config = Grid.of(small()).configs()[0]
    data = task(config.data, 0)
    model = build_model(config, data)
    fit(model, data, config.phases, config.training, 0)
    test, numerics = data.splits["test"], Numerics.of(config.training)
    together = evaluate(model, test, ["hard", "soft"], numerics)
    for paradigm, scores in together.items():
        alone = [evaluate(model, test.take(torch.tensor([i])), [paradigm], numerics)[paradigm] for i in range(4)]
        assert_close(torch.tensor([s.s_y[0] for s in alone]), torch.tensor(scores.s_y[:4]), **EXACT)
        assert_close(torch.tensor([s.a_z[0] for s in alone]), torch.tensor(scores.a_z[:4]), **EXACT)


def test_selection_and_checkpoints_carry_the_running_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Grid.of(small()).configs()[0]
    data = task(config.data, 0)

    def fitted(checkpoint: Path | None = None, stop_after: int | None = None) -> FCAM:
        model, seen = build_model(config, data), itertools.count(1)

        def on_epoch(row: dict[str, object]) -> None:
            if next(seen) == stop_after:
                raise KeyboardInterrupt

        fit(model, data, config.phases, config.training, 0, checkpoint, on_epoch)
        return model

    whole = fitted()
    monkeypatch.setattr("fcamlib.training.CHECKPOINT_SECONDS", -1.0)
    for stop_after in (2, 6):  # while rates are compared, and in the second phase
        with pytest.raises(KeyboardInterrupt):
            fitted(tmp_path / f"{stop_after}.safetensors", stop_after)
        resumed = fitted(tmp_path / f"{stop_after}.safetensors")
        states = zip(whole.state_dict().items(), resumed.state_dict().items(), strict=True)
        assert all(name == other and torch.equal(a, b) for (name, a), (other, b) in states)
    tracked = whole.state_dict()["focus_model.2.num_batches_tracked"]
    assert int(tracked) == 4 * 3  # steps of the chosen rates alone: each candidate began with the phase's statistics


def test_a_last_batch_of_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path))
    (config,) = Grid.of(small(num_train=33, paradigms="soft")).configs()
    with pytest.raises(UserError, match=r"^a step has one instance, which batch normalisation cannot learn from: choo"):
        store.get(config)

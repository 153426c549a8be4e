"""The plain procedure and the library do the same mathematics, and the benchmark's rows hang together."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks import captions, pictures, report, text, theory
from benchmarks.__main__ import main
from fcamlib.captioning.model import Captioner
from fcamlib.config import CaptionModel
from fcamlib.cost import output
from fcamlib.data.sdc import Bank, SDCData, distinct
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import Numerics
from fcamlib.paradigms import PAPER
from fcamlib.theory.flow import trajectory

NUMERICS = Numerics(torch.device("cpu"), torch.float64, channels_last=True)
Pair = tuple[FCAM, pictures.PlainFCAM]


@pytest.fixture(scope="module")
def data() -> SDCData:
    """Eleven mosaics of three segments out of nine pictures, so that pictures occur again and again."""
    draws = np.random.default_rng(1)
    values = draws.integers(256, size=(9, 32, 32, 3), dtype=np.uint8)
    bank = Bank(torch.from_numpy(values), scale=2 / 255, shift=-1.0, pictures=True)
    place = torch.from_numpy(draws.integers(3, size=11))
    foreground = torch.nn.functional.one_hot(place, 3).bool()
    segments = torch.from_numpy(draws.integers(9, size=(11, 3)).astype(np.int32))
    return SDCData(bank, segments, torch.from_numpy(draws.integers(5, size=11)), foreground)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The library's model and the plain one with the same weights, biases and focus far from zero."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(3)
    shape = (3, 32, 32)
    focus = focus_network("cifar10", shape, generator)
    model = FCAM(focus, classification_network("cifar10", shape, 5, generator))
    NUMERICS.place(model)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.copy_(torch.randn(value.shape, generator=generator, dtype=value.dtype) / 10)
    yield model, pictures.PlainFCAM(model)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("paradigm", PAPER)
def test_loss_gradients_and_scores_are_those_of_the_plain_procedure(data: SDCData, pair: Pair, paradigm: str) -> None:
    model, copy = pair
    scores = evaluate(model, data, [paradigm], NUMERICS)[paradigm]
    theirs = pictures.plain_scores(copy, pictures.batches(data, 4, torch.float64), paradigm)
    for name in ("a_z", "s_y", "loss"):
        np.testing.assert_allclose(getattr(scores, name), theirs[name].numpy(), atol=1e-9, rtol=1e-6, err_msg=name)
        assert np.ptp(theirs[name].numpy()) > 1e-3, name  # mosaics differ, so their order is compared too
    rows, places = distinct(data.segments)
    assert len(rows) < data.segments.numel()
    table = data.bank.rows(rows, torch.float64, channels_last=True)
    (mosaics, label, _), *_ = pictures.batches(data, len(data), torch.float64)
    losses = model(table, places, paradigm).loss(paradigm, data.label), copy.loss(mosaics, label, paradigm)
    found, expected = (torch.autograd.grad(loss, list(of.parameters())) for loss, of in zip(losses, pair, strict=True))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    assert min(gradient.abs().max().item() for gradient in found) > 1e-7  # every parameter has one to compare


def test_rows_take_their_ratios_from_pairs() -> None:
    line = report.row("evaluation", "s", [1.0, 2.0, 1.5], [10.0, 12.0, 30.0], 20.0)
    assert line["plain"] == {"median": 12.0, "low": 10.0, "high": 30.0}
    assert line["ratio"] == {"median": 8.0, "low": 6.0, "high": 20.0}
    shown = report.table({"rows": [line, report.row("alone", "MB", [7.25])]})
    assert shown.to_numpy().tolist() == [
        ["12 (10 to 30) s", "1.5 (1 to 2) s", "8 (6 to 20)", "20"],
        ["", "7.25 MB", "", ""],
    ]


def test_sides_are_measured_in_turn() -> None:
    order: list[bool] = []

    def measure(is_plain: bool) -> float:
        order.append(is_plain)
        return float(len(order))

    line = report.compared("training", measure, 3)
    assert order == [True, False, False, True, True, False]
    assert (line["plain"]["median"], line["library"]["median"]) == (4.0, 3.0)


@pytest.mark.parametrize("name", ["pictures", "theory", "text", "captions"])
def test_every_benchmark_ends_in_one_form(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny: list[tuple[object, dict[str, object]]] = [
        (pictures, {"NUM_PICTURES": 60, "SIZES": {True: (12, 4, (3,))}, "STEPS": 1, "SOME": 4}),
        (theory, {"LONGEST": 1.0, "plain_sweep": lambda config: config}),
        (text, {"NUM_POSTS": 600}),
        (captions, {"NUM_REGIONS": 9, "REGION_DIM": 6, "NUM_WORDS": 30, "LONGEST": 7, "BATCH": 3}),
    ]
    for module, values in tiny:
        for constant, value in values.items():
            monkeypatch.setattr(module, constant, value)
    for module in (pictures, captions):
        monkeypatch.setattr(module, "in_fresh_process", lambda call, *given: call(*given))
    file = tmp_path / "new" / "bench.json"
    result = CliRunner().invoke(main, [name, "--quick", "--repeats", "1", "--json", str(file)])
    assert result.exit_code == 0, result.output
    content = json.loads(file.read_text())
    assert content["provenance"]["packages"]["torch"] == version("torch") and content["how"] in result.output
    for line in content["rows"]:
        assert line["library"]["median"] > 0 and line["label"] in result.output
        if line["plain"]:
            assert line["ratio"]["median"] == pytest.approx(line["plain"]["median"] / line["library"]["median"])


@pytest.mark.parametrize("paradigm", PAPER)
def test_other_plain_sides_compute_the_librarys_losses(paradigm: str) -> None:
    """Euler's method ends where the solver does; padded posts have the loss of distinct words."""
    exact = trajectory(paradigm, 4, 3, [40.0])
    assert exact.mu[0] > 1.5
    np.testing.assert_allclose(theory.euler(paradigm, 4, 3, 4_000), (exact.mu[0], exact.nu[0]), rtol=2e-3)
    posts = text.random_posts()
    model, batch = text.simple_model(posts, dtype=torch.float64), posts.splits["train"].take(torch.arange(12))
    library = output("bank", model, batch.trimmed(), paradigm).loss(paradigm, batch.label)
    gradients = [
        torch.autograd.grad(loss, list(model.parameters()))
        for loss in (text.padded_loss(model, batch, paradigm), library)
    ]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


def test_packed_and_padded_captions_give_the_same_loss() -> None:
    model = Captioner(CaptionModel(), (9, 6), 5_000, torch.Generator().manual_seed(0)).double()
    regions, tokens = torch.rand(3, 9, 6, dtype=torch.float64), captions.random_captions(3)
    for name in ("soft", "hard"):
        packed, plain = (captions.step_loss(name, is_plain, model, regions, tokens) for is_plain in (False, True))
        torch.testing.assert_close(packed, plain, rtol=1e-10, atol=0)


def test_a_file_that_cannot_be_written_is_one_sentence_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(main, ["text", "--json", str(tmp_path / "file" / "bench.json")])
    assert refused.exit_code == 2 and "cannot be written" in refused.output

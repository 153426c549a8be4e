"""The plain procedure and the library do the same mathematics, and the benchmark's rows hang together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from fcamlib import chunked, store
from fcamlib.__main__ import main
from fcamlib.bench import command, comparison, plain
from fcamlib.bench.comparison import BenchRow
from fcamlib.bench.results import Spread
from fcamlib.bench.settings import BenchSettings
from fcamlib.bench.sides import plain_copy, random_pictures
from fcamlib.config import Phase, TrainingConfig
from fcamlib.data.sdc import Bank, SDCData, SDCTask, distinct
from fcamlib.errors import UserError
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import Numerics
from fcamlib.training import fit

NUMERICS = Numerics(torch.device("cpu"), torch.float64, channels_last=True)
PARADIGMS = ("soft", "hard", "lvml")
Pair = tuple[FCAM, plain.PlainFCAM]


@pytest.fixture(scope="module")
def data() -> SDCData:
    """Eleven mosaics of three segments out of nine pictures, so that pictures occur again and again."""
    draws = np.random.default_rng(1)
    pictures = random_pictures(9, seed=2)
    bank = Bank(torch.from_numpy(pictures.values), scale=2 / 255, shift=-1.0, pictures=True)
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
    yield model, plain_copy(model, 5)
    torch.set_num_threads(threads)


def mosaics(data: SDCData) -> torch.Tensor:
    return plain.materialised(plain.float_pictures(data.bank, torch.float64), data.segments)


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_loss_and_gradients_are_those_of_the_plain_procedure(data: SDCData, pair: Pair, paradigm: str) -> None:
    model, copy = pair
    rows, places = distinct(data.segments)
    ours = model(data.bank.rows(rows, torch.float64, channels_last=True), places, paradigm).loss(paradigm, data.label)
    alpha, probability = copy(mosaics(data), paradigm)
    theirs = plain.loss(alpha, probability, data.label, paradigm).mean()
    assert len(rows) < data.segments.numel()
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-9)
    ours.backward()
    theirs.backward()
    sizes = []
    for (name, value), other in zip(model.named_parameters(), copy.parameters(), strict=True):
        assert value.grad is not None and other.grad is not None
        torch.testing.assert_close(value.grad, other.grad, rtol=1e-6, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
        sizes.append(value.grad.abs().max().item())
    assert min(sizes) > 1e-7  # every parameter has a gradient to compare


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_scores_are_those_of_the_plain_procedure(data: SDCData, pair: Pair, paradigm: str) -> None:
    model, copy = pair
    scores = evaluate(model, data, [paradigm], NUMERICS)[paradigm]
    theirs = plain.evaluate(copy, plain.batches(plain.MosaicDataset(mosaics(data), data), 4), paradigm)
    for name in ("a_z", "s_y", "loss"):
        np.testing.assert_allclose(getattr(scores, name), theirs[name].numpy(), atol=1e-9, rtol=1e-6, err_msg=name)
        assert np.ptp(theirs[name].numpy()) > 1e-3, name  # mosaics differ, so their order is compared too
    for name in ("focus_hit", "prediction_hit"):
        assert getattr(scores, name).tolist() == theirs[name].tolist(), name


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_five_steps_end_at_the_weights_of_the_plain_procedure(data: SDCData, pair: Pair, paradigm: str) -> None:
    model, copy = pair
    before = [value.detach().clone() for value in copy.parameters()]
    one = data.take(torch.arange(1))
    task = SDCTask({"train": data, "validation": one, "test": one}, tuple("abcde"), "small")
    phase = Phase(paradigm=paradigm, epochs=1, learning_rates=(0.05,))
    config = TrainingConfig(batch_size=2, precision="float64", device="cpu")
    ten = data.take(torch.arange(10))
    fit(model, SDCTask(task.splits | {"train": ten}, task.class_names, ""), (phase,), config, seed=7)
    order = np.random.default_rng([7, 0, 0]).permutation(10).tolist()
    optimizer = torch.optim.SGD(copy.parameters(), lr=0.05, momentum=0.9)
    loader = plain.batches(plain.MosaicDataset(mosaics(ten), ten), 2, order)
    assert len(plain.train_epoch(copy, loader, optimizer, paradigm)) == 5
    for ours, theirs, start in zip(model.parameters(), copy.parameters(), before, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6, check_stride=False)
        assert (theirs - start).abs().max() > 1e-4  # the steps went far enough to tell


@pytest.mark.parametrize("chunks", [False, True])
@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_losses_of_the_training_loop_are_those_of_the_plain_procedure(
    data: SDCData, pair: Pair, paradigm: str, chunks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six steps of `fit`, in one piece or in chunks: the loss on the way and after the last step."""
    if chunks:
        monkeypatch.setattr(chunked, "ALWAYS_WHOLE", 1)
        monkeypatch.setattr(chunked, "BUDGET", 2**20)  # of two pictures
    model, copy = pair
    twelve = data.take(torch.arange(12) % 11)
    one = data.take(torch.arange(1))
    task = SDCTask({"train": twelve, "validation": one, "test": one}, tuple("abcde"), "small")
    phase = Phase(paradigm=paradigm, epochs=1, learning_rates=(0.05,))
    config = TrainingConfig(batch_size=2, precision="float64", device="cpu")
    (row,) = fit(model, task, (phase,), config, seed=7).history
    optimizer, before = torch.optim.SGD(copy.parameters(), lr=0.05, momentum=0.9), []
    for batch in torch.from_numpy(np.random.default_rng([7, 0, 0]).permutation(12)).split(2):
        part = twelve.take(batch)
        alpha, probability = copy(mosaics(part), paradigm)
        before.append(plain.loss(alpha, probability, part.label, paradigm).mean())
        optimizer.zero_grad()
        before[-1].backward()
        optimizer.step()
    assert row["train_loss"] == pytest.approx(torch.stack(before).mean().item(), rel=1e-9)
    after = plain.evaluate(copy, plain.batches(plain.MosaicDataset(mosaics(twelve), twelve), 4), paradigm)["loss"]
    ours = evaluate(model, twelve, [paradigm], NUMERICS)[paradigm].loss
    np.testing.assert_allclose(ours, after.numpy(), rtol=1e-8)
    assert abs(row["train_loss"] - after.mean().item()) > 1e-4  # the steps went far enough to tell


def test_plain_loss_falls_within_its_step(data: SDCData, pair: Pair) -> None:
    _, copy = pair
    loader = plain.batches(plain.MosaicDataset(mosaics(data), data), len(data))
    before = plain.evaluate(copy, loader, "lvml")["loss"].mean().item()
    after = plain.train_epoch(copy, loader, torch.optim.SGD(copy.parameters(), lr=0.01), "lvml")
    assert after == [pytest.approx(plain.evaluate(copy, loader, "lvml")["loss"].mean().item())]
    assert after[0] < before


def test_rows_take_their_ratios_from_pairs() -> None:
    row = BenchRow.of("evaluation", 20, "hard", "s", [(10.0, 1.0), (12.0, 2.0), (30.0, 1.5)])
    assert row.plain == Spread(12.0, 10.0, 30.0)
    assert row.library == Spread(1.5, 1.0, 2.0)
    assert row.ratio == Spread(8.0, 6.0, 20.0)
    assert row.target == 20
    shown = comparison.table([row]).iloc[0]
    assert shown["measure"] == "evaluation hard"
    assert shown["plain"] == "12.0 (10.0 to 30.0) s"
    assert shown["ratio"] == "8.0 (6.0 to 20.0)"


def test_benchmark_has_every_row_and_consistent_ratios(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny = BenchSettings(num_pictures=60, num_train=12, num_test=4, batch_size=4, steps=1, evaluation_mosaics=6,
                         setup_mosaics=4, repeats=1)  # fmt: skip
    monkeypatch.setattr(command, "QUICK", tiny)
    file = tmp_path / "new" / "bench.json"
    arguments = ["bench", "--quick", "--num-segments", "3", "--json", str(file)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    content = json.loads(file.read_text())
    rows = content["rows"]
    expected = [("set-up", ""), ("data", ""), ("peak memory", "")]
    timed = ("training epoch", "evaluation", "epoch with evaluation")
    expected += [(name, paradigm) for paradigm in PARADIGMS for name in timed]
    assert [(row["measure"], row["paradigm"]) for row in rows] == expected
    assert len(rows) == comparison.num_rows(BenchSettings(segments=(3,)))
    for row in rows:
        assert row["num_segments"] == 3
        assert row["plain"]["median"] > 0 and row["library"]["median"] > 0
        assert row["ratio"]["median"] == pytest.approx(row["plain"]["median"] / row["library"]["median"])
        assert f"{row['measure']} {row['paradigm']}".strip() in result.output
    for training, evaluation, both in zip(rows[3::3], rows[4::3], rows[5::3], strict=True):
        for side in ("plain", "library"):
            parts = training[side]["median"] + evaluation[side]["median"]
            assert both[side]["median"] == pytest.approx(parts)
    # 16 mosaics of 3 float pictures with label and place; 60 byte pictures, 17 rows of 3 places with label and truth
    assert rows[1]["plain"]["median"] == pytest.approx(16 * (3 * 3072 * 4 + 8 + 8) * 1e-6)
    assert rows[1]["library"]["median"] == pytest.approx((60 * 3072 + 17 * (3 * 4 + 8 + 3)) * 1e-6)
    assert content["settings"]["segments"] == [3]
    assert content["provenance"]["packages"]["torch"] == version("torch")
    assert "from 1 of 3 steps" in content["how"] and content["how"] in result.output


@pytest.mark.parametrize("value", ["1", "5,x", "", "2.5", "-3"])
def test_wrong_numbers_of_segments_are_one_sentence(value: str) -> None:
    result = CliRunner().invoke(main, ["bench", f"--num-segments={value}"])
    assert result.exit_code == 2
    sentence = f"num_segments={value} is not allowed: give whole numbers from 2 to 10000, such as 5,20."
    assert result.stderr == f"fcam: {sentence}\n"


def test_unwritable_file_is_one_sentence_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "measure", lambda *_: pytest.fail("measured"))
    (tmp_path / "file").touch()
    result = CliRunner().invoke(main, ["bench", "--json", str(tmp_path / "file" / "bench.json")])
    assert result.exit_code == 2
    assert result.stderr.startswith("fcam: json=") and result.stderr.count("\n") == 1


def test_side_that_ends_is_one_sentence() -> None:
    settings = BenchSettings(num_pictures=60, num_train=12, num_test=4, batch_size=4, setup_mosaics=4)
    side = comparison._Process("plain", settings)
    try:
        side.process.kill()
        with pytest.raises(UserError, match=r"the benchmark's plain side ended with status -9 in 'train'"):
            side.ask("train", 3, "soft")
    finally:
        side.close()


def test_recorded_benchmark_is_not_taken_for_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / "cpu.json").write_text("{}")
    monkeypatch.setattr(store.paths, "recorded_dir", lambda: tmp_path)
    assert store.recorded_runs() == []

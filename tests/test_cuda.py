"""On a GPU: the numbers of the CPU, and the same bits twice."""

import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from fcamlib.config import Phase, Training
from fcamlib.data.sdc import Bank, SDCData, SDCTask
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import Numerics, reproducible
from fcamlib.paradigms import PAPER
from fcamlib.training import FitState, fit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

HYBRID = (
    Phase(paradigm="soft", epochs=2, learning_rates=(0.02, 0.01), search_epochs=1),
    Phase(paradigm="hard", epochs=2, learning_rates=(0.01,)),
)


def data(num_instances: int, seed: int) -> SDCData:
    """Mosaics of three out of 200 random pictures; the label is a class that the first picture decides."""
    values = torch.randint(256, (200, 32, 32, 3), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    bank = Bank(values, scale=2 / 255, shift=-1.0, pictures=True)
    generator = torch.Generator().manual_seed(seed)
    segments = torch.randint(200, (num_instances, 3), generator=generator, dtype=torch.int32)
    place = torch.randint(3, (num_instances,), generator=generator)
    foreground = torch.nn.functional.one_hot(place, 3).bool()
    label = segments.gather(1, place[:, None]).squeeze(1).long() % 3
    return SDCData(bank, segments, label, foreground)


def task() -> SDCTask:
    splits = {"train": data(300, 1), "validation": data(64, 2), "test": data(64, 3)}
    return SDCTask(splits, ("a", "b", "c"), "random pictures")


def model(numerics: Numerics) -> FCAM:
    generator, shape = torch.Generator().manual_seed(5), (3, 32, 32)
    built = FCAM(focus_network("cifar10", shape, generator), classification_network("cifar10", shape, 3, generator))
    numerics.place(built)
    return built


def trained(config: Training, phases: tuple[Phase, ...] = HYBRID) -> tuple[FCAM, FitState]:
    numerics = Numerics.of(config)
    built = model(numerics)
    return built, fit(built, task().to(numerics.device), phases, config, seed=3)


def losses(result: FitState) -> list[float]:
    return [row["train_loss"] for row in result.history]


def config(**given: str | int) -> Training:
    return Training.model_validate({"batch_size": 64, "device": "cuda"} | given)


def test_training_in_float64_follows_the_cpu() -> None:
    there, on_gpu = trained(config(precision="float64"))
    here, on_cpu = trained(config(precision="float64", device="cpu"))
    assert losses(on_gpu) == pytest.approx(losses(on_cpu), rel=1e-9)
    for (name, ours), theirs in zip(there.named_parameters(), here.parameters(), strict=True):
        assert_close(ours.cpu(), theirs, rtol=1e-6, atol=1e-9, msg=name)


@pytest.mark.parametrize("precision", ["float32", "tfloat32", "bfloat16"])
def test_the_same_run_gives_the_same_bits(precision: str) -> None:
    assert losses(trained(config(precision=precision))[1]) == losses(trained(config(precision=precision))[1])


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-4), ("bfloat16", 0.05)])
def test_scores_are_those_of_the_cpu(precision: str, tolerance: float) -> None:
    numerics = Numerics.of(config(precision=precision))
    reference = Numerics(torch.device("cpu"), torch.float64)
    with reproducible(1):
        there = evaluate(model(numerics), data(64, 7).to(numerics.device), numerics=numerics)
        here = evaluate(model(reference), data(64, 7), numerics=reference)
    for paradigm in PAPER:
        for name in ("a_z", "s_y", "loss"):
            ours, theirs = (getattr(scores[paradigm], name) for scores in (there, here))
            assert_allclose(ours, theirs, rtol=0, atol=tolerance, err_msg=f"{paradigm} {name}")

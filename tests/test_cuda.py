"""On a GPU: the numbers of the CPU, and the same bits twice."""

import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close
from toys import BATCH, coloured, phase, toy_task

from fcamlib.config import Training
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics, reproducible
from fcamlib.paradigms import PAPER
from fcamlib.training import fit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def trained(precision: str, device: str = "cuda") -> tuple[FCAM, list[float]]:
    """A hybrid of convolutions, and its training losses."""
    config = Training.model_validate({"batch_size": BATCH, "precision": precision, "device": device})
    (task, model), numerics = coloured(toy_task()), Numerics.of(config)
    numerics.place(model)
    schedule = (phase("soft", 2, (0.02, 0.01), search_epochs=1), phase("hard", 2, (0.01,)))
    history = fit(model, task.to(numerics.device), schedule, config, seed=3).history
    return model, [row["train_loss"] for row in history]


def test_training_in_float64_follows_the_cpu() -> None:
    (there, on_gpu), (here, on_cpu) = trained("float64"), trained("float64", "cpu")
    assert on_gpu == pytest.approx(on_cpu, rel=1e-9)
    for (name, ours), theirs in zip(there.named_parameters(), here.parameters(), strict=True):
        assert_close(ours.cpu(), theirs, rtol=1e-6, atol=1e-9, msg=name)


@pytest.mark.parametrize("precision", ["float32", "tfloat32", "bfloat16"])
def test_the_same_run_gives_the_same_bits(precision: str) -> None:
    assert trained(precision)[1] == trained(precision)[1]


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-4), ("bfloat16", 0.05)])
def test_scores_are_those_of_the_cpu(precision: str, tolerance: float) -> None:
    found = []
    for name, device in ((precision, "cuda"), ("float64", "cpu")):
        numerics = Numerics.of(Training.model_validate({"precision": name, "device": device}))
        task, model = coloured(toy_task())
        numerics.place(model)
        with reproducible(1):
            found.append(evaluate(model, task.to(numerics.device).splits["test"], numerics=numerics))
    for paradigm in PAPER:
        for name in ("a_z", "s_y", "loss"):
            ours, theirs = (getattr(scores[paradigm], name) for scores in found)
            assert_allclose(ours, theirs, rtol=0, atol=tolerance, err_msg=f"{paradigm} {name}")

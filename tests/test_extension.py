"""A paradigm from outside the package, one object, trains and evaluates like the paper's: expectation maximisation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.text import Text
from torch import Tensor, nn
from torch.testing import assert_close
from toys import mlp, vectors

from fcamlib import networks, paradigms, plots, store, tables
from fcamlib.config import Grid
from fcamlib.errors import UserError
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network, focus_network
from fcamlib.numerics import Numerics

B, M, K, D, N = 13, 5, 3, 7, 19
FLOAT64 = Numerics(torch.device("cpu"), torch.float64)


def expectation_maximisation_loss(output: Any, y: Tensor) -> Tensor:
    """Responsibilities of the current weights, held fixed, weigh log-attention and log-probability of each segment."""
    joint = output.log_alpha + output.log_likelihood(y)  # (B, M)
    responsibility = joint.detach().softmax(dim=1)
    return -(responsibility * joint.masked_fill(responsibility == 0, 0.0)).sum(dim=1)


EM = paradigms.Paradigm(
    name="em", label="EM", color="#7a4a00", needs="segments",
    loss=expectation_maximisation_loss, log_prob=lambda output: output.marginal_log_prob(),
)  # fmt: skip


@pytest.fixture
def em() -> Iterator[None]:
    paradigms.register(EM)
    yield
    del paradigms.PARADIGMS["em"]


def test_gradient_of_expectation_maximisation_is_that_of_lvml(em: None) -> None:
    for data in (vectors(B, M, N, D, K, masked) for masked in (False, True)):
        model, gradients = mlp(D, K), []
        for name in ("em", "lvml"):
            output = model(data.bank.rows(torch.arange(N), torch.float64), data.segments.long(), name, data.mask)
            gradients.append(torch.autograd.grad(output.loss(name, data.label), list(model.parameters())))
        assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-14)
        assert max(float(gradient.abs().max()) for gradient in gradients[0]) > 1e-3


def test_it_is_asked_for_trained_stored_tabulated_and_drawn_by_its_name(em: None, results: Path) -> None:
    """One gradient and one way to predict make one model; the bound that EM lowers lies above by the entropy of r."""
    sizes = {"num_train": 96, "num_validation": 32, "num_test": 64, "epochs": 2, "seeds": 0}
    runs = store.get_all(Grid.of({"paradigms": "lvml,em", **sizes}).configs())
    lvml, em_run = (run.history for run in runs)
    assert em_run["paradigm"].tolist() == ["em"] * 2 and (em_run["test_loss"] > lvml["test_loss"]).all()
    assert em_run["train_loss"][1] < em_run["train_loss"][0]
    s_y = [run.arrays("scores.npz")["test_s_y"] for run in runs]
    np.testing.assert_allclose(s_y[0], s_y[1], rtol=1e-6)
    table = tables.means(tables.frame(runs))
    assert table.index.tolist() == ["LVML", "EM"] and table.iloc[0].tolist() == table.iloc[1].tolist()
    fig = plots.learning_curves(tables.history_frame(runs), None)
    shown = [text.get_text() for text in fig.findobj(Text)]
    assert any(text.startswith("EM") for text in shown) and any(text.startswith("LVML") for text in shown)


class Gated(nn.Module):
    """A layer of its own kind: the product of a dense layer and a gate, each with weights."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.value, self.scale = nn.Linear(size, 4), nn.Parameter(torch.empty(4))

    def reset_parameters(self) -> None:
        nn.init.normal_(self.scale)

    def forward(self, segments: Tensor) -> Tensor:
        return self.value(segments) * torch.sigmoid(self.scale)


def test_a_network_from_outside_is_named_and_drawn_like_the_others() -> None:
    networks.register("gated", lambda shape, out_dim: [Gated(shape[0]), nn.Linear(4, out_dim)])
    before = torch.get_rng_state()
    built = [focus_network("gated", (D,), torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(before, torch.get_rng_state())
    weights = [torch.cat([parameter.flatten() for parameter in network.parameters()]) for network in built]
    assert torch.equal(weights[0], weights[1])
    assert sum(bool(a != b) for a, b in zip(weights[0], weights[2], strict=True)) == 4 + 4 * D + 4  # no bias
    classifier = classification_network("gated", (D,), K, torch.Generator().manual_seed(3))
    data = vectors(B, M, N, D, K, masked=True)
    scores = evaluate(FCAM(built[0], classifier).double(), data, ["lvml"], FLOAT64)["lvml"]
    np.testing.assert_allclose(scores.prob.sum(axis=1), 1.0)
    with pytest.raises(UserError, match="'gated' exists already: choose another name"):
        networks.register("gated", lambda shape, out_dim: [])


def test_names_labels_and_looks_come_from_the_record(em: None) -> None:
    assert list(paradigms.PARADIGMS) == ["soft", "hard", "lvml", "logit_mixture", "em"]
    labels = [paradigms.label_of(name) for name in (*paradigms.PARADIGMS, "hybrid", "soft+lvml")]
    assert labels == ["SA", "HA", "LVML", "logit mixture", "EM", "hybrid", "soft+lvml"]
    assert paradigms.style_of("em").color == "#7a4a00" and paradigms.style_of("hybrid").marker == "D"
    with pytest.raises(UserError, match="'em' exists already: choose another name"):
        paradigms.register(EM)
    with pytest.raises(
        UserError, match="paradigm='sofd' is unknown: choose one of soft, hard, lvml, logit_mixture, em"
    ):
        paradigms.paradigm("sofd")

"""Linear models trained together: the same losses as the library's, and onto the curves of the theory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy, log_softmax

from fcamlib import gradient_flow, losses, theory_tables
from fcamlib.config.flow import FlowExperiment
from fcamlib.errors import UserError
from fcamlib.joint_training import joint_losses, train_jointly, two_numbers
from fcamlib.notebook import parameters

SMALL = FlowExperiment(num_segments=(5,), num_classes=(3,), end_times=(60.0,), seeds=(0, 1, 2), steps=600)


@pytest.fixture(scope="module")
def training() -> pd.DataFrame:
    return train_jointly(SMALL)


@pytest.mark.parametrize("paradigm", ["soft", "hard", "lvml"])
def test_losses_of_many_models_are_the_librarys_losses_of_each(paradigm: str) -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = {"segments": (2, 7, 3, 6), "focus": (2, 6), "classifier": (2, 5, 6)}
    given = {n: torch.randn(shape, generator=draw, dtype=torch.float64) for n, shape in shapes.items()}
    label = torch.randint(5, (2, 7), generator=draw)
    found = joint_losses(given["segments"], label, given["focus"], given["classifier"], paradigm)
    for model in range(2):
        x, u, w = (given[name][model] for name in shapes)
        log_alpha = log_softmax(x @ u, dim=1)
        if paradigm == "soft":
            mixture = (log_alpha.exp()[..., None] * x).sum(dim=1)
            wanted = cross_entropy(mixture @ w.T, label[model])
        else:
            likelihood = log_softmax(x @ w.T, dim=-1)[torch.arange(7), :, label[model]]
            wanted = (losses.hard_attention_loss if paradigm == "hard" else losses.lvml_loss)(log_alpha, likelihood)
        assert found[model].item() == pytest.approx(wanted.item(), rel=1e-12)


def test_two_numbers_by_hand() -> None:
    weights = torch.tensor([[[2.0, 0.0, 9.0], [1.0, 4.0, 9.0]]])  # margins 2 - 1 and 4 - 0
    mu, nu = two_numbers(torch.tensor([[1.0, 2.0, 9.0]]), weights)
    assert mu == [2.5] and nu == [1.5]


def test_training_ends_near_the_flow_and_follows_its_phase_curve(training: pd.DataFrame) -> None:
    last = training[training["step"] == SMALL.steps]
    assert last["time"].to_numpy() == pytest.approx(np.full(9, 60.0))
    for name, rows in last.groupby("paradigm"):
        flow = gradient_flow.trajectory(str(name), 5, 3, [60.0])
        assert rows["mu"].mean() == pytest.approx(flow.mu[0], abs=0.1)
        assert rows["nu"].mean() == pytest.approx(flow.nu[0], abs=0.15)
        others = [other for other in ("soft", "hard", "lvml") if other != name]
        near = abs(rows["nu"].mean() - gradient_flow.phase_curve(str(name), [rows["mu"].mean()], 5, 3)[0])
        far = [abs(rows["nu"].mean() - gradient_flow.phase_curve(o, [rows["mu"].mean()], 5, 3)[0]) for o in others]
        assert near < min(far) / 3


def test_the_same_seed_gives_the_same_numbers(training: pd.DataFrame) -> None:
    alone = train_jointly(SMALL.model_copy(update={"seeds": (1,)}))
    rows = training[training["seed"] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, alone, check_exact=False, rtol=1e-9)


def test_agreement_is_the_root_mean_square_distance_to_the_curve() -> None:
    mu = np.array([1.0, 2.0])
    off = {0: np.array([0.3, -0.3]), 1: np.array([0.1, 0.1])}
    rows = [
        pd.DataFrame(
            {"paradigm": "hard", "seed": seed, "mu": mu, "nu": gradient_flow.phase_curve("hard", mu, 5, 3) + shift}
        )
        for seed, shift in off.items()
    ]
    table = theory_tables.phase_agreement(pd.concat(rows), (5, 3, 60.0))
    assert table.loc["HA", "distance in nu"].startswith("0.20 [") and table.loc["HA", "n"] == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_segments": "[20, 1]"}, "num_segments=1 is not allowed: give 2 or more"),
        ({"num_classes": [20]}, "num_classes has 1 values and num_segments 2: give one for each setting."),
        ({"end_times": [1e3, -1]}, "end_times=-1 is not allowed: give times above 0, up to 1e12."),
        ({"num_segments": [1000, 20]}, "too large to be trained"),
        ({"num_segments": [5, 5], "num_classes": [3, 3], "end_times": [9, 9]}, "name a setting twice: give each once."),
        ({"steps": "few"}, "steps='few' is not allowed: give a whole number"),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(given: dict[str, Any], said: str) -> None:
    values = {"num_segments": [20, 100], "num_classes": [20, 1000], "end_times": [1e3, 4e5]} | given
    if "num_segments" in given and said.startswith("too large"):
        values["num_classes"] = [1000, 20]
    with pytest.raises(UserError) as error:
        parameters({"In": [], **values}, FlowExperiment)
    assert said in str(error.value) and str(error.value).endswith(".") and "\n" not in str(error.value)


def test_parameters_as_text_are_read() -> None:
    found = parameters(
        {"In": [], "num_segments": "3", "num_classes": "[4]", "end_times": "50", "fig": 1}, FlowExperiment
    )
    assert found.settings() == [(3, 4, 50.0)]

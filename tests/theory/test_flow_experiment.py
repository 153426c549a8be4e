"""Parameters of the page on the gradient flow, and what it says about trained models."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fcamlib.config import FlowParameters
from fcamlib.errors import UserError
from fcamlib.notebook import parameters
from fcamlib.theory import flow as gradient_flow
from fcamlib.theory import tables as theory_tables

SMALL = FlowParameters(num_segments=(5,), num_classes=(3,), end_times=(60.0,), seeds=(0, 1, 2), epochs=12)
LOSSES = ("soft", "hard", "lvml")


def test_training_ends_near_the_flow_and_follows_its_phase_curve() -> None:
    training = theory_tables.joint_frame(SMALL)
    last = training[training["epoch"] == SMALL.epochs]
    assert last["time"].to_numpy() == pytest.approx(np.full(9, 60.0))
    for name, rows in last.groupby("paradigm"):
        flow = gradient_flow.trajectory(str(name), 5, 3, [60.0])
        assert rows["mu"].mean() == pytest.approx(flow.mu[0], abs=0.1)
        assert rows["nu"].mean() == pytest.approx(flow.nu[0], abs=0.15)
        others = [other for other in LOSSES if other != name]
        off = {o: abs(rows["nu"].mean() - float(gradient_flow.phase_curve(o, rows["mu"].mean(), 5, 3))) for o in LOSSES}
        assert off[str(name)] < min(off[other] for other in others) / 3


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_segments": 2, "num_classes": 2, "end_times": 1.0, "num_train": 2, "batch_size": 1},
        {"num_segments": 2, "num_classes": 2, "end_times": 5.0, "num_train": 20},  # one step per epoch
        {"num_segments": "2,1000", "num_classes": "2,1000000", "end_times": "1e-6,3", "num_train": 10},
    ],
)
def test_smallest_sizes_give_numbers(sizes: dict[str, Any]) -> None:
    experiment = parameters({"In": [], "seeds": 0, "epochs": 2, **sizes}, FlowParameters)  # lists as text too
    trained = theory_tables.joint_frame(experiment)
    flow = theory_tables.flow_frame(experiment.settings(), points=40)
    paths = theory_tables.flow_paths(flow) | {"SGD": theory_tables.trained_paths(trained, experiment.settings()[0])}
    ratios, curvatures = theory_tables.ratio_frame(flow), theory_tables.curvature_frame(flow)
    for table in (ratios, curvatures, theory_tables.claims_on(paths)):
        assert len(table) and not table.isna().any(axis=None) and "nan" not in table.to_string()


def test_training_that_leaves_the_flow_is_one_sentence() -> None:
    experiment = SMALL.model_copy(update={"end_times": (1e12,), "epochs": 2, "seeds": (0,)})
    with pytest.raises(UserError, match=r"^end_times=1e\+12 in 2 epochs needs the learning rate .*: give more"):
        theory_tables.joint_frame(experiment)


def test_agreement_is_the_root_mean_square_distance_in_percent_of_the_closed_forms_range() -> None:
    columns = {"paradigm": "hard", "alpha": [0.2, 0.2, 1.0, 1.0], "epoch": [0, 7] * 2, "time": [0.0, 9.0] * 2}
    exact = theory_tables.closed_form(pd.DataFrame(columns), 5)
    ranges = exact[["loss", "incentive"]].max() - exact[["loss", "incentive"]].min()
    off = {0: np.array([0.3, -0.3, 0.3, -0.3]), 1: np.array([0.0, 0.2, 0.0, -0.2])}
    seeds = [exact.assign(seed=s, **{c: exact[c] + ranges[c] * o for c in ranges.index}) for s, o in off.items()]
    table = theory_tables.agreement_table(pd.concat(seeds), 5)
    for column in ("loss", "incentive"):  # the mean of 30 and of 20 / sqrt(2) percent
        assert str(table.loc["HA", f"{column}, % of its range"]).startswith("22.07 (")
    assert table.loc["HA", "n"] == 2


def test_hybrid_wins_in_both_for_a_window_of_switches() -> None:
    """In (20, 20, 1e3) for switches from 0.600 to 0.685 of the time, in (100, 1000, 4e5) for none."""
    setting = (20, 20, 1e3)
    frame = theory_tables.switch_frame(setting, np.array([0.59, 0.6, 0.685, 0.69]))
    assert frame["beats_both"].tolist() == [False, True, True, False]
    assert frame["switch / T"].tolist() == [0.59, 0.6, 0.685, 0.69]
    assert not theory_tables.switch_frame((100, 1000, 4e5), np.linspace(0, 1, 21))["beats_both"].any()
    table = theory_tables.hybrid_table([setting]).droplevel("setting")
    assert table.index.tolist() == ["SA", "HA", "LVML", "hybrid, switch at 0.73 T"]
    assert table["alpha x score"].idxmax() == "hybrid, switch at 0.73 T"
    assert table[["alpha", "score"]].to_numpy()[0].tolist() == [0.9308, 0.9494]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_segments": "[20, 1]"}, "num_segments='1' is not allowed: give 2 or more"),
        ({"num_classes": [20]}, "num_classes has 1 values and num_segments 2: give one for each setting."),
        ({"num_segments": [1000, 20]}, "too large to train"),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(given: dict[str, Any], said: str) -> None:
    values = {"num_segments": [20, 100], "num_classes": [20, 1000], "end_times": [1e3, 4e5]} | given
    if "num_segments" in given and said.startswith("too large"):
        values["num_classes"] = [1000, 20]
    with pytest.raises(UserError) as error:
        parameters({"In": [], **values}, FlowParameters)
    assert said in str(error.value) and str(error.value).endswith(".") and "\n" not in str(error.value)

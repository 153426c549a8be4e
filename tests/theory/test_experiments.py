"""Sweeps and trained flows: members at once equal each alone, and training follows the closed forms."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from numpy.testing import assert_allclose

from benchmarks.theory import plain_sweep
from fcamlib import checkpoint, store
from fcamlib.cli import main
from fcamlib.config import FlowParameters, Sweep, SweepGrid
from fcamlib.data.sdc import Bank, SDCData
from fcamlib.errors import DataError, DivergenceError, UserError
from fcamlib.notebook import parameters
from fcamlib.numerics import Numerics
from fcamlib.theory import fixed_focus
from fcamlib.theory import flow as gradient_flow
from fcamlib.theory import tables as theory_tables
from fcamlib.theory.ensemble import FixedFocusData
from fcamlib.theory.sweep import Trainer, compute, flow_time, members_of

FLOAT64 = Numerics(torch.device("cpu"), torch.float64)
SMALL = {"num_train": 60, "num_segments": 4, "num_classes": 3, "epochs": 2, "batch_size": 25, "alphas": "0,0.3,1"}
DIGITS = {"dataset": "digits", "num_train": 32, "num_segments": 3, "epochs": 1, "batch_size": 12, "alphas": "0.4,1"}


def config_of(parameters: dict[str, Any], **changes: Any) -> Sweep:
    return SweepGrid.of({**parameters, **changes}).config()


@pytest.mark.parametrize(
    "parameters",
    [
        {**SMALL, "seeds": "0,5", "initial": "random"},
        {**SMALL, "classification_network": "mlp", "initial": "random"},
        {**DIGITS, "seeds": "1,2"},
    ],
    ids=["linear", "mlp", "digits"],
)
def test_all_at_once_equal_each_alone(parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(parameters)
    keys = ["paradigm", "alpha", "seed", "epoch"]
    alone = pd.DataFrame(plain_sweep(config), columns=[*keys, "loss", "incentive"])
    # All members in one piece; every member alone, in parts; convolutions grouped, as on a GPU.
    for budget, grouped in ((2**31, False), (2**18, False), (2**31, True)):
        monkeypatch.setattr("fcamlib.numerics.BUDGET", budget)
        trainer = Trainer(config)
        has_windows = config.classifier == "digits"
        assert all(ensemble.is_one_by_one == has_windows for ensemble in trainer.ensembles)
        if grouped:
            for ensemble in trainer.ensembles:
                ensemble.is_one_by_one = False
        trainer.measure()
        for _ in range(config.epochs):
            trainer.train_epoch()
            trainer.measure()
        both = trainer.frame().merge(alone, on=keys, suffixes=("", "_alone"), validate="one_to_one")
        assert len(both) == len(alone) == len(members_of(config)) * len(config.seeds) * (config.epochs + 1)
        assert_allclose(both["loss"], both["loss_alone"], rtol=1e-12)
        assert_allclose(both["incentive"], both["incentive_alone"], rtol=0, atol=1e-9)
        assert both.groupby(keys[:2])["loss"].nunique().min() > 1  # they do learn


def test_exact_incentive_is_the_derivative() -> None:
    """The mean of the differences upwards and downwards is the derivative up to the square of the step."""
    config = config_of(SMALL, alphas="0.3,0.31,0.29", initial="random", epochs=1)
    trainer = Trainer(config)
    trainer.measure()  # one and the same classifier at all alphas
    rows = {(row["paradigm"], row["alpha"]): row for row in trainer.rows}
    for paradigm in config.paradigms:
        lower, here, upper = (rows[paradigm, alpha] for alpha in (0.29, 0.3, 0.31))
        assert_allclose(here["incentive_exact"], (lower["loss"] - upper["loss"]) / 0.02, atol=1e-4)
        assert_allclose(here["incentive"], (here["loss"] - upper["loss"]) / 0.01, rtol=1e-8, atol=1e-10)


def test_instances_without_one_foreground_segment_are_refused() -> None:
    bank, label = Bank(torch.eye(3, dtype=torch.float64)), torch.tensor([0])
    for foreground, mask in (([True, True, False], None), ([True, False, False], [True, True, False])):
        padding = None if mask is None else torch.tensor([mask])
        split = SDCData(bank, torch.tensor([[0, 1, 2]]), label, torch.tensor([foreground]), padding)
        with pytest.raises(DataError, match=r"^a fixed focus needs instances of one length, each with one foreground"):
            FixedFocusData([split], FLOAT64)


def test_linear_sweep_follows_the_closed_form(tmp_path: Path) -> None:
    sizes = {"num_train": 4000, "num_classes": 4, "num_segments": 5, "batch_size": 500, "epochs": 20}
    rates = {f"{paradigm}_learning_rate": 0.2 for paradigm in ("soft", "hard", "lvml")}
    config = config_of({**sizes, **rates}, alphas="0.2,0.6,1", evaluate_every=4, momentum=0)
    frame, *_ = compute(config, list[Any]().append, tmp_path)
    assert frame["epoch"].unique().tolist() == [0, 4, 8, 12, 16, 20]
    for paradigm in config.paradigms:
        rows = frame[frame["paradigm"] == paradigm]
        alpha, t = rows["alpha"].to_numpy(), rows["time"].to_numpy()
        assert_allclose(rows["loss"], fixed_focus.loss(paradigm, alpha, t, 4), rtol=0.02)
        expected = fixed_focus.incentive(paradigm, alpha, t, 4)
        assert_allclose(rows["incentive_exact"], expected, rtol=0.05, atol=0.01)
    assert frame["time"].max() > 30 and frame["loss"].min() < 0.3


def test_a_checkpoint_of_other_ensembles_is_reported_and_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With more memory there are fewer ensembles of more members; a state without rows is none."""
    config, file = config_of(SMALL), tmp_path / store.CHECKPOINT
    expected = compute(config, list[Any]().append, tmp_path)[0]
    with monkeypatch.context() as patched:
        patched.setattr("fcamlib.numerics.BUDGET", 1)
        alone = Trainer(config)
    alone.train_epoch()
    few = {**Trainer(config).state(), "ensembles": alone.state()["ensembles"][:3]}
    for state in (alone.state(), few, {"epoch": 1, "ensembles": few["ensembles"]}):
        checkpoint.save(file, state)
        pd.testing.assert_frame_equal(compute(config, list[Any]().append, tmp_path)[0], expected)
    assert len(caplog.messages) == 3 and all("training starts from the beginning" in m for m in caplog.messages)


def test_time_of_momentum_is_that_of_its_displacement_under_a_constant_gradient() -> None:
    velocity = np.cumsum(0.9 ** np.arange(30))  # of 1, 2, ... steps under a gradient of one
    assert_allclose(flow_time(np.arange(1, 31), 0.02, 0.9), 0.02 * np.cumsum(velocity), rtol=1e-12)
    assert flow_time(0, 0.02, 0.9) == 0.0 and flow_time(7, 0.5, 0.0) == 3.5


def test_a_member_that_diverges_is_one_sentence() -> None:
    trainer = Trainer(config_of(SMALL, seeds="0,7", hard_learning_rate=100, alphas="0.3,0.5"))
    trainer.train_epoch()
    trainer.ensembles[1].weights["1.weight"].data[1, 1] = torch.nan  # of the second seed and the second member
    said = r"^the hard loss at alpha=0\.5 became NaN or infinite in epoch 1 of seed 7 with learning rate 100: choose"
    with pytest.raises(DivergenceError, match=said):
        trainer.measure()


def test_command_shows_the_last_epoch(results: Path) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    shown = CliRunner().invoke(main, ["sweep", *options])
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert lines[0].split() == ["paradigm", "alpha", "loss", "incentive"] and len(lines) == 12
    finished = store.get(config_of(SMALL))
    last = finished.history.query("paradigm == 'lvml' and alpha == 0.3 and epoch == 2").iloc[0]
    (line,) = [line.split() for line in lines if line.split()[:2] == ["lvml", "0.3"]]
    assert_allclose([float(value) for value in line[2:]], [last.loss, last.incentive_exact], atol=6e-5)
    assert finished.config.name in lines[-1]


FLOW = FlowParameters(num_segments=(5,), num_classes=(3,), end_times=(60.0,), seeds=(0,), epochs=12)
LOSSES = ("soft", "hard", "lvml")


def test_training_ends_near_the_flow_and_follows_its_phase_curve() -> None:
    training = theory_tables.joint_frame(FLOW)
    last = training[training["epoch"] == FLOW.epochs]
    assert last["time"].to_numpy() == pytest.approx(np.full(3, 60.0))
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
        # Settings that differ by less than 1 in time, and one that occurs twice.
        {"num_segments": [2, 9, 9, 2], "num_classes": [2, 10**6, 10**6, 2], "end_times": [1e-6, 3.2, 3.4, 1e-6]},
    ],
)
def test_smallest_sizes_give_numbers(sizes: dict[str, Any]) -> None:
    experiment = parameters({"In": [], "seeds": 0, "epochs": 2, "num_train": 10, **sizes}, FlowParameters)
    trained = theory_tables.joint_frame(experiment)
    flow = theory_tables.flow_frame(experiment.settings())
    assert flow["setting"].nunique() == len({*experiment.settings()}) and " to 0" not in flow["setting"].iloc[0]
    paths = theory_tables.flow_paths(flow) | {"SGD": theory_tables.trained_paths(trained, experiment.settings()[0])}
    ratios, curvatures = theory_tables.ratio_frame(flow), theory_tables.curvature_frame(flow)
    for table in (ratios, curvatures, theory_tables.claims_on(paths)):
        assert len(table) and not table.isna().any(axis=None) and "nan" not in table.to_string()


def test_training_that_leaves_the_flow_is_one_sentence() -> None:
    experiment = FLOW.model_copy(update={"end_times": (1e12,), "epochs": 2, "seeds": (0,)})
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
        ({"num_segments": "20,1"}, "num_segments='1' is not allowed: give 2 or more"),
        ({"num_classes": 20}, "num_classes has 1 values and num_segments 2: give one"),
        ({"num_segments": "1000,20", "num_classes": "1000,20"}, "num_segments times num_classes is 1,000,000 in the"),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=rf"^{said}.*\.$"):
        FlowParameters.of(given)

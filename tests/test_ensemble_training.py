"""Models that train together end where each would alone; on the CPU, by the code that a GPU takes."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from pandas.testing import assert_frame_equal
from torch.testing import assert_close

from fcamlib import chunked, ensemble_training, paths, progress, store, training
from fcamlib.__main__ import main
from fcamlib.bench import ensemble as bench_ensemble
from fcamlib.bench.ensemble import members_of, problem
from fcamlib.config import Phase, TrainingConfig, experiment
from fcamlib.data.sdc import SDCData, SDCTask
from fcamlib.encoders import FeatureMLP
from fcamlib.ensemble_training import TrainingMember, can_train_together, pass_together
from fcamlib.fcam import FCAM
from fcamlib.meter import PassResult
from fcamlib.numerics import Numerics
from fcamlib.runs import run, run_all, run_together, seed_groups
from fcamlib.training import FitResult, fit, training_pass

FLOAT64 = Numerics(torch.device("cpu"), torch.float64)
RATES = (0.2, 0.05, 0.1)
PARADIGMS = ("soft", "hard", "lvml", "logit_mixture")
each_paradigm = pytest.mark.parametrize("paradigm", PARADIGMS)


def digits(seed: int = 0, size: int = 20, masked: bool = False) -> tuple[FCAM, SDCData]:
    model, data = problem("digits", (1, 8, 8), size, 3, seed)
    values = data.bank.values[:30].double()
    data = replace(data, bank=replace(data.bank, values=values), segments=data.segments % 30)
    foreground = torch.nn.functional.one_hot(data.segments[:, 0].long() % 3, 3).bool()
    mask = torch.ones_like(foreground)
    mask[::3, 2] = False
    return model.double(), replace(data, foreground=foreground, mask=mask if masked else None)


def copied(members: list[TrainingMember]) -> list[TrainingMember]:
    """The same members, to be trained another way; momentum and weights are copies."""
    found = []
    for member in members:
        model = copy.deepcopy(member.model)
        group = member.optimizer.param_groups[0]
        optimizer = torch.optim.SGD(model.parameters(), lr=group["lr"], momentum=group["momentum"])
        found.append(replace(member, model=model, optimizer=optimizer))
    return found


def assert_same_training(members: list[TrainingMember], paradigm: str) -> None:
    """Two passes together and one by one: measures, weights and momentum agree to 1e-9."""
    others = copied(members)
    start = copied(members)
    for _ in range(2):  # the second pass goes on from the momentum of the first
        found = pass_together(members, paradigm, FLOAT64, batch_size=8)
        expected = [training_pass(other, paradigm, FLOAT64, batch_size=8) for other in others]
        for one, alone in zip(found, expected, strict=True):
            assert one.measures == pytest.approx(alone.measures, rel=1e-9) and one.bad_step == alone.bad_step == 0
    for member, other, before in zip(members, others, start, strict=True):
        for name, weight in other.model.named_parameters():
            assert_close(member.model.get_parameter(name), weight, rtol=1e-9, atol=1e-12)
            buffers = [m.optimizer.state[m.model.get_parameter(name)]["momentum_buffer"] for m in (member, other)]
            assert_close(*buffers, rtol=1e-9, atol=1e-12)
        assert not torch.equal(next(member.model.parameters()), next(before.model.parameters()))


@each_paradigm
@pytest.mark.parametrize("masked", [False, True])
def test_learning_rates_together_are_learning_rates_alone(paradigm: str, masked: bool) -> None:
    assert_same_training(members_of(*digits(masked=masked), 3), paradigm)


@each_paradigm
def test_seeds_together_are_seeds_alone(paradigm: str) -> None:
    """Each seed has its own instances, order, initial weights and number of distinct segments a batch."""
    members = []
    for seed in range(3):
        model, data = digits(seed)
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 + 0.05 * seed, momentum=0.3 * seed)
        members.append(TrainingMember(model, optimizer, data, order))
    others = copied(members)
    found = pass_together(members, paradigm, FLOAT64, batch_size=8)
    for member, other, result in zip(members, others, found, strict=True):
        assert result.measures == pytest.approx(training_pass(other, paradigm, FLOAT64, 8).measures, rel=1e-9)
        for ours, theirs in zip(member.model.parameters(), other.model.parameters(), strict=True):
            assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_an_encoder_trains_together_too() -> None:
    _, data = digits()
    encoder = FeatureMLP(64).double()
    encoder.reset(torch.Generator().manual_seed(1))
    from fcamlib.networks import classification_network, focus_network

    generator = torch.Generator().manual_seed(2)
    pair = focus_network("mlp", (64,), generator), classification_network("mlp", (64,), 3, generator)
    for paradigm in ("soft", "lvml"):
        assert_same_training(members_of(FCAM(*copy.deepcopy(pair), encoder=encoder).double(), data, 2), paradigm)


def fitted(
    phases: tuple[Phase, ...], rate_path: Path | None = None, on_epoch: Any = None, seed: int = 0
) -> tuple[FCAM, FitResult]:
    model, data = digits(seed)
    task = SDCTask(dict.fromkeys(("train", "validation", "test"), data), tuple("abc"), "random digits")
    config = TrainingConfig(batch_size=8, precision="float64", device="cpu")
    return model, fit(model, task, phases, config, 1, rate_path, on_epoch)


SEARCH = (
    Phase(paradigm="soft", epochs=3, learning_rates=RATES, search_epochs=2),
    Phase(paradigm="hard", epochs=2, learning_rates=(0.1, 0.05)),
)


def rows(result: FitResult) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in (*result.history, *result.selection)]


def assert_same_rows(found: FitResult, expected: FitResult) -> None:
    for one, other in zip(rows(found), rows(expected), strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            assert one[name] == (pytest.approx(value, rel=1e-8) if isinstance(value, float) else value), name


def test_a_search_together_chooses_and_ends_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, int]] = []
    alone, expected = fitted(SEARCH)
    monkeypatch.setattr(ensemble_training, "DEVICES", ("cpu",))
    together, result = fitted(SEARCH, on_epoch=lambda row: seen.append((row["learning_rate"], row["epoch"])))
    assert seen[:6] == [(rate, epoch) for epoch in (1, 2) for rate in RATES]  # in turn, not one after the other
    assert_same_rows(result, expected)
    for ours, theirs in zip(together.parameters(), alone.parameters(), strict=True):
        assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_search_together_resumes_to_the_same_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ensemble_training, "DEVICES", ("cpu",))
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    whole_model, whole = fitted(SEARCH)

    class Stop(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        if row["epoch"] == 2:
            raise Stop

    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Stop):
        fitted(SEARCH, checkpoint, stop)
    model, resumed = fitted(SEARCH, checkpoint)
    assert rows(resumed) == rows(whole)
    for ours, theirs in zip(model.parameters(), whole_model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_member_that_diverges_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    phases = (Phase(paradigm="lvml", epochs=2, learning_rates=(0.1, 1e300, 0.05)),)
    _, expected = fitted(phases)
    monkeypatch.setattr(ensemble_training, "DEVICES", ("cpu",))
    _, result = fitted(phases)
    assert [bool(row["failure"]) for row in result.selection] == [False, True, False]
    assert result.selection[1]["failure"] == expected.selection[1]["failure"]
    assert_same_rows(result, expected)


def test_who_trains_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = digits()
    several = Phase(paradigm="soft", epochs=1, learning_rates=(0.1,))

    def can(phase: Phase = several, model: FCAM = model, number: int = 2) -> bool:
        return can_train_together(model, data, number, phase, FLOAT64, batch_size=8)

    assert not can()
    monkeypatch.setattr(ensemble_training, "DEVICES", ("cpu",))
    assert can()
    assert not can(several.model_copy(update={"optimizer": "adam"}))
    assert not can(number=1)
    contextual = FCAM(model.focus_model, model.classification_model, torch.nn.Identity())
    contextual.encoder.context_free = False  # type: ignore[union-attr]
    assert not can(model=contextual)
    monkeypatch.setattr(chunked, "ALWAYS_WHOLE", 1)
    monkeypatch.setattr(chunked, "BUDGET", 10_000)  # the activations of both would not fit
    assert not can()


def test_the_command_measures_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_ensemble, "CASES", (("digits", (1, 8, 8), 4, torch.float64),))
    monkeypatch.setattr(bench_ensemble, "BATCHES", 1)
    path = tmp_path / "ensemble.json"
    shown = CliRunner().invoke(main, ["bench", "--measure", "ensemble", "--repeats", "2", "--json", str(path)])
    assert shown.exit_code == 0, shown.output
    content = json.loads(path.read_text())
    assert [(row["members"], row["paradigm"]) for row in content["rows"]] == [
        (number, paradigm) for number in (3, 5) for paradigm in ("soft", "hard", "lvml")
    ]
    for row in content["rows"]:
        ratio, one, together = row["ratio"], row["one_by_one"], row["together"]
        assert one["low"] / together["high"] <= ratio["low"] <= ratio["median"] <= ratio["high"]
        assert ratio["high"] <= one["high"] / together["low"]
    assert "n = 2" in content["how"] and content["how"] in shown.output


def test_the_profile_for_a_gpu_runs_small_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed file: three grids of 20 runs; small ones on digits, their learning rates trained together."""
    profile = str(Path(__file__).parent.parent / "profiles" / "cifar10_gpu.yaml")
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path))
    listed = CliRunner().invoke(main, ["grid", profile, "--list"])
    assert listed.exit_code == 0, listed.output
    names = [line.split()[0] for line in listed.output.splitlines() if line.startswith("cifar10-")]
    assert len(set(names)) == 60
    for num_segments in (5, 10, 20):
        assert sum(name.startswith(f"cifar10-m{num_segments}-n30000-") for name in names) == 20
    monkeypatch.setattr(ensemble_training, "DEVICES", ("cpu",))
    together: list[int] = []

    def counting(members: list[TrainingMember], *given: Any) -> Any:
        together.append(len(members))
        return pass_together(members, *given)

    monkeypatch.setattr(training, "pass_together", counting)
    small = {"dataset": "digits", "foreground": "0,1,2", "num-train": 32, "num-validation": 16, "num-test": 16,
             "epochs": 2, "switch-epoch": 1, "search-epochs": 1, "seeds": 3, "paradigms": "hard,hybrid"}  # fmt: skip
    options = [part for name, value in small.items() for part in (f"--{name}", str(value))]
    done = CliRunner().invoke(main, ["grid", profile, *options])
    assert done.exit_code == 0, done.output
    runs = done.output.splitlines()
    assert [line.split("-")[1] for line in runs] == ["m5", "m5", "m10", "m10", "m20", "m20"]
    assert together == [3, 3, 3] * 3  # hard; the hybrid's soft and hard phase


SEEDS = {"paradigms": "hybrid", "seeds": "0,1,2", "num_train": 96, "num_validation": 48, "num_test": 48,
         "num_segments": 3, "batch_size": 24,
         "epochs": 4, "learning_rates": "0.1,0.05", "search_epochs": 1}  # fmt: skip
SEED_OPTIONS = [part for name, value in SEEDS.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def assert_same_run(own: store.Run, other: store.Run) -> None:
    """Two runs agree to the rounding of sums."""
    ours, theirs = (run.history.drop(columns="seconds") for run in (own, other))
    assert_frame_equal(ours, theirs, check_exact=False, rtol=1e-8)
    for name, values in other.arrays("scores.npz").items():
        np.testing.assert_allclose(own.arrays("scores.npz")[name], values, rtol=1e-7, atol=1e-10)
    ours, theirs = (pd.DataFrame(run.summary["selection"]) for run in (own, other))
    assert_frame_equal(ours, theirs, check_exact=False, rtol=1e-8)


def test_a_grid_trains_seeds_together_to_the_numbers_of_each_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A search, then both phases of the hybrid, by the command that users give; a CPU takes the part of the GPU."""
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "alone"))
    alone = run_all(experiment(SEEDS).configs())
    assert not any("trained_together" in one.summary["provenance"] for one in alone)
    monkeypatch.setattr(ensemble_training, "DEVICES", ("cpu",))
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "together"))
    passes: list[int] = []

    def counted(members: list[TrainingMember], *rest: Any) -> list[PassResult]:
        passes.append(len(members))
        return pass_together(members, *rest)

    monkeypatch.setattr(training, "pass_together", counted)
    shown = CliRunner().invoke(main, ["grid", *SEED_OPTIONS])
    assert shown.exit_code == 0, shown.output
    together = run_all(experiment(SEEDS).configs())
    assert passes == [6, 3, 3, 3], "three seeds with two rates each, then with the better one"
    for one, other in zip(together, alone, strict=True):
        assert one.summary["provenance"]["trained_together"] == 3
        assert_same_run(one, other)
    assert CliRunner().invoke(main, ["grid", *SEED_OPTIONS, "--fresh"]).exit_code == 0
    assert len(passes) == 8, "computed anew, once"


def test_seeds_together_go_on_from_their_checkpoints_and_leave_one_that_diverges(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)
    monkeypatch.setattr(ensemble_training, "DEVICES", ("cpu",))
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    configs = experiment({**SEEDS, "paradigms": "soft", "learning_rates": "0.05", "epochs": 5}).configs()
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "whole"))
    assert run_together(configs) == {config.name for config in configs}
    whole = [store.find(config) for config in configs]

    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "cut"))
    epochs: list[int] = []

    def stop(config: Any, row: dict[str, Any]) -> None:
        epochs.append(row["epoch"])
        if row["epoch"] == 3 and config.seed == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(progress, "common_bar", lambda _: nullcontext(stop))
    with pytest.raises(KeyboardInterrupt):
        run_together(configs)
    monkeypatch.setattr(progress, "common_bar", lambda _: nullcontext(lambda config, row: epochs.append(row["epoch"])))
    assert run_together(configs) == {config.name for config in configs}
    assert sorted(epochs) == sorted([1, 2, 3, 4, 5] * 3 + [3]), "only the epoch that was cut is trained again"
    for config, expected in zip(configs, whole, strict=True):
        found = store.find(config)
        assert found is not None and expected is not None
        assert_same_run(found, expected)

    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "diverging"))
    measured = training._Trainer._measured

    def failing(self: Any, state: Any, candidate: Any, *rest: Any) -> Any:
        if self.fit.seed == 1 and candidate.epoch == 2:
            candidate.failure = "the soft loss became NaN"
        return measured(self, state, candidate, *rest)

    monkeypatch.setattr(training._Trainer, "_measured", failing)
    left = {config.name for config in configs if config.seed != 1}
    assert run_together(configs) == left
    shown = CliRunner().invoke(
        main, ["grid", *SEED_OPTIONS, "--paradigms", "soft", "--learning-rates", "0.05", "--epochs", "5"]
    )
    assert shown.exit_code == 1 and "1 of 3 runs diverged; the others are stored" in shown.output
    assert {folder.name for folder in (tmp_path / "diverging").glob("[!.]*")} == left


def test_only_what_is_missing_and_free_trains_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path))
    configs = experiment({**SEEDS, "paradigms": "soft,lvml", "seeds": "0,1,2,3", "epochs": 2}).configs()
    assert run_together(configs) == set(), "a CPU trains them one by one"
    monkeypatch.setattr(ensemble_training, "DEVICES", ("cpu",))
    soft = [config for config in configs if config.paradigm == "soft"]
    stored = run(soft[0])
    with store.locked(soft[1]):  # as another process would hold it
        assert run_together(soft) == {soft[2].name, soft[3].name}
    assert run_together(soft) == set(), "one alone is left to `run`"
    assert "trained_together" not in stored.summary["provenance"]
    assert [[config.seed for config in group] for group in seed_groups(configs)] == [[0, 1, 2, 3]] * 2

"""Training equals update rules written out by hand, chooses by validation alone, repeats and resumes bit for bit."""

import copy
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import softmax
from torch import nn
from toys import BATCH, FLOAT64, N_TRAIN, D, K, bits, changed, coloured, linear, phase, toy_task, untimed, with_bank

from fcamlib import checkpoint as checkpoints
from fcamlib import running, store, training
from fcamlib.config import Grid, Phase, SweepGrid, Training
from fcamlib.data.sdc import SDCTask
from fcamlib.errors import DivergenceError
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network
from fcamlib.numerics import Numerics
from fcamlib.paradigms import PAPER
from fcamlib.theory import sweep
from fcamlib.training import FitState, fit

SEED = 4
Arrays = tuple[np.ndarray, np.ndarray]


task = pytest.fixture(scope="module")(toy_task)


def trained(
    task: SDCTask, *phases: Phase, config: Training = FLOAT64, seed: int = SEED, model: FCAM | None = None
) -> tuple[FCAM, FitState, list[checkpoints.Row]]:
    model = model or linear()
    rows: list[checkpoints.Row] = []
    return model, fit(model, task, phases, config, seed, on_epoch=lambda _, row: rows.append(row)), rows


def weights(model: FCAM) -> Arrays:
    focus, classifier = (p.detach().numpy().copy() for p in model.parameters())
    return focus[0], classifier


def gradient(paradigm: str, focus: np.ndarray, classifier: np.ndarray, segments: np.ndarray, y: int) -> Arrays:
    """Gradient of one instance's loss for linear models, from the closed forms."""
    alpha = softmax(segments @ focus)
    truth = np.eye(K)[y]
    if paradigm == "soft":
        mixture = alpha @ segments
        residual = softmax(classifier @ mixture) - truth
        benefit = segments @ (classifier.T @ residual)
        return (alpha * (benefit - alpha @ benefit)) @ segments, np.outer(residual, mixture)
    single = softmax(segments @ classifier.T, axis=1)  # (M, K)
    likelihood = single[:, y]
    if paradigm == "hard":
        weight, by_logit = alpha, -alpha * (np.log(likelihood) - alpha @ np.log(likelihood))
    else:
        weight = alpha * likelihood / (alpha @ likelihood)
        by_logit = alpha - weight
    return by_logit @ segments, np.einsum("m,mk,md->kd", weight, single - truth, segments)


def by_hand(task: SDCTask, phases: tuple[Phase, ...], initial: Arrays) -> Arrays:
    """The schedule as a plain loop: stochastic gradient descent with momentum, written out."""
    data, (focus, classifier) = task.splits["train"], initial
    values = data.bank.values.numpy()[data.segments.numpy()]  # (n, M, D)
    for number, stretch in enumerate(phases):
        speed = (np.zeros_like(focus), np.zeros_like(classifier))
        for epoch in range(stretch.epochs):
            order = np.random.default_rng([SEED, number, epoch]).permutation(N_TRAIN)
            for start in range(0, N_TRAIN, BATCH):
                batch = order[start : start + BATCH]
                parts = [gradient(stretch.paradigm, focus, classifier, values[i], int(data.label[i])) for i in batch]
                mean = [np.mean(part, axis=0) for part in zip(*parts, strict=True)]
                speed = tuple(stretch.momentum * v + g for v, g in zip(speed, mean, strict=True))
                focus = focus - stretch.learning_rates[0] * speed[0]
                classifier = classifier - stretch.learning_rates[0] * speed[1]
    return focus, classifier


@pytest.mark.parametrize(
    "schedule",
    [
        *((phase(paradigm, 2, momentum=momentum),) for paradigm in PAPER for momentum in (0.0, 0.9)),
        (phase("soft", 3, (0.5,)), phase("hard", 2, (0.2,))),  # fresh momentum and a learning rate of its own
    ],
)
def test_descent_equals_updates_by_hand(task: SDCTask, schedule: tuple[Phase, ...]) -> None:
    expected = by_hand(task, schedule, weights(linear()))
    model, _, _ = trained(task, *schedule)
    for found, wanted in zip(weights(model), expected, strict=True):
        assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_one_adam_step_moves_each_weight_by_the_learning_rate(task: SDCTask) -> None:
    config = FLOAT64.model_copy(update={"batch_size": 100})
    model, _, _ = trained(task, phase("lvml", 1, (0.01,), optimizer="adam"), config=config)
    data, initial = task.splits["train"], weights(linear())
    values = data.bank.values.numpy()[data.segments.numpy()]
    parts = [gradient("lvml", *initial, x, int(y)) for x, y in zip(values, data.label, strict=True)]
    for found, start, part in zip(weights(model), initial, zip(*parts, strict=True), strict=True):
        mean = np.mean(part, axis=0)
        assert_allclose(found, start - 0.01 * mean / (np.abs(mean) + 1e-8), rtol=0, atol=1e-12)


def test_history_has_a_row_for_each_epoch(task: SDCTask) -> None:
    _, result, rows = trained(task, phase("soft", 3, (0.5,)), phase("hard", 2, (0.2,)))
    assert result.history == rows and result.selection == []
    keys = ("epoch", "phase", "paradigm", "learning_rate")
    assert [tuple(row[key] for key in keys) for row in rows] == [(e, 0, "soft", 0.5) for e in (1, 2, 3)] + [
        (e, 1, "hard", 0.2) for e in (4, 5)
    ]
    measures = {f"{s}_{m}" for s in task.splits for m in ("loss", "accuracy", "focus_accuracy", "saif")}
    measures |= {f"{s}_{m}" for s in ("validation", "test") for m in ("a_z", "a_z_high")}
    assert all(set(row) == {*keys, *measures, "seconds"} for row in rows)


@pytest.mark.parametrize("paradigm", PAPER)
@pytest.mark.parametrize(("batch_size", "rate"), [(100, 0.5), (BATCH, 1e-12)])  # one step; uneven ones that stay
def test_measures_are_those_of_the_model(task: SDCTask, paradigm: str, batch_size: int, rate: float) -> None:
    config = FLOAT64.model_copy(update={"batch_size": batch_size})
    model, result, _ = trained(task, phase(paradigm, 1, (rate,)), config=config)
    for split, measured in (("train", linear()), ("validation", model), ("test", model)):
        summary = evaluate(measured, task.splits[split], [paradigm], Numerics.of(config))[paradigm].summary()
        for name in ("loss", "accuracy", "focus_accuracy", "saif"):  # training's are taken before its one step
            assert result.history[0][f"{split}_{name}"] == pytest.approx(summary[name], abs=1e-10)


def test_truth_about_the_foreground_is_never_trained_on(task: SDCTask) -> None:
    turned = changed(task, "train", foreground=task.splits["train"].foreground[:, [1, 2, 0]])
    for paradigm in PAPER:
        assert bits(trained(task, phase(paradigm))[0]) == bits(trained(turned, phase(paradigm))[0])


def test_same_seed_same_bits_and_another_seed_other_bits_whatever_the_global_state_which_stays(task: SDCTask) -> None:
    schedule, config = (phase("soft"), phase("hard", 2)), FLOAT64.model_copy(update={"threads": 3})
    first, one, _ = trained(task, *schedule, config=config)
    torch.rand(7)
    states = torch.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"].copy(), torch.get_num_threads()
    second, two, _ = trained(task, *schedule, config=config)
    assert bits(first) == bits(second) and untimed(one.history) == untimed(two.history)
    assert torch.equal(torch.get_rng_state(), states[0]) and torch.get_num_threads() == states[2]
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], states[1])
    assert bits(trained(task, *schedule, seed=SEED + 1)[0]) != bits(first)


def test_learning_rate_is_chosen_on_validation(task: SDCTask) -> None:
    """Candidates share weights and order of batches; of two equals the first is chosen."""
    rates = (1e-6, 0.5, 0.01, 0.5)
    alone = [trained(task, phase(rates=(rate,))) for rate in rates]
    model, result, rows = trained(task, phase(rates=rates))
    assert untimed(rows) == untimed([row for _, each, _ in alone for row in each.history])
    last = [each.history[-1] for _, each, _ in alone]
    best = max(range(4), key=lambda place: (last[place]["validation_accuracy"], -last[place]["validation_loss"]))
    assert best == 1 and bits(model) == bits(alone[1][0])
    assert untimed(result.history) == untimed(alone[1][1].history)
    for place, report in enumerate(result.selection):
        measured = {name: last[place][name] for name in ("validation_accuracy", "validation_loss")}
        chosen = {"phase": 0, "epochs": 3, "failure": "", "chosen": place == 1}
        assert report == chosen | measured | {"learning_rate": rates[place]}


@pytest.mark.parametrize("keep", ["last", "best"])
def test_test_data_decide_nothing_and_validation_data_do(task: SDCTask, keep: str) -> None:
    config, schedule = FLOAT64.model_copy(update={"keep": keep}), phase(rates=(1e-6, 0.5))
    model, result, _ = trained(task, schedule, config=config)
    wrong = {}  # labels that the initial model predicts, and the smaller learning rate keeps predicting
    for split in ("validation", "test"):
        scores = evaluate(linear(), task.splits[split], ["soft"], Numerics.of(config))["soft"]
        wrong[split] = torch.from_numpy(scores.prediction)
    other, again, _ = trained(changed(task, "test", label=wrong["test"]), schedule, config=config)
    assert bits(other) == bits(model) and again.selection == result.selection
    assert again.history[-1]["test_accuracy"] != result.history[-1]["test_accuracy"]
    _, turned, _ = trained(changed(task, "validation", label=wrong["validation"]), schedule, config=config)
    assert [row["chosen"] for row in result.selection] == [False, True]
    assert [row["chosen"] for row in turned.selection] == [True, False]


def test_losers_stop_after_the_search_and_the_winner_goes_on(task: SDCTask) -> None:
    model, result, rows = trained(task, phase(epochs=5, rates=(1e-6, 0.5, 0.01), search_epochs=2))
    searched = [(rate, epoch) for rate in (1e-6, 0.5, 0.01) for epoch in (1, 2)]
    assert [(row["learning_rate"], row["epoch"]) for row in rows] == [*searched, (0.5, 3), (0.5, 4), (0.5, 5)]
    assert bits(model) == bits(trained(task, phase(epochs=5))[0])
    assert [row["epoch"] for row in result.history] == [1, 2, 3, 4, 5]
    assert [row["epochs"] for row in result.selection] == [2, 5, 2]
    compared = result.selection[1]  # at the end of the search, not of the phase
    assert compared["validation_loss"] == result.history[1]["validation_loss"] != result.history[4]["validation_loss"]


def test_best_epoch_is_kept(task: SDCTask) -> None:
    """Its weights, and the later phase, start from the epoch that was best on validation data."""
    schedule = phase("soft", epochs=12, rates=(4.0,))  # a rate at which the last epoch is not the best
    model, result, _ = trained(task, schedule, config=FLOAT64.model_copy(update={"keep": "best"}))
    scores = [(row["validation_accuracy"], -row["validation_loss"]) for row in result.history]
    best = scores.index(max(scores)) + 1
    assert best < 12 and bits(model) == bits(trained(task, phase("soft", epochs=best, rates=(4.0,)))[0])
    assert bits(model) != bits(trained(task, schedule)[0])


def test_evaluation_can_be_rarer_but_never_skips_the_last_epoch(task: SDCTask) -> None:
    model, result, _ = trained(task, phase(epochs=5), config=FLOAT64.model_copy(update={"evaluate_every": 2}))
    assert ["validation_loss" in row for row in result.history] == [False, True, False, True, True]
    assert bits(model) == bits(trained(task, phase(epochs=5))[0])


def poisoned(task: SDCTask, split: str, number: int) -> SDCTask:
    """The task with a segment of NaN in one instance of one split."""
    data = task.splits[split]
    bank = replace(data.bank, values=torch.cat([data.bank.values, torch.full((1, D), torch.nan).double()]))
    segments = data.segments.clone()
    segments[number, 1] = 40
    return changed(with_bank(task, bank), split, segments=segments)


def test_nan_stops_the_run_with_the_step_named(task: SDCTask) -> None:
    place = list(np.random.default_rng([SEED, 0, 0]).permutation(N_TRAIN)).index(6)
    step = place // BATCH + 1
    assert step > 1
    for split, schedule, where in (
        ("train", (phase("lvml"), phase("hard")), f"at step {step} (phase 1 of 2, epoch 1)"),
        ("validation", (phase("lvml"),), "on validation data (phase 1 of 1, epoch 1)"),
    ):
        sentence = f"the lvml loss became NaN or infinite {where} with learning rate 0.5: choose a smaller one."
        with pytest.raises(DivergenceError, match=f"^{re.escape(sentence)}$"):
            trained(poisoned(task, split, 6), *schedule)


def test_nan_on_test_data_is_left_out_and_decides_nothing(task: SDCTask) -> None:
    model, result, _ = trained(poisoned(task, "test", 6), phase(rates=(1e-6, 0.5)))
    assert bits(model) == bits(trained(task, phase(rates=(1e-6, 0.5)))[0])
    assert all("test_loss" not in row and "validation_loss" in row for row in result.history)


def test_diverged_candidate_loses_and_is_reported(task: SDCTask) -> None:
    task = with_bank(task, replace(task.bank, scale=100.0))  # the first step overflows at the larger rates
    model, result, rows = trained(task, phase("hard", rates=(1e308, 1e-5)))
    assert bits(model) == bits(trained(task, phase("hard", rates=(1e-5,)))[0])
    failed, chosen = result.selection
    where = "at step 2 (phase 1 of 1, epoch 1)"
    sentence = f"the hard loss became NaN or infinite {where} with learning rate 1e+308: choose a smaller one."
    assert (failed["failure"], failed["chosen"], failed["epochs"]) == (sentence, False, 1)
    assert (failed["validation_accuracy"], failed["validation_loss"]) == (None, None)
    assert (chosen["failure"], chosen["chosen"], chosen["epochs"]) == ("", True, 3)
    assert rows == result.history
    assert all(np.isfinite([v for v in row.values() if isinstance(v, float)]).all() for row in result.history)
    with pytest.raises(DivergenceError, match=f"^{re.escape(sentence)}$"):
        trained(task, phase("hard", rates=(1e308, 1.5e308)))


def test_next_best_takes_over_where_the_best_diverges_late(task: SDCTask, monkeypatch: pytest.MonkeyPatch) -> None:
    original = training._Trainer._measures

    def failing(self: Any, candidate: Any, phase: Any) -> Any:
        if candidate.learning_rate == 0.5 and candidate.epoch == 4:
            candidate.failure = "diverged late"
        return original(self, candidate, phase)

    monkeypatch.setattr(training._Trainer, "_measures", failing)
    model, result, _ = trained(task, phase(epochs=5, rates=(1e-6, 0.5, 0.01), search_epochs=2))
    assert bits(model) == bits(trained(task, phase(epochs=5, rates=(0.01,)))[0])
    assert [(r["failure"], r["chosen"]) for r in result.selection] == [("", 0), ("diverged late", 0), ("", 1)]
    assert {row["learning_rate"] for row in result.history} == {0.01}


def test_tfloat32_is_float32_on_a_cpu_serves_training_and_evaluation_and_leaves_torch_as_it_was(
    task: SDCTask, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = []
    for precision in ("float32", "tfloat32"):
        config = Training.model_validate({"batch_size": BATCH, "precision": precision, "device": "cpu"})
        histories.append(untimed(trained(task, phase("hard", 2), config=config, model=linear().float())[1].history))
    assert histories[0] == histories[1]
    before, seen = torch.backends.cuda.matmul.allow_tf32, []

    def watched(call: Any) -> Any:
        def noted(*given: Any, **named: Any) -> Any:
            seen.append(torch.backends.cuda.matmul.allow_tf32)
            return call(*given, **named)

        return noted

    monkeypatch.setattr(running, "evaluate", watched(evaluate))
    monkeypatch.setattr(sweep.Trainer, "measure", watched(sweep.Trainer.measure))
    small = {"num_train": 8, "epochs": 1, "paradigms": "soft", "precision": "tfloat32", "device": "cpu"}
    store.get(Grid.of({**small, "num_validation": 4, "num_test": 4}).configs()[0])
    store.get(SweepGrid.of({**small, "num_segments": 2, "num_classes": 2}).config())
    assert seen == [True] * (3 + 2) and torch.backends.cuda.matmul.allow_tf32 is before


def test_bfloat16_trains_float32_weights_to_nearly_the_same(task: SDCTask) -> None:
    results = {}
    for precision in ("float32", "bfloat16"):
        config = Training(batch_size=BATCH, precision=precision, device="cpu")
        model, result, _ = trained(task, phase("lvml", 5), config=config, model=linear().float())
        assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
        results[precision] = result.history
    for exact, near in zip(*results.values(), strict=True):
        assert near["validation_loss"] == pytest.approx(exact["validation_loss"], rel=0.05)
    assert untimed(results["float32"]) != untimed(results["bfloat16"])


SCHEDULES = {
    "hybrid": (phase("soft", 2, (0.1,)), phase("hard", 2, (0.02,))),
    "search": (phase("soft", 2, (0.1, 0.02), search_epochs=1), phase("hard", 1, (0.02, 0.1))),
    "adam": (phase("lvml", 3, (0.05, 0.01), search_epochs=2, optimizer="adam"),),
    "diverging": (phase("hard", 2, (1e308, 1e-5)),),
}
FAILURES = {"hybrid": [], "diverging": [True, False]}


def case(task: SDCTask, name: str, keep: str) -> tuple[SDCTask, FCAM, tuple[Phase, ...], Training]:
    config, model = FLOAT64.model_copy(update={"keep": keep}), linear()
    if name == "diverging":
        task = with_bank(task, replace(task.bank, scale=100.0))
    if name == "batch":
        model.classification_model = classification_network("mlp:1x6:batch", (D,), K, torch.Generator()).double()
    if name == "pictures":
        task, model = coloured(task)
        config = config.model_copy(update={"precision": "float32", "memory_layout": "channels_last"})
        Numerics.of(config).place(model)
    return task, model, SCHEDULES.get(name, SCHEDULES["search"]), config


KEPT = {"hybrid": "last", "search": "best", "adam": "last", "diverging": "best", "pictures": "last", "batch": "best"}


@pytest.mark.parametrize(("name", "keep"), KEPT.items())
def test_resumed_equals_uninterrupted_from_every_point(
    task: SDCTask, name: str, keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, initial, schedule, config = case(task, name, keep)
    stops: list[Path] = []
    save_state = checkpoints.save

    def save(path: Path, state: checkpoints.State) -> None:
        save_state(path, state)
        stops.append(Path(shutil.copy(path, tmp_path / f"stop-{len(stops)}")))

    uninterrupted, result, rows = trained(task, *schedule, config=config, model=copy.deepcopy(initial))
    with monkeypatch.context() as patched:
        patched.setenv("FCAM_CHECKPOINT_SECONDS", "-1")  # after every epoch and every change
        patched.setattr(checkpoints, "save", save)
        fit(copy.deepcopy(initial), task, schedule, config, SEED, tmp_path / "checkpoint")
    assert len(stops) > len(rows)
    assert [bool(row["failure"]) for row in result.selection[:2]] == FAILURES.get(name, [False, False])
    for stop in stops:
        resumed = copy.deepcopy(initial)
        for parameter in resumed.parameters():
            nn.init.constant_(parameter, 9.0)  # all has to come from the checkpoint
        again = fit(resumed, task, schedule, config, SEED, stop)
        assert bits(resumed) == bits(uninterrupted)
        assert untimed(again.history) == untimed(result.history)
        assert again.selection == result.selection


def test_a_checkpoint_of_another_training_is_reported_and_costs_only_time(
    task: SDCTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of another network, of something else, or of another schedule; the tests of the store damage checkpoints."""
    monkeypatch.setenv("FCAM_CHECKPOINT_SECONDS", "-1")
    checkpoint, (other, model) = tmp_path / "checkpoint", coloured(task)
    config = FLOAT64.model_copy(update={"precision": "float32"})
    fit(model, other, (phase("soft", 1, (0.1,)),), config, SEED, checkpoint)
    states = [checkpoints.load(checkpoint), {}, {"rows": [1]}, {"start": {}, "phase": 1, "candidates": [{}]}]
    expected = bits(trained(task, phase("soft", 2, (0.1,)))[0])
    for state in states:
        checkpoints.save(checkpoint, state)
        model = linear()
        fit(model, task, (phase("soft", 2, (0.1,)),), FLOAT64, SEED, checkpoint)
        assert bits(model) == expected
    told = f"the checkpoint '{checkpoint}' is damaged or belongs to another run: training starts from the beginning."
    assert caplog.messages == [told] * len(states)

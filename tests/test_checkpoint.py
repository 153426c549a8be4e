"""A run that was stopped, at whatever point, ends with the bits of one that was not."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fcamlib import checkpoint as checkpoints
from fcamlib import running, training
from fcamlib.checkpoint import Row
from fcamlib.config import Grid, Phase, Training
from fcamlib.data.sdc import Bank, SDCTask
from fcamlib.errors import StoreError
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics
from fcamlib.running import build_model
from fcamlib.training import fit

SEED = 4
(RUN,) = Grid.model_validate(
    {
        "paradigms": "soft",
        "num_segments": 3,
        "num_train": 21,
        "num_validation": 20,
        "num_test": 9,
        "batch_size": 8,
        "focus_network": "linear",
        "classification_network": "linear",
        "device": "cpu",
    }
).configs()


def phase(paradigm: str, epochs: int, rates: tuple[float, ...], **more: Any) -> Phase:
    return Phase(paradigm=paradigm, epochs=epochs, learning_rates=rates, **more)


SCHEDULES = {
    "hybrid": (phase("soft", 2, (0.1,)), phase("hard", 2, (0.02,))),
    "search": (phase("soft", 2, (0.1, 0.02), search_epochs=1), phase("hard", 1, (0.02, 0.1))),
    "adam": (phase("lvml", 3, (0.05, 0.01), search_epochs=2, optimizer="adam"),),
    "diverging": (phase("hard", 2, (1e308, 0.05)),),
}


FAILURES = {"hybrid": [], "diverging": [True, False]}


@pytest.fixture(scope="module")
def digits() -> SDCTask:
    return running.data(RUN.data, seed=0)


class Flat(nn.Module):
    def forward(self, segments: Tensor) -> Tensor:
        return segments.flatten(1)


def coloured(task: SDCTask) -> tuple[SDCTask, FCAM]:
    """The mosaics with coloured pictures for segments, and convolutions, whose layout in memory matters."""
    size = (len(task.bank.values), 6, 6, 3)
    values = torch.randint(256, size, generator=torch.Generator().manual_seed(5), dtype=torch.uint8)
    bank = Bank(values, 2 / 255, -1.0, pictures=True)
    with torch.random.fork_rng():
        torch.manual_seed(6)
        focus = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), Flat(), nn.Linear(80, 1), nn.Flatten(0))
        classifier = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), Flat(), nn.Linear(64, 3))
    splits = {name: replace(data, bank=bank) for name, data in task.splits.items()}
    return replace(task, splits=splits), FCAM(focus, classifier)


def bits(model: nn.Module) -> list[bytes]:
    return [value.numpy().tobytes() for value in model.state_dict().values()]


def untimed(rows: list[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def case(task: SDCTask, name: str, keep: str) -> tuple[SDCTask, FCAM, tuple[Phase, ...], Training]:
    if name != "pictures":
        return task, build_model(RUN, task), SCHEDULES[name], RUN.training.model_copy(update={"keep": keep})
    task, model = coloured(task)
    changes = {"keep": keep, "precision": "float32", "memory_layout": "channels_last"}
    config = RUN.training.model_copy(update=changes)
    Numerics.of(config).place(model)
    return task, model, SCHEDULES["search"], config


@pytest.mark.parametrize("keep", ["last", "best"])
@pytest.mark.parametrize("name", [*SCHEDULES, "pictures"])
def test_resumed_equals_uninterrupted_from_every_point(
    digits: SDCTask, name: str, keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, initial, schedule, config = case(digits, name, keep)
    stops: list[Path] = []

    save_state = checkpoints.save

    def save(path: Path, state: checkpoints.State) -> None:
        save_state(path, state)
        stops.append(Path(shutil.copy(path, tmp_path / f"stop-{len(stops)}")))

    uninterrupted = copy.deepcopy(initial)
    rows: list[Row] = []
    result = fit(uninterrupted, task, schedule, config, SEED, on_epoch=rows.append)
    with monkeypatch.context() as patched:
        patched.setattr(training, "CHECKPOINT_SECONDS", -1.0)  # after every epoch and every change
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


def test_run_stopped_within_an_epoch_resumes_to_the_same_bits(
    digits: SDCTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    schedule, checkpoint = (phase("lvml", 4, (0.1, 0.02)),), tmp_path / "checkpoint"

    def stop_at(number: int) -> Callable[[Row], None]:
        rows: list[Row] = []

        def on_epoch(row: Row) -> None:
            rows.append(row)
            if len(rows) == number:
                raise KeyboardInterrupt

        return on_epoch

    expected, model = build_model(RUN, digits), build_model(RUN, digits)
    fit(expected, digits, schedule, RUN.training, SEED)
    for number in (3, 2, 2):  # each before the epoch's checkpoint is written: 2, then 3, then 4 epochs are done
        with pytest.raises(KeyboardInterrupt):
            fit(build_model(RUN, digits), digits, schedule, RUN.training, SEED, checkpoint, stop_at(number))
    rows: list[Row] = []
    fit(model, digits, schedule, RUN.training, SEED, checkpoint, rows.append)
    assert bits(model) == bits(expected)
    assert len(rows) == 4


def test_damaged_checkpoint_is_reported_and_costs_only_time(
    digits: SDCTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    checkpoint, model = tmp_path / "checkpoint", build_model(RUN, digits)
    schedule = (phase("soft", 2, (0.1,)),)
    fit(model, digits, schedule, RUN.training, SEED, checkpoint)
    whole = bytearray(checkpoint.read_bytes())
    flipped = whole.copy()
    flipped[-5] ^= 1
    for content in (whole[:-100], b"", b"rubbish", flipped):
        checkpoint.write_bytes(content)
        again = build_model(RUN, digits)
        fit(again, digits, schedule, RUN.training, SEED, checkpoint)
        assert bits(again) == bits(model)
        assert caplog.messages == [f"the checkpoint '{checkpoint}' is damaged: training starts from its beginning."]
        caplog.clear()


def test_any_nested_state_comes_back(tmp_path: Path) -> None:
    plain = {"numbers": [1, 2.5, None, True, ("x", -float("inf"))], "slots": {3: {}, 0: []}}
    weight = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)).bfloat16()
    checkpoints.save(tmp_path / "state", plain | {"w/b": weight.mT, "w": {"b": torch.arange(7)}})
    found = checkpoints.load(tmp_path / "state")
    assert torch.equal(found.pop("w/b"), weight.mT) and torch.equal(found.pop("w")["b"], torch.arange(7))
    assert found == plain
    assert checkpoints.load(tmp_path / "absent") is None


def test_checkpoint_of_another_training_is_refused_in_a_sentence(
    digits: SDCTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whole and with a valid checksum, but of something else, of another schedule, or of another network."""
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    model, schedule = build_model(RUN, digits), (phase("soft", 2, (0.1,)),)
    fit(model, digits, schedule, RUN.training, SEED)
    checkpoint = tmp_path / "checkpoint"
    other, other_model = coloured(digits)
    changes = RUN.training.model_copy(update={"precision": "float32"})
    for number in range(4):
        checkpoint.unlink(missing_ok=True)
        if number == 3:
            fit(other_model, other, (phase("soft", 1, (0.1,)),), changes, SEED, checkpoint)
        else:
            checkpoints.save(checkpoint, ({}, {"rows": [1]}, {"start": {}, "phase": 1, "candidates": [{}]})[number])
        again = build_model(RUN, digits)
        fit(again, digits, schedule, RUN.training, SEED, checkpoint)
        assert bits(again) == bits(model)
        assert caplog.messages == [
            f"the checkpoint '{checkpoint}' belongs to another training: this one starts from its beginning."
        ]
        caplog.clear()


def test_checkpoint_that_cannot_be_written_is_one_sentence(
    digits: SDCTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    (tmp_path / "file").write_text("in the way")
    checkpoint = tmp_path / "file" / "checkpoint"
    with pytest.raises(StoreError) as error:
        checkpoints.save(checkpoint, {})
    assert str(error.value).startswith(f"the checkpoint '{checkpoint}' cannot be written (")
    assert "\n" not in str(error.value)

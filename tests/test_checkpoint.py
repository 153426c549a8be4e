"""A run that was stopped, at whatever point, ends with the bits of one that was not."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from toys import FLOAT64, D, K, bits, linear, phase, toy_task, untimed, with_bank

from fcamlib import checkpoint as checkpoints
from fcamlib import training
from fcamlib.checkpoint import Row
from fcamlib.config import Phase, Training
from fcamlib.data.sdc import Bank, SDCTask
from fcamlib.errors import StoreError
from fcamlib.fcam import FCAM
from fcamlib.networks import classification_network
from fcamlib.numerics import Numerics
from fcamlib.training import fit

SEED = 4
SCHEDULES = {
    "hybrid": (phase("soft", 2, (0.1,)), phase("hard", 2, (0.02,))),
    "search": (phase("soft", 2, (0.1, 0.02), search_epochs=1), phase("hard", 1, (0.02, 0.1))),
    "adam": (phase("lvml", 3, (0.05, 0.01), search_epochs=2, optimizer="adam"),),
    "diverging": (phase("hard", 2, (1e308, 1e-5)),),
}
FAILURES = {"hybrid": [], "diverging": [True, False]}


@pytest.fixture(scope="module")
def task() -> SDCTask:
    return toy_task()


def coloured(task: SDCTask) -> tuple[SDCTask, FCAM]:
    """Coloured pictures for segments, and convolutions, whose layout in memory matters."""
    size = (len(task.bank.values), 6, 6, 3)
    values = torch.randint(256, size, generator=torch.Generator().manual_seed(5), dtype=torch.uint8)
    bank = Bank(values, 2 / 255, -1.0, pictures=True)
    with torch.random.fork_rng():
        torch.manual_seed(6)
        focus = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 1), nn.Flatten(0))
        classifier = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, K))
    return with_bank(task, bank), FCAM(focus, classifier)


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


@pytest.mark.parametrize(
    ("name", "keep"),
    [
        ("hybrid", "last"),
        ("search", "best"),
        ("adam", "last"),
        ("diverging", "best"),
        ("pictures", "last"),
        ("batch", "best"),
    ],
)
def test_resumed_equals_uninterrupted_from_every_point(
    task: SDCTask, name: str, keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, initial, schedule, config = case(task, name, keep)
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
    task: SDCTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    schedule, checkpoint = (phase("lvml", 4, (0.1, 0.02)),), tmp_path / "checkpoint"

    def fitted(checkpoint: Path | None, stop: int) -> tuple[list[bytes], int]:
        rows, model = [], linear()

        def on_epoch(row: Row) -> None:
            rows.append(row)
            if len(rows) == stop:
                raise KeyboardInterrupt

        fit(model, task, schedule, FLOAT64, SEED, checkpoint, on_epoch)
        return bits(model), len(rows)

    expected, epochs = fitted(None, 99)
    for stop in (3, 2, 2):  # each before the epoch's checkpoint is written: 2, then 3, then 4 epochs are done
        with pytest.raises(KeyboardInterrupt):
            fitted(checkpoint, stop)
    assert fitted(checkpoint, 99) == (expected, epochs - 4)


def test_checkpoint_that_is_damaged_or_of_another_training_is_reported_and_costs_only_time(
    task: SDCTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Damaged; or whole, but of something else, of another schedule, or of another network."""
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    checkpoint, schedule = tmp_path / "checkpoint", (phase("soft", 2, (0.1,)),)

    def fitted(content: bytes) -> list[bytes]:
        checkpoint.write_bytes(content)
        model = linear()
        fit(model, task, schedule, FLOAT64, SEED, checkpoint)
        return bits(model)

    expected, whole = fitted(b""), checkpoint.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    contents = [(content, "is damaged: training") for content in (b"", whole[:-100], b"rubbish", bytes(flipped))]
    other, model = coloured(task)
    config = FLOAT64.model_copy(update={"precision": "float32"})
    fit(model, other, (phase("soft", 1, (0.1,)),), config, SEED, tmp_path / "other")
    states: list[checkpoints.State] = [{}, {"rows": [1]}, {"start": {}, "phase": 1, "candidates": [{}]}]
    for number, state in enumerate(states):
        checkpoints.save(tmp_path / str(number), state)
    for name in ("other", "0", "1", "2"):
        contents.append(((tmp_path / name).read_bytes(), "belongs to another run: training"))
    for content, said in contents:
        caplog.clear()
        assert fitted(content) == expected
        assert caplog.messages == [f"the checkpoint '{checkpoint}' {said} starts from the beginning."]


def test_any_nested_state_comes_back(tmp_path: Path) -> None:
    plain = {"numbers": [1, 2.5, None, True, ("x", -float("inf"))], "slots": {3: {}, 0: []}}
    weight = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)).bfloat16()
    checkpoints.save(tmp_path / "state", plain | {"w/b": weight.mT, "w": {"b": torch.arange(7)}})
    found = checkpoints.load(tmp_path / "state")
    assert torch.equal(found.pop("w/b"), weight.mT) and torch.equal(found.pop("w")["b"], torch.arange(7))
    assert found == plain
    assert checkpoints.load(tmp_path / "absent") is None


def test_checkpoint_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    checkpoint = tmp_path / "file" / "checkpoint"
    with pytest.raises(StoreError) as error:
        checkpoints.save(checkpoint, {})
    assert str(error.value).startswith(f"the checkpoint '{checkpoint}' cannot be written (")
    assert "\n" not in str(error.value)

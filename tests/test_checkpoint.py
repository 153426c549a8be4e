"""A run that was stopped, at whatever point, ends with the bits of one that was not."""

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


def test_any_nested_state_comes_back(tmp_path: Path) -> None:
    plain = {"numbers": [1, 2.5, None, True, ("x", -float("inf"))], "slots": {3: {}, 0: []}}
    weight = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)).bfloat16()
    checkpoints.save(tmp_path / "state", plain | {"w/b": weight.mT, "w": {"b": torch.arange(7)}})
    found = checkpoints.load(tmp_path / "state")
    assert torch.equal(found.pop("w/b"), weight.mT) and torch.equal(found.pop("w")["b"], torch.arange(7))
    assert found == plain
    assert checkpoints.load(tmp_path / "absent") is None

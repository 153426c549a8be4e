"""The bar of a run: on a terminal only, and right about how much is done."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fcamlib import showing, store
from fcamlib.config import Grid, Run

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"num_train": 64, "num_validation": 32, "num_test": 32, "num_segments": 3, "epochs": 2, "batch_size": 32}


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty store."""
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "results"))


def drawn_on(terminal: int) -> str:
    """What a process draws on a terminal until it closes it, without control sequences."""
    content = b""
    while True:
        try:
            content += os.read(terminal, 4096)
        except OSError:  # the other end is closed
            return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", content.decode())


def test_a_bar_is_drawn_on_a_terminal_and_the_result_goes_to_standard_output() -> None:
    ours, theirs = pty.openpty()
    arguments = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    process = subprocess.Popen(
        [sys.executable, "-m", "fcamlib", "run", "--paradigm", "soft", *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"},
        text=True,
    )
    os.close(theirs)
    shown = drawn_on(ours)
    os.close(ours)
    printed, _ = process.communicate(timeout=60)
    (stored,) = store.every(Run)
    assert process.returncode == 0
    assert printed.startswith(f"{stored.folder.name}: test accuracy ") and printed.count("\n") == 1
    assert stored.folder.name in shown and "loading data" in shown
    accuracy = stored.history["validation_accuracy"].iloc[-1]
    assert re.search(rf"soft 0.05 accuracy {accuracy:.3f} +━+ 2/2 ", shown)


def test_the_bar_counts_searches() -> None:
    values = {**SMALL, "paradigms": "hybrid", "epochs": 9, "switch_epoch": 5, "search_epochs": 2}
    (config,) = Grid.of({**values, "learning_rates": "0.1,0.2,0.3", "hard_learning_rates": "0.01,0.02"}).configs()
    rows: list[dict[str, Any]] = []
    store.get(config, rows.append)
    done = [showing.steps_done(config, row, 0) for row in rows]
    assert config.steps == (2 * 2 + 5) + (2 + 4) == len(rows)
    assert done == list(range(1, len(rows) + 1))
    with showing.bar(config) as on_epoch:
        assert on_epoch is None, "a bar without a terminal"

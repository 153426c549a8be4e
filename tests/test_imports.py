"""The command in a process of its own: without torch where it only shows, with a bar on a terminal alone."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fcamlib import paths, store
from fcamlib.config import Grid, Run

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"num_train": 64, "num_validation": 32, "num_test": 32, "num_segments": 3, "batch_size": 32, "epochs": 2}
OPTIONS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]
# What notebooks import to show stored results.
READERS = (
    "import fcamlib.notebook, fcamlib.theory.tables",
    "import fcamlib.store, fcamlib.provenance, fcamlib.checks",
    "from fcamlib import claims, notebook, plots, store, tables",
)


def imports_torch(code: str) -> tuple[str, bool]:
    """What the code prints in a process of its own, and whether torch was imported."""
    command = [sys.executable, "-c", f"{code}\nimport sys; print('torch' in sys.modules)"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *shown, found = done.stdout.splitlines()
    return "\n".join(shown), found == "True"


def test_modules_that_show_stored_results() -> None:
    assert imports_torch("\n".join(READERS)) == ("", False)
    assert imports_torch("import fcamlib.running") == ("", True)


def test_help_and_stored_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path))
    monkeypatch.setattr(paths, "recorded_dir", lambda: tmp_path / "recorded")
    (config,) = Grid.of({**SMALL, "paradigms": "soft"}).configs()
    stored = store.get(config)
    command = "from fcamlib.cli import main; main({}, standalone_mode=False)"
    assert not imports_torch(command.format(["--help"]))[1]
    summary, found = imports_torch(command.format(["run", "--json", "--paradigm", "soft", *OPTIONS]))
    assert not found and json.loads(summary)["splits"] == stored.summary["splits"]


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
    process = subprocess.Popen(
        [sys.executable, "-m", "fcamlib", "run", "--paradigm", "soft", *OPTIONS],
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
    assert stored.folder.name in shown
    accuracy = stored.history["validation_accuracy"].iloc[-1]
    assert re.search(rf"training +\[#+\] +2/2 +soft 0.05 accuracy {accuracy:.3f}", shown)


def test_the_bar_counts_searches() -> None:
    values = {**SMALL, "paradigms": "hybrid", "epochs": 9, "switch_epoch": 5, "search_epochs": 2}
    (config,) = Grid.of({**values, "learning_rates": "0.1,0.2,0.3", "hard_learning_rates": "0.01,0.02"}).configs()
    rows: list[dict[str, Any]] = []
    store.get(config, rows.append)
    assert config.steps == (2 * 2 + 5) + (2 + 4) == len(rows)

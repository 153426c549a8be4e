"""Torch takes seconds to import: what only shows help or stored results does without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fcamlib import paths, store
from fcamlib.config import Grid

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"num_train": 64, "num_validation": 32, "num_test": 32, "num_segments": 3, "batch_size": 32, "epochs": 2}
OPTIONS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]
# What notebooks import to show stored results.
READERS = (
    "import fcamlib.examples, fcamlib.theory.tables",
    "import fcamlib.store, fcamlib.provenance, fcamlib.rerun",
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

"""Folders for data, results and figures. Each can be changed with an environment variable.

| variable       | in a source checkout | installed without one      | contents                             |
|----------------|----------------------|----------------------------|--------------------------------------|
| `FCAM_DATA`    | `data/`              | the user's data folder     | downloaded and unpacked data sets    |
| `FCAM_RESULTS` | `results/`           | the user's data folder     | the run store                        |
| `FCAM_FIGURES` | `figures/`           | `figures/`, working folder | figures saved by the notebooks       |
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import platformdirs


def checkout() -> Path | None:
    """The source checkout that this package is imported from, or None for an installed copy."""
    root = Path(__file__).resolve().parent.parent
    return root if (root / "pyproject.toml").is_file() and (root / "notebooks").is_dir() else None


def expanded(path: str | Path) -> Path:
    """`path` with ~ or ~user expanded; unchanged if there is no such user."""
    return Path(os.path.expanduser(path))


def _folder(variable: str, name: str, fallback: Path) -> Path:
    if value := os.environ.get(variable):
        return expanded(value).absolute()
    root = checkout()
    return root / name if root else fallback


def data_dir() -> Path:
    """Folder of the data sets (`FCAM_DATA`)."""
    return _folder("FCAM_DATA", "data", platformdirs.user_data_path("fcam") / "data")


def results_dir() -> Path:
    """Folder of the run store (`FCAM_RESULTS`)."""
    return _folder("FCAM_RESULTS", "results", platformdirs.user_data_path("fcam") / "results")


def figures_dir() -> Path:
    """Folder for saved figures (`FCAM_FIGURES`)."""
    return _folder("FCAM_FIGURES", "figures", Path.cwd() / "figures")


def recorded_dir() -> Path | None:
    """Folder of the recorded runs, which are kept with the source; None without a checkout."""
    root = checkout()
    return root / "results" / "recorded" if root else None


def commit() -> str:
    """The checkout's commit, with "+" if tracked files differ from it; empty without a checkout."""
    root = checkout()
    if root is None:
        return ""
    git = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    try:
        return subprocess.run(git, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""

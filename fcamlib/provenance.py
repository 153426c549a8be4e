"""Where a number comes from: versions, hardware, commit and date."""

from __future__ import annotations

import datetime
import platform
import subprocess
from importlib.metadata import version
from typing import Any

import torch

from fcamlib import __version__, paths
from fcamlib.hardware import cpu_name
from fcamlib.numerics import Numerics


def provenance(numerics: Numerics) -> dict[str, Any]:
    """Versions, hardware, commit and date: what a reader needs to judge a number."""
    device = torch.cuda.get_device_name(numerics.device) if numerics.device.type == "cuda" else cpu_name()
    packages = ("torch", "torchvision", "numpy", "scikit-learn")
    return {
        "fcamlib": __version__,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": device,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
    }


def commit() -> str:
    """The checkout's commit, with "+" where tracked files differ from it; empty without a checkout."""
    root = paths.checkout()
    if root is None:
        return ""
    try:
        git = ["git", "-C", str(root)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return commit.stdout.strip()[:12] + ("+" if changed.returncode == 1 else "") if commit.returncode == 0 else ""

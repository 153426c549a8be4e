"""Where a number comes from: versions, hardware, commit and date."""

from __future__ import annotations

import datetime
import platform
from importlib.metadata import version
from typing import Any

import torch

from fcamlib import __version__
from fcamlib.hardware import cpu_name
from fcamlib.numerics import Numerics
from fcamlib.paths import commit


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

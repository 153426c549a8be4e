"""What this machine computes with, by the names that stored runs keep."""

from __future__ import annotations

import platform
from pathlib import Path

from fcamlib.config import TrainingConfig


def cpu_name() -> str:
    """Processor's name, as far as the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def device_name(config: TrainingConfig) -> str:
    """The processor or GPU that a run of this config would use here; torch is asked only where there is a GPU."""
    wants_gpu = config.device == "cuda" or (config.device == "auto" and config.precision != "float64")
    if wants_gpu and any(Path("/dev").glob("nvidia[0-9]*")):
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name()
    return cpu_name()

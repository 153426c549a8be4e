"""Aliases of `fcamlib.running`, to be removed."""

from fcamlib.running import build_model, require_same_data, shown_segments, trained_model
from fcamlib.running import data as task

__all__ = ["build_model", "require_same_data", "shown_segments", "task", "trained_model"]

r"""Fixed-focus sweeps: the classification model trained at every alpha, paradigm and seed at once, kept in the store.

`time` in a sweep's frame is that of the gradient flow in `fcamlib.theory.fixed_focus`, so that the closed forms can be
drawn over trained curves: under plain gradient descent on the mean loss it is the learning rate times the number of
steps s. Momentum p multiplies it by 1/(1 - p), less what the velocity needs to build up (F7):

$$t = \frac{\eta}{1-p}\Big(s - p\,\frac{1-p^s}{1-p}\Big)$$
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fcamlib import store
from fcamlib.config.fixed_focus import FixedFocusConfig


@dataclass(frozen=True)
class Sweep:
    """A finished sweep in the store."""

    stored: store.Stored[FixedFocusConfig]

    @property
    def config(self) -> FixedFocusConfig:
        """What defined the sweep."""
        return self.stored.config

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per paradigm, alpha, seed and epoch; epoch 0 is before training.

        | column | meaning |
        |---|---|
        | `time` | time of the gradient flow (F7) |
        | `loss` | mean loss L(alpha) on the training data, nats |
        | `incentive` | [L(alpha) - L(alpha + 0.01)] / 0.01 at the same classifier; at alpha > 0.99 downwards (F8) |
        | `incentive_exact` | -dL/dalpha (F9) |
        """
        return self.stored.history

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, hardware, commit, date, seconds."""
        return self.stored.summary["provenance"]

    @property
    def is_recorded(self) -> bool:
        """Whether the sweep is kept with the source."""
        return self.stored.is_recorded


def sweep(config: FixedFocusConfig, on_epoch: Callable[[int], None] | None = None, fresh: bool = False) -> Sweep:
    """The sweep of `config`: from the store, recorded ones first, or computed and stored.

    An interrupted sweep goes on from its last checkpoint, to the same numbers.

    Parameters
    ----------
    config : FixedFocusConfig
    on_epoch : callable, optional
        Called with the number of each finished epoch.
    fresh : bool
        Compute even where the store has the sweep.

    Raises
    ------
    DivergenceError
        Where a member's loss becomes NaN or infinite; the sentence names paradigm, alpha, seed and epoch.
    """

    def compute() -> store.Stored[FixedFocusConfig]:
        from fcamlib.theory import sweep_training

        return sweep_training.compute(config, on_epoch or (lambda epoch: None))

    return Sweep(store.find_or_compute(config, compute, fresh))


def flow_time(steps: int | float | np.ndarray, learning_rate: float, momentum: float) -> Any:
    """Time of the gradient flow after some steps of SGD with momentum (F7)."""
    lag = momentum * (1.0 - momentum**steps) / (1.0 - momentum)
    return learning_rate / (1.0 - momentum) * (steps - lag)

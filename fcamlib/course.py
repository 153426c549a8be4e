"""Courses: how the model of a run moves over the plane of focus and prediction, epoch by epoch, kept in the store.

A run keeps its histogram over (a_z, s_y) after training alone. A course has it after each epoch, and the attention on
test mosaics with it, at the same numbers as the run: the training is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from fcamlib import store
from fcamlib.config import CourseConfig
from fcamlib.metrics import HISTOGRAM_EDGES
from fcamlib.store import Stored

if TYPE_CHECKING:
    from fcamlib.checkpoint import Row

NUM_BINS = len(HISTOGRAM_EDGES) - 1
CELLS = tuple(f"cell_{a_bin}_{s_bin}" for a_bin in range(NUM_BINS) for s_bin in range(NUM_BINS))
EXAMPLES = "examples.npz"


def course(
    config: CourseConfig, on_epoch: Callable[[Row], None] | None = None, fresh: bool = False
) -> Stored[CourseConfig]:
    """The course of `config`: from the store, recorded ones first, or trained, measured and stored.

    One that is interrupted starts anew.

    Parameters
    ----------
    config : CourseConfig
    on_epoch : callable, optional
        Called with the history row of each epoch as it is done.
    fresh : bool
        Compute even where the store has the course.

    Returns
    -------
    Stored, whose `history` has one row per epoch on test data; epoch 0 is before training:

    | column | meaning |
    |---|---|
    | `epoch`, `phase`, `paradigm`, `learning_rate` | what was trained last |
    | `loss`, `accuracy`, `focus_accuracy`, `saif`, `ftpt`, `ffpt`, `ftpf`, `ffpf` | as a run's |
    | `a_z`, `s_y` | means of attention on the foreground and score of the true label |
    | `cell_<a>_<s>` | percent of instances in bin a of a_z and bin s of s_y |

    Its `examples.npz` holds, of the first `num_examples` test mosaics, `segments` (n, M, H, W[, 3]) uint8, `label` (n,)
    and `foreground` (n, M), and after each epoch `alpha` (E, n, M) and `prob` (E, n, K).
    """

    return store.get(config, on_epoch, fresh)


def histograms(found: Stored[CourseConfig]) -> Float[np.ndarray, "E A S"]:
    """Percent of test instances in each cell [a_z bin, s_y bin] after each epoch; each epoch sums to 100."""
    return found.history[list(CELLS)].to_numpy().reshape(-1, NUM_BINS, NUM_BINS)


def switch_epoch(found: Stored[CourseConfig]) -> int | None:
    """The last epoch of the first phase, None where the schedule has one phase alone."""
    phases = found.config.run.phases
    return phases[0].epochs if len(phases) > 1 else None


def attention_on_foreground(
    alpha: Float[np.ndarray, "n M"], foreground: Bool[np.ndarray, "n M"]
) -> Float[np.ndarray, " n"]:
    """The sum of the weights on the foreground, a_z."""
    return (alpha * foreground).sum(axis=1)


def most_different(a_z: Mapping[str, Float[np.ndarray, " n"]]) -> Int[np.ndarray, " n"]:
    """Instances by how far the paradigms' a_z lie apart, largest less smallest, the furthest first; ties by number."""
    spread = np.ptp(np.stack(list(a_z.values())), axis=0)
    return np.argsort(-spread, kind="stable")


def right_elsewhere(
    alpha: Float[np.ndarray, "n M"],
    foreground: Bool[np.ndarray, "n M"],
    prob: Float[np.ndarray, "n K"],
    label: Int[np.ndarray, " n"],
) -> Int[np.ndarray, " k"]:
    """Instances that are predicted rightly with the largest weight beside the foreground (FFPT), in their order."""
    on_foreground = foreground[np.arange(len(alpha)), alpha.argmax(axis=1)]
    return np.flatnonzero(~on_foreground & (prob.argmax(axis=1) == label))

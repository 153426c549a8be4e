"""Studies: many trainings whose results are one table, in one folder of the store.

Each row is the result of the `RunConfig` that it names, trained by the same code and to the same numbers as `fcam run`
does; weights and histories are not kept. Finished rows are, as they are done, and the training that is under way keeps
checkpoints, so that a study that was interrupted goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable

from fcamlib import store
from fcamlib.config.study import StudyConfig
from fcamlib.row_log import Row, read_rows
from fcamlib.store import Stored

ROWS = "rows.jsonl"


def study(
    config: StudyConfig, on_row: Callable[[Row, int], None] | None = None, fresh: bool = False
) -> Stored[StudyConfig]:
    """The study of `config`: from the store, recorded ones first, or computed and stored.

    Parameters
    ----------
    config : StudyConfig
    on_row : callable, optional
        Called with each row as it is done and the number of rows so far.
    fresh : bool
        Compute even where the store has the study.

    Returns
    -------
    Stored, whose `history` has one row per task, model, schedule and seed:

    | column | meaning |
    |---|---|
    | `num_segments`, `focus`, `classifier`, `paradigm`, `seed` | what was trained |
    | `soft_share` | share of the epochs with soft attention: SA 1, HA 0; none for LVML |
    | `learning_rate`, `last_learning_rate` | of the first and of the last phase, as chosen |
    | `focus_parameters`, `classifier_parameters` | numbers that are learned |
    | `accuracy`, `focus_accuracy`, `saif`, `loss` | on test data after training; none where the loss diverged |
    | `validation_accuracy` | after training |
    | `num_test`, `seconds` | test mosaics; of training |
    | `failure` | why a training ended early |
    | `run` | name of the run that gives the same numbers |
    """

    def compute() -> Stored[StudyConfig]:
        from fcamlib.studies import training

        return training.compute(config, on_row or (lambda row, done: None))

    return store.find_or_compute(config, compute, fresh)


def rows_done(config: StudyConfig) -> int:
    """How many rows of an unfinished study are kept."""
    return len(read_rows(store.partial_dir(config) / ROWS))

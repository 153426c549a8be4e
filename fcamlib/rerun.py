"""`fcam rerun`: compute recorded results anew, from their own configs, and say how far the numbers are apart."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import click
import numpy as np
import pandas as pd

from fcamlib import paths, store
from fcamlib.config import (
    CaptionRunConfig,
    CourseConfig,
    CrossValidationConfig,
    FixedFocusConfig,
    RunConfig,
    StoredConfig,
    StudyConfig,
    stored_class,
)
from fcamlib.errors import UserError
from fcamlib.store import Stored

CLOCK = "seconds"  # the measure that differs each time


@dataclass(frozen=True)
class Difference:
    """How far two tables of the same measures are apart.

    Parameters
    ----------
    number : int
        Numbers that were compared; the columns are those that both tables have, seconds left out.
    largest : float
        Largest absolute difference; infinite where one table has a number and the other has none.
    column, row : str, int
        Where it is, the first place of several.
    """

    number: int
    largest: float
    column: str
    row: int


def difference(recorded: pd.DataFrame, found: pd.DataFrame) -> Difference:
    """Compare the histories of a result: same rows in the same order.

    Raises
    ------
    ValueError
        Where the numbers of rows differ, or no measure is in both.
    """
    if len(recorded) != len(found):
        raise ValueError(f"{len(found)} rows in place of {len(recorded)}")
    numeric = recorded.select_dtypes("number").columns
    shared = [name for name in numeric if name in found and CLOCK not in name]
    if not shared:
        raise ValueError("no measure is in both tables")
    one, other = recorded[shared].to_numpy(float), found[shared].to_numpy(float)
    apart = np.where(np.isnan(one) & np.isnan(other), 0.0, np.abs(one - other))
    apart = np.where(np.isnan(apart), np.inf, apart)
    row, column = np.unravel_index(int(apart.argmax()), apart.shape)
    return Difference(apart.size, float(apart[row, column]), shared[int(column)], int(row))


def computed(config: StoredConfig) -> Stored[Any]:
    """The result of `config` in the results folder, computed if need be; recorded results are passed over."""
    with store.recorded_passed_over():
        return _COMPUTE[type(config)](config)


def _run(config: Any) -> Stored[Any]:
    from fcamlib.progress import training_bar
    from fcamlib.runs import run

    with training_bar(config) as on_epoch:
        return run(config, on_epoch)


def _caption_run(config: Any) -> Stored[Any]:
    from fcamlib.captioning.runs import caption_run

    return caption_run(config)


def _sweep(config: Any) -> Stored[Any]:
    from fcamlib.theory.sweep import sweep

    return sweep(config).stored


def _study(config: Any) -> Stored[Any]:
    from fcamlib.studies.study import study

    return study(config)


def _cross_validation(config: Any) -> Stored[Any]:
    from fcamlib.bags.cross_validation import cross_validate

    return cross_validate(config)


def _course(config: Any) -> Stored[Any]:
    from fcamlib.course import course

    return course(config)


_COMPUTE: dict[type[StoredConfig], Callable[[Any], Stored[Any]]] = {
    RunConfig: _run,
    CaptionRunConfig: _caption_run,
    FixedFocusConfig: _sweep,
    StudyConfig: _study,
    CrossValidationConfig: _cross_validation,
    CourseConfig: _course,
}


def _recorded(patterns: tuple[str, ...]) -> Iterator[Stored[Any]]:
    """The recorded results whose names match, each once, in the order of the patterns."""
    root = paths.recorded_dir()
    known = {folder.name: fault for folder, fault in store.survey(root)} if root else {}
    if root is None or not known:
        raise UserError("no results are recorded here: `fcam rerun` needs a source checkout.")
    chosen: dict[str, None] = {}
    for pattern in patterns:
        matching = [name for name in known if fnmatchcase(name, pattern)]
        if not matching:
            raise UserError(f"no recorded result is called '{pattern}': results/recorded/ holds {len(known)}, by name.")
        chosen |= dict.fromkeys(matching)
    for name in chosen:
        if known[name]:
            raise UserError(f"the recorded result '{name}' is damaged ({known[name]}): fetch it anew with git.")
        kind = stored_class((root / name / "config.json").read_bytes())
        assert kind is not None, "an undamaged result is of a known kind"
        yield Stored(root / name, kind)


@click.command("rerun", short_help="Compute recorded results anew and compare.")
@click.argument("names", nargs=-1, required=True)
def rerun_command(names: tuple[str, ...]) -> None:
    """Compute the recorded results NAMES anew and compare them with the record.

    NAMES may be patterns in quotes, as 'cifar10-jpeg-m5-*'. Data that a record names by a folder, such as cifar10-jpeg,
    are looked for in FCAM_DATA. What is computed lies in the results folder, an interrupted rerun goes on there, and a
    second one compares at once.

    \b
    Example:
      FCAM_DATA=PATH fcam rerun 'hatexplain-*'
    """
    results = list(_recorded(names))
    from fcamlib.heap import keep_freed_memory

    keep_freed_memory()
    for result in results:
        found = computed(result.config)
        apart = difference(result.history, found.history)
        where = f"largest difference {apart.largest:.3g}"
        if apart.largest:
            where += f" ({apart.column}, row {apart.row + 1})"
        click.echo(f"{result.folder.name}: {apart.number:,} numbers compared, {where}; in {found.folder}")
        sys.stdout.flush()

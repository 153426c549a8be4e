"""Output of the command line: a progress bar during computation, and each result in words or as a line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fcamlib.config import Config, Run, Sweep

if TYPE_CHECKING:
    from fcamlib.store import Progress, Result, Row

MEASURES = {"accuracy": "test accuracy", "focus_accuracy": "focus accuracy", "saif": "SAIF"}
OF_CAPTIONS = {"bleu1": "BLEU-1", "bleu4": "BLEU-4", "a_z": "a_z", "s_y": "s_y", "saif": "SAIF"}


@contextmanager
def bar(config: Config) -> Iterator[Progress | None]:
    """A progress bar of epochs or trainings on standard error; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    console.print(config.name, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=16), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("loading data", total=config.steps)

        def on_row(row: Row) -> None:
            done = steps_done(config, row, int(progress.tasks[0].completed))
            progress.update(task, completed=done, description=described(row))

        yield on_row


def steps_done(config: Config, row: Row, before: int) -> int:
    """How many of `config.steps` are done when `row` is measured, also if a run resumes or a rate diverges."""
    if not isinstance(config, Run):
        return row.get("epoch", before + 1)
    earlier, phase = config.phases[: row["phase"]], config.phases[row["phase"]]
    epoch = row["epoch"] - sum(one.epochs for one in earlier)
    losers = len(phase.learning_rates) - 1
    searched = phase.learning_rates.index(row["learning_rate"]) if epoch <= phase.compared_after else losers
    return sum(one.steps for one in earlier) + searched * phase.compared_after + epoch


def described(row: Row) -> str:
    """A row in a few words, such as "soft 0.05 accuracy 0.931"."""
    names = ("paradigm", "method", "learning_rate")
    words = [f"{row[name]:g}" if name == "learning_rate" else row[name] for name in names if row.get(name)]
    measures = ("validation_accuracy", "accuracy", "train_accuracy", "train_loss", "loss")
    for name in [name for name in measures if isinstance(row.get(name), float)][:1]:
        words.append(f"{name.rsplit('_', 1)[-1]} {row[name]:.3f}")
    return " ".join(words)


def as_line_of_json(result: Result) -> str:
    """Name, folder and summary; for tables, the rows (of a sweep, those of the last epoch)."""
    content = {"name": result.folder.name, "folder": str(result.folder)}
    if "splits" in result.summary:
        return json.dumps(content | result.summary)
    rows, name = result.history, "rows"
    if isinstance(result.config, Sweep):
        rows, name = rows[rows["epoch"] == result.config.epochs], "last"
    return json.dumps(content | {name: json.loads(rows.to_json(orient="records"))})


def counts(test: Mapping[str, Any]) -> str:
    """Numbers of instances: accuracy and BLEU cover all, focus and SAIF those with a known foreground."""
    if "n_objects" in test:
        return f"n = {test['n']} pictures, {test['n_objects']} objects"
    known = test.get("n_foreground", test["n"])
    return f"n = {test['n']}" + (f", {known} with foreground" if known < test["n"] else "")


def in_words(result: Result) -> str:
    """The test measures of a run, or a table for results with many trainings."""
    config, where = result.config, f"in {result.folder}"
    if test := result.summary.get("splits", {}).get("test"):
        titles = OF_CAPTIONS if "bleu4" in test else MEASURES
        found = ", ".join(f"{title} {test[name]:.3f}" for name, title in titles.items() if name in test)
        return f"{config.name}: {found} ({counts(test)}), {where}"
    from fcamlib.tables import METRICS, TRUTHLESS, frame, means

    if isinstance(config, Sweep):
        last = result.history[result.history["epoch"] == config.epochs]
        table = last.groupby(["paradigm", "alpha"], sort=False)[["loss", "incentive_exact"]].mean().reset_index()
        text = table.rename(columns={"incentive_exact": "incentive"}).round(4).to_string(index=False)
        return f"{text}\n\n{config.name}: means over {len(config.seeds)} seeds, {where}"
    if seeds := getattr(config, "seeds", ()):
        text = means(frame([result]), measures=METRICS).to_string()
        beside = "95% confidence intervals" if len(seeds) >= 5 else "ranges"
        return f"{text}\n\n{config.name}: means and {beside} over {len(seeds)} seeds, {where}"
    text = means(frame([result]), measures=TRUTHLESS, spread="sd").to_string()
    return f"{text}\n\n{config.name}: means and standard deviations over repeats, {where}"

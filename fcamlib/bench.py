"""`fcam bench`: time and memory of this library against the plain procedure of `fcamlib.plain`, in one run.

Only ratios of one run mean much: both sides are measured in turn, so that whatever else the machine does meets
both. Long measures are taken on a stated part and scaled up in proportion, where they are proportional.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fcamlib.bench_settings import QUICK, BenchSettings
from fcamlib.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

Pairs = list[tuple[float, float]]  # plain and library, taken in turn
PARADIGMS = ("soft", "hard", "lvml")
PARTS = ("layers", "cost", "ensemble")  # measured by fcamlib.bench_layers and so on
SEGMENTS = {"plain": (5, 20), "layers": (5,), "cost": (2, 5, 20, 100, 1_000, 10_000), "ensemble": (5,)}
# Ratios aimed at, the last one at m = 20; an epoch with the measures that follow it has no aim of its own.
TARGETS = {"set-up": 100.0, "data": 20.0, "peak memory": 20.0, "training epoch": 3.0, "evaluation": 10.0}


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of the repeats."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """The spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class BenchRow:
    """One measure of both sides; `ratio` is plain over library, its spread over pairs taken in turn."""

    measure: str
    num_segments: int
    paradigm: str
    unit: str
    plain: Spread
    library: Spread
    ratio: Spread
    target: float | None

    @classmethod
    def of(cls, measure: str, num_segments: int, paradigm: str, unit: str, pairs: Pairs) -> BenchRow:
        """A row from (plain, library) pairs."""
        plain, library = (list(values) for values in zip(*pairs, strict=True))
        each = [a / b for a, b in pairs]
        ratio = Spread(statistics.median(plain) / statistics.median(library), min(each), max(each))
        spreads = Spread.of(plain), Spread.of(library)
        return cls(measure, num_segments, paradigm, unit, *spreads, ratio, TARGETS.get(measure))


class _Process:
    """A side in a fresh process."""

    def __init__(self, name: str, settings: BenchSettings) -> None:
        from fcamlib.bench_sides import serve

        context = multiprocessing.get_context("spawn")
        self.name = name
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(name, settings, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, method: str, *arguments: Any) -> Any:
        """The side's answer; one sentence where its process ended."""
        try:
            self.connection.send((method, arguments))
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join(timeout=10)
            raise UserError(
                f"the benchmark's {self.name} side ended with status {self.process.exitcode} in '{method}': "
                "where no error stands above, memory ran out, so choose --quick or fewer --num-segments."
            ) from None

    def close(self) -> None:
        """End the process."""
        if self.process.is_alive():
            self.process.terminate()
        self.process.join()


@contextmanager
def _processes(settings: BenchSettings) -> Iterator[tuple[_Process, _Process]]:
    """Both sides, ready."""
    started: list[_Process] = []
    try:
        for name in ("plain", "library"):
            started.append(_Process(name, settings))
        for process in started:
            process.ask("ready")  # so that neither measure meets the other side's imports
        yield started[0], started[1]
    finally:
        for process in started:
            process.close()


def measure(settings: BenchSettings, on_row: Callable[[BenchRow], None] = lambda row: None) -> list[BenchRow]:
    """Every row of the benchmark; `on_row` is called as each is done."""
    rows: list[BenchRow] = []

    def add(row: BenchRow) -> None:
        rows.append(row)
        on_row(row)

    for num_segments in settings.segments:
        answers = []
        for repeat in range(settings.repeats):
            with _processes(settings) as sides:  # fresh ones: a process's peak never falls
                answers.append(_in_turn(sides, repeat, "set_up", num_segments))
        for name, key, unit in (("set-up", "seconds", "s"), ("data", "data", "MB"), ("peak memory", "peak", "MB")):
            scale = 1.0 if unit == "s" else 1e-6
            pairs = [(a[key] * scale, b[key] * scale) for a, b in answers]
            add(BenchRow.of(name, num_segments, "", unit, pairs))
    with _processes(settings) as sides:
        for num_segments in settings.segments:
            _in_turn(sides, 0, "train", num_segments, "hard")  # warms up: this loss needs the most memory
            for paradigm in PARADIGMS:
                for row in _timed(sides, settings, num_segments, paradigm):
                    add(row)
    return rows


def _timed(
    sides: tuple[_Process, _Process], settings: BenchSettings, num_segments: int, paradigm: str
) -> Iterator[BenchRow]:
    """Rows of training, of evaluation, and of both together, which is what an epoch of the public procedure does."""
    steps = _repeated(sides, settings, "train", num_segments, paradigm)
    epochs = [(plain * settings.steps_per_epoch, library * settings.steps_per_epoch) for plain, library in steps]
    yield BenchRow.of("training epoch", num_segments, paradigm, "s", epochs)
    evaluations = _repeated(sides, settings, "evaluate", num_segments, paradigm)
    yield BenchRow.of("evaluation", num_segments, paradigm, "s", evaluations)
    both = [(a + c, b + d) for (a, b), (c, d) in zip(epochs, evaluations, strict=True)]
    yield BenchRow.of("epoch with evaluation", num_segments, paradigm, "s", both)


def _in_turn(sides: tuple[_Process, _Process], repeat: int, method: str, *arguments: Any) -> tuple[Any, Any]:
    """Both sides' answers, one after the other; which goes first changes from repeat to repeat."""
    plain, library = sides
    if repeat % 2:
        second = library.ask(method, *arguments)
        return plain.ask(method, *arguments), second
    first = plain.ask(method, *arguments)
    return first, library.ask(method, *arguments)


def _repeated(sides: tuple[_Process, _Process], settings: BenchSettings, method: str, *arguments: Any) -> Pairs:
    """Pairs of seconds."""
    return [_in_turn(sides, repeat, method, *arguments) for repeat in range(settings.repeats)]


def num_rows(settings: BenchSettings) -> int:
    """How many rows `measure` gives."""
    return len(settings.segments) * 3 * (1 + len(PARADIGMS))


def table(rows: list[BenchRow]) -> pd.DataFrame:
    """The rows as people read them."""
    import pandas as pd

    def shown(value: Spread, unit: str) -> str:
        digits = 3 if unit == "s" and value.median < 1 else 1 if value.median < 100 else 0
        spread = f" ({value.low:.{digits}f} to {value.high:.{digits}f})" if value.low < value.high else ""
        return f"{value.median:.{digits}f}{spread} {unit}".strip()

    return pd.DataFrame(
        {
            "m": row.num_segments,
            "measure": f"{row.measure} {row.paradigm}".strip(),
            "plain": shown(row.plain, row.unit),
            "fcamlib": shown(row.library, row.unit),
            "ratio": shown(row.ratio, ""),
            "aim": "" if row.target is None else f"{row.target:g}",
        }
        for row in rows
    )


def report(settings: BenchSettings, rows: list[BenchRow]) -> dict[str, Any]:
    """The benchmark as plain values, for a JSON file."""
    import torch

    from fcamlib.numerics import Numerics
    from fcamlib.provenance import provenance

    return {
        "what": "time and memory of fcamlib against the plain procedure; ratios are plain over fcamlib",
        "how": basis(settings),
        "settings": asdict(settings),
        "provenance": provenance(Numerics(torch.device(settings.device), torch.float32)),
        "rows": [asdict(row) for row in rows],
    }


def basis(settings: BenchSettings) -> str:
    """What the numbers stand for, in words."""
    s = settings
    return (
        f"{s.num_pictures:,} random pictures of 3 x 32 x 32, {s.num_train:,} training and {s.num_test:,} test mosaics, "
        f"the paper's CIFAR-10 networks, batches of {s.batch_size}, {s.precision}, device: {s.device}, "
        f"threads: {s.threads}, {s.clock} time; "
        f"median of {s.repeats} taken in turn (least to greatest). "
        f"Training epoch: from {s.steps} of {s.steps_per_epoch} steps. "
        f"Plain evaluation: from {s.evaluation_mosaics:,} of {s.num_train:,} training mosaics, fcamlib's on all. "
        f"Plain set-up and memory: from {s.setup_mosaics:,} of {s.num_mosaics:,} mosaics, fcamlib's for all."
    )


def _segments(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    if value is None:
        return ()
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() and 2 <= int(part) <= 10_000 for part in parts):
        raise UserError(f"num_segments={value} is not allowed: give whole numbers from 2 to 10000, such as 5,20.")
    return tuple(dict.fromkeys(map(int, parts)))


@click.command("bench", short_help="Measure time and memory against a plain procedure.")
@click.option("--measure", "measured", type=click.Choice(["plain", *PARTS]), default="plain", show_default=True,
              help="fcamlib against the plain procedure; a training step by layer, beside its floor; time and memory "
                   "as segments grow; models trained together against one after the other")  # fmt: skip
@click.option("--quick", is_flag=True, help="about a minute: fewer pictures and mosaics, nothing repeated")
@click.option("--num-segments", metavar="VALUE", callback=_segments,
              help="segments of a mosaic, comma-separated  [default: 5,20; cost: 2 to 10000; layers: 5]")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="CPU threads")
@click.option("--repeats", type=click.IntRange(1, 100), help="times that each measure is taken  [default: 3; quick: 1]")
@click.option("--clock", type=click.Choice(["wall", "cpu"]), default="wall", show_default=True,
              help="seconds that pass, or processor seconds, which other programs upset less")  # fmt: skip
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True,
              help="device of both sides; on cuda a whole epoch is measured, five times over")  # fmt: skip
@click.option("--precision", type=click.Choice(["float32", "tfloat32", "bfloat16"]), default="float32",
              show_default=True, help="the library's floating-point format")  # fmt: skip
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="write everything to FILE")  # fmt: skip
def bench_command(
    measured: str,
    quick: bool,
    num_segments: tuple[int, ...],
    threads: int,
    repeats: int | None,
    clock: str,
    device: str,
    precision: str,
    json_path: Path | None,
) -> None:
    """Measure time and memory against a plain implementation of the same procedure.

    Both sides are measured in turn on one device, on random pictures of CIFAR's shape; nothing is downloaded.
    """
    base = QUICK if quick else BenchSettings()
    settings = replace(base, segments=num_segments or SEGMENTS[measured], threads=threads,
                       repeats=repeats or base.repeats, clock=clock, device=device, precision=precision)  # fmt: skip
    if device == "cuda":
        _require_cuda()
        settings = replace(settings, steps=settings.num_train // settings.batch_size, epochs=5)
    if json_path is not None:
        write_text(json_path, "")  # fails before the minutes are spent
    if measured == "plain":
        with _bar(num_rows(settings)) as on_row:
            rows = measure(settings, on_row)
        content, shown = report(settings, rows), table(rows).to_string(index=False)
    else:
        content, shown = _part(measured, settings)
    click.echo(shown)
    origin = content["provenance"]
    hardware = f"{origin['device']}, {origin['cpu_capability']}, torch {origin['packages']['torch']}"
    click.echo(f"\n{content['how'].rstrip('.')}.\n{hardware}.")
    if json_path is not None:
        write_text(json_path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def _part(measured: str, settings: BenchSettings) -> tuple[dict[str, Any], str]:
    """One of the smaller benchmarks: its values, and its table as people read it."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # torch's profiler reports its own start on standard error
    module = importlib.import_module(f"fcamlib.bench_{measured}")
    content = module.measure(settings)
    return content, module.table(content)


def _require_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise UserError("device='cuda' is not available here: choose device=cpu.")


def write_text(path: Path, text: str) -> None:
    """Write a benchmark's file, its folder made if need be; one sentence where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(f"json='{path}' cannot be written ({error.strerror}): choose another file.") from None


@contextmanager
def _bar(total: int) -> Iterator[Callable[[BenchRow], None]]:
    """A bar on standard error, on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("measuring", total=total)

        def on_row(row: BenchRow) -> None:
            progress.update(bar, advance=1, description=f"{row.measure} {row.paradigm}, m = {row.num_segments}")

        yield on_row

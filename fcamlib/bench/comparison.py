"""Time and memory of this library against the plain procedure of `fcamlib.bench.plain`, in one run.

Only ratios of one run mean much: both sides are measured in turn, so that whatever else the machine does meets
both. Long measures are taken on a stated part and scaled up in proportion, where they are proportional.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fcamlib.bench.results import Spread
from fcamlib.bench.settings import BenchSettings
from fcamlib.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

Pairs = list[tuple[float, float]]  # plain and library, taken in turn
PARADIGMS = ("soft", "hard", "lvml")
# Ratios aimed at; an epoch with the measures that follow it has no aim of its own.
TARGETS = {"set-up": 100.0, "data": 20.0, "peak memory": 20.0, "training epoch": 4.0, "evaluation": 20.0}
AIMED_AT_20 = ("peak memory", "evaluation")  # with m = 20 segments and more


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
        target = None if num_segments < 20 and measure in AIMED_AT_20 else TARGETS.get(measure)
        return cls(measure, num_segments, paradigm, unit, *spreads, ratio, target)


class _Process:
    """A side in a fresh process."""

    def __init__(self, name: str, settings: BenchSettings) -> None:
        from fcamlib.bench.sides import serve

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

"""`fcam bench`: one command for the benchmarks that need no data."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fcamlib.bench.comparison import BenchRow, measure, num_rows, report, table
from fcamlib.bench.results import write_text
from fcamlib.bench.settings import QUICK, BenchSettings
from fcamlib.errors import UserError

PARTS = ("layers", "cost")  # measured by fcamlib.bench.layers and so on
SEGMENTS = {"plain": (5, 20), "layers": (5,), "cost": (2, 5, 20, 100, 1_000, 10_000)}


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
                   "as segments grow")  # fmt: skip
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
    module = importlib.import_module(f"fcamlib.bench.{measured}")
    content = module.measure(settings)
    return content, module.table(content)


def _require_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise UserError("device='cuda' is not available here: choose device=cpu.")


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

"""`python -m benchmarks NAME`: measure one benchmark, show its table, and write it to a file."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks import report
from fcamlib import cost
from fcamlib.numerics import PLAIN, keep_freed_memory
from fcamlib.provenance import provenance


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", type=click.Choice(["pictures", "theory", "text", "captions", "cost"]))
@click.option("--repeats", type=click.IntRange(1, 100), default=3, show_default=True, help="times of each measure")
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="CPU threads")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="for pictures")
@click.option("--precision", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True,
              help="for pictures: the library's number format; the plain side computes in float32")  # fmt: skip
@click.option("--quick", is_flag=True, help="small sizes: checks that the benchmark works, in one to three minutes")
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="write the result to this file")
def main(name: str, path: Path | None, device: str, **options: Any) -> None:
    """Measure time and memory beside a plain implementation of the same mathematics.

    pictures: set-up, memory, training and evaluation on mosaics of CIFAR's size.
    theory: the flow's solver beside Euler's method, the fixed-focus sweep beside one training after another.
    text: an epoch on posts beside padded passes. captions: training and decoding at the paper's sizes.
    cost: a step as instances get more segments, for notebook 11.
    Inputs are random; nothing is downloaded. The files in results/recorded/bench are made with --json.
    """
    device = device if name == "pictures" else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("device=cuda is not available here: choose --device cpu.")
    try:
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()  # fails before the minutes are spent
    except OSError as error:
        raise click.UsageError(f"json='{path}' cannot be written ({error.strerror}): choose another file.") from None
    keep_freed_memory()
    content = import_module(f"benchmarks.{name}").benchmark(device=device, **options)
    source = provenance(replace(PLAIN, device=torch.device(device)))
    tail = f"; threads: {options['threads']}, wall time, median of {options['repeats']} (least to greatest)"
    content |= {"how": content["how"] + tail, "provenance": source}
    table = (cost.table if name == "cost" else report.table)(content)
    click.echo(f"{table.to_string()}\n\n{content['how']}.\n{source['device']}, torch {source['packages']['torch']}.")
    if path:
        path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()

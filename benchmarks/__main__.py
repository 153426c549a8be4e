"""`python -m benchmarks NAME`: measure one benchmark, show its table, and write it to a file."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import click

from fcamlib.errors import UserError
from fcamlib.numerics import keep_freed_memory

NAMES = ("pictures", "theory", "text", "captions", "cost")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", type=click.Choice(NAMES))
@click.option("--repeats", type=click.IntRange(1, 100), default=3, show_default=True, help="times of each measure")
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="CPU threads")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="of both sides")
@click.option("--precision", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True,
              help="number format of the library; the plain side computes in float32")  # fmt: skip
@click.option("--quick", is_flag=True, help="small sizes: checks that the benchmark works, in about a minute")
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="write the result to this file")
def main(name: str, path: Path | None, **options: object) -> None:
    """Measure time and memory beside a plain implementation of the same mathematics.

    pictures: set-up, memory, training and evaluation on mosaics of CIFAR's size.
    theory: the flow's solver beside Euler's method, the fixed-focus sweep beside one training after another.
    text: an epoch on posts beside padded passes. captions: training and decoding at the paper's sizes.
    cost: a step as instances get more segments, for notebook 11.

    Nothing is downloaded: inputs are random. The files in results/recorded/bench are made with --json.
    """
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()  # fails before the minutes are spent
        keep_freed_memory()
        module = import_module(f"benchmarks.{name}")
        content = module.benchmark(**options)
    except UserError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"json='{path}' cannot be written ({error.strerror}): choose another file.") from None
    click.echo(module.table(content).to_string())
    source = content["provenance"]
    click.echo(f"\n{content['how'].rstrip('.')}.\n{source['device']}, torch {source['packages']['torch']}.")
    if path is not None:
        path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()

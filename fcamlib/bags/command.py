"""`fcam crossval`: compare the paradigms, and ABMIL, on a user's bags by repeated cross-validation."""

from __future__ import annotations

from typing import Any

import click

from fcamlib.config import METHODS, Folds


@click.command("crossval", short_help="Compare the paradigms on your own bags by cross-validation.")
@click.option("--dataset", required=True, metavar="bags:PATH", help="an .npz file of bags")
@click.option("--methods", metavar="A,B,...", help=f"any of {', '.join(METHODS)}  [default: all installed]")
@click.option("--repeats", metavar="N", help="repeated cross-validations  [default: the file's, else 5]")
@click.option("--epochs", metavar="N", help="epochs of each candidate  [default: 20]")
@click.option("--learning-rates", metavar="A,B,...", help="compared on validation bags  [default: 0.001,0.003]")
@click.option("--batch-size", metavar="N", help="bags per step  [default: 16]")
def crossval_command(**options: str | None) -> None:
    """Compare soft, hard, latent-variable and hybrid attention on bags of feature vectors, on every fold of a file.

    The file holds features (N, D), bag (N,), label (bags,) and, optionally, fold (repeats, bags). ABMIL and its gated
    form are compared too where the library torchmil is installed (pip install 'fcamlib[mil]'). Finished folds are
    kept: the same command goes on where it was interrupted.

    \b
    Example:
      fcam crossval --dataset bags:mine.npz --methods soft,lvml,hybrid
    """
    config = Folds.of({name: value for name, value in options.items() if value is not None}).config()
    from fcamlib import store
    from fcamlib.tables import frame, means

    done = 0

    def on_row(row: dict[str, Any], total: int) -> None:
        nonlocal done
        done += 1
        click.echo(
            f"repeat {row['repeat']}, fold {row['fold']}, {row['method']}: accuracy {row['accuracy']:.3f} "
            f"({done} of {total} in this session)",
            err=True,
        )

    found = store.get(config, lambda row: on_row(row, config.repeats * config.folds * len(config.methods)))
    measures = ("accuracy", "auc", "calibration_error", "loss", "attention_entropy")
    click.echo(means(frame([found]), measures=measures, spread="sd").to_string())
    click.echo(f"in {found.folder}")

"""`fcam crossval`: compare the paradigms, and ABMIL, on a user's bags by repeated cross-validation."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, get_args

import click
from pydantic import ValidationError

from fcamlib.config import METHODS, REFERENCES, CrossValidationConfig, source_fingerprint
from fcamlib.config.base import Frozen, Names, Rates
from fcamlib.config.cross_validation import Method
from fcamlib.errors import UserError, explain

DEFAULT_REPEATS = 5  # where a file names no folds


class CrossValidation(Frozen):
    """The parameters of `fcam crossval` as people set them; 0 and [] mean the default."""

    dataset: str
    methods: Names = ()
    repeats: int = 0
    epochs: int = 20
    learning_rates: Rates = (0.001, 0.003)
    batch_size: int = 16

    def config(self) -> CrossValidationConfig:
        """What is computed; of a file with folds, as many repeats as it names."""
        from fcamlib.data.bags import num_repeats_and_folds

        if not self.dataset.startswith("bags:"):
            raise UserError(f"dataset='{self.dataset}' cannot be cross-validated: give bags:PATH.")
        named, folds = num_repeats_and_folds(self.dataset)
        if named and self.repeats > named:
            raise UserError(f"repeats={self.repeats} is more than dataset='{self.dataset}' has: give at most {named}.")
        return CrossValidationConfig.model_validate(
            {
                "source": self.dataset,
                "fingerprint": source_fingerprint(self.dataset),
                "methods": self.methods or default_methods(),
                "repeats": self.repeats or named or DEFAULT_REPEATS,
                "folds": folds,
                "epochs": self.epochs,
                "learning_rates": self.learning_rates,
                "batch_size": self.batch_size,
            }
        )


def default_methods() -> tuple[str, ...]:
    """All methods that this machine has the libraries for."""
    return tuple(method for method in METHODS if method not in REFERENCES or find_spec("torchmil"))


def cross_validation(parameters: dict[str, Any]) -> CrossValidationConfig:
    """Parameters as text or values -> the checked config; the first fault is one sentence (`UserError`)."""
    try:
        return CrossValidation.model_validate(parameters).config()
    except ValidationError as error:
        raise UserError(explain(error, CrossValidationConfig)) from None


@click.command("crossval", short_help="Compare the paradigms on your own bags by cross-validation.")
@click.option("--dataset", required=True, metavar="bags:PATH", help="an .npz file of bags")
@click.option("--methods", metavar="A,B,...", help=f"any of {', '.join(get_args(Method))}  [default: all installed]")
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
    config = cross_validation({name: value for name, value in options.items() if value is not None})
    from fcamlib.bags.cross_validation import cross_validate
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

    found = cross_validate(config, on_row)
    measures = ("accuracy", "auc", "calibration_error", "loss", "attention_entropy")
    click.echo(means(frame([found]), measures=measures, spread="sd").to_string())
    click.echo(f"in {found.folder}")

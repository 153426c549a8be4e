"""From parameters, as text or values, to a checked experiment of the domain that the data source belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fcamlib.config.grid import TaskExperiment, unknown_dataset
from fcamlib.config.pictures import Experiment
from fcamlib.config.runs import EXPERIMENTS
from fcamlib.errors import UserError, explain


def experiment_class(dataset: Any = "digits") -> type[TaskExperiment]:
    """The experiment of the domain that `dataset` belongs to; what is not text is left to the check of pictures."""
    if not isinstance(dataset, str):
        return Experiment
    kind = dataset.split(":", 1)[0]
    for domain in EXPERIMENTS:
        if kind in domain.defaults:
            return domain
    raise UserError(f"{unknown_dataset(dataset, all_datasets())}.")


def all_datasets() -> tuple[str, ...]:
    """Every data source, as a user writes it."""
    return tuple(name for domain in EXPERIMENTS for name in domain.datasets())


def experiment(parameters: Mapping[str, Any], called: Mapping[str, str] | None = None) -> TaskExperiment:
    """Parameters as text or values -> a checked experiment; the first fault is one sentence (`UserError`).

    `called` holds the names that the user knows fields by, where they differ.
    """
    given = dict(parameters)
    domain = experiment_class(given.get("dataset", "digits"))
    for name, value in given.items():
        if name not in domain.model_fields:
            _refuse_foreign(name, value, given.get("dataset", "digits"))
    try:
        return domain.model_validate(given)
    except ValidationError as error:
        raise UserError(explain(error, domain, called)) from None


def _refuse_foreign(name: str, value: Any, dataset: str) -> None:
    """One sentence for a field of another domain; a name that no domain knows is left to the domain's own check."""
    owners = [owner for domain in EXPERIMENTS if name in domain.model_fields for owner in domain.datasets()]
    if owners:
        raise UserError(
            f"{name}={value} does not belong to dataset='{dataset}': leave it out, or choose a dataset that has it "
            f"({', '.join(owners)})."
        )

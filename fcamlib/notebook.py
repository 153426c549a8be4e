"""What every notebook begins with: its parameters, checked, and its runs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from pydantic import ValidationError

from fcamlib.config import TaskExperiment, experiment, experiment_class
from fcamlib.config.base import Frozen
from fcamlib.errors import UserError, explain

Model = TypeVar("Model", bound=Frozen)

INJECTED = "# Parameters"  # first line of the cell in which papermill sets what the caller gave


@overload
def parameters(namespace: Mapping[str, Any]) -> TaskExperiment: ...


@overload
def parameters(namespace: Mapping[str, Any], model: type[Model]) -> Model: ...


def parameters(namespace: Mapping[str, Any], model: type[Frozen] | None = None) -> Frozen:
    """The notebook's parameters, checked, as an experiment.

    Parameters
    ----------
    namespace : mapping
        The notebook's `globals()`. Names of the experiment's fields are taken from it; a name that papermill was
        given and that is no such field is refused.
    model : type, optional
        The class that holds the parameters; by default the experiment of the domain that `dataset` belongs to.

    Raises
    ------
    UserError
        One sentence: parameter, value, what is allowed.
    """
    fields = (model or experiment_class(namespace.get("dataset", "digits"))).model_fields
    given = {name: namespace[name] for name in fields if name in namespace}
    for source in namespace.get("In", []):
        if source.startswith(INJECTED):
            given |= {name: namespace[name] for name in _assigned(source) if name in namespace}
    if model is None:
        return experiment(given)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise UserError(explain(error, model)) from None


def _assigned(source: str) -> list[str]:
    """The names that a cell of plain assignments sets."""
    names = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign):
            names += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return names

"""What every notebook begins with: its parameters, checked."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from fcamlib.config import Grid, Parameters

Model = TypeVar("Model", bound=Parameters)
INJECTED = "# Parameters"  # first line of the cell in which papermill sets what the caller gave


@overload
def parameters(namespace: Mapping[str, Any]) -> Grid: ...


@overload
def parameters(namespace: Mapping[str, Any], model: type[Model]) -> Model: ...


def parameters(namespace: Mapping[str, Any], model: type[Parameters] = Grid) -> Parameters:
    """The parameters in a notebook's `globals()`, checked; `UserError`, one sentence, where one is wrong.

    Names of `model`'s parameters are taken; a name that papermill was given and that is no parameter is refused.
    """
    given = {name: namespace[name] for name in model.known(namespace.get("dataset")) if name in namespace}
    for source in namespace.get("In", []):
        if source.startswith(INJECTED):
            given |= {name: namespace[name] for name in _assigned(source) if name in namespace}
    return model.of(given)


def _assigned(source: str) -> list[str]:
    """The names that a cell of plain assignments sets."""
    assignments = (statement for statement in ast.parse(source).body if isinstance(statement, ast.Assign))
    return [target.id for assigned in assignments for target in assigned.targets if isinstance(target, ast.Name)]

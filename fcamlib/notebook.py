"""What every notebook begins with: its parameters, checked, and its runs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from fcamlib.config import Experiment, experiment

INJECTED = "# Parameters"  # first line of the cell in which papermill sets what the caller gave


def parameters(namespace: Mapping[str, Any]) -> Experiment:
    """The notebook's parameters as a checked `Experiment`.

    Parameters
    ----------
    namespace : mapping
        The notebook's `globals()`. Names of `Experiment`'s fields are taken from it; a name that papermill was
        given and that is no such field is refused.

    Raises
    ------
    UserError
        One sentence: parameter, value, what is allowed.
    """
    given = {name: namespace[name] for name in Experiment.model_fields if name in namespace}
    for source in namespace.get("In", []):
        if source.startswith(INJECTED):
            given |= {name: namespace[name] for name in _assigned(source) if name in namespace}
    return experiment(given)


def _assigned(source: str) -> list[str]:
    """The names that a cell of plain assignments sets."""
    names = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign):
            names += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return names

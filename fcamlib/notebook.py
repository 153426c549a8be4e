"""What every notebook begins with: its parameters, checked."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, TypeVar

import pandas as pd

from fcamlib.config import Grid, Parameters
from fcamlib.errors import require_address_space

Model = TypeVar("Model", bound=Parameters)
INJECTED = "# Parameters"  # first line of the cell in which papermill sets what the caller gave

require_address_space()  # what a notebook imports next loads PyTorch


def parameters(namespace: Mapping[str, Any], model: type[Model] = Grid) -> Model:  # type: ignore[assignment]
    """The parameters in a notebook's `globals()`, checked; `UserError`, one sentence, where one is wrong.

    Names of `model`'s parameters are taken; a name that papermill was given and that is no parameter is refused.
    """
    given = {name: namespace[name] for name in model.known(namespace.get("dataset")) if name in namespace}
    for cell in namespace.get("In", []):
        if cell.startswith(INJECTED):
            assigned = (
                target for line in ast.parse(cell).body if isinstance(line, ast.Assign) for target in line.targets
            )
            names = [target.id for target in assigned if isinstance(target, ast.Name)]
            given |= {name: namespace[name] for name in names if name in namespace}
    return model.of(given)


def effective(experiment: Grid) -> pd.DataFrame:
    """The value of each parameter that is used, where the data source's defaults are filled in, and its meaning."""
    known = experiment.known(experiment.dataset)
    values = {name: getattr(experiment, name, getattr(experiment.task, name, "")) for name in known}
    values["switch_epoch"] = experiment.switch_epoch or experiment.epochs // 2
    text = {name: ", ".join(map(str, of)) if isinstance(of, tuple) else str(of) for name, of in values.items()}
    meaning = {name: field.description for name, field in known.items()}
    return pd.DataFrame({"value": text, "meaning": meaning}).rename_axis("parameter")

"""Notebook parameters: validation, and a table of their effective values."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, TypeVar

import pandas as pd

from fcamlib.config import CaptionGrid, Grid, Parameters
from fcamlib.errors import require_address_space

Model = TypeVar("Model", bound=Parameters)
INJECTED = "# Parameters"  # first line of the cell in which papermill sets the caller's values

require_address_space()  # the imports that follow in a notebook load PyTorch
pd.set_option("display.max_colwidth", None)  # tables show sentences whole


def parameters(namespace: Mapping[str, Any], model: type[Model] = Grid) -> Model:  # type: ignore[assignment]
    """The validated parameters in a notebook's `globals()`; `UserError`, one sentence, if one is invalid.

    Only names of `model`'s parameters are read; a name passed to papermill that is not a parameter is refused.
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


def effective(experiment: Grid | CaptionGrid) -> pd.DataFrame:
    """The value of each parameter, with the data source's defaults filled in, and its meaning."""
    known = experiment.known(experiment.dataset)
    values = {name: getattr(experiment, name, getattr(experiment.task, name, "")) for name in known}
    values["switch_epoch"] = experiment.switch_epoch or experiment.epochs // 2
    text = {name: ", ".join(map(str, of)) if isinstance(of, tuple) else str(of) for name, of in values.items()}
    meaning = {name: field.description for name, field in known.items()}
    return pd.DataFrame({"value": text, "meaning": meaning}).rename_axis("parameter")

"""A notebook's parameters seen from outside: read, checked as the notebook checks them, hashed, and as a command."""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from nbformat import NotebookNode

from fcamlib.config import Parameters
from fcamlib.notebook import INJECTED, parameters


def default_parameters(notebook: NotebookNode) -> dict[str, Any]:
    """What the cell tagged `parameters` says: name -> value."""
    return _assigned(notebook, "parameters")


def given_parameters(notebook: NotebookNode) -> dict[str, Any]:
    """What papermill put in the defaults' place in an executed notebook: name -> value."""
    return _assigned(notebook, "injected-parameters")


def checked(notebook: NotebookNode, given: Mapping[str, Any]) -> Parameters:
    """The notebook's parameters with those `given`, checked by the class that its own cells name.

    Raises
    ------
    UserError
        One sentence, as the notebook would say it.
    """
    injected = "\n".join([INJECTED, *(f"{name} = {value!r}" for name, value in given.items())])
    namespace = {**default_parameters(notebook), **given, "In": [injected]}
    model = parameters_class(notebook)
    return parameters(namespace) if model is None else parameters(namespace, model)


def digest(experiment: Parameters) -> str:
    """The first 8 hex digits of the sha256 of all parameters, defaults filled in, as canonical JSON."""
    content = json.dumps(experiment.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def command(path: str, notebook: NotebookNode, given: Mapping[str, Any]) -> str:
    """papermill's command line that gives `given` to the notebook at `path`; what equals a default is left out."""
    usual, wanted = (checked(notebook, values).model_dump(mode="json") for values in ({}, given))
    parts = ["papermill", path, "out.ipynb"]
    for name, value in given.items():
        if name not in usual or wanted[name] != usual[name]:
            parts += ["-p", name, _as_text(value)]
    return shlex.join(parts)


def parameters_class(notebook: NotebookNode) -> type[Parameters] | None:
    """The class that the notebook hands to `notebook.parameters`; None where the data set decides."""
    modules: dict[str, str] = {}
    for statement in _statements(notebook):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            modules |= {alias.name: statement.module for alias in statement.names}
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "notebook.parameters":
                name = ast.unparse(node.args[1]) if len(node.args) > 1 else ""
                return getattr(importlib.import_module(modules[name]), name) if name else None
    raise ValueError("no cell of the notebook calls notebook.parameters")


def saved_figures(source: str) -> list[str]:
    """Names under which a cell saves figures with `plots.save`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    saves = [call for call in calls if ast.unparse(call.func) == "plots.save"]
    return [ast.literal_eval(call.args[1]) for call in saves]


def _assigned(notebook: NotebookNode, tag: str) -> dict[str, Any]:
    """Name -> value of the plain assignments in the cells with a tag."""
    found = {}
    for statement in _statements(notebook, tag):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = ast.literal_eval(value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = ast.literal_eval(value)
    return found


def _statements(notebook: NotebookNode, tag: str | None = None) -> Iterator[ast.stmt]:
    for cell in notebook.cells:
        if cell.cell_type == "code" and (tag is None or tag in cell.metadata.get("tags", [])):
            yield from ast.parse(cell.source).body


def _as_text(value: Any) -> str:
    """A value as it is written behind `-p`, so that the notebook's check reads the same."""
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, list | dict) else str(value)

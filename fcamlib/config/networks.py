"""Names of networks that carry their depth, width and normalisation: `mlp:2x64`, `cnn:2x16:layer`.

A network has exactly one such name, so that equal runs have equal names in the store.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

PARAMETRIC = ("mlp", "cnn")
NORMS = ("batch", "layer")
MAX_DEPTH, MAX_WIDTH = 32, 8192
_NAME = re.compile(r"(mlp|cnn):([1-9]\d{0,5})x([1-9]\d{0,5})(?::(batch|layer))?")
_FORM = "KIND:DEPTHxWIDTH, and :batch or :layer after it for a normalisation"
OUTSIDE: list[str] = []  # networks registered by other packages


def register_network(name: str) -> None:
    """Let configs name a network; `fcamlib.networks.register` calls it."""
    OUTSIDE.append(name)


@dataclass(frozen=True)
class NetworkShape:
    """What the name of a network says.

    Parameters
    ----------
    kind : "mlp" or "cnn"
        Dense layers, or convolutions.
    depth : int
        Hidden layers, at least one (`linear` has none).
    width : int
        Units of each, or filters.
    norm : "", "batch" or "layer"
        Normalisation of each hidden layer before its ReLU.
    """

    kind: str
    depth: int
    width: int
    norm: Literal["", "batch", "layer"] = ""


def network_shape(name: str) -> NetworkShape:
    """What a name such as `mlp:2x64:layer` says; `ValueError`, a sentence without its full stop, where it is wrong."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"'{name}' is not understood: write {_FORM}, such as mlp:2x64 or mlp:2x64:layer")
    kind, depth, width, norm = found.groups(default="")
    for word, value, most in (("depth", int(depth), MAX_DEPTH), ("width", int(width), MAX_WIDTH)):
        if value > most:
            raise ValueError(f"'{name}' has {word} {value}: give at most {most}")
    return NetworkShape(kind, int(depth), int(width), norm)  # type: ignore[arg-type]


def network_fault(field: str, name: str, known: Sequence[str], parametric: Sequence[str] = PARAMETRIC) -> str:
    """What is wrong with the name of a network, as a sentence without its full stop; empty where nothing is.

    Parameters
    ----------
    field : str
        Name of the parameter, as the user knows it.
    name : str
    known : sequence of str
        Names without parameters that are allowed.
    parametric : sequence of str
        Kinds that are allowed with depth and width.
    """
    if name in known or name in OUTSIDE:
        return ""
    if name.split(":", 1)[0] not in parametric or ":" not in name:
        forms = " or ".join(f"{kind}:DEPTHxWIDTH" for kind in parametric)
        return (
            f"{field}='{name}' is unknown: choose one of {', '.join(known)}, or {forms}, such as {parametric[0]}:2x64"
        )
    try:
        network_shape(name)
    except ValueError as error:
        return f"{field}={error}"
    return ""

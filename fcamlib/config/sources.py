"""Data sources and networks by name: built-in ones, `kind:PATH` for a user's own data, and registered ones.

Modules named in the environment variable FCAM_PLUGINS (comma-separated) are imported before parameters or configs are
read; they call `register_source`, `fcamlib.networks.register` or `fcamlib.paradigms.register`.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from fcamlib import paths
from fcamlib.errors import DataError, UserError, one_line, shown


@dataclass(frozen=True)
class Source:
    """A kind of data source."""

    task: Any  # class of `fcamlib.config.tasks` that describes the data
    loader: str  # "module:function", called with a task and a seed; imported when data are drawn
    title: str  # the data in a few words
    defaults: Mapping[str, Any] = field(default_factory=dict)  # parameter -> default value
    path: str = ""  # description of PATH in `kind:PATH`; empty: the source takes none
    optional: bool = False  # whether the path may be left out
    files: str = ""  # "module:function", called with a task: the files, if not PATH, that its fingerprint covers
    without: tuple[str, ...] = ()  # parameters of the task or the training that have no effect on this source


SOURCES: dict[str, Source] = {}


def register_source(kind: str, source: Source) -> None:
    """Register a source for the command line, notebooks, profiles and the store; an existing name is replaced."""
    SOURCES[kind] = source


def load_plugins() -> None:
    """Import the modules named in FCAM_PLUGINS, also from the working folder."""
    names = [name.strip() for name in os.environ.get("FCAM_PLUGINS", "").split(",") if name.strip()]
    if names and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for name in names:
        try:
            import_module(name)
        except Exception as error:  # the user's module can raise anything
            why = f"{type(error).__name__}: {shown(one_line(error))}"
            raise UserError(f"FCAM_PLUGINS names '{shown(name)}', which cannot be imported ({why}).") from None


def written(kinds: Mapping[str, Source]) -> list[str]:
    """Sources as a user writes them, such as digits or folder:PATH."""
    bare = [kind for kind, source in kinds.items() if not source.path or source.optional]
    return bare + [f"{kind}:PATH" for kind, source in kinds.items() if source.path]


def portable_source(source: str) -> str:
    """The data source without the machine-specific part of its path."""
    kind, colon, path = source.partition(":")
    if not colon or kind == "hatexplain":  # the same data set wherever it is stored; the fingerprint identifies it
        return kind
    name = os.path.basename(os.path.abspath(path))  # of `.` that of the working folder, which need not be UTF-8
    return f"{kind}:{name.encode(errors='replace').decode()}"


def short_source(source: str) -> str:
    """The data source as part of a file name."""
    kind, _, name = portable_source(source).partition(":")
    name = name if kind == "folder" else re.sub(r"\.(npz|jsonl?)\Z", "", name or kind)
    readable = re.sub(r"[^\w-]", "-", name).strip("-").lower()
    return readable[:48] or "data"  # a file name holds 255 bytes, and a letter takes up to four


def source_path(source: str) -> Path:
    """The file or folder of a `kind:PATH` source: PATH itself, or PATH (without one, the kind) in the data folder."""
    kind, colon, path = source.partition(":")
    if not colon:
        return paths.data_dir() / kind
    what = SOURCES[kind].path if kind in SOURCES else "file or folder"
    try:
        given = Path(path).expanduser()
        candidates = [given] if given.is_absolute() else [Path.cwd() / given, paths.data_dir() / given]
        if not given.is_absolute():  # such as bags/musk1.npz, which a record names by its file alone
            candidates += sorted(paths.data_dir().glob(f"*/{glob.escape(given.name)}"))
        found = [place for place in candidates if (place.is_dir() if what.startswith("folder") else place.exists())]
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, an unknown ~user, a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise DataError(f"dataset='{shown(source)}' cannot be read ({why}): give a path that can.") from None
    if found:
        return found[0]
    looked = " nor ".join(f"'{shown(place)}'" for place in candidates)
    advice = f"give the path of a {what}, or set FCAM_DATA to the folder around it"
    raise DataError(f"dataset='{shown(source)}': there is no {what.split()[0]} {looked}; {advice}.")


OUTSIDE: list[str] = []  # networks added by `fcamlib.networks.register`, allowed with every task
_SHAPE = re.compile(r"(mlp|cnn):([1-9]|[12]\d|3[0-2])x([1-9]\d{0,3})(?::(batch|layer))?")  # one spelling each


def network_shape(name: str, field: str = "network") -> tuple[str, int, int, str]:
    """Kind, depth, width and normalisation in a name such as `mlp:2x64:layer`; `UserError` if it is invalid."""
    found = _SHAPE.fullmatch(name)
    if found is None:
        form = "write KIND:DEPTHxWIDTH, at most 32x9999, optionally followed by :batch or :layer"
        raise UserError(f"{field}='{shown(name)}' is not understood: {form}, such as mlp:2x64 or mlp:2x64:layer.")
    kind, depth, width, norm = found.groups("")
    return kind, int(depth), int(width), norm


def require_network(field: str, name: str, known: Sequence[str], shapes: Sequence[str] = ("mlp", "cnn")) -> None:
    """Refuse the name of a network that is not known, registered or a shape."""
    kind, colon, _ = name.partition(":")
    if colon and kind in shapes:
        network_shape(name, field)
    elif name not in (names := [*known, *OUTSIDE]):
        names += [f"{kind}:DEPTHxWIDTH" for kind in shapes]
        raise UserError(f"{field}='{shown(name)}' is unknown: choose one of {', '.join(names)}, such as mlp:2x64.")

"""Write a figure as SVG and PNG with a record of where it came from."""

import json
import os
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure

from fcamlib.plots.look import style

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]*")


def save(fig: Figure, name: str, folder: str | os.PathLike[str], provenance: Mapping[str, object]) -> Path:
    """Write `<name>.svg`, `<name>.png` and `<name>.json`, each whole or not at all.

    The same figure gives the same bytes at every save: ids are salted with a constant and no date or program
    version is stored.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        The figure.
    name : str
        File name without ending: lower-case letters, digits, hyphens and underscores.
    folder : path-like
        Where to write; made if absent.
    provenance : mapping
        What the figure was drawn from (runs, commit, command); must fit into JSON.

    Returns
    -------
    pathlib.Path
        The SVG file.
    """
    if NAME_PATTERN.fullmatch(name) is None:
        raise ValueError(f"name is {name!r}; use lower-case letters, digits, hyphens and underscores.")
    contents = {
        "json": _provenance_bytes(provenance),
        "png": _rendered(fig, "png", {"Software": None}),
        "svg": _rendered(fig, "svg", {"Creator": None, "Date": None, "Title": name}),
    }
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for ending, content in contents.items():
            _write_whole(target / f"{name}.{ending}", content)
    except OSError as error:
        raise OSError(
            f"the figure {name!r} cannot be written into {str(target)!r} ({error.strerror}); "
            "choose a folder that exists or can be made and that you may write to."
        ) from error
    return target / f"{name}.svg"


def _provenance_bytes(provenance: Mapping[str, object]) -> bytes:
    """Return the record as JSON with sorted keys.

    Parameters
    ----------
    provenance : mapping
        As in `save`.

    Returns
    -------
    bytes
        UTF-8, ending in a line feed.
    """
    try:
        text = json.dumps(dict(provenance), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"provenance does not fit into JSON ({error}); use strings, finite numbers, lists.") from error
    return (text + "\n").encode()


def _rendered(fig: Figure, file_format: str, metadata: dict[str, str | None]) -> bytes:
    """Return the figure's bytes in one format.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        The figure.
    file_format : str
        "svg" or "png".
    metadata : dict
        Matplotlib's metadata; None leaves an entry out.

    Returns
    -------
    bytes
        The file's content.
    """
    buffer = BytesIO()
    with style():
        fig.savefig(buffer, format=file_format, metadata=metadata)
    return buffer.getvalue()


def _write_whole(path: Path, content: bytes) -> None:
    """Write beside the target and rename, so that a reader never sees half a file.

    Parameters
    ----------
    path : pathlib.Path
        The target.
    content : bytes
        What it will hold.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)

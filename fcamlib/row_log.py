"""Rows of a long computation, kept one a line as they are done, so that it goes on where it was interrupted."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from fcamlib.errors import StoreError

log = logging.getLogger(__name__)
Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The rows that were kept; a line that was cut short is left out, with a warning."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text("utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            log.warning("a line of '%s' is damaged: its part is computed anew.", path)
    return rows


def append_row(path: Path, row: Row) -> None:
    """Keep one row more; a line that was cut short before it stays a line of its own."""
    try:
        with path.open("ab+") as file:
            if file.seek(0, 2) and (file.seek(-1, 2), file.read(1))[1] != b"\n":
                file.write(b"\n")
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
    except OSError as error:
        raise StoreError(
            f"'{path}' cannot be written ({error.strerror}): make room and start again; what is finished is kept."
        ) from None

"""Profiles: YAML files of parameters, a grid of runs for each document of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fcamlib.config import read_yaml
from fcamlib.errors import UserError, one_line, shown

NAMED = Path("notebooks/profiles")  # in a source checkout: profiles that go by their name


def grids(path: Path) -> list[dict[str, Any]]:
    """The parameters of each document of the file at `path`."""
    try:
        contents = read_yaml(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"the profile '{shown(path)}' is missing: give the path of a YAML file.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"the profile '{shown(path)}' cannot be read as YAML ({one_line(error)}).") from None
    if not contents or not all(isinstance(content, dict) for content in contents):
        raise UserError(f"the profile '{shown(path)}' is not a list of 'name: value' lines.")
    return [{str(name): value for name, value in content.items()} for content in contents]


def profile_file(profile: str) -> Path:
    """The file of a profile that is given by its name, one of those in `NAMED`, or by its path."""
    named = NAMED / f"{profile}.yaml"
    if named.is_file():
        return named
    if Path(profile).is_file():
        return Path(profile)
    known = ", ".join(sorted(path.stem for path in NAMED.glob("*.yaml")))
    known = f"choose {known}, or " if known else ""
    raise UserError(f"the profile '{shown(profile)}' is missing: {known}give the path of a YAML file of parameters.")

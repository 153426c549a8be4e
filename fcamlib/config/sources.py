"""Where data come from: names of sources, `kind:PATH` for a user's own, and fingerprints of files."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from pydantic import Field

from fcamlib import paths
from fcamlib.config.base import Frozen
from fcamlib.errors import DataError

FILE_ENDINGS = (".npz", ".jsonl", ".json")  # left out of the names of runs
SAME_EVERYWHERE = ("hatexplain", "coco")  # with a path or without: one data set, told apart by its fingerprint alone
_FOLDERS = ("folder", "hatexplain", "coco")
_WANTED = {
    "folder": "give the path of a folder that holds train/<class>/ and test/<class>/ with pictures",
    "hatexplain": "give the path of the folder that holds dataset.json and post_id_divisions.json",
    "coco": "give the path of the folder that holds annotations/, train2014/ and val2014/",
    "text": "give the path of a file with one JSON object a line, or of a folder with train.jsonl and test.jsonl",
    "series": "give the path of an .npz file of series",
    "bags": "give the path of an .npz file of bags",
}


class TaskConfig(Frozen):
    """What a run is trained and tested on: a data source, and how instances are made of it."""

    source: str = Field(description="name of the data source, or kind:PATH")
    fingerprint: str = Field("", description="sha256 of the user's own data, see `source_fingerprint`")

    @property
    @abstractmethod
    def slug(self) -> str:
        """The task in the name of a run."""

    @property
    @abstractmethod
    def described(self) -> str:
        """Size of the task in words, as titles show it behind the source's name."""

    def current_fingerprint(self) -> str:
        """Fingerprint of the data as they lie there now; empty for sources that come with a checksum of their own."""
        return source_fingerprint(self.source) if ":" in self.source else ""


def portable_source(source: str) -> str:
    """The data source without the part of a path that only one machine knows."""
    kind, colon, path = source.partition(":")
    if kind in SAME_EVERYWHERE:
        return kind
    return f"{kind}:{Path(path).name}" if colon else source


def short_source(source: str) -> str:
    """The data source as part of a file name."""
    kind, colon, name = portable_source(source).partition(":")
    name = name if colon else kind
    if kind != "folder":
        name = name.removesuffix(next((end for end in FILE_ENDINGS if name.endswith(end)), ""))
    readable = "".join(c if c.isalnum() or c in "-_" else "-" for c in name).strip("-").lower()
    return readable[:48] or "data"  # a file name holds 255 bytes, and a letter takes up to four


def source_path(source: str) -> Path:
    """The file or folder of a `kind:PATH` source: as given, else inside the data folder; without a path, the latter.

    Raises `DataError` in one sentence where neither exists; `folder:` and `hatexplain:` need a folder.
    """
    kind, colon, path = source.partition(":")
    if not colon:
        return paths.data_dir() / kind
    given = Path(path).expanduser()
    candidates = [given] if given.is_absolute() else [Path.cwd() / given, paths.data_dir() / given]
    for candidate in candidates:
        if candidate.is_dir() if kind in _FOLDERS else candidate.exists():
            return candidate
    looked, what = " nor ".join(f"'{c}'" for c in candidates), "folder" if kind in _FOLDERS else "file"
    wanted = _WANTED.get(kind, "give its path")
    raise DataError(
        f"dataset='{source}': there is no {what} {looked}; {wanted}, or set FCAM_DATA to the folder around it."
    )


def source_fingerprint(source: str) -> str:
    """sha256 of a file's content, or over the names and contents of the files below a folder."""
    from fcamlib.data.files import content_hash

    return content_hash(source_path(source))

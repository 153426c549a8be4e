"""Identity of a task's data: a content hash of the user's files, part of result names, which detects replaced files."""

from __future__ import annotations

from typing import Any

from fcamlib import paths
from fcamlib.config.sources import source_path
from fcamlib.data.coco import coco_files
from fcamlib.data.files import content_hash, joint_hash
from fcamlib.data.hatexplain import hatexplain_files
from fcamlib.data.pictures import folder_splits
from fcamlib.data.posts import jsonl_files
from fcamlib.errors import DataError, shown


def fingerprint(task: Any) -> str:
    """sha256 of the content of a task's files; empty for data that are generated or have an official checksum."""
    kind, colon, _ = task.source.partition(":")
    if kind == "hatexplain":
        return joint_hash(hatexplain_files(task.source))
    if kind == "text":
        files = jsonl_files(task.source)
        return joint_hash(files if len(files) > 1 else dict(zip([""], files.values(), strict=True)))
    if kind == "coco":
        given = {name: paths.expanded(path) for name in ("words", "weights") if (path := getattr(task, name))}
        if missing := [name for name, path in given.items() if not path.is_file()]:
            fault = f"{missing[0]}='{shown(given[missing[0]])}' is not a file"
            raise DataError(f"{fault}: give the path of a file, or leave {missing[0]} out.")
        more = {f"more{n}": given[name] for n, name in enumerate(("words", "weights")) if name in given}
        return joint_hash(coco_files(task.source) | more)
    if kind == "folder":
        folder_splits(task.source)  # checked first, so that no unrelated large folder is read
    return content_hash(source_path(task.source)) if colon else ""

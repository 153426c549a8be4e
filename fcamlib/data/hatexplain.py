"""HateXplain from its official files: downloaded once, verified by content, pinned by checksum.

`dataset.json` holds the posts with each annotator's label and, where at least two found one, rationales: a list of 0
and 1, one a token, from each annotator who marked some. `post_id_divisions.json` holds the official split. No official
checksum is published, so the content is verified: number of posts, sizes of the split, every id of the split among the
posts, every mask as long as its post. The checksums of what was verified first are then kept beside the files, in
`SHA256SUMS`, and hold from then on.

Two editions are known by their content, and named wherever results are shown:

| edition      | posts                           | training posts                                                      |
|--------------|---------------------------------|---------------------------------------------------------------------|
| official     | 20,148, of which 19,229 in the split | with all annotators and rationales                             |
| reduced copy | the 19,229 of the split         | with the majority label as their only annotator, without rationales |

Source: Mathew et al., HateXplain, AAAI 2021, https://github.com/hate-alert/HateXplain (MIT licence). The posts are
offensive: no message here ever quotes one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Literal
from urllib.error import HTTPError

from filelock import FileLock
from pydantic import BaseModel, Field, StrictInt, StrictStr, TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import DownloadColumn, Progress

from fcamlib.config.text import HATEXPLAIN_FILES, LabelRule, RationaleRule, text_files
from fcamlib.data.posts import Corpus, Post, read_text
from fcamlib.errors import DataError

log = logging.getLogger(__name__)

URL = "https://raw.githubusercontent.com/hate-alert/HateXplain/master/Data"
POSTS, DIVISIONS = HATEXPLAIN_FILES
SUMS = "SHA256SUMS"
CLASS_NAMES = ("normal", "offensive", "hatespeech")
SPLIT_NAMES = {"train": "train", "validation": "val", "test": "test"}
CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Layout:
    """What the files must hold."""

    num_posts: int
    split_sizes: tuple[tuple[str, int], ...]  # the official names of the splits


OFFICIAL = Layout(20_148, (("train", 15_383), ("val", 1_922), ("test", 1_924)))


class Annotation(BaseModel):
    """One annotator's label."""

    label: Literal["normal", "offensive", "hatespeech"]


class Entry(BaseModel):
    """One post of dataset.json; other fields are not read."""

    post_tokens: list[StrictStr] = Field(min_length=1)
    annotators: list[Annotation] = Field(min_length=1)
    rationales: list[list[Annotated[StrictInt, Field(ge=0, le=1)]]]


_ENTRIES = TypeAdapter(dict[str, Entry])
_DIVISIONS = TypeAdapter(dict[str, list[StrictStr]])


@dataclass(frozen=True)
class Verified:
    """Files that hold what they must."""

    entries: dict[str, Entry]
    divisions: dict[str, list[str]]
    title: str


def hatexplain_corpus(source: str, label: LabelRule, rationale: RationaleRule, layout: Layout = OFFICIAL) -> Corpus:
    """The posts of the official split. Raises `DataError` in one sentence that names file and place.

    Parameters
    ----------
    source : str
        `hatexplain` or `hatexplain:PATH`.
    label : "majority" or "first"
        The annotators' most frequent label (posts without one are left out and counted), or the first one's.
    rationale : "union", "majority" or "first"
        A word belongs to it where any, more than half, or the first of those who marked words marked it.
    layout : Layout
    """
    folder = next(iter(text_files(source).values())).parent
    _check_sums(folder, source)
    verified = verify(folder, source, layout)
    _pin(folder, source)
    splits = {}
    for split, name in SPLIT_NAMES.items():
        posts = [_post(verified.entries[number], label, rationale) for number in verified.divisions[name]]
        splits[split] = [post for post in posts if post is not None]
        if lost := len(posts) - len(splits[split]):
            log.warning("%d posts of HateXplain's %s split have no majority label and are left out.", lost, split)
    return Corpus(splits, CLASS_NAMES, verified.title)


def verify(folder: Path, source: str, layout: Layout = OFFICIAL) -> Verified:
    """The content of the files in `folder`, where it is what it must be; one sentence where not."""
    entries, divisions = _parsed(folder / POSTS, source), _parsed_divisions(folder / DIVISIONS, source)
    for number, entry in entries.items():
        for order, mask in enumerate(entry.rationales):
            if len(mask) != len(entry.post_tokens):
                raise _wrong(
                    folder / POSTS, source, f"post '{number}': field rationales.{order} has {len(mask)} entries for "
                    f"{len(entry.post_tokens)} tokens"
                )  # fmt: skip
    known: set[str] = set()
    for split, size in layout.split_sizes:
        numbers = divisions.get(split)
        if numbers is None or len(numbers) != size:
            found = "missing" if numbers is None else f"of {len(numbers):,} posts"
            raise _wrong(folder / DIVISIONS, source, f"the split '{split}' is {found}, it has to hold {size:,}")
        for number in numbers:
            if number not in entries:
                raise _wrong(folder / DIVISIONS, source, f"post '{number}' of the split '{split}' is not in {POSTS}")
            if number in known:
                raise _wrong(folder / DIVISIONS, source, f"post '{number}' stands in the split twice")
            known.add(number)
    if len(entries) not in (layout.num_posts, len(known)):
        raise _wrong(
            folder / POSTS, source,
            f"it holds {len(entries):,} posts, it has to hold {layout.num_posts:,}, or the {len(known):,} of the split",
        )  # fmt: skip
    is_official = len(entries) == layout.num_posts
    return Verified(entries, divisions, "HateXplain" if is_official else "HateXplain (reduced copy)")


def _wrong(file: Path, source: str, what: str) -> DataError:
    return DataError(f"dataset='{source}': '{file}': {what}: get the file anew from {URL}/{file.name}.")


def _parsed(file: Path, source: str) -> dict[str, Entry]:
    text = read_text(file, source)
    try:
        return _ENTRIES.validate_json(text)
    except ValidationError as error:
        raise _wrong(file, source, _fault(error)) from None


def _parsed_divisions(file: Path, source: str) -> dict[str, list[str]]:
    text = read_text(file, source)
    try:
        return _DIVISIONS.validate_json(text)
    except ValidationError as error:
        raise _wrong(file, source, _fault(error)) from None


def _fault(error: ValidationError) -> str:
    """The first fault with its place, without the post's words."""
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "json_invalid":
        return f"it is not JSON ({fault['ctx']['error']})"
    if not fault["loc"]:
        return "it is not a JSON object"
    owner, *field = (str(part) for part in fault["loc"])
    reason = fault["msg"][0].lower() + fault["msg"][1:]
    return f"post '{owner}': field {'.'.join(field)}: {reason}" if field else f"entry '{owner}': {reason}"


def _post(entry: Entry, label: LabelRule, rationale: RationaleRule) -> Post | None:
    """The post under the rules; None without a majority label."""
    votes = [annotation.label for annotation in entry.annotators]
    chosen = votes[0]
    if label == "majority":
        ranked = Counter(votes).most_common(2)
        if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
            return None
        chosen = ranked[0][0]
    return Post(tuple(entry.post_tokens), CLASS_NAMES.index(chosen), _combined(entry.rationales, rationale))


def _combined(masks: list[list[int]], rule: RationaleRule) -> tuple[bool, ...]:
    """One mask from the annotators' masks; empty where there is none."""
    if not masks:
        return ()
    if rule == "first":
        return tuple(bool(mark) for mark in masks[0])
    needed = 1 if rule == "union" else len(masks) // 2 + 1
    return tuple(sum(marks) >= needed for marks in zip(*masks, strict=True))


def _sums(folder: Path, source: str) -> dict[str, str]:
    """sha256 of both files."""
    sums = {}
    for name in (POSTS, DIVISIONS):
        try:
            sums[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError as error:
            raise DataError(
                f"dataset='{source}': the file '{folder / name}' cannot be read ({error.strerror})."
            ) from None
    return sums


def _check_sums(folder: Path, source: str) -> None:
    """Refuse files that are not those that were verified here before."""
    try:
        pinned = (folder / SUMS).read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return
    for name, digest in _sums(folder, source).items():
        if f"{digest}  {name}" not in pinned:
            raise DataError(
                f"dataset='{source}': '{folder / name}' is not the file that was verified here before: put that one "
                f"back, or remove '{folder / SUMS}' to have this one verified."
            )


def _pin(folder: Path, source: str) -> None:
    """Keep the checksums of verified files, as `sha256sum --check` reads them; a folder may be read-only."""
    if (folder / SUMS).exists():
        return
    lines = "".join(f"{digest}  {name}\n" for name, digest in _sums(folder, source).items())
    part = folder / f"{SUMS}.{os.getpid()}.part"
    try:
        part.write_text(lines, "utf-8", newline="\n")
        os.replace(part, folder / SUMS)
    except OSError as error:
        log.warning("the checksums of '%s' cannot be kept there (%s).", folder, error.strerror)


def download(folder: Path, url: str = URL, layout: Layout = OFFICIAL) -> None:
    """Get both files from `url` into `folder`; they take their names only when their content is verified."""
    scratch = folder / ".part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if all((folder / name).is_file() for name in (POSTS, DIVISIONS)):  # by a process that this one waited for
                return
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            for name in (DIVISIONS, POSTS):
                _fetch(f"{url}/{name}", scratch / name)
            verify(scratch, "hatexplain", layout)
            for name in (DIVISIONS, POSTS):
                os.replace(scratch / name, folder / name)
            _pin(folder, "hatexplain")
    except OSError as error:
        raise DataError(
            f"dataset='hatexplain': cannot use {error.filename or folder} ({error.strerror or error}); make the folder "
            f"'{folder}' writable, free some space, or set FCAM_DATA to another folder."
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fetch(url: str, target: Path) -> None:
    """One file, with a progress bar on a terminal."""
    columns = (*Progress.get_default_columns(), DownloadColumn())
    progress = Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())
    with target.open("wb") as file, progress:
        task = progress.add_task(target.name, total=None)
        for size, chunk in _stream(url, target.parent.parent):
            progress.update(task, total=size, advance=file.write(chunk))


def _stream(url: str, folder: Path) -> Iterator[tuple[int | None, bytes]]:
    """Pieces of the file at `url`, with its size; here every OSError is the network's, none the disk's."""
    done, size = 0, None
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "fcamlib"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            size = int(response.headers.get("Content-Length", 0)) or None
            while chunk := response.read(CHUNK_BYTES):
                done += len(chunk)
                yield size, chunk
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise _failed(url, folder, f"failed ({error})") from None
    if size and done != size:
        raise _failed(url, folder, f"stopped after {done:,} of {size:,} bytes")


def _failed(url: str, folder: Path, reason: str) -> DataError:
    return DataError(
        f"dataset='hatexplain': the download of {url} {reason}; run again, or put {POSTS} and {DIVISIONS} "
        f"from {URL} into '{folder}' yourself."
    )

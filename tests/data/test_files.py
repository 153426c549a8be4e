"""Files: told apart by content, read within limits, downloaded whole or not at all."""

import hashlib
import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image
from torch.hub import download_url_to_file

from fcamlib.data import files
from fcamlib.data.files import content_hash, download, files_below, fingerprint, read_text
from fcamlib.errors import DataError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache" / "fcam" / "identity"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_folders_of_one_name_with_files_of_equal_names_and_sizes_differ(tmp_path: Path) -> None:
    for place, colour in (("x", "red"), ("y", "blue"), ("z", "red")):
        (tmp_path / place / "pics" / "a").mkdir(parents=True)
        Image.new("RGB", (8, 8), colour).save(tmp_path / place / "pics" / "a" / "1.bmp")
    x, y, z = (content_hash(tmp_path / place / "pics") for place in "xyz")
    assert x == z != y
    os.rename(tmp_path / "z/pics/a", tmp_path / "z/pics/b")
    assert content_hash(tmp_path / "z/pics") != x
    (tmp_path / "x/pics/.DS_Store").touch()
    assert content_hash(tmp_path / "x/pics") == x  # no data
    shutil.copy(tmp_path / "y/pics/a/1.bmp", tmp_path / "x/pics/a/1.bmp")  # a picture replaced in place
    assert content_hash(tmp_path / "x/pics") == y


def test_a_second_look_reads_nothing_and_a_change_is_seen(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, content = tmp_path / "big", np.random.default_rng(0).bytes(files.REMEMBERED)
    file.write_bytes(content)
    assert content_hash(file) == sha256(content) and not cache.exists()  # too new: it may change without another time
    monkeypatch.setattr(files, "SETTLED", -1.0)
    assert content_hash(file) == sha256(content) and len(list(cache.iterdir())) == 1
    with monkeypatch.context() as patch:
        patch.setattr(files, "_digest", None)
        assert content_hash(file) == sha256(content)
    looks = file.stat()
    file.write_bytes(content[:-1] + b"?")
    os.utime(file, ns=(looks.st_atime_ns, looks.st_mtime_ns))  # of the same size and time
    changed = sha256(file.read_bytes())
    assert content_hash(file) == changed != sha256(content)
    for note in cache.iterdir():
        note.write_text("damaged")
    assert content_hash(file) == changed
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: file / name)  # not writable
    assert content_hash(file) == changed


def test_names_count_and_odd_files_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"1")
    assert fingerprint({"x": tmp_path / "a"}) == sha256(f"{sha256(b'1')}  x\n".encode())
    assert fingerprint({"x": tmp_path / "a"}) != fingerprint({"y": tmp_path / "a"})
    for first, second in ("ab", "cd", "ef", "gh"):  # a place linked twice counts once, under the first name
        (tmp_path / "links" / second).mkdir(parents=True)
        (tmp_path / "links" / first).symlink_to(second)
        (tmp_path / "links" / first / "1").touch()
    assert [str(file)[-3:] for file in files_below(tmp_path / "links")] == ["a/1", "c/1", "e/1", "g/1"]
    os.mkfifo(tmp_path / "pipe")
    none = r"none' cannot be read \(No such file or directory\): "
    with pytest.raises(DataError, match=r"pipe' cannot be read \(it is not a regular file\): repair it, remove it, or"):
        content_hash(tmp_path)
    with pytest.raises(DataError, match=none + "repair it, remove it, or"):
        content_hash(tmp_path / "none")
    with pytest.raises(DataError, match=none + "change its permissions"):
        files_below(tmp_path / "none")  # a subfolder without permission is as unreadable, and would be left out
    with pytest.raises(DataError, match=r"cannot be read \(it is not a regular file\)"):
        read_text(tmp_path / "pipe", "text:x")
    monkeypatch.setattr(files.Path, "read_text", lambda *_: "MemAvailable: 0 kB")
    with pytest.raises(DataError, match=r"^text:x: the contents of '.*a' need 0.0 GB, but only 0.0 GB of memory"):
        read_text(tmp_path / "a", "text:x")


def test_a_download_is_whole_and_happens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, target = tmp_path / "remote", tmp_path / "new" / "f"
    remote.write_bytes(b"content" * 30_000)
    fetch = Mock(wraps=download_url_to_file)
    monkeypatch.setattr("torch.hub.download_url_to_file", fetch)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda _: download(remote.as_uri(), target, sha256(remote.read_bytes())), range(3)))
    assert target.read_bytes() == remote.read_bytes() and fetch.call_count == 1
    assert {path.name for path in target.parent.iterdir()} == {"f", ".f.lock"}
    monkeypatch.setattr(files, "FileLock", None)  # a file that is there may be in a folder that is read-only
    download(remote.as_uri(), target, "")


def test_faults_of_a_download_are_one_sentence_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    (tmp_path / "remote").write_bytes(b"other")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for url, message in (
            ((tmp_path / "remote").as_uri(), "invalid hash value .*"),
            ((tmp_path / "none").as_uri(), ".*No such file or directory.*"),
            (f"http://127.0.0.1:{port}/f", "timed out"),
        ):
            with pytest.raises(DataError, match=rf"^the download of {url} to '.*/f' failed \({message}\): run again"):
                download(url, tmp_path / "new" / "f", "0" * 64)
            assert [path.name for path in (tmp_path / "new").iterdir()] == [".f.lock"]
    assert socket.getdefaulttimeout() is None
    with pytest.raises(DataError, match=r"File exists|Not a directory"):
        download("http://127.0.0.1", tmp_path / "remote" / "f", "")

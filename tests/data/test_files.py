"""Files: told apart by content, read within limits, downloaded whole or not at all."""

import contextlib
import hashlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fcamlib.data import files
from fcamlib.data.files import content_hash, download, files_below, fingerprint, read_json, read_text
from fcamlib.errors import DataError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache" / "fcam" / "identity"


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
    file = tmp_path / "big"
    content = np.random.default_rng(0).bytes(files.REMEMBERED)
    file.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    assert content_hash(file) == digest and not cache.exists()  # too new: it may change without another time
    monkeypatch.setattr(files, "SETTLED", -1.0)
    assert content_hash(file) == digest and len(list(cache.iterdir())) == 1
    with monkeypatch.context() as patch:
        patch.setattr(files, "_digest", None)
        assert content_hash(file) == digest
    looks = file.stat()
    file.write_bytes(content[:-1] + b"?")
    os.utime(file, ns=(looks.st_atime_ns, looks.st_mtime_ns))  # of the same size and time
    assert content_hash(file) != digest
    next(cache.iterdir()).write_text("damaged")
    assert content_hash(file) == hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: file / name)  # not writable
    assert content_hash(file) == hashlib.sha256(file.read_bytes()).hexdigest()


def test_names_count_in_a_fingerprint_and_odd_files_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    one = hashlib.sha256(b"1").hexdigest()
    assert fingerprint({"x": tmp_path / "a"}) == hashlib.sha256(f"{one}  x\n".encode()).hexdigest()
    assert fingerprint({"x": tmp_path / "a"}) != fingerprint({"y": tmp_path / "a"})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe' cannot be read \(it is not a regular file\): repair it, remove it, or"):
        content_hash(tmp_path)
    with pytest.raises(
        DataError, match=r"none' cannot be read \(No such file or directory\): repair it, remove it, or"
    ):
        content_hash(tmp_path / "none")
    with pytest.raises(
        DataError, match=r"the folder '.*none' cannot be read \(No such file or directory\): change its"
    ):
        files_below(tmp_path / "none")  # a subfolder without permission is as unreadable, and would be left out
    with pytest.raises(DataError, match=r"cannot be read \(it is not a regular file\)"):
        read_text(tmp_path / "pipe", "text:x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b'{"a": "\xff"}', r"line 1 of .* is not UTF-8 text \(byte 0xff\): save the file as UTF-8"),
        (b'{"a": ', r"it is not JSON \(EOF while parsing"),
        (b"7", "it is not a JSON object: mend it"),
        (b'{"a": "x"}', "field a: input should be a valid integer, unable to parse string as an integer: mend it"),
    ],
)
def test_damaged_json_is_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "f.json").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_json(tmp_path / "f.json", "coco:x", dict[str, int], "mend it")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


class Server(ThreadingHTTPServer):
    """Serves one body at every address, with the faults that a test asks for."""

    daemon_threads = True
    body, status, pause, stop = b"content" * 30_000, 200, 0.0, None
    num_asked = 0


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.num_asked += 1
        self.send_response(server.status)
        self.send_header("Content-Length", str(len(server.body)))
        self.end_headers()
        time.sleep(server.pause)
        with contextlib.suppress(OSError):  # the client has given up
            self.wfile.write(server.body[: server.stop])

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), _Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def get(server: Server, target: Path, sha256: str = "") -> None:
    digest = sha256 or hashlib.sha256(server.body).hexdigest()
    download(f"http://127.0.0.1:{server.server_port}/f", target, digest)


def test_a_download_is_whole_and_happens_once(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new" / "f"
    server.pause = 0.1
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda _: get(server, target), range(3)))
    assert target.read_bytes() == server.body and server.num_asked == 1
    assert [path.name for path in target.parent.iterdir() if not path.name.endswith(".lock")] == ["f"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"status": 404}, "HTTP Error 404: Not Found"),
        ({"stop": 50}, "invalid hash value .*"),
        ({"pause": 5.0}, "timed out"),
        ({"sha256": "0" * 64}, "invalid hash value .*"),
    ],
)
def test_faults_of_a_download_are_one_sentence_and_leave_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(files, "PATIENCE", 2.0)
    sha256 = fault.pop("sha256", "")
    for name, value in fault.items():
        setattr(server, name, value)
    with pytest.raises(DataError, match=rf"^the download of http:.* to '.*/f' failed \({message}\): run again, or put"):
        get(server, tmp_path / "f", sha256)
    assert [path.name for path in tmp_path.iterdir()] == [".f.lock"] and socket.getdefaulttimeout() is None


def test_no_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"File exists|Not a directory"):
        download("http://127.0.0.1", tmp_path / "file" / "f", "")

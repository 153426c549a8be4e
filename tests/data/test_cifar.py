"""CIFAR archives: bytes land where they belong, and nothing that is not verified is ever used."""

from __future__ import annotations

import ast
import contextlib
import errno
import hashlib
import io
import multiprocessing
import re
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from fcamlib.data import cifar
from fcamlib.data.cifar import CIFAR_SPECS, CifarSpec, load_cifar, verify_cifar
from fcamlib.errors import DataError

POSITIONS = np.arange(3072)


class ArchiveServer(ThreadingHTTPServer):
    """Serves one body at every address, with the faults that a test asks for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.body = b""
        self.status = 200
        self.honours_range = True
        self.announces_size = True
        self.stops_after: int | None = None
        self.seconds = 0.0
        self.ranges: list[str | None] = []
        self.num_sent = 0


class _Handler(BaseHTTPRequestHandler):
    server: ArchiveServer

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range")
        server.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.honours_range else 0
        self.send_response(206 if start and server.status == 200 else server.status)
        if server.announces_size:
            self.send_header("Content-Length", str(len(server.body) - start))
        self.end_headers()
        time.sleep(server.seconds)
        with contextlib.suppress(ConnectionError):
            for position in range(start, server.stops_after or len(server.body), 1 << 16):
                stop = min(position + (1 << 16), server.stops_after or len(server.body))
                server.num_sent += self.wfile.write(server.body[position:stop])

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[ArchiveServer]:
    with ArchiveServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def pack(members: dict[str, bytes | str]) -> bytes:
    """A .tar.gz archive; text instead of bytes makes a symbolic link to it, of the size that two records have."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname, info.size = tarfile.SYMTYPE, content, 2 * 3073
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def record(labels: tuple[int, ...], pixels: np.ndarray) -> bytes:
    return bytes(labels) + pixels.astype(np.uint8).tobytes()


def members10() -> dict[str, bytes | str]:
    """Low and high bytes of each value's position in the record, so that a pair of images identifies every position."""
    low, high = POSITIONS % 256, POSITIONS // 256
    return {
        "cifar-10-batches-bin/test_batch.bin": record((1,), high) + record((0,), low),
        "cifar-10-batches-bin/data_batch_2.bin": record((2,), high),
        "cifar-10-batches-bin/readme.html": b"<html>not needed</html>",
        "cifar-10-batches-bin/batches.meta.txt": b"airplane\nautomobile\nbird\n\n",
        "cifar-10-batches-bin/data_batch_1.bin": record((0,), low) + record((1,), 255 - low),
    }


def seal(spec: CifarSpec, body: bytes) -> CifarSpec:
    """`spec` for an archive with exactly these bytes."""
    sha256, md5 = hashlib.sha256(body).hexdigest(), hashlib.md5(body).hexdigest()
    return replace(spec, size=len(body), sha256=sha256, md5=md5)


def small10(server: ArchiveServer, members: dict[str, bytes | str] | None = None) -> CifarSpec:
    """An archive in CIFAR-10's layout with 2 + 1 training records and 2 test records, now on `server`."""
    server.body = pack(members or members10())
    spec = replace(CIFAR_SPECS["cifar10"], url=f"{server.address}/cifar-10-binary.tar.gz")
    train, test = (("data_batch_1.bin", 2), ("data_batch_2.bin", 1)), (("test_batch.bin", 2),)
    return seal(replace(spec, train=train, test=test), server.body)


def load10(spec: CifarSpec, root: Path) -> cifar.CifarArrays:
    """Load, and check every value against its position in the record."""
    arrays = load_cifar("cifar10", root, spec=spec)
    row, column, channel = np.meshgrid(np.arange(32), np.arange(32), np.arange(3), indexing="ij")
    position = 1024 * channel + 32 * row + column  # (32, 32, 3)
    np.testing.assert_array_equal(arrays.train_images, [position % 256, 255 - position % 256, position // 256])
    np.testing.assert_array_equal(arrays.test_images, [position // 256, position % 256])
    assert arrays.train_labels.tolist() == [0, 1, 2] and arrays.test_labels.tolist() == [1, 0]
    assert arrays.class_names == ("airplane", "automobile", "bird")
    assert (arrays.train_images.dtype, arrays.train_labels.dtype) == (np.uint8, np.int64)
    assert arrays.train_images.flags.c_contiguous and arrays.train_images.flags.writeable
    return arrays


@contextlib.contextmanager
def refused(reason: str, spec: CifarSpec, root: Path) -> Iterator[None]:
    """One sentence with the reason, the place, the address and the checksums that a download by hand needs."""
    with pytest.raises(DataError, match=reason) as error:
        yield
    message = str(error.value)
    for part in (spec.url, str(root / spec.archive), str(spec.size), spec.md5, spec.sha256):
        assert part in message
    assert "\n" not in message and message.endswith(").") and message.count(". ") == 0


def test_cifar10_values_land_at_their_place_and_only_expected_files_are_unpacked(
    server: ArchiveServer, tmp_path: Path
) -> None:
    strangers: dict[str, bytes | str] = {"../outside": b"x", f"{tmp_path}/absolute": b"x", "extra.bin": b"x"}
    spec, folder = small10(server, members10() | strangers), tmp_path / "not there" / "cifar-10-batches-bin"
    load10(spec, folder.parent)
    assert {path.name for path in folder.iterdir()} == {"SHA256SUMS", *spec.max_bytes}
    assert {path.name for path in tmp_path.rglob("*")} & {"outside", "absolute", "extra.bin"} == set()


def test_cifar100_class_is_the_second_byte(server: ArchiveServer, tmp_path: Path) -> None:
    low = POSITIONS % 256
    server.body = pack(
        {
            "cifar-100-binary/coarse_label_names.txt": b"aquatic_mammals\nfish\n",
            "cifar-100-binary/fine_label_names.txt": b"apple\naquarium_fish\nbaby\nbear\n",
            "cifar-100-binary/train.bin": record((0, 3), low) + record((1, 2), 255 - low) + record((0, 1), low),
            "cifar-100-binary/test.bin": record((1, 0), low),
        }
    )
    spec = seal(replace(CIFAR_SPECS["cifar100"], train=(("train.bin", 3),), test=(("test.bin", 1),)), server.body)
    arrays = load_cifar("cifar100", tmp_path, url=f"{server.address}/mirror", spec=spec)
    assert arrays.train_labels.tolist() == [3, 2, 1] and arrays.test_labels.tolist() == [0]
    assert arrays.class_names == ("apple", "aquarium_fish", "baby", "bear")
    # First row: red, green and blue planes start at 0, 1024 and 2048, all 0 modulo 256; then one more per column.
    assert arrays.train_images[0, 0, :3].tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    assert arrays.train_images[1, 1, :2].tolist() == [[223, 223, 223], [222, 222, 222]]
    assert (tmp_path / "cifar-100-binary.tar.gz").read_bytes() == server.body


def test_second_call_neither_downloads_nor_writes(server: ArchiveServer, tmp_path: Path) -> None:
    spec = small10(server)
    assert verify_cifar("cifar10", tmp_path, spec=spec) == "absent"
    load10(spec, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    load10(spec, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert verify_cifar("cifar10", tmp_path, spec=spec) == "verified" and len(server.ranges) == 1


@pytest.mark.parametrize("honours_range", [True, False])
def test_broken_off_download_is_not_used_and_goes_on_later(
    server: ArchiveServer, tmp_path: Path, honours_range: bool
) -> None:
    spec = small10(server)
    server.stops_after, server.honours_range = 50, honours_range
    with refused(f"stopped after 50 of {spec.size} bytes", spec, tmp_path):
        load10(spec, tmp_path)
    assert verify_cifar("cifar10", tmp_path, spec=spec) == "absent"
    server.stops_after = None
    load10(spec, tmp_path)
    assert server.ranges == ["bytes=0-", "bytes=50-"]
    assert not (tmp_path / f"{spec.archive}.part").exists()


@pytest.mark.parametrize("fault", ["byte", "endless", "sha256", "md5"])
def test_download_with_other_bytes_is_refused_and_removed(server: ArchiveServer, tmp_path: Path, fault: str) -> None:
    spec, good = small10(server), server.body
    wanted = replace(spec, **{fault: "0" + getattr(spec, fault)[:-1]}) if fault in ("sha256", "md5") else spec
    if fault == "byte":
        server.body = good[:100] + bytes([good[100] ^ 1]) + good[101:]
    elif fault == "endless":
        server.body, server.announces_size = good + bytes(1 << 25), False
    with refused("had a wrong checksum and was removed", wanted, tmp_path):
        load10(wanted, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []
    assert server.num_sent < 1 << 24
    server.body = good
    load10(spec, tmp_path)


@pytest.mark.parametrize("reason", ["404: Not Found", "another size", "timed out", "refused", "unknown url type"])
def test_no_usable_answer_is_one_sentence(
    server: ArchiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    spec = small10(server)
    if reason in ("404: Not Found", "another size"):
        server.body, server.status = b"<html></html>", 404 if "404" in reason else 200
    elif reason == "timed out":
        server.seconds = 1.0
        monkeypatch.setattr(cifar, "TIMEOUT_SECONDS", 0.2)
    elif reason == "refused":
        server.shutdown()
        server.server_close()
    with refused(reason, spec, tmp_path):
        load_cifar("cifar10", tmp_path, url="somewhere" if "url" in reason else None, spec=spec)
    assert verify_cifar("cifar10", tmp_path, spec=spec) == "absent"


def test_changed_unpacked_file_is_named_and_restored_from_the_archive(server: ArchiveServer, tmp_path: Path) -> None:
    spec = small10(server)
    load10(spec, tmp_path)
    for name in spec.max_bytes:
        path = tmp_path / spec.folder / name
        content = path.read_bytes()
        for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:-1], b"", None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            assert verify_cifar("cifar10", tmp_path, spec=spec) == f"damaged: {spec.folder}/{name}"
            load10(spec, tmp_path)
    assert len(server.ranges) == 1


def test_half_unpacked_folder_is_completed_and_foreign_files_stay(server: ArchiveServer, tmp_path: Path) -> None:
    spec = small10(server)
    folder, scratch = tmp_path / spec.folder, tmp_path / f"{spec.folder}.part"
    for left_over in (folder, scratch):
        left_over.mkdir()
        (left_over / "data_batch_1.bin").write_bytes(bytes(2 * 3073))
    (folder / "notes.txt").write_text("mine")
    assert verify_cifar("cifar10", tmp_path, spec=spec) == f"damaged: {spec.folder}/SHA256SUMS"
    load10(spec, tmp_path)
    assert verify_cifar("cifar10", tmp_path, spec=spec) == "verified"
    assert (folder / "notes.txt").read_text() == "mine" and not scratch.exists()


def test_stop_while_files_are_moved_leaves_nothing_that_counts_as_verified(
    server: ArchiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = small10(server)
    load10(spec, tmp_path)
    (tmp_path / spec.folder / "test_batch.bin").write_bytes(b"")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(cifar.os, "replace", Mock(side_effect=KeyboardInterrupt))
        load10(spec, tmp_path)
    assert verify_cifar("cifar10", tmp_path, spec=spec) == f"damaged: {spec.folder}/SHA256SUMS"
    load10(spec, tmp_path)


def test_archive_put_there_by_hand_is_used_only_when_it_is_right(server: ArchiveServer, tmp_path: Path) -> None:
    spec = small10(server)
    (tmp_path / spec.archive).write_bytes(server.body)
    assert verify_cifar("cifar10", tmp_path, spec=spec) == "verified"
    load10(spec, tmp_path)
    assert server.ranges == []
    (other := tmp_path / "other").mkdir()
    (other / spec.archive).write_bytes(server.body[:-1] + b"?")
    assert verify_cifar("cifar10", other, spec=spec) == f"damaged: {spec.archive}"
    load10(spec, other)
    assert len(server.ranges) == 1 and (other / spec.archive).read_bytes() == server.body


def test_two_processes_download_once(server: ArchiveServer, tmp_path: Path) -> None:
    spec = small10(server)
    server.seconds = 1.0
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        loads = [pool.submit(load_cifar, "cifar10", tmp_path, spec=spec) for _ in range(2)]
        first, second = (load.result(timeout=60) for load in loads)
    assert server.ranges == ["bytes=0-"]
    for arrays in (first, second):
        np.testing.assert_array_equal(arrays.train_images, load10(spec, tmp_path).train_images)


@pytest.mark.parametrize("fault", ["short", "missing", "link", "huge names", "no archive"])
def test_archive_with_other_content_is_refused(server: ArchiveServer, tmp_path: Path, fault: str) -> None:
    batch, names = "cifar-10-batches-bin/test_batch.bin", "cifar-10-batches-bin/batches.meta.txt"
    odd_members: dict[str, dict[str, bytes | str]] = {
        "short": {batch: bytes(2 * 3073 - 1)},
        "link": {batch: "batches.meta.txt"},
        "huge names": {names: b"airplane\n" * 10_000},
    }
    members = members10() | odd_members.get(fault, {})
    if fault == "missing":
        del members[batch]
    spec = small10(server, members)
    server.body = b"plain text" if fault == "no archive" else server.body
    spec = seal(spec, server.body)
    reasons = {"missing": f"lacks {batch}", "no archive": f"{spec.archive} is not a readable archive"}
    odd_file = f"{names if fault == 'huge names' else batch} in .* is not a file of the expected size"
    with pytest.raises(DataError, match=reasons.get(fault, odd_file)):
        load10(spec, tmp_path)
    assert verify_cifar("cifar10", tmp_path, spec=spec) == "verified"  # the archive, which stays packed
    assert not (tmp_path / spec.folder).exists() and not (tmp_path / f"{spec.folder}.part").exists()


def test_unusable_folder_and_full_disk_are_one_sentence(
    server: ArchiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = small10(server)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match=r"cannot use .*file.* set FCAM_DATA to another folder\.$"):
        load10(spec, tmp_path / "file")
    with pytest.raises(DataError, match=r"MB free and 1000000000001 MB are needed; free some space or set FCAM_DATA"):
        load10(replace(spec, size=10**18 + 10**6), tmp_path)
    assert server.ranges == []
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(cifar.shutil, "copyfileobj", Mock(side_effect=full))
    with pytest.raises(
        DataError, match=rf"cannot use {re.escape(str(tmp_path))} \(No space left on device\); .* FCAM_DATA"
    ):
        load10(spec, tmp_path)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(
    server: ArchiveServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.stderr, "isatty", lambda: is_terminal)
        load10(small10(server), tmp_path)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("100%" in err) if is_terminal else err == ""


def test_nothing_that_unpickles_is_imported() -> None:
    tree = ast.parse(Path(cifar.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    unwanted = {"pickle", "joblib", "shelve", "dill", "torch", "torchvision"}
    assert not {name.split(".")[0] for name in imported} & unwanted
    code = "import sys, fcamlib.data.cifar; sys.exit('torch' in sys.modules or 'torchvision' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_official_archives_have_the_published_layout() -> None:
    for spec in CIFAR_SPECS.values():
        assert [sum(num for _, num in files) for files in (spec.train, spec.test)] == [50_000, 10_000]
        assert (len(spec.sha256), len(spec.md5)) == (64, 32) and int(spec.sha256 + spec.md5, 16)
        assert spec.url == f"https://www.cs.toronto.edu/~kriz/{spec.archive}"
    assert CIFAR_SPECS["cifar10"].max_bytes["data_batch_5.bin"] == 30_730_000
    assert CIFAR_SPECS["cifar100"].max_bytes["train.bin"] == 153_700_000


# The archive's fine_label_names.txt, in its order.
FINE_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
# Class numbers of superclasses 0, 1, 7, 8 and 11 to 16, as counted in the data (discuss.pytorch.org/t/81323).
FOREGROUND_NUMBERS = """
72 4 95 30 55, 73 32 67 91 1, 14 24 6 7 18, 43 97 42 3 88, 15 21 19 31 38,
75 63 66 64 34, 77 26 45 99 79, 11 2 35 46 98, 29 93 27 78 44, 65 50 74 36 80
"""


def test_foreground_classes_agree_with_the_numbers_in_the_data() -> None:
    fine = FINE_NAMES.split()
    assert len(fine) == 100 and sorted(fine) == fine
    expected = [{fine[int(number)] for number in numbers.split()} for numbers in FOREGROUND_NUMBERS.split(",")]
    assert [set(names) for names in cifar.CIFAR100_FOREGROUND_SUPERCLASSES.values()] == expected
    assert len(set(cifar.CIFAR100_FOREGROUND)) == len(cifar.CIFAR100_FOREGROUND) == 50
    assert cifar.CIFAR10_FOREGROUND == ("airplane", "automobile", "bird")

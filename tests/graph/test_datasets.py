"""A set known by name is found, checked, and fetched whole or not at all."""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allneg.errors import DataError, ResourceError
from allneg.graph import benchmarks, read_graph
from allneg.graph.archive import archive_files
from allneg.graph.benchmarks import DATASETS, Dataset
from allneg.graph.content import Content, file_sha256
from allneg.graph.datasets import find_dataset
from allneg.graph.files import one_file

TOY = {
    # CRLF as at the origin of one benchmark: hashes are of lines with LF.
    "train": "".join(f"é{i}\tr\tb{i}\r\n" for i in range(4000)).encode(),
    "valid": b"b1\tr\tb2\n",
    "test": b"b2\tr\tb1\n",
}


def toy_set() -> Dataset:
    def content(text: bytes) -> Content:
        text = text.replace(b"\r\n", b"\n")
        return Content(text.count(b"\n"), hashlib.sha256(text).hexdigest())

    return Dataset(8000, 1, "Toy", {split: content(text) for split, text in TOY.items()})


class Origin(http.server.ThreadingHTTPServer):
    """Serves `files` by path, with ranges; `cut` bytes at most an answer where it is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.cut: int | None = None
        self.seconds = 0.0  # before an answer
        self.ranges = True
        self.requests: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Origin

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.requests.append((self.path, asked))
        time.sleep(self.server.seconds)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if asked and self.server.ranges:
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            start = 0
            self.send_response(200)
        rest = content[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.server.cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the name wn18 means the toy set, which lies at the origin."""
    for variable in ("ALLNEG_DATA", "ALLNEG_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(DATASETS, "wn18", toy_set())
    monkeypatch.setattr(benchmarks, "ORIGIN", origin.url)
    origin.files = {f"/Toy/{split}.txt": text for split, text in TOY.items()}
    return tmp_path / "cache"


def entries(cache: Path) -> list[str]:
    """What a user of the cache can see."""
    found = cache.iterdir() if cache.exists() else []
    return sorted(each.name for each in found if not each.name.startswith("."))


def test_an_absent_set_is_fetched_once(cache: Path, origin: Origin) -> None:
    graph = read_graph("wn18")
    assert (graph.name, graph.n_entities, len(graph.train)) == ("wn18", 8000, 4000)
    assert entries(cache) == ["wn18"]
    assert sorted(each.name for each in (cache / "wn18").iterdir()) == [
        "test.txt",
        "train.txt",
        "valid.txt",
    ]
    assert len(origin.requests) == 3
    read_graph("wn18")
    assert len(origin.requests) == 3


@pytest.mark.battery(16)
def test_other_content_than_published_never_enters_the_cache(cache: Path, origin: Origin) -> None:
    origin.files["/Toy/test.txt"] = b"b2\tr\tb3\n"
    with pytest.raises(DataError, match="not the published set: test: sha256 should be"):
        read_graph("wn18")
    assert entries(cache) == []
    origin.files["/Toy/test.txt"] = TOY["test"]
    assert len(read_graph("wn18").test) == 1


@pytest.mark.battery(16)
def test_a_cut_off_download_goes_on_by_range(cache: Path, origin: Origin) -> None:
    origin.cut = 20_000
    with pytest.raises(DataError, match=r"cut off: 20,000 of .*goes on from there"):
        read_graph("wn18")
    assert entries(cache) == []
    tried = len(origin.requests)
    origin.cut = None
    assert len(read_graph("wn18").train) == 4000
    assert origin.requests[tried] == ("/Toy/train.txt", "bytes=60000-")


@pytest.mark.battery(16)
def test_a_download_without_an_end_is_given_up_and_not_kept(
    cache: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allneg.graph.fetch._MOST_BYTES", 30_000)
    origin.cut = 20_000  # under the limit each time
    with pytest.raises(DataError, match="it has more than 30,000 bytes; nothing was kept"):
        read_graph("wn18")
    assert not list(cache.rglob("*.part"))


@pytest.mark.battery(16)
def test_a_server_without_ranges_is_asked_from_the_start(cache: Path, origin: Origin) -> None:
    origin.cut = 20_000
    with pytest.raises(DataError, match="cut off"):
        read_graph("wn18")
    origin.cut, origin.ranges = None, False
    assert len(read_graph("wn18").train) == 4000


@pytest.mark.battery(16)
@pytest.mark.parametrize("size", [100, 1_000_000])
def test_a_part_of_something_else_is_given_up(cache: Path, size: int) -> None:
    parts = cache / ".wn18.parts"
    parts.mkdir(parents=True)
    (parts / "train.txt.part").write_bytes(b"x" * size)
    assert len(read_graph("wn18").train) == 4000


@pytest.mark.battery(16)
def test_no_connection_is_one_clear_message(
    cache: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarks, "ORIGIN", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"wn18 could not be fetched from .*\n.*set ALLNEG_DATA"):
        read_graph("wn18")
    monkeypatch.setattr(benchmarks, "ORIGIN", f"{origin.url}/gone")
    with pytest.raises(DataError, match="404"):
        read_graph("wn18")
    assert entries(cache) == []


@pytest.mark.battery(16)
def test_offline_never_tries(cache: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLNEG_OFFLINE", "1")
    with pytest.raises(DataError, match=r"ALLNEG_OFFLINE forbids it.\n.*wn18\.tar\.xz"):
        read_graph("wn18")
    assert origin.requests == []
    monkeypatch.delenv("ALLNEG_OFFLINE")
    read_graph("wn18")
    monkeypatch.setenv("ALLNEG_OFFLINE", "1")
    assert len(read_graph("wn18").train) == 4000


def test_a_cache_that_cannot_be_written_is_said(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.joinpath("file").touch()
    monkeypatch.setenv("ALLNEG_HOME", str(cache.parent / "file"))
    with pytest.raises(ResourceError, match="set ALLNEG_HOME"):
        read_graph("wn18")


_SCRIPT = """
import json, sys
from allneg.graph import benchmarks, read_graph
from allneg.graph.content import Content

files = {split: Content(*known) for split, known in json.loads(sys.argv[2]).items()}
benchmarks.DATASETS["wn18"] = benchmarks.Dataset(8000, 1, "Toy", files)
benchmarks.ORIGIN = sys.argv[1]
print(len(read_graph("wn18").train))
"""


@pytest.mark.battery(17)
@pytest.mark.usefixtures("cache")
def test_of_several_processes_one_fetches_and_all_succeed(origin: Origin) -> None:
    origin.seconds = 0.7  # long enough for all to begin before the first has ended
    files = {split: (known.lines, known.sha256) for split, known in toy_set().files.items()}
    command = [sys.executable, "-c", _SCRIPT, origin.url, json.dumps(files)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in processes] == [b"4000\n"] * 3
    assert len(origin.requests) == 3


@pytest.mark.battery(18)
@pytest.mark.parametrize("damage", [b"", b"b1\tr\tb9\n", b"\x00\xff"])
def test_a_damaged_cache_is_fetched_again_with_a_notice(
    cache: Path, origin: Origin, damage: bytes
) -> None:
    read_graph("wn18")
    (cache / "wn18" / "valid.txt").write_bytes(damage)
    graph = read_graph("wn18")
    assert len(graph.valid) == 1
    assert len(origin.requests) == 6
    assert "damaged, or of another version (valid: " in graph.notes[0]
    assert graph.notes[0].endswith("; fetched again")
    assert not any("fetched again" in note for note in read_graph("wn18").notes)


@pytest.mark.battery(18)
def test_a_damaged_archive_in_the_cache_is_fetched_again_with_a_notice(cache: Path) -> None:
    cache.mkdir()
    (cache / "wn18.tar.xz").write_bytes(b"\xfd7zXZ\x00 of another version")
    graph = read_graph("wn18")
    assert len(graph.train) == 4000
    assert "wn18.tar.xz: damaged, or of another version" in graph.notes[0]


@pytest.mark.battery(18)
def test_a_damaged_cache_without_a_connection_is_said(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_graph("wn18")
    (cache / "wn18" / "valid.txt").unlink()
    monkeypatch.setenv("ALLNEG_OFFLINE", "1")
    with pytest.raises(DataError, match=r"it has no valid\)\nwn18 would have to be fetched"):
        read_graph("wn18")


def test_a_folder_in_allneg_data_comes_first(
    cache: Path, origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own" / "wn18"
    own.mkdir(parents=True)
    for split, text in TOY.items():
        (own / f"{split}.tsv").write_bytes(text)
    monkeypatch.setenv("ALLNEG_DATA", str(own.parent))
    assert find_dataset("wn18") == (own, [])
    assert origin.requests == []


def test_an_archive_packed_anew_counts_by_its_content(
    cache: Path, origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_graph("wn18")
    own = tmp_path / "own"
    own.mkdir()
    with tarfile.open(own / "wn18.tar.xz", "w:xz") as tar:
        tar.add(cache / "wn18", "WN18")
    shutil.rmtree(cache)
    monkeypatch.setenv("ALLNEG_DATA", str(own))
    assert len(read_graph("wn18").train) == 4000
    monkeypatch.setitem(DATASETS, "wn18", DATASETS["wn18rr"])
    with pytest.raises(DataError, match=r"wn18\.tar\.xz: not the published wn18: train: lines"):
        read_graph("wn18")


def test_content_is_known_by_git_blob_or_by_characters(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(b"hello\n")
    # What `git hash-object` says of that file.
    blob = "ce013625030ba8dba906f756967f9e9ca394464a"
    assert Content(1, git_blob=blob).wrong(one_file(path)) is None
    path.write_bytes(b"hellO\n")
    assert "git_blob should be" in str(Content(1, git_blob=blob).wrong(one_file(path)))
    path.write_bytes("é€😀\r\n".encode())
    assert Content(1, characters=4).wrong(one_file(path)) is None
    assert Content(1, characters=5).wrong(one_file(path)) == "characters should be 5, but is 4"


@pytest.mark.parametrize("name", ["fb15k", "wn18", "fb15k-237", "wn18rr"])
def test_the_hashes_of_content_are_those_of_the_published_archives(
    name: str, published: Path
) -> None:
    path = published / f"{name}.tar.xz"
    assert file_sha256(path) == DATASETS[name].archive_sha256
    with archive_files(path) as members:
        for split, content in DATASETS[name].files.items():
            assert content.wrong(members[split]) is None

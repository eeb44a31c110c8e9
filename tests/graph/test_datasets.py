"""A known dataset is found, checked, and downloaded completely or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from allneg.errors import DataError, ResourceError
from allneg.graph import datasets, read_graph
from allneg.graph.datasets import DATASETS, Content, Dataset, find_dataset
from allneg.graph.files import TripleFile, file_sha256, split_files

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

    return Dataset(8000, 1, "Toy", "", {split: content(text) for split, text in TOY.items()})


class Origin(http.server.ThreadingHTTPServer):
    """Serves `files` by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.cut_offs = 0  # answers that end after half of the content
        self.endless = False
        self.seconds = 0.0  # before an answer
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Origin

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        time.sleep(self.server.seconds)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        if self.server.endless:
            self.end_headers()
            with contextlib.suppress(OSError):  # until the client closes the connection
                while True:
                    self.wfile.write(content)
            return
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.server.cut_offs > 0:
            self.server.cut_offs -= 1
            content = content[: len(content) // 2]
        self.wfile.write(content)

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
    """An empty cache. The name wn18 means the toy dataset, which the origin serves."""
    for variable in ("ALLNEG_DATA", "ALLNEG_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(DATASETS, "wn18", toy_set())
    monkeypatch.setattr(datasets, "ORIGIN", origin.url)
    monkeypatch.setattr(datasets, "_RETRIES", 0)
    origin.files = {f"/Toy/{split}.txt": text for split, text in TOY.items()}
    return tmp_path / "cache"


def entries(cache: Path) -> list[str]:
    """All names in the cache but the lock's."""
    found = cache.iterdir() if cache.exists() else []
    return sorted(path.name for path in found if path.name != ".wn18.lock")


@pytest.mark.battery(79)
@pytest.mark.parametrize("target", ["http://127.0.0.1/train.txt", "ftp://127.0.0.1/train.txt"])
def test_a_redirect_from_https_to_another_protocol_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    asked: list[str] = []

    def answer(adapter: object, request: Any, **_: object) -> requests.Response:
        asked.append(request.url)
        response = requests.Response()
        response.status_code, response.url, response.request = 302, request.url, request
        response.headers["Location"] = "/moved" if len(asked) == 1 else target
        response.raw = io.BytesIO()
        return response

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", answer)
    monkeypatch.setattr(datasets, "ORIGIN", "https://origin.test")
    with pytest.raises(DataError, match=f"it redirects to '{target}', which is not https"):
        find_dataset("wn18")
    assert asked == ["https://origin.test/Toy/train.txt", "https://origin.test/moved"]
    assert entries(cache) == []


def test_a_missing_dataset_is_downloaded_once(cache: Path, origin: Origin) -> None:
    graph = read_graph("wn18")
    assert (graph.name, graph.n_entities, len(graph.train)) == ("wn18", 8000, 4000)
    assert entries(cache) == ["wn18"]
    names = sorted(path.name for path in (cache / "wn18").iterdir())
    assert names == ["test.txt", "train.txt", "valid.txt"]
    assert len(origin.requests) == 3
    read_graph("wn18")
    assert len(origin.requests) == 3


@pytest.mark.battery(16)
def test_other_content_than_published_never_enters_the_cache(cache: Path, origin: Origin) -> None:
    origin.files["/Toy/test.txt"] = b"b2\tr\tb3\n"
    with pytest.raises(DataError, match="not the published dataset: test: sha256 should be"):
        read_graph("wn18")
    assert entries(cache) == []
    origin.files["/Toy/test.txt"] = TOY["test"]
    assert len(read_graph("wn18").test) == 1


@pytest.mark.battery(16)
def test_a_cut_off_download_is_not_kept_and_the_next_one_succeeds(
    cache: Path, origin: Origin
) -> None:
    origin.cut_offs = 1
    with pytest.raises(DataError, match=r"could not be downloaded from .*train\.txt"):
        read_graph("wn18")
    assert entries(cache) == []
    assert len(read_graph("wn18").train) == 4000


@pytest.mark.battery(16)
@pytest.mark.usefixtures("cache")
def test_a_cut_off_download_is_tried_again(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_RETRIES", 2)
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    origin.cut_offs = 2
    assert len(read_graph("wn18").train) == 4000
    assert len(origin.requests) == 5


@pytest.mark.battery(16)
def test_an_endless_download_is_stopped_and_not_kept(
    cache: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MOST_BYTES", 1 << 20)
    origin.endless = True
    with pytest.raises(DataError, match="it has more than 1,048,576 bytes; nothing was kept"):
        read_graph("wn18")
    assert entries(cache) == []


@pytest.mark.battery(16)
def test_what_a_killed_download_left_is_removed(cache: Path) -> None:
    partial = cache / ".tmp-wn18"
    partial.mkdir(parents=True)
    (partial / "train.txt").write_bytes(b"x")
    assert len(read_graph("wn18").train) == 4000
    assert entries(cache) == ["wn18"]


@pytest.mark.battery(16)
def test_no_connection_is_one_clear_message(
    cache: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "ORIGIN", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"wn18 could not be downloaded from .*\n.*set ALLNEG_DATA"):
        read_graph("wn18")
    monkeypatch.setattr(datasets, "ORIGIN", f"{origin.url}/gone")
    with pytest.raises(DataError, match="404"):
        read_graph("wn18")
    assert entries(cache) == []


@pytest.mark.usefixtures("cache")
def test_without_pooch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r"install pooch\.\n.* put wn18\.tar\.xz into a folder"):
        read_graph("wn18")


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


def test_a_cache_that_cannot_be_written_is_an_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.joinpath("file").touch()
    monkeypatch.setenv("ALLNEG_HOME", str(cache.parent / "file"))
    with pytest.raises(ResourceError, match="set ALLNEG_HOME"):
        read_graph("wn18")


_SCRIPT = """
import json, sys
from allneg.graph import datasets, read_graph
from allneg.graph.datasets import Content, Dataset

contents = {split: Content(*known) for split, known in json.loads(sys.argv[2]).items()}
datasets.DATASETS["wn18"] = Dataset(8000, 1, "Toy", "", contents)
datasets.ORIGIN = sys.argv[1]
print(len(read_graph("wn18").train))
"""


@pytest.mark.battery(17)
@pytest.mark.usefixtures("cache")
def test_of_several_processes_one_downloads_and_all_succeed(origin: Origin) -> None:
    origin.seconds = 0.5  # long enough for both to start before the first ends
    contents = {split: (text.lines, text.sha256) for split, text in toy_set().files.items()}
    command = [sys.executable, "-c", _SCRIPT, origin.url, json.dumps(contents)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in processes] == [b"4000\n"] * 2
    assert len(origin.requests) == 3


@pytest.mark.battery(18)
@pytest.mark.parametrize("damage", [b"", b"b1\tr\tb9\n", b"\x00\xff"])
def test_a_damaged_cache_is_downloaded_again_with_a_note(
    cache: Path, origin: Origin, damage: bytes
) -> None:
    read_graph("wn18")
    (cache / "wn18" / "valid.txt").write_bytes(damage)
    graph = read_graph("wn18")
    assert len(graph.valid) == 1
    assert len(origin.requests) == 6
    assert "damaged, or of another version (valid: " in graph.notes[0]
    assert graph.notes[0].endswith("; downloaded again")
    assert not any("downloaded again" in note for note in read_graph("wn18").notes)


@pytest.mark.battery(18)
def test_a_damaged_archive_in_the_cache_is_downloaded_again_with_a_note(cache: Path) -> None:
    cache.mkdir()
    (cache / "wn18.tar.xz").write_bytes(b"\xfd7zXZ\x00 of another version")
    graph = read_graph("wn18")
    assert len(graph.train) == 4000
    assert "wn18.tar.xz: damaged, or of another version" in graph.notes[0]


@pytest.mark.battery(18)
def test_a_damaged_cache_without_a_connection_is_an_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_graph("wn18")
    (cache / "wn18" / "valid.txt").unlink()
    monkeypatch.setenv("ALLNEG_OFFLINE", "1")
    with pytest.raises(DataError, match=r"valid: missing\)\nwn18 would have to be downloaded"):
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


def test_a_repacked_archive_is_judged_by_its_content(
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
    # From `git hash-object`.
    blob = "ce013625030ba8dba906f756967f9e9ca394464a"
    assert (
        Content(1, git_blob=blob).problem(TripleFile.named("toy", lambda: path.open("rb"), 0))
        is None
    )
    path.write_bytes(b"hellO\n")
    assert "git_blob should be" in str(
        Content(1, git_blob=blob).problem(TripleFile.named("toy", lambda: path.open("rb"), 0))
    )
    path.write_bytes("é€😀\r\n".encode())
    assert (
        Content(1, characters=4).problem(TripleFile.named("toy", lambda: path.open("rb"), 0))
        is None
    )
    assert (
        Content(1, characters=5).problem(TripleFile.named("toy", lambda: path.open("rb"), 0))
        == "characters should be 5, but is 4"
    )


@pytest.mark.parametrize("name", ["fb15k", "wn18", "fb15k-237", "wn18rr"])
def test_the_hashes_of_content_are_those_of_the_published_archives(
    name: str, shared_data: Path
) -> None:
    path = shared_data / f"{name}.tar.xz"
    assert file_sha256(path) == DATASETS[name].archive_sha256
    with split_files(path) as members:
        for split, content in DATASETS[name].files.items():
            assert content.problem(members[split][0]) is None

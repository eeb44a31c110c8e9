"""Graphs as files, the published sets where they are, and a small web server for downloads."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allneg.graph import Graph, read_graph
from allneg.recipe import Data

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Graph]:
    """Read a folder with the given contents: `read(train=b"a\\tr\\tb\\n", skip_bad_lines=1)`."""

    def written_and_read(
        train: bytes, valid: bytes | None = None, test: bytes | None = None, **settings: object
    ) -> Graph:
        ending = settings.pop("ending", "txt")
        folder = tmp_path / "toy"
        folder.mkdir(exist_ok=True)
        for split, content in (("train", train), ("valid", valid), ("test", test)):
            if content is not None:
                (folder / f"{split}.{ending}").write_bytes(content)
        return read_graph(folder, Data(**settings))  # type: ignore[arg-type]

    return written_and_read


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Path:
    if not (SHARED / "wn18rr.tar.xz").exists():
        pytest.skip("the published sets are not beside the repository (../shared/data)")
    monkeypatch.setenv("ALLNEG_DATA", str(SHARED))
    return SHARED


class Origin(http.server.ThreadingHTTPServer):
    """Serves `files` by path, with ranges; `cut` bytes at most an answer where it is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.cut: int | None = None
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

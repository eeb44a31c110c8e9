"""The service on a real socket: slow clients, many clients, and how it starts and ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from allneg.runs import Run

pytest.importorskip("fastapi", reason="the service needs allneg[serve]")
SRC = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Service:
    process: subprocess.Popen[str]
    port: int

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    @property
    def resident(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])


# Patience of seconds, so that the tests need little of it.
QUICK = "import allneg.serve.server as server; server.TIMEOUT = 1.0; "


@contextlib.contextmanager
def explored(folder: Path, *options: str, before: str = QUICK) -> Iterator[Service]:
    """`allneg explore` in a process of its own, on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-c", before + "from allneg.cli import main; main()",
         "explore", str(folder), "--no-browser", "--port", "0", "--device", "cpu", *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "explorer: http://127.0.0.1:" in line, line + process.stderr.read()
        yield Service(process, int(line.split(":")[3].partition("/")[0]))
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture(scope="module")
def service(toy_run: Run) -> Iterator[Service]:
    with explored(toy_run.folder) as found:
        yield found


def answer(held: socket.socket) -> http.client.HTTPResponse:
    """The answer to what was sent: its status and headers are there, its body can be read."""
    found = http.client.HTTPResponse(held)
    found.begin()
    return found


def closed_within(held: socket.socket, seconds: float) -> bool:
    held.settimeout(seconds)
    try:
        return held.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.battery(37)
def test_a_query_of_a_million_characters_is_refused_in_the_same_shape(service: Service) -> None:
    with service.connect() as held:
        with contextlib.suppress(ConnectionError):  # it need not read to the end
            held.sendall(b"GET /v1/entities?q=" + b"x" * 10**6 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        said = b""
        with contextlib.suppress(ConnectionError):
            while part := held.recv(65536):
                said += part
    if said:  # a reset may overtake the answer while the client is still sending
        head, _, body = said.partition(b"\r\n\r\n")
        assert head.split()[1] == b"413"
        assert b"nosniff" in head
        assert json.loads(body)["error"]["code"] == "too_large"
    assert service.get("/healthz")[0] == 200


@pytest.mark.battery(37)
def test_what_is_no_request_is_refused_in_the_same_shape(service: Service) -> None:
    with service.connect() as held:
        held.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        head, _, body = held.recv(65536).partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    assert b"content-security-policy" in head
    assert json.loads(body)["error"]["code"] == "bad_request"


@pytest.mark.battery(38)
def test_a_chunked_body_without_end_is_cut_off(service: Service) -> None:
    with service.connect() as held:
        held.sendall(
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        with contextlib.suppress(ConnectionError):
            for _ in range(20_000):
                held.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        with contextlib.suppress(ConnectionError):
            assert held.recv(65536).split()[1] == b"413"
    assert service.get("/healthz")[0] == 200


@pytest.mark.battery(38)
@pytest.mark.parametrize("path", [b"/static/../app.py", b"/static/%2e%2e/app.py", b"/..%5c..%5cx"])
def test_a_path_is_never_followed(service: Service, path: bytes) -> None:
    with service.connect() as held:
        held.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert held.recv(65536).split()[1] == b"404"


@pytest.mark.battery(39)
def test_a_client_that_says_nothing_or_dribbles_is_cut_off(service: Service) -> None:
    with service.connect() as silent, service.connect() as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):  # it may be cut off already
            for _ in range(4):
                time.sleep(0.2)
                slow.sendall(b"X-Slow: 1\r\n")
        assert closed_within(silent, 10)
        assert closed_within(slow, 10)
    assert service.get("/healthz")[0] == 200


@pytest.mark.battery(39)
def test_500_idle_connections_leave_room_for_others(service: Service) -> None:
    idle = []
    try:
        for _ in range(500):
            idle.append(service.connect())
        assert service.get("/v1/predict?head=France&relation=in")[0] == 200
    finally:
        for each in idle:
            each.close()


@pytest.mark.battery(39)
def test_a_client_that_leaves_mid_answer_harms_nobody(service: Service) -> None:
    for _ in range(30):
        with service.connect() as held:
            held.sendall(b"GET /v1/map HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert service.get("/v1/predict?head=France&relation=in")[0] == 200


@pytest.mark.battery(39)
def test_a_client_that_does_not_read_is_cut_off(service: Service) -> None:
    with service.connect() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = b"GET /static/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
        end = time.monotonic() + 15
        cut = False
        held.settimeout(2)
        while not cut and time.monotonic() < end:
            try:  # answers pile up unread until the service gives up
                held.sendall(request * 50)
            except TimeoutError:
                continue
            except ConnectionError:
                cut = True
        assert cut
    assert service.get("/healthz")[0] == 200


@pytest.mark.battery(39)
def test_50_parallel_predictions_are_answered_or_refused_and_memory_stays_flat(
    service: Service,
) -> None:
    expected = service.get("/v1/predict?head=France&relation=in")[1]
    answers = [each["entity"] for each in json.loads(expected)["answers"]]
    found: list[tuple[int, bytes]] = []

    def ask() -> None:
        found.append(service.get("/v1/predict?head=France&relation=in"))

    def wave() -> None:
        threads = [threading.Thread(target=ask) for _ in range(50)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    wave()
    wave()
    before = service.resident
    for _ in range(4):
        wave()
    assert len(found) == 300
    assert {status for status, _ in found} <= {200, 503}
    for status, body in found:
        if status == 200:
            assert [each["entity"] for each in json.loads(body)["answers"]] == answers
        else:
            assert json.loads(body)["error"]["code"] == "busy"
    assert sum(status == 200 for status, _ in found) >= 150
    assert service.resident - before < 20 << 20 >> 12  # pages: under 20 MiB


@pytest.mark.battery(39)
def test_too_many_requests_are_refused_as_busy(toy_run: Run, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    held_up = (
        "import pathlib, time; from allneg.serve.loaded_run import LoadedRun; "
        f"gate = pathlib.Path({str(gate)!r}); "
        "LoadedRun.entities = lambda *_: [time.sleep(0.02) for _ in iter(gate.exists, True)] and 0; "
        "import allneg.serve.workers as w; w.Workers.__init__.__defaults__ = (2, 3); "
    )
    with explored(toy_run.folder, before=held_up) as service:
        held = [service.connect() for _ in range(6)]
        for each in held:
            each.sendall(b"GET /v1/entities?q=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        refused: list[http.client.HTTPResponse] = []
        waiting = set(held)
        while len(refused) < 3:
            ready, _, _ = select.select(list(waiting), [], [], 20)
            assert ready, "nobody was refused"
            refused += [answer(each) for each in ready]
            waiting -= set(ready)
        gate.touch()
        answered = [answer(each) for each in waiting]
        assert [each.status for each in refused] == [503] * 3
        assert [each.status for each in answered] == [200] * 3
        assert refused[0].headers["retry-after"] == "1"
        assert json.loads(refused[0].read())["error"]["code"] == "busy"
        for each in held:
            each.close()


@pytest.mark.battery(39)
@pytest.mark.parametrize(
    "number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
def test_it_ends_within_ten_seconds_whatever_it_is_doing(
    toy_run: Run, number: int, code: int
) -> None:
    stuck = (
        "import time; from allneg.serve.loaded_run import LoadedRun; "
        "LoadedRun.entities = lambda *_: time.sleep(60); "
    )
    with explored(toy_run.folder, before=stuck) as service, service.connect() as idle:
        with service.connect() as busy:
            busy.sendall(b"GET /v1/entities?q=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.5)
            began = time.monotonic()
            service.process.send_signal(number)
            assert service.process.wait(timeout=20) == code
            assert time.monotonic() - began < 10
        assert closed_within(idle, 10)
        assert service.process.stderr is not None
        assert "Traceback" not in service.process.stderr.read()


@pytest.mark.battery(40)
def test_it_binds_loopback_alone_and_gives_no_server_header(service: Service) -> None:
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
    mine = [each for each in listening if int(each.split(":")[1], 16) == service.port]
    assert mine == [f"0100007F:{service.port:04X}"]
    with service.connect() as held:
        held.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        head = held.recv(65536).partition(b"\r\n\r\n")[0].lower()
    assert b"\r\nserver:" not in head
    assert b"content-security-policy: default-src 'self'" in head


@pytest.mark.battery(40)
def test_a_port_that_is_taken_is_a_mistake(service: Service, toy_run: Run) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "allneg", "explore", str(toy_run.folder), "--no-browser",
         "--port", str(service.port)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"port {service.port} on 127.0.0.1" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr

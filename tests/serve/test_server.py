"""The service on a real socket: slow clients, many clients, start and end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from allneg.runs import Run
from processes import start, wait_until

pytest.importorskip("fastapi", reason="the service needs allneg[serve]")
from allneg.serve.server import MAX_CONNECTIONS, STOP_SECONDS


@dataclass(frozen=True)
class Service:
    process: ForkServerProcess
    log: Path  # its stderr
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

    @property
    def n_open(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


# A short timeout, to make the tests fast.
QUICK = "import allneg.serve.server as server; server.TIMEOUT = 1.0; "


@contextlib.contextmanager
def explore(folder: Path, *options: str, before: str = QUICK) -> Iterator[Service]:
    """`allneg explore` in a process of its own, on a free port."""
    words = ["allneg", "explore", str(folder), "--no-browser", "--port", "0", "--device", "cpu"]
    code = before + f"import sys; sys.argv = {words + list(options)}; "
    with tempfile.NamedTemporaryFile() as file:
        log = Path(file.name)
        process = start(exec, code + "from allneg.cli import main; main()", {}, err=log)
        try:
            wait_until(lambda: "\n" in log.read_text(), process)
            line = log.read_text()
            assert "explorer: http://127.0.0.1:" in line, line
            yield Service(process, log, int(line.split(":")[3].partition("/")[0]))
        finally:
            process.kill()
            process.join()


@pytest.fixture(scope="module")
def service(toy_run: Run) -> Iterator[Service]:
    with explore(toy_run.folder) as found:
        yield found


def answer(held: socket.socket) -> http.client.HTTPResponse:
    """The response to the request that was sent; its body can be read."""
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
def test_a_query_of_a_million_characters_is_an_error_in_json(service: Service) -> None:
    with service.connect() as held:
        with contextlib.suppress(ConnectionError):  # the service need not read to the end
            held.sendall(b"GET /v1/entities?q=" + b"x" * 10**6 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        data = b""
        with contextlib.suppress(ConnectionError):
            while part := held.recv(65536):
                data += part
    if data:  # a reset may overtake the answer while the client is still sending
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.split()[1] == b"413"
        assert b"nosniff" in head
        assert json.loads(body)["error"]["code"] == "too_large"
    assert service.get("/healthz")[0] == 200


@pytest.mark.battery(37)
def test_an_invalid_request_is_an_error_in_json(service: Service) -> None:
    with service.connect() as held:
        held.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        head, _, body = held.recv(65536).partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    assert b"content-security-policy" in head
    assert json.loads(body)["error"]["code"] == "bad_request"


@pytest.mark.battery(38)
def test_an_endless_chunked_body_is_an_error(service: Service) -> None:
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
def test_a_silent_or_slow_client_is_disconnected(service: Service) -> None:
    with service.connect() as silent, service.connect() as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):  # it may be cut off already
            for _ in range(4):
                time.sleep(0.2)
                slow.sendall(b"X-Slow: 1\r\n")
        assert closed_within(silent, 10)
        assert closed_within(slow, 10)
    assert service.get("/healthz")[0] == 200


@contextlib.contextmanager
def burst(service: Service, n: int) -> Iterator[None]:
    """Many connections that are opened at the same time and ask nothing."""
    with contextlib.ExitStack() as held:
        for _ in range(n):
            one = held.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", service.port))
        yield


@pytest.mark.battery(61)
def test_in_a_burst_of_1000_connections_a_query_is_answered_and_256_are_held(
    service: Service,
) -> None:
    before = service.n_open
    with burst(service, 1000):
        assert service.get("/v1/predict?head=France&relation=in")[0] == 200
        assert service.n_open - before <= MAX_CONNECTIONS


@pytest.mark.battery(61)
def test_without_free_file_descriptors_a_query_is_answered_and_the_log_stays_small(
    toy_run: Run,
) -> None:
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); "
    with explore(toy_run.folder, before=few) as service:
        began = time.monotonic()
        with burst(service, 400):
            assert service.get("/v1/predict?head=France&relation=in")[0] == 200
        service.process.kill()
        service.process.join()
        log = service.log.read_text().splitlines()[1:]  # after the address
        assert set(log) == {"a connection was not accepted: Too many open files"}
        assert len(log) <= 1 + time.monotonic() - began, "one line per second"


@pytest.mark.battery(39)
def test_a_client_that_disconnects_early_does_no_harm(service: Service) -> None:
    for _ in range(30):
        with service.connect() as held:
            held.sendall(b"GET /v1/map HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert service.get("/v1/predict?head=France&relation=in")[0] == 200


@pytest.mark.battery(39)
def test_a_client_that_does_not_read_is_disconnected(service: Service) -> None:
    with service.connect() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = b"GET /static/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
        end = time.monotonic() + 60
        cut = False
        held.settimeout(2)
        while not cut and time.monotonic() < end:
            try:  # unread answers pile up until the service closes the connection
                held.sendall(request * 50)
            except TimeoutError:
                continue
            except ConnectionError:
                cut = True
        assert cut
    assert service.get("/healthz")[0] == 200


@pytest.mark.battery(39)
def test_50_parallel_predictions_are_answered_or_busy_and_memory_stays_constant(
    service: Service,
) -> None:
    expected = service.get("/v1/predict?head=France&relation=in")[1]
    answers = [item["entity"] for item in json.loads(expected)["answers"]]
    found: list[tuple[int, bytes]] = []

    def ask() -> None:
        found.append(service.get("/v1/predict?head=France&relation=in"))

    def wave() -> None:
        threads = [threading.Thread(target=ask) for _ in range(50)]
        for item in threads:
            item.start()
        for item in threads:
            item.join()

    wave()
    wave()
    before = service.resident
    for _ in range(4):
        wave()
    assert len(found) == 300
    assert {status for status, _ in found} <= {200, 503}
    for status, body in found:
        if status == 200:
            assert [item["entity"] for item in json.loads(body)["answers"]] == answers
        else:
            assert json.loads(body)["error"]["code"] == "busy"
    assert sum(status == 200 for status, _ in found) >= 150
    assert service.resident - before < 20 << 20 >> 12  # pages: under 20 MiB


@pytest.mark.battery(39)
def test_too_many_requests_are_busy(toy_run: Run, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    blocked = (
        "import pathlib, time; from allneg.serve.loaded_run import LoadedRun as Run; "
        f"gate = pathlib.Path({str(gate)!r}); "
        "Run.entities = lambda *_: [time.sleep(0.02) for _ in iter(gate.exists, True)] and 0; "
        "import allneg.serve.workers as w; w.Workers.__init__.__defaults__ = (2, 3); "
    )
    with explore(toy_run.folder, before=blocked) as service:
        held = [service.connect() for _ in range(6)]
        for item in held:
            item.sendall(b"GET /v1/entities?q=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        refused: list[http.client.HTTPResponse] = []
        waiting = set(held)
        while len(refused) < 3:
            ready, _, _ = select.select(list(waiting), [], [], 20)
            assert ready, "no request was rejected"
            refused += [answer(item) for item in ready]
            waiting -= set(ready)
        gate.touch()
        answered = [answer(item) for item in waiting]
        assert [item.status for item in refused] == [503] * 3
        assert [item.status for item in answered] == [200] * 3
        assert refused[0].headers["retry-after"] == "1"
        assert json.loads(refused[0].read())["error"]["code"] == "busy"
        for item in held:
            item.close()


@pytest.mark.battery(39)
@pytest.mark.parametrize(
    "number, code, seconds", [(signal.SIGTERM, 143, STOP_SECONDS), (signal.SIGINT, 130, 1)]
)
def test_a_signal_ends_it_within_ten_seconds_during_a_long_request(
    toy_run: Run, number: int, code: int, seconds: int
) -> None:
    stuck = (
        f"import allneg.serve.server as server; server.STOP_SECONDS = {seconds}; "
        "import time; from allneg.serve.loaded_run import LoadedRun; "
        "LoadedRun.entities = lambda *_: time.sleep(60); "
    )
    with explore(toy_run.folder, before=stuck) as service, service.connect() as idle:
        with service.connect() as busy:
            busy.sendall(b"GET /v1/entities?q=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.5)
            began = time.monotonic()
            os.kill(service.process.pid, number)
            service.process.join(20)
            assert service.process.exitcode == code
            assert time.monotonic() - began < 10
        assert closed_within(idle, 10)
        assert "Traceback" not in service.log.read_text()


@pytest.mark.battery(40)
def test_it_listens_on_loopback_only_and_sends_no_server_header(service: Service) -> None:
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
    mine = [item for item in listening if int(item.split(":")[1], 16) == service.port]
    assert mine == [f"0100007F:{service.port:04X}"]
    with service.connect() as held:
        held.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        head = held.recv(65536).partition(b"\r\n\r\n")[0].lower()
    assert b"\r\nserver:" not in head
    assert b"content-security-policy: default-src 'self'" in head

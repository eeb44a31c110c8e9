"""The server: uvicorn, with time limits for slow clients."""

import asyncio
import gc
import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from allneg.errors import UsageError
from allneg.serve.errors import RAW_HEADERS, ApiError

MAX_CONNECTIONS = 256
MAX_HEADER = 16 << 10  # bytes of a request line and its headers
TIMEOUT = 10.0  # seconds for sending a request or reading a response
STOP_SECONDS = 3  # for requests that are being answered when the service stops


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; `UsageError` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        reason = str(getattr(error, "strerror", error)).partition(" (")[0]
        text = f"port {port} on {host}: {reason}; choose another --port or --host"
        raise UsageError(text) from None
    # Accepted connections inherit it. Without it a response takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Answer requests until a signal arrives; its own handler runs afterwards."""
    settings = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        log_level="critical",  # the app logs its own errors
        server_header=False,
        timeout_keep_alive=int(TIMEOUT),
        timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=MAX_HEADER,
    )
    # The loaded runs never become garbage: without them a collection does not delay answers.
    gc.collect()
    gc.freeze()
    asyncio.run(uvicorn.Server(settings).serve([listener]))


class Connection(H11Protocol):
    """A connection with limits that uvicorn lacks.

    uvicorn has a timeout only between requests, and `limit_concurrency` also counts idle
    connections: enough of them would keep everybody else out.
    """

    _idle_since = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()
        if len(self.connections) > MAX_CONNECTIONS:
            idle = [c for c in self.connections if isinstance(c, Connection) and c._is_idle]
            min(idle, key=lambda connection: connection._idle_since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._start_timer()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        error = ApiError("bad_request", "this is not a valid HTTP request")
        if len(self.conn.trailing_data[0]) > MAX_HEADER:
            error = ApiError("too_large", f"the request has more than {MAX_HEADER} bytes")
        response = error.response()
        headers = dict([*response.raw_headers, *RAW_HEADERS, (b"connection", b"close")])
        lines = [f"HTTP/1.1 {response.status_code} Error".encode()]
        lines += [name + b": " + value for name, value in headers.items()]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(response.body)]))
        self.transport.close()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._idle_since = self.loop.time()
        self._timer = self.loop.call_later(TIMEOUT, self._on_timeout)

    def _on_timeout(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # the client does not read the response
        elif self._is_idle:
            self.transport.close()
        else:
            self._start_timer()  # the answer is being computed

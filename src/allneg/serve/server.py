"""The server: errors in one JSON form, checks of every request, and limits for slow clients."""

import asyncio
import gc
import logging
import re
import socket
from collections.abc import Iterable, Sequence
from typing import cast

import uvicorn
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from allneg.errors import DataError, Diverged, UsageError, printable
from allneg.serve.schemas import Error, JsonResponse

STATUS = {
    "bad_request": 400,
    "bad_host": 400,
    "unknown_entity": 404,
    "unknown_relation": 404,
    "unknown_model": 404,
    "not_found": 404,
    "bad_method": 405,
    "too_large": 413,
    "bad_parameter": 422,
    "internal": 500,
    "busy": 503,
}
_ERROR_HEADERS = {
    "bad_method": {"allow": "GET"},
    "busy": {"retry-after": "1"},
    "too_large": {"connection": "close"},  # the rest of the request is not read
}

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_NAME = 4096  # characters
MAX_QUERY = 56 << 10  # bytes; a character takes up to 12
MAX_BODY = 1 << 10  # bytes
MAX_CONNECTIONS = 256
BACKLOG = 128  # connections that wait to be accepted
MAX_HEADER = 64 << 10  # bytes of a request line and its headers
TIMEOUT = 10.0  # seconds for sending a request or reading a response
STOP_SECONDS = 3  # for requests that are being answered when the service stops
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::\d{1,5})?")  # a name and an optional port

_log = logging.getLogger("allneg.serve")


class ApiError(Exception):
    """A request without an answer; `code` is a key of STATUS."""

    def __init__(self, code: str, message: str, near: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.near = code, message, list(near)

    def response(self) -> Response:
        content = {"error": Error(self.code, self.message, self.near)}
        return JsonResponse(content, STATUS[self.code], _ERROR_HEADERS.get(self.code))


async def error_response(_: Request, error: Exception) -> Response:
    """The response to any error. The terminal shows the details of an unexpected one."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        error = ApiError("bad_method", "only GET requests are answered here")
    elif isinstance(error, HTTPException):
        error = ApiError("not_found", "there is no such page")
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        error = ApiError(
            "bad_parameter", f"the parameter {first['loc'][-1]} is wrong: {first['msg']}"
        )
    elif isinstance(error, UsageError | DataError):
        error = ApiError("bad_parameter", str(error))
    elif isinstance(error, Diverged):
        error = ApiError("internal", str(error))
    elif not isinstance(error, ApiError):
        _log.error("a request failed", exc_info=error)
        error = ApiError("internal", "an unexpected error; the service's terminal shows it")
    return error.response()


class RequestChecks:
    """An app that sees only requests for its own hosts, within the limits of size.

    Starlette's TrustedHostMiddleware and RequestBodyLimitMiddleware answer in plain text, and the
    latter checks a body only when the app reads it, which this app never does.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self.app = app
        self.hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *RAW_HEADERS]}
            await send(message)

        error = self._check(scope, Headers(scope=scope)) if scope["type"] == "http" else None
        app = self.app if error is None else error.response()
        await app(scope, receive, send_with_headers)

    def _check(self, scope: Scope, headers: Headers) -> ApiError | None:
        host = headers.get("host", "").lower()
        match = _HOST.fullmatch(host)
        if match is None or match[1] not in self.hosts:
            text = f"the host {printable(host)} is not served here; allow it with `--allow-host`"
            return ApiError("bad_host", text)
        if scope["path"].endswith("\n"):  # a route of Starlette also matches with a line feed
            return ApiError("not_found", "there is no such page")
        if len(scope["query_string"]) > MAX_QUERY:
            return ApiError("too_large", f"the query string has more than {MAX_QUERY} bytes")
        if "transfer-encoding" in headers or int(headers.get("content-length", 0)) > MAX_BODY:
            return ApiError("too_large", f"the body may have more than {MAX_BODY} bytes")
        return None


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; `UsageError` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
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
    asyncio.run(Server(settings).serve([listener]))


class Server(uvicorn.Server):
    """A server that accepts connections one by one and holds at most MAX_CONNECTIONS.

    asyncio accepts all that wait at once, before it can close any. With no file descriptor left,
    it also logs an error for each of them. uvicorn's `limit_concurrency` counts idle connections:
    enough of them would keep everybody else out.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        [listener] = sockets or []
        self._accepting = asyncio.create_task(self._accept_all(listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._accepting.cancel()
        await super().shutdown(sockets)

    async def _accept_all(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        next_log = 0.0
        while True:
            while len(self.server_state.connections) >= MAX_CONNECTIONS:
                await self._make_room()
            try:
                client, _ = await loop.sock_accept(listener)
                await loop.connect_accepted_socket(self._connection, client)
            except OSError as error:
                if loop.time() >= next_log:
                    _log.warning("a connection was not accepted: %s", error.strerror)
                    next_log = loop.time() + 1
                await self._make_room()

    def _connection(self) -> "Connection":
        return Connection(self.config, self.server_state, self.lifespan.state)

    async def _make_room(self) -> None:
        """Close the connection that has been idle for longest."""
        held = cast(set[Connection], self.server_state.connections)
        idle = [connection for connection in held if connection.is_idle]
        if idle:
            min(idle, key=lambda connection: connection.idle_since).transport.abort()
        await asyncio.sleep(0 if idle else 0.01)


class Connection(H11Protocol):
    """A connection with timeouts that uvicorn lacks: it has one only between requests."""

    idle_since = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

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
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.idle_since = self.loop.time()
        self._timer = self.loop.call_later(TIMEOUT, self._on_timeout)

    def _on_timeout(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # the client does not read the response
        elif self.is_idle:
            self.transport.close()
        else:
            self._start_timer()  # the answer is being computed

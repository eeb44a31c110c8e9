"""The server: it listens, and closes connections that nothing comes of."""

from __future__ import annotations

import asyncio
import gc
import socket

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from allneg.serving.guard import App, answer_of, with_ours
from allneg.serving.refusal import Refusal

_MOST_CONNECTIONS = 256
_MOST_HEADER = 16 << 10  # bytes of a request's line and headers
_PATIENCE = 10.0  # seconds for a request's headers, or for taking an answer


def serve(app: App, listener: socket.socket) -> None:
    """Answer until a signal ends it; that signal's own handler then has the last word."""
    settings = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(_PATIENCE),
        timeout_graceful_shutdown=4,
        h11_max_incomplete_event_size=_MOST_HEADER,
    )
    # What was loaded stays: looking through it for garbage would hold up answers now and then.
    gc.collect()
    gc.freeze()
    asyncio.run(uvicorn.Server(settings).serve([listener]))


class _Connection(H11Protocol):
    """A connection that is closed when nothing comes of it, so that others find room."""

    _since = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._wind()
        if len(self.connections) > _MOST_CONNECTIONS:
            others = [each for each in self.connections if isinstance(each, _Connection)]
            idle = [each for each in others if each._idle]
            min(idle, key=lambda each: each._since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        self._wind()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        refusal = Refusal("bad_request", "this is not a request that can be read")
        if len(self.conn.trailing_data[0]) > _MOST_HEADER:
            refusal = Refusal("too_large", f"a request of more than {_MOST_HEADER} bytes")
        status, headers, body = answer_of(refusal)
        lines = [f"HTTP/1.1 {status} Refused".encode(), b"connection: close"]
        lines += [name + b": " + value for name, value in with_ours(headers)]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wind(self) -> None:
        """Look again after a while: the next request should be there, or the answer taken."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(_PATIENCE, self._look)

    def _look(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # nobody reads the answer
        elif self._idle:
            self.transport.close()
        else:
            self._wind()  # an answer is being worked out

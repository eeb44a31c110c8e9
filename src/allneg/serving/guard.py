"""What every request passes first: its host, its size, and how many are under way.

Plain ASGI, so that it holds for every address, also those the web library answers by itself.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from allneg.errors import Diverged, printable
from allneg.serving.refusal import Refusal
from allneg.serving.shapes import to_json

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MOST_QUERY = 4 << 10
MOST_BODY = 1 << 10
MOST_REQUESTS = 100
_BODY_SECONDS = 5.0
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}

_OURS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::\d{1,5})?")  # a name and perhaps a port

_log = logging.getLogger("allneg.serving")


class Guard:
    """An app behind a guard; whatever goes wrong inside becomes one shape of error."""

    def __init__(self, app: App, hosts: Iterable[str]) -> None:
        self.app = app
        self.hosts = {host.lower() for host in hosts}
        self._under_way = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return  # no websockets here
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": with_ours(message.get("headers", []))}
            await send(message)

        self._under_way += 1
        try:
            if self._under_way > MOST_REQUESTS:
                raise Refusal("busy", "too many requests are under way; ask again in a second")
            self._check_host(scope)
            if len(scope["query_string"]) > MOST_QUERY:
                raise Refusal("too_large", f"the query string is longer than {MOST_QUERY} bytes")
            body = await _body(scope, receive)
            await self.app(scope, body, send_with_headers)
        except asyncio.CancelledError:
            if not started:
                await _send(Refusal("busy", "the service is stopping"), send_with_headers)
        except Exception as error:
            if not started:
                await _send(refusal_of(error), send_with_headers)
        finally:
            self._under_way -= 1

    def _check_host(self, scope: MutableMapping[str, Any]) -> None:
        given = [value for name, value in scope["headers"] if name == b"host"]
        text = given[0].decode("latin-1").lower() if len(given) == 1 else ""
        match = _HOST.fullmatch(text)
        if match is None or match[1] not in self.hosts:
            raise Refusal(
                "bad_host",
                f"the host {printable(text)} is not served here; `allneg explore --allow-host` "
                "names one that is",
            )


def refusal_of(error: Exception) -> Refusal:
    """What a client is told of an error; the terminal gets the whole story of an unknown one."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, Diverged):
        return Refusal("internal", str(error))
    _log.error("a request failed", exc_info=error)
    return Refusal("internal", "something went wrong; the service's terminal says what")


def answer_of(refusal: Refusal) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body of a refusal."""
    body = to_json(refusal.to_json())
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if refusal.code == "busy":
        headers.append((b"retry-after", b"1"))
    if refusal.code == "bad_method":
        headers.append((b"allow", b"GET"))
    return refusal.status, headers, body


async def _send(refusal: Refusal, send: Send) -> None:
    status, headers, body = answer_of(refusal)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(scope: MutableMapping[str, Any], receive: Receive) -> Receive:
    """The request's whole body, which is small or refused, to be received again."""
    fields = dict(scope["headers"])
    if b"content-length" not in fields and b"transfer-encoding" not in fields:
        return receive
    too_large = Refusal("too_large", f"a body of more than {MOST_BODY} bytes is not taken")
    length = fields.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 9 or int(length) > MOST_BODY:
        raise too_large
    body, more = b"", True
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while more:
                message = await receive()
                body, more = body + message.get("body", b""), message.get("more_body", False)
                if len(body) > MOST_BODY:
                    raise too_large
    except TimeoutError:
        raise Refusal("too_large", "the body did not come in time") from None
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return whole.pop() if whole else await receive()

    return again


def with_ours(
    headers: Iterable[tuple[bytes, bytes]],
) -> list[tuple[bytes, bytes]]:
    return [*(each for each in headers if each[0].lower() != b"server"), *_OURS]

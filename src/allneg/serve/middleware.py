"""Checks of every request before the app sees it, and headers of every response.

Starlette's TrustedHostMiddleware and RequestBodyLimitMiddleware answer in plain text, and the
latter checks a body only when the app reads it, which this app never does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from allneg.errors import printable
from allneg.serve.errors import ApiError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_QUERY = 4 << 10  # bytes
MAX_BODY = 1 << 10  # bytes
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


class RequestChecks:
    """An app that sees only requests for its own hosts, within the limits of size."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self.app = app
        self.hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *RAW_HEADERS]}
            await send(message)

        is_http = scope["type"] == "http"
        error = self._check(Headers(scope=scope), scope["query_string"]) if is_http else None
        app = self.app if error is None else error.response()
        await app(scope, receive, send_with_headers)

    def _check(self, headers: Headers, query: bytes) -> ApiError | None:
        host = headers.get("host", "").lower()
        match = _HOST.fullmatch(host)
        if match is None or match[1] not in self.hosts:
            text = f"the host {printable(host)} is not served here; allow it with `--allow-host`"
            return ApiError("bad_host", text)
        if len(query) > MAX_QUERY:
            return ApiError("too_large", f"the query string has more than {MAX_QUERY} bytes")
        if "transfer-encoding" in headers or int(headers.get("content-length", 0)) > MAX_BODY:
            return ApiError("too_large", f"the body may have more than {MAX_BODY} bytes")
        return None

"""Errors of the service, all in one JSON form, and the checks of every request."""

import logging
import re
from collections.abc import Iterable, Sequence

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from allneg.errors import Diverged, printable
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
        error = ApiError("bad_parameter", f"{first['loc'][-1]}: {first['msg']}")
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

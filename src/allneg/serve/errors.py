"""Errors of the service: every one has the same JSON form."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from allneg.errors import Diverged
from allneg.serve.schemas import Error, Failure, JsonResponse

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
_HEADERS = {
    "bad_method": {"allow": "GET"},
    "busy": {"retry-after": "1"},
    "too_large": {"connection": "close"},  # the rest of the request is not read
}

_log = logging.getLogger("allneg.serve")


class ApiError(Exception):
    """A request without an answer; `code` is a key of STATUS."""

    def __init__(self, code: str, message: str, near: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.near = code, message, list(near)

    def response(self) -> Response:
        failure = Failure(Error(self.code, self.message, self.near))
        return JsonResponse(failure, STATUS[self.code], _HEADERS.get(self.code))


async def error_response(_: Request, error: Exception) -> Response:
    """The response to any error. The terminal shows the details of an unexpected one."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        error = ApiError("bad_method", "only GET requests are answered here")
    elif isinstance(error, HTTPException):
        error = ApiError("not_found", "there is no such page")
    elif isinstance(error, Diverged):
        error = ApiError("internal", str(error))
    elif not isinstance(error, ApiError):
        _log.error("a request failed", exc_info=error)
        error = ApiError("internal", "an unexpected error; the service's terminal shows it")
    return error.response()

"""What the service says when it does not answer: one shape for every mistake."""

from __future__ import annotations

from collections.abc import Sequence

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


class Refusal(Exception):
    """A query that gets no answer; `code` is one of STATUS."""

    def __init__(self, code: str, message: str, near: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.near = code, message, list(near)

    @property
    def status(self) -> int:
        return STATUS[self.code]

    def to_json(self) -> dict[str, object]:
        return {"error": {"code": self.code, "message": self.message, "near": self.near}}

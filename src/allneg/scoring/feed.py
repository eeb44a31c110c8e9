"""Rows on their way between the host's memory and a device, while others are compared there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor

_PIECE = 1 << 18  # rows
Span: TypeAlias = tuple[int, int]  # rows from … up to …


def fed(rows: Tensor, spans: Sequence[Span], device: torch.device) -> Iterator[Tensor]:
    """The rows of each span on `device`, until the next ones are asked for.

    Rows that lie elsewhere come through two buffers: the next span is on its way while one is
    used.
    """
    if not is_elsewhere(rows, device):
        yield from (rows[start:stop] for start, stop in spans)
        return
    widest = max(stop - start for start, stop in spans)
    buffers = [
        torch.empty(widest, rows.shape[1], dtype=rows.dtype, device=device) for _ in spans[:2]
    ]
    try:
        _send(buffers[0], rows, spans[0])
        for number, (start, stop) in enumerate(spans):
            _wait(device)  # for this span, and not yet for the next
            if number + 1 < len(spans):
                _send(buffers[(number + 1) % 2], rows, spans[number + 1])
            yield buffers[number % 2][: stop - start]
    finally:
        _wait(device)  # nobody else may have a buffer before it is written


def pieces(rows: Tensor, device: torch.device) -> Iterator[Tensor]:
    """All rows on `device`: in one piece, or as `fed` where they travel."""
    size = _PIECE if is_elsewhere(rows, device) else max(1, len(rows))
    spans = [(start, min(start + size, len(rows))) for start in range(0, len(rows), size)]
    return fed(rows, spans or [(0, 0)], device)


class Returned:
    """A tensor like `rows`, beside them, that blocks of rows come back into from `device`."""

    def __init__(self, rows: Tensor, device: torch.device) -> None:
        self._device = device
        self._coming: list[torch.cuda.Event] = []
        # Only from and to pinned memory does a copy run beside everything else.
        pinned = is_elsewhere(rows, device) and device.type == "cuda"
        self._out = torch.empty_like(rows, pin_memory=pinned)

    def put(self, start: int, some: Tensor) -> Tensor:
        """Begin to copy rows to their place, which begins at `start`; that place."""
        out = self._out[start : start + len(some)]
        if some.device == out.device:
            return out.copy_(some)
        back = _streams(self._device)[1]
        back.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(back):
            out.copy_(some, non_blocking=True)
        some.record_stream(back)
        self._coming.append(back.record_event())
        if len(self._coming) > 2:
            # A device may be far ahead of the copies, and would hold all that are to come.
            self._coming.pop(0).synchronize()
        return out

    def whole(self) -> Tensor:
        """The tensor, once everything is there."""
        for event in self._coming:
            event.synchronize()
        return self._out


def is_elsewhere(rows: Tensor, device: torch.device) -> bool:
    """Must rows travel to be used on `device`?"""
    return rows.device.type != device.type


def _send(buffer: Tensor, rows: Tensor, span: Span) -> None:
    """Begin to copy a span, once whoever used the buffer before has done."""
    start, stop = span
    with contextlib.ExitStack() as stack:
        if buffer.device.type == "cuda":
            there = _streams(buffer.device)[0]
            there.wait_stream(torch.cuda.current_stream(buffer.device))
            stack.enter_context(torch.cuda.stream(there))
        buffer[: stop - start].copy_(rows[start:stop], non_blocking=True)


def _wait(device: torch.device) -> None:
    """Let what follows on the device wait for all copies that were begun."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).wait_stream(_streams(device)[0])


def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """One for copies to the device, one for copies back: they run at the same time."""
    # "cuda" is the card "cuda:0", say, and has to have its streams, or nobody waits for a copy.
    return _pair(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _pair(card: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    return torch.cuda.Stream(card), torch.cuda.Stream(card)

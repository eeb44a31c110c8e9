"""Copies blocks of rows between host memory and a device while other blocks are compared."""

import contextlib
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

_BLOCK = 1 << 18  # rows


def stream(rows: Tensor, size: int, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """First rows of blocks of `size` rows, and the blocks on `device`, valid until the next.

    They come through two buffers: the next block is copied while one is in use.
    """
    blocks = rows.split(size)
    buffers = [torch.empty_like(blocks[0], device=device) for _ in blocks[:2]]
    try:
        _send(buffers[0], blocks[0])
        for number, block in enumerate(blocks):
            _wait(device)  # for this block, and not yet for the next
            if number + 1 < len(blocks):
                _send(buffers[(number + 1) % 2], blocks[number + 1])
            yield number * size, buffers[number % 2][: len(block)]
    finally:
        _wait(device)  # a buffer must not be reused before its copy is done


def all_rows(rows: Tensor, device: torch.device) -> Iterator[Tensor]:
    """All rows on `device`: in one block, or streamed from host memory."""
    if not is_elsewhere(rows, device):
        yield rows
        return
    for _, block in stream(rows, _BLOCK, device):
        yield block


class GradientBlocks:
    """The gradient of `rows`, in the same kind of memory, from blocks on `device`."""

    def __init__(self, rows: Tensor, device: torch.device) -> None:
        self._device = device
        self._copies: list[torch.cuda.Event] = []
        # Only copies to and from pinned memory run in parallel with other work.
        pinned = is_elsewhere(rows, device) and device.type == "cuda"
        self._out = torch.empty_like(rows, pin_memory=pinned)

    def write(self, start: int, block: Tensor) -> Tensor:
        """Start to copy a block to its position from `start` on; returns that part."""
        out = self._out[start : start + len(block)]
        if block.device == out.device:
            return out.copy_(block)
        back = _streams(self._device)[1]
        back.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(back):
            out.copy_(block, non_blocking=True)
        block.record_stream(back)
        self._copies.append(back.record_event())
        if len(self._copies) > 2:
            # Without this limit, the device could compute far ahead and hold all blocks at once.
            self._copies.pop(0).synchronize()
        return out

    def whole(self) -> Tensor:
        """The gradient, once every block has arrived."""
        for event in self._copies:
            event.synchronize()
        return self._out


def is_elsewhere(rows: Tensor, device: torch.device) -> bool:
    """Whether rows must be copied to be used on `device`."""
    return rows.device.type != device.type


def _send(buffer: Tensor, block: Tensor) -> None:
    """Start to copy a block, once the earlier use of the buffer is done."""
    with contextlib.ExitStack() as stack:
        if buffer.device.type == "cuda":
            copies = _streams(buffer.device)[0]
            copies.wait_stream(torch.cuda.current_stream(buffer.device))
            stack.enter_context(torch.cuda.stream(copies))
        buffer[: len(block)].copy_(block, non_blocking=True)


def _wait(device: torch.device) -> None:
    """Let what follows on the device wait for all copies that have started."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).wait_stream(_streams(device)[0])


def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """One for copies to the device, one for copies back: they run at the same time."""
    # "cuda" and "cuda:0" must share their streams, so that copies are waited for.
    return _pair(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _pair(card: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    return torch.cuda.Stream(card), torch.cuda.Stream(card)

"""Rows arrive block by block through two buffers, and gradients are put together again."""

from __future__ import annotations

import pytest
import torch

from allneg.scoring import streaming
from allneg.scoring.streaming import GradientBlocks, all_rows, stream

CPU = torch.device("cpu")
ROWS = torch.arange(36.0).view(12, 3)


@pytest.mark.parametrize("size", [1, 4, 5, 12, 20])
def test_blocks_cover_the_rows_through_two_buffers(size: int) -> None:
    buffers, covered = [], 0
    for start, block in stream(ROWS, size, CPU):
        assert start == covered
        assert block.equal(ROWS[start : start + size])
        covered += len(block)
        buffers.append(block.data_ptr())
    assert covered == 12
    assert set(buffers[::2]) == {buffers[0]}
    assert len(set(buffers)) == min(2, len(buffers))
    assert ROWS.data_ptr() not in buffers


def test_all_rows_come_at_once_from_the_same_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [block.data_ptr() for block in all_rows(ROWS, CPU)] == [ROWS.data_ptr()]
    monkeypatch.setattr(streaming, "is_elsewhere", lambda rows, device: True)
    monkeypatch.setattr(streaming, "_BLOCK", 5)
    blocks = [block.clone() for block in all_rows(ROWS, CPU)]
    assert [len(block) for block in blocks] == [5, 5, 2]
    assert torch.cat(blocks).equal(ROWS)


def test_gradient_blocks_are_written_to_their_positions() -> None:
    gradient = GradientBlocks(ROWS, CPU)
    for start in (8, 4, 0):
        part = gradient.write(start, ROWS[start : start + 4] + 1)
        assert part.equal(ROWS[start : start + 4] + 1)
    assert gradient.whole().equal(ROWS + 1)


def test_both_names_of_a_gpu_share_their_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy that was started for `cuda:1` must be found for `cuda`."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "Stream", lambda index: object())
    streaming._pair.cache_clear()
    try:
        to_device, back = streaming._streams(torch.device("cuda"))
        assert to_device is not back
        assert streaming._streams(torch.device("cuda:1")) == (to_device, back)
        assert streaming._streams(torch.device("cuda:0")) != (to_device, back)
    finally:
        streaming._pair.cache_clear()


@pytest.mark.gpu
@pytest.mark.parametrize("lags", [False, True])
def test_rows_go_to_a_gpu_and_back(lags: bool) -> None:
    """Every copy waits for the device, every use for its copy, every return for its use."""
    device = torch.device("cuda")
    busy = torch.randn(4096, 4096, device=device)
    for _ in range(3):
        rows = torch.randn(100_000, 64).pin_memory()
        gradient = GradientBlocks(rows, device)
        for start, block in stream(rows, 6250, device):
            assert block.device.type == "cuda"
            for _ in range(4 if lags else 0):
                busy @ busy
            gradient.write(start, block * 2)
        whole = gradient.whole()
        assert whole.is_pinned()
        assert whole.equal(rows * 2)

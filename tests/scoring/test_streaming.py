"""Rows come a span at a time through two buffers, and gradients go back to their places."""

from __future__ import annotations

import pytest
import torch

from allneg.scoring import feed
from allneg.scoring.feed import Returned, fed

CPU = torch.device("cpu")
SPANS = [(0, 4), (4, 8), (8, 11), (11, 12)]
ROWS = torch.arange(36.0).view(12, 3)


@pytest.mark.parametrize("away", [True, False])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_each_span_is_there_until_the_next_is_asked_for(
    away: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "is_elsewhere", lambda rows, device: away)
    seen = 0
    for (start, stop), some in zip(SPANS, fed(ROWS, SPANS[:count], CPU), strict=False):
        assert some.equal(ROWS[start:stop])
        assert (some.data_ptr() == ROWS[start:stop].data_ptr()) is not away
        seen += 1
    assert seen == count


def test_what_travels_goes_through_two_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "is_elsewhere", lambda rows, device: True)
    places = [some.data_ptr() for some in fed(ROWS, SPANS, CPU)]
    assert places[0] == places[2] != places[1] == places[3]


def test_blocks_come_back_to_their_places() -> None:
    returned = Returned(ROWS, CPU)
    for start, stop in reversed(SPANS):
        returned.put(start, ROWS[start:stop] + 1)
    assert returned.whole().equal(ROWS + 1)


def test_a_card_has_one_pair_of_streams_by_either_of_its_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who waits for a copy as `cuda` must find it where it was begun as `cuda:1`."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "Stream", lambda card: object())
    feed._pair.cache_clear()
    try:
        there, back = feed._streams(torch.device("cuda"))
        assert there is not back
        assert feed._streams(torch.device("cuda:1")) == (there, back)
        assert feed._streams(torch.device("cuda:0")) != (there, back)
    finally:
        feed._pair.cache_clear()


@pytest.mark.gpu
def test_rows_go_to_a_gpu_and_come_back() -> None:
    device = torch.device("cuda")
    rows = torch.randn(100_000, 64).pin_memory()
    spans = [(start, start + 6250) for start in range(0, 100_000, 6250)]
    returned = Returned(rows, device)
    for (start, _), some in zip(spans, fed(rows, spans, device), strict=True):
        assert some.device.type == "cuda"
        returned.put(start, (some @ torch.eye(64, device=device)) * 2)
    whole = returned.whole()
    assert whole.is_pinned()
    torch.testing.assert_close(whole, rows * 2, rtol=1e-2, atol=1e-2)  # tf32, perhaps


@pytest.mark.gpu
def test_rows_come_in_time_to_a_gpu_that_lags() -> None:
    """Every copy has to wait for the device, every use for its copy, every return for its use."""
    device = torch.device("cuda")
    busy = torch.randn(4096, 4096, device=device)
    spans = [(start, start + 6250) for start in range(0, 100_000, 6250)]
    for _ in range(3):
        rows = torch.randn(100_000, 64).pin_memory()
        returned = Returned(rows, device)
        for (start, _), some in zip(spans, fed(rows, spans, device), strict=True):
            for _ in range(4):
                busy @ busy
            returned.put(start, some * 2)
        assert returned.whole().equal(rows * 2)

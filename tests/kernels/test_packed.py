from __future__ import annotations

import pytest
import torch

from allneg.kernels import dot
from allneg.kernels import packed as module
from allneg.kernels.packed import can_pack, packed

needs_onednn = pytest.mark.skipif(not can_pack(), reason="no oneDNN for this processor")


@needs_onednn
@pytest.mark.parametrize(
    "b, n, w", [(0, 5, 3), (1, 1, 1), (3, 2050, 33), (8, 100, 128), (65, 7, 5)]
)
def test_a_packed_table_is_no_less_exact_than_arithmetic_in_order(b: int, n: int, w: int) -> None:
    generator = torch.Generator().manual_seed(0)
    query, table = torch.randn(b, w, generator=generator), torch.randn(n, w, generator=generator)
    truth = query.double() @ table.double().T
    # Each of w products and sums may round once.
    allowed = w * torch.finfo(torch.float32).eps * (query.abs().double() @ table.abs().double().T)
    assert ((dot(query, packed(table)) - truth).abs() <= allowed).all()


@needs_onednn
@pytest.mark.parametrize("n, w", [(12, 8), (2189, 200), (1001, 33)])
def test_a_score_is_the_same_however_many_queries_come_together(n: int, w: int) -> None:
    generator = torch.Generator().manual_seed(1)
    table = packed(torch.randn(n, w, generator=generator))
    query = torch.randn(33, w, generator=generator)
    alone = torch.cat([dot(row.unsqueeze(0), table) for row in query])
    for b in (2, 3, 8, 33):
        assert torch.equal(dot(query[:b], table), alone[:b])


@needs_onednn
def test_a_table_that_is_not_contiguous_is_packed_as_it_reads() -> None:
    table = torch.arange(12.0).reshape(3, 4).T
    assert torch.equal(dot(torch.eye(3), packed(table)), table.T)


def test_what_cannot_be_packed_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packed(torch.zeros(3, 2, dtype=torch.float64)) is None
    assert packed(torch.zeros(0, 2)) is None
    monkeypatch.setattr(module, "_MOST", 7)
    assert packed(torch.zeros(1, 2)) is None

"""ComplEx against its paper, over complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from allneg.models import ComplEx


def formula(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    h, r, t = (torch.complex(*row.chunk(2)) for row in (head, relation, tail))
    return (h * r * t.conj()).sum().real


def test_scores_and_gradients_are_the_papers(check_formula: Callable[..., None]) -> None:
    check_formula(ComplEx(dim=5, scale=1.0), formula)


def test_direction_matters_through_the_imaginary_part() -> None:
    model = ComplEx(dim=1, scale=1.0)
    one, i = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    # Re(1 · i · conj(i)) = 1, and the other way round Re(i · i · conj(1)) = -1.
    assert model.kernel(model.tail_query(one, i), i).item() == 1
    assert model.kernel(model.tail_query(i, i), one).item() == -1


def test_a_real_relation_is_symmetric() -> None:
    model = ComplEx(dim=3, scale=1.0)
    head, tail = torch.randn(2, 1, 6, generator=torch.Generator().manual_seed(0))
    relation = torch.tensor([[0.5, -2.0, 1.0, 0.0, 0.0, 0.0]])
    there = model.kernel(model.tail_query(head, relation), tail)
    back = model.kernel(model.tail_query(tail, relation), head)
    torch.testing.assert_close(there, back)


def test_it_fits_a_one_way_ring(mrr_after_fitting: Callable[..., Any]) -> None:
    ring = [(i, 0, (i + 1) % 6) for i in range(6)]
    assert mrr_after_fitting("model.name=complex model.scale=0.1", ring, 6) == 1

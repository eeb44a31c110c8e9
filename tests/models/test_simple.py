"""SimplE against its paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from allneg.models import SimplE


def formula(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    h_as_head, h_as_tail = head.chunk(2)
    t_as_head, t_as_tail = tail.chunk(2)
    forth, back = relation.chunk(2)
    return ((h_as_head * forth * t_as_tail).sum() + (t_as_head * back * h_as_tail).sum()) / 2


def test_scores_and_gradients_are_the_papers(check_formula: Callable[..., None]) -> None:
    check_formula(SimplE(dim=5, scale=1.0), formula)


def test_direction_matters_through_the_two_parts_of_an_entity() -> None:
    model = SimplE(dim=1, scale=1.0)
    giver, taker = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    forth = torch.tensor([[1.0, 0.0]])
    assert model.kernel(model.tail_query(giver, forth), taker).item() == 0.5
    assert model.kernel(model.tail_query(taker, forth), giver).item() == 0


def test_a_relation_with_swapped_halves_is_the_inverse_relation() -> None:
    model = SimplE(dim=3, scale=1.0)
    head, relation, tail = torch.randn(3, 1, 6, generator=torch.Generator().manual_seed(0))
    there = model.kernel(model.tail_query(head, relation), tail)
    back = model.kernel(model.tail_query(tail, relation.roll(3, dims=1)), head)
    torch.testing.assert_close(there, back)


def test_it_fits_a_one_way_ring(mrr_after_fitting: Callable[..., Any]) -> None:
    ring = [(i, 0, (i + 1) % 6) for i in range(6)]
    assert mrr_after_fitting("model.name=simple model.scale=0.1", ring, 6) == 1

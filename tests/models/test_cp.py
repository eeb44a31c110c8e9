"""CP against its paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from allneg.models import CP


def formula(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    as_head, as_tail = head[:5], tail[5:]
    return (as_head * relation * as_tail).sum()


def test_scores_and_gradients_are_the_papers(check_formula: Callable[..., None]) -> None:
    check_formula(CP(dim=5, scale=1.0), formula)


def test_direction_matters_through_the_two_roles_of_an_entity() -> None:
    model = CP(dim=1, scale=1.0)
    giver, taker, one = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), torch.ones(1, 1)
    assert model.kernel(model.tail_query(giver, one), taker).item() == 1
    assert model.kernel(model.tail_query(taker, one), giver).item() == 0


def test_it_fits_a_one_way_ring(mrr_after_fitting: Callable[..., Any]) -> None:
    ring = [(i, 0, (i + 1) % 6) for i in range(6)]
    assert mrr_after_fitting("model.name=cp model.scale=0.1", ring, 6) == 1

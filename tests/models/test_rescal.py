"""RESCAL against its paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from allneg.models import RESCAL


def formula(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    return head @ relation.reshape(5, 5) @ tail


def test_scores_and_gradients_are_the_papers(check_formula: Callable[..., None]) -> None:
    check_formula(RESCAL(dim=5, scale=1.0), formula)


def test_a_symmetric_matrix_is_a_symmetric_relation() -> None:
    model = RESCAL(dim=3, scale=1.0)
    head, tail = torch.randn(2, 1, 3, generator=torch.Generator().manual_seed(0))
    matrix = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]]).view(1, 9)
    there = model.kernel(model.tail_query(head, matrix), tail)
    torch.testing.assert_close(there, model.kernel(model.tail_query(tail, matrix), head))


def test_it_fits_a_one_way_ring(mrr_after_fitting: Callable[..., Any]) -> None:
    ring = [(i, 0, (i + 1) % 6) for i in range(6)]
    assert mrr_after_fitting("model.name=rescal model.scale=0.1", ring, 6) == 1

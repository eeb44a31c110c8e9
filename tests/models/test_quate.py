"""QuatE against its paper, with the multiplication table of the quaternions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from allneg.models import QuatE

# TABLE[a][b] = (sign, c) where the product of the units a and b is ±c; units are 1, i, j, k.
TABLE = [
    [(1, 0), (1, 1), (1, 2), (1, 3)],
    [(1, 1), (-1, 0), (1, 3), (-1, 2)],
    [(1, 2), (-1, 3), (-1, 0), (1, 1)],
    [(1, 3), (1, 2), (-1, 1), (-1, 0)],
]


def formula(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    h, r, t = (row.view(4, -1) for row in (head, relation, tail))
    r = r / r.square().sum(0).sqrt()
    total = torch.zeros((), dtype=torch.float64)
    for a in range(4):
        for b in range(4):
            sign, c = TABLE[a][b]
            total = total + sign * (h[a] * r[b] * t[c]).sum()
    return total


def test_scores_and_gradients_are_the_papers(check_formula: Callable[..., None]) -> None:
    check_formula(QuatE(dim=5, scale=1.0), formula)


def test_a_relation_keeps_the_length_of_each_coordinate() -> None:
    model = QuatE(dim=3, scale=1.0)
    head, relation = torch.randn(2, 2, 12, generator=torch.Generator().manual_seed(0))
    for query in (model.tail_query(head, relation), model.head_query(head, relation)):
        lengths = query.view(2, 4, 3).norm(dim=1)
        torch.testing.assert_close(lengths, head.view(2, 4, 3).norm(dim=1))


def test_a_relation_of_zeros_gives_finite_scores_and_gradients() -> None:
    head, relation = torch.ones(1, 8, requires_grad=True), torch.zeros(1, 8, requires_grad=True)
    query = QuatE(dim=2, scale=1.0).tail_query(head, relation)
    query.sum().backward()
    assert query.isfinite().all()
    assert relation.grad.isfinite().all()


def test_it_fits_a_one_way_ring(mrr_after_fitting: Callable[..., Any]) -> None:
    ring = [(i, 0, (i + 1) % 6) for i in range(6)]
    assert mrr_after_fitting("model.name=quate model.scale=0.1", ring, 6) == 1

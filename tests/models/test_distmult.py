"""DistMult against its paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from allneg.models import DistMult


def formula(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    return (head * relation * tail).sum()


def test_scores_and_gradients_are_the_papers(check_formula: Callable[..., None]) -> None:
    check_formula(DistMult(dim=5, scale=1.0), formula)


def test_every_relation_is_symmetric() -> None:
    model = DistMult(dim=4, scale=1.0)
    head, relation, tail = torch.randn(3, 1, 4, generator=Generator().manual_seed(0))
    there = model.kernel(model.tail_query(head, relation), tail)
    back = model.kernel(model.tail_query(tail, relation), head)
    torch.testing.assert_close(there, back)


def test_it_fits_two_way_links_and_no_one_way_ring(mrr_after_fitting: Callable[..., Any]) -> None:
    settings = "model.name=distmult model.scale=0.1"
    pairs = [(0, 0, 3), (1, 0, 4), (2, 0, 5), (0, 1, 1), (2, 1, 3), (4, 1, 5)]
    links = pairs + [(tail, relation, head) for head, relation, tail in pairs]
    assert mrr_after_fitting(settings, links, 6) == 1
    ring = [(i, 0, (i + 1) % 6) for i in range(6)]
    assert mrr_after_fitting(settings, ring, 6) < 0.9

"""RotE against its paper, over complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from allneg.models import RotE


def difference(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    h, t = torch.complex(*head.chunk(2)), torch.complex(*tail.chunk(2))
    translation, angle = torch.complex(*relation[:10].chunk(2)), relation[10:]
    return h * torch.exp(1j * angle) + translation - t


def sum_of_moduli(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    return -difference(head, relation, tail).abs().sum()


def paper(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    squares = difference(head[:-1], relation, tail[:-1]).abs().square().sum()
    return head[-1] + tail[-1] - squares


@pytest.mark.parametrize(
    "form, formula", [((1, False, False), sum_of_moduli), ((2, True, True), paper)]
)
def test_scores_and_gradients_are_the_papers(
    check_formula: Callable[..., None], form: tuple[Any, ...], formula: Callable[..., Tensor]
) -> None:
    check_formula(RotE(5, 1.0, *form), formula)


def test_it_fits_a_one_way_ring(mrr_after_fitting: Callable[..., Any]) -> None:
    ring = [(i, 0, (i + 1) % 6) for i in range(6)]
    form = "model.norm=2 model.squared=true model.bias=true"
    assert mrr_after_fitting(f"model.name=rote model.scale=0.5 {form}", ring, 6) == 1

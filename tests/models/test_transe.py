"""TransE against its paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from allneg.models import TransE


def taxicab(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    return -(head + relation - tail).abs().sum()


def euclidean(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    return -(head + relation - tail).square().sum().sqrt()


@pytest.mark.parametrize("norm, formula", [(1, taxicab), (2, euclidean)])
def test_scores_and_gradients_are_the_papers(
    check_formula: Callable[..., None], norm: int, formula: Callable[..., Tensor]
) -> None:
    check_formula(TransE(dim=5, scale=1.0, norm=norm), formula)


def squared(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    return -(head + relation - tail).square().sum()


def biased(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    return squared(head[:-1], relation, tail[:-1]) + head[-1] + tail[-1]


@pytest.mark.parametrize("bias, formula", [(False, squared), (True, biased)])
def test_the_squared_distance_is_the_square_and_both_biases(
    check_formula: Callable[..., None], bias: bool, formula: Callable[..., Tensor]
) -> None:
    check_formula(TransE(dim=5, scale=1.0, norm=2, squared=True, bias=bias), formula)


@pytest.mark.parametrize("norm, back", [(1, -6.0), (2, -(20**0.5))])
def test_a_step_has_a_direction(norm: int, back: float) -> None:
    model = TransE(dim=2, scale=1.0, norm=norm)
    start, step, end = torch.tensor([[[0.0, 0.0]], [[1.0, 2.0]], [[1.0, 2.0]]])
    assert model.kernel(model.tail_query(start, step), end).item() == 0
    assert model.kernel(model.tail_query(end, step), start).item() == pytest.approx(back)


@pytest.mark.parametrize("norm, squared", [(1, False), (2, False), (2, True)])
def test_it_fits_a_chain(mrr_after_fitting: Callable[..., Any], norm: int, squared: bool) -> None:
    chain = [(i, 0, i + 1) for i in range(5)]
    more = " model.squared=true model.bias=true" if squared else ""
    settings = f"model.name=transe model.scale=0.5 model.norm={norm}{more}"
    assert mrr_after_fitting(settings, chain, 6) == 1

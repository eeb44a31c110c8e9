"""RotatE against its paper, over complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from allneg.models import RotatE


def difference(head: Tensor, angle: Tensor, tail: Tensor) -> Tensor:
    h, t = torch.complex(*head.chunk(2)), torch.complex(*tail.chunk(2))
    return h * torch.exp(1j * angle) - t


def sum_of_moduli(head: Tensor, angle: Tensor, tail: Tensor) -> Tensor:
    return -difference(head, angle, tail).abs().sum()


def euclidean(head: Tensor, angle: Tensor, tail: Tensor) -> Tensor:
    return -difference(head, angle, tail).abs().square().sum().sqrt()


@pytest.mark.parametrize("norm, formula", [(1, sum_of_moduli), (2, euclidean)])
def test_scores_and_gradients_are_the_papers(
    check_formula: Callable[..., None], norm: int, formula: Callable[..., Tensor]
) -> None:
    check_formula(RotatE(dim=5, scale=1.0, norm=norm), formula)


def squared(head: Tensor, angle: Tensor, tail: Tensor) -> Tensor:
    return -difference(head, angle, tail).abs().square().sum()


def biased(head: Tensor, angle: Tensor, tail: Tensor) -> Tensor:
    return squared(head[:-1], angle, tail[:-1]) + head[-1] + tail[-1]


@pytest.mark.parametrize("bias, formula", [(False, squared), (True, biased)])
def test_the_squared_distance_is_the_square_and_both_biases(
    check_formula: Callable[..., None], bias: bool, formula: Callable[..., Tensor]
) -> None:
    check_formula(RotatE(dim=5, scale=1.0, norm=2, squared=True, bias=bias), formula)


@pytest.mark.parametrize("norm", [1, 2])
def test_a_quarter_turn_has_a_direction_and_a_half_turn_none(norm: int) -> None:
    model = RotatE(dim=1, scale=1.0, norm=norm)
    one, i = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])

    def score(head: Tensor, angle: float, tail: Tensor) -> float:
        return model.kernel(model.tail_query(head, torch.tensor([[angle]])), tail).item()

    assert score(one, math.pi / 2, i) == pytest.approx(0, abs=1e-6)
    assert score(i, math.pi / 2, one) == pytest.approx(-2)
    assert score(one, math.pi, i) == pytest.approx(score(i, math.pi, one))


def test_a_full_turn_changes_nothing() -> None:
    model = RotatE(dim=3, scale=1.0)
    head = torch.randn(2, 6, generator=Generator().manual_seed(0))
    angle = torch.full((2, 3), 0.7)
    torch.testing.assert_close(
        model.tail_query(head, angle), model.tail_query(head, angle + 2 * math.pi)
    )


@pytest.mark.parametrize("norm, squared", [(1, False), (2, False), (2, True)])
def test_it_fits_a_one_way_ring(
    mrr_after_fitting: Callable[..., Any], norm: int, squared: bool
) -> None:
    ring = [(i, 0, (i + 1) % 6) for i in range(6)]
    more = " model.squared=true model.bias=true" if squared else ""
    settings = f"model.name=rotate model.scale=0.5 model.norm={norm}{more}"
    assert mrr_after_fitting(settings, ring, 6) == 1

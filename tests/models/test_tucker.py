"""TuckER against its paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from allneg.models import TuckER


def formula(head: Tensor, relation: Tensor, tail: Tensor, core: Tensor) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for k in range(3):
        for i in range(3):
            for j in range(3):
                total = total + core[k, i, j] * relation[k] * head[i] * tail[j]
    return total


def test_scores_and_gradients_are_the_papers(check_formula: Callable[..., None]) -> None:
    check_formula(TuckER(dim=3, scale=1.0), formula)


def test_the_core_begins_uniform_as_in_the_authors_code() -> None:
    core = torch.empty(20, 20, 20)
    TuckER(dim=20, scale=1e-3).init_shared(core, torch.Generator().manual_seed(0))
    assert core.abs().max() <= 1
    assert core.std().item() == pytest.approx(3**-0.5, rel=0.02)


def test_it_fits_a_one_way_ring(mrr_after_fitting: Callable[..., Any]) -> None:
    ring = [(i, 0, (i + 1) % 6) for i in range(6)]
    assert mrr_after_fitting("model.name=tucker model.scale=0.1", ring, 6) == 1

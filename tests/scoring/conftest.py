"""Triples with several answers per query, and new tables for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from allneg.graph.queries import KnownAnswers
from allneg.models import Model
from allneg.scoring import Shard, Tables

N_ENTITIES, N_RELATIONS = 11, 3


@pytest.fixture
def triples() -> Tensor:
    """int64 (9, 3): (0, 0, ?) has three answers, (?, 1, 5) two, and 2 is related to itself."""
    return torch.tensor(
        [
            [0, 0, 1],
            [0, 0, 2],
            [0, 0, 3],
            [4, 1, 5],
            [6, 1, 5],
            [2, 2, 2],
            [7, 0, 1],
            [8, 2, 9],
            [9, 2, 8],
        ]
    )


@pytest.fixture
def known(triples: Tensor) -> KnownAnswers:
    return KnownAnswers.of([triples.numpy()], N_ENTITIES, N_RELATIONS)


@pytest.fixture
def new_tables() -> Callable[[Model, bool], Tables]:
    """New tables of a model: `new_tables(model, reciprocal)`."""

    def create(model: Model, reciprocal: bool) -> Tables:
        return Tables.create(model, N_RELATIONS, Shard.whole(N_ENTITIES), reciprocal, seed=5)

    return create

"""What every model's page of tests needs: a slow judge in float64, and a toy graph to fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from allneg.evaluation import evaluate
from allneg.graph import Graph, Vocabulary
from allneg.graph.queries import SIDES, KnownAnswers, Queries
from allneg.models import Model
from allneg.recipe import Loss, Regularizer
from allneg.scoring import Objective, Shard, Tables

Formula = Callable[[Tensor, Tensor, Tensor], Tensor]  # head, relation and tail rows -> one score


@pytest.fixture
def agrees() -> Callable[[Model, Formula], None]:
    """Assert that a model's scores and gradients are those of a formula of one triple."""

    def check(model: Model, formula: Formula) -> None:
        for side in SIDES:
            for own_rows in (False, True):
                _check_side(model, formula, side, own_rows)

    return check


def _check_side(model: Model, formula: Formula, side: str, own_rows: bool) -> None:
    chance = Generator().manual_seed(7)
    b, n = 4, 9
    shape = (b, n) if own_rows else (n,)
    known = torch.randn(b, model.entity_width, generator=chance).requires_grad_()
    relation = torch.randn(b, model.relation_width, generator=chance).requires_grad_()
    rows = torch.randn(*shape, model.entity_width, generator=chance).requires_grad_()
    weight = torch.randn(b, n, generator=chance)

    query = (model.tail_query if side == "tail" else model.head_query)(known, relation)
    scores = model.compare(query, rows)
    gradients = torch.autograd.grad((weight * scores).sum(), (known, relation, rows))

    exact = [each.detach().double().requires_grad_() for each in (known, relation, rows)]
    one, link, others = exact
    truth = torch.zeros(b, n, dtype=torch.float64)
    for i in range(b):
        for j in range(n):
            other = others[i, j] if own_rows else others[j]
            head, tail = (one[i], other) if side == "tail" else (other, one[i])
            truth[i, j] = formula(head, link[i], tail)
    true_gradients = torch.autograd.grad((weight.double() * truth).sum(), exact)

    torch.testing.assert_close(scores.double(), truth, rtol=1e-5, atol=1e-5)
    for found, true in zip(gradients, true_gradients, strict=True):
        torch.testing.assert_close(found.double(), true, rtol=1e-5, atol=1e-5)


@pytest.fixture
def mrr_after_fitting() -> Callable[..., float]:
    """Train on some triples for a moment; the filtered MRR on those same triples."""

    def fit(model: Model, triples: list[tuple[int, int, int]], n_entities: int) -> float:
        train = np.array(triples, dtype=np.int64)
        n_relations = int(train[:, 1].max()) + 1
        names = Vocabulary(
            tuple(f"e{i}" for i in range(n_entities)), tuple(f"r{i}" for i in range(n_relations))
        )
        graph = Graph("toy", names, train, train[:0], train)
        # No reciprocal rows: one relation row has to serve both queries.
        tables = Tables.start(model, n_relations, Shard.whole(n_entities), False, seed=0)
        known = KnownAnswers.of([train], n_entities, n_relations)
        # A query may have several answers, which should not fight each other.
        objective = Objective(model, Loss(mask_known=True), Regularizer("none"), known)
        optimizer = torch.optim.Adagrad(tables.parameters(), lr=0.3)
        chance = Generator().manual_seed(0)
        for _ in range(150):
            for side in SIDES:
                optimizer.zero_grad()
                queries = Queries.of(torch.from_numpy(train), side)
                objective.value(tables, queries, chance).backward()
                optimizer.step()
        return evaluate(model, tables, graph).mrr

    return fit

"""A slow comparison in float64 with a formula of one triple, and toy graphs to fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from allneg.evaluation import evaluate
from allneg.graph import Graph, Vocabulary
from allneg.graph.queries import SIDES, Queries
from allneg.models import Model
from allneg.recipe import Recipe
from allneg.scoring.negatives import NegativeSample
from allneg.training.trainer import Trainer

# Head, relation and tail rows, and the shared parameter where a model has one -> one score.
Formula = Callable[..., Tensor]


@pytest.fixture
def check_formula() -> Callable[[Model, Formula], None]:
    """Assert that a model's scores and gradients are those of a formula of one triple."""

    def check(model: Model, formula: Formula) -> None:
        for side in SIDES:
            for own_rows in (False, True):
                _check_side(model, formula, side, own_rows)

    return check


def _check_side(model: Model, formula: Formula, side: str, own_rows: bool) -> None:
    generator = Generator().manual_seed(7)
    b, n = 4, 9
    shape = (b, n) if own_rows else (n,)
    known = torch.randn(b, model.entity_width, generator=generator).requires_grad_()
    relation = torch.randn(b, model.relation_width, generator=generator).requires_grad_()
    rows = torch.randn(*shape, model.entity_width, generator=generator).requires_grad_()
    weight = torch.randn(b, n, generator=generator)
    leaves, used = [known, relation, rows], relation
    if model.shared_shape is not None:
        leaves.append(torch.randn(model.shared_shape, generator=generator).requires_grad_())
        used = model.combine(relation, leaves[-1])

    query = (model.tail_query if side == "tail" else model.head_query)(known, used)
    scores = model.kernel(query, rows)
    gradients = torch.autograd.grad((weight * scores).sum(), leaves)

    exact = [x.detach().double().requires_grad_() for x in leaves]
    entities, relations, others, *shared = exact
    truth = torch.zeros(b, n, dtype=torch.float64)
    for i in range(b):
        for j in range(n):
            other = others[i, j] if own_rows else others[j]
            head, tail = (entities[i], other) if side == "tail" else (other, entities[i])
            truth[i, j] = formula(head, relations[i], tail, *shared)
    true_gradients = torch.autograd.grad((weight.double() * truth).sum(), exact)

    torch.testing.assert_close(scores.double(), truth, rtol=1e-5, atol=1e-5)
    for found, true in zip(gradients, true_gradients, strict=True):
        torch.testing.assert_close(found.double(), true, rtol=1e-5, atol=1e-5)


@pytest.fixture
def mrr_after_fitting() -> Callable[..., float]:
    """Train a model on some triples for a moment; the filtered MRR on those same triples.

    Training ends early at MRR 1.
    """

    def fit(settings: str, triples: list[tuple[int, int, int]], n_entities: int) -> float:
        train = np.array(triples, dtype=np.int64)
        n_relations = int(train[:, 1].max()) + 1
        names = Vocabulary(
            tuple(f"e{i}" for i in range(n_entities)), tuple(f"r{i}" for i in range(n_relations))
        )
        graph = Graph("toy", names, train, train[:0], train)
        # Not reciprocal: one relation row serves both queries. Known answers are masked: those
        # of the same query should not compete.
        common = ["model.dim=8", "model.reciprocal=false", "loss.mask_known=true"]
        more = ["regularizer.name=none", "optimizer.learning_rate=0.3", "training.batch_size=100"]
        recipe = Recipe().with_settings([*common, *more, *settings.split()])
        trainer = Trainer(recipe, graph, torch.device("cpu"))
        sides = [Queries.of(torch.from_numpy(train), side) for side in SIDES]
        mrr = 0.0
        for epoch in range(1, 151):
            for queries in sides:
                trainer._step(queries, NegativeSample())
            if epoch % 15 == 0:
                mrr = evaluate(trainer.model, trainer.tables, graph).mrr
            if mrr == 1:
                break
        return mrr

    return fit

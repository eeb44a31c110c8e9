"""Query × table: the same score from both sides, or a row of its own for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from allneg.graph.queries import SIDES, Queries, Side
from allneg.models import MODELS, DistMult, Model
from allneg.scoring import Tables, scores

Start = Callable[[Model, bool], Tables]


@pytest.mark.parametrize("name", MODELS)
def test_one_score_a_triple_whichever_side_is_asked(
    name: str, triples: Tensor, started: Start
) -> None:
    model = MODELS[name](dim=4, scale=0.5)
    tables = started(model, False)
    found = []
    for side in SIDES:
        queries = Queries.of(triples, side)
        every = scores(model, tables, queries)
        assert every.shape == (len(triples), len(tables.entities))
        found.append(every.gather(1, queries.answer.unsqueeze(1)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", MODELS)
def test_a_reciprocal_head_question_is_a_tail_question_of_its_own_relation(
    name: str, triples: Tensor, started: Start
) -> None:
    model = MODELS[name](dim=4, scale=0.5)
    tables = started(model, True)
    head, relation, tail = triples.unbind(1)
    asked = scores(model, tables, Queries.of(triples, "head"))
    doubled = tables.relations[relation + tables.n_relations]
    truth = model.compare(model.tail_query(tables.entities[tail], doubled), tables.entities)
    torch.testing.assert_close(asked, truth)
    asked = scores(model, tables, Queries.of(triples, "tail"))
    truth = model.compare(
        model.tail_query(tables.entities[head], tables.relations[relation]), tables.entities
    )
    torch.testing.assert_close(asked, truth)


@pytest.mark.parametrize("side, row", [("tail", 1), ("head", 4)])
def test_a_reciprocal_question_teaches_its_own_relation_row_alone(
    side: Side, row: int, triples: Tensor, started: Start
) -> None:
    model = DistMult(dim=4, scale=0.5)
    tables = started(model, True)
    queries = Queries.of(triples[triples[:, 1] == 1], side)
    scores(model, tables, queries).sum().backward()
    assert tables.relations.grad is not None
    assert tables.relations.grad.any(1).nonzero().flatten().tolist() == [row]

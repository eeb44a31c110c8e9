"""Scores of all entities: the same from both sides, or a relation row for each side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from allneg.graph.queries import SIDES, Queries
from allneg.models import MODELS, Model
from allneg.scoring import Tables, scores

NewTables = Callable[[Model, bool], Tables]


@pytest.mark.parametrize("name", MODELS)
def test_both_queries_of_a_triple_give_the_same_score(
    name: str, triples: Tensor, new_tables: NewTables
) -> None:
    model = MODELS[name](dim=4, scale=0.5)
    tables = new_tables(model, False)
    found = []
    for side in SIDES:
        queries = Queries.of(triples, side)
        every = scores(model, tables, queries)
        assert every.shape == (len(triples), len(tables.entities))
        found.append(every.gather(1, queries.answer.unsqueeze(1)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", MODELS)
def test_a_reciprocal_head_query_is_a_tail_query_of_another_relation_row(
    name: str, triples: Tensor, new_tables: NewTables
) -> None:
    model = MODELS[name](dim=4, scale=0.5)
    tables = new_tables(model, True)
    head, relation, tail = triples.unbind(1)
    for side, known, row in (("tail", head, relation), ("head", tail, relation + 3)):
        used = tables.relations[row]
        if tables.shared is not None:
            used = model.combine(used, tables.shared)
        truth = model.kernel(model.tail_query(tables.entities[known], used), tables.entities)
        torch.testing.assert_close(scores(model, tables, Queries.of(triples, side)), truth)


def test_padding_has_no_scores(triples: Tensor, new_tables: NewTables) -> None:
    model = MODELS["distmult"](dim=4, scale=0.5)
    tables, queries = new_tables(model, True), Queries.of(triples, "tail")
    found = scores(model, tables.padded(64), queries)
    torch.testing.assert_close(found, scores(model, tables, queries))

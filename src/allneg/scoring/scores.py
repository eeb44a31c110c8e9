"""Queries → scores: query × table, all that training, ranking and serving know."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.graph.queries import Queries
from allneg.models import Model
from allneg.scoring.feed import pieces
from allneg.scoring.tables import Tables


def scores(model: Model, tables: Tables, queries: Queries) -> Tensor:
    """The score of every entity as the answer: (B, n), for the rows this process holds."""
    query = query_vectors(model, tables, queries)
    found = [model.compare(query, some) for some in pieces(tables.entities, query.device)]
    whole = found[0] if len(found) == 1 else torch.cat(found, 1)
    return whole[:, : len(tables.shard)]


def query_vectors(model: Model, tables: Tables, queries: Queries) -> Tensor:
    """The query row of each query: (B, W)."""
    entity = tables.rows(queries.entity)
    relation = tables.relation_rows(queries)
    return query_of(model, entity, relation, queries.side, tables.reciprocal)


def query_of(
    model: Model, entity: Tensor, relation: Tensor, side: Tensor, reciprocal: bool
) -> Tensor:
    """The query of each entity row and relation row, asked for its side: (B, W)."""
    tail = model.tail_query(entity, relation)
    # A reciprocal relation row is a relation of its own, asked for its tail.
    if reciprocal:
        return tail
    return torch.where(side.unsqueeze(1) == 0, tail, model.head_query(entity, relation))

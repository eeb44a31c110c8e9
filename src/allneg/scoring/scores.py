"""Queries → scores of all entities: the one scoring path of ranking and prediction."""

import torch
from torch import Tensor

from allneg.graph.queries import Queries
from allneg.models import Model
from allneg.scoring.streaming import all_rows
from allneg.scoring.tables import Tables


def scores(model: Model, tables: Tables, queries: Queries, packed: Tensor | None = None) -> Tensor:
    """The score of every entity as the answer: (B, n), for the rows this process holds.

    `packed` may replace the entity table (`allneg.kernels.packed`).
    """
    query = query_vectors(model, tables, queries)
    entities = tables.entities.detach()
    blocks = all_rows(entities, query.device) if packed is None else [packed]
    parts = [model.kernel.scores(query, rows) for rows in blocks]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    return whole[:, : len(tables.shard)]


def query_vectors(model: Model, tables: Tables, queries: Queries) -> Tensor:
    """The query vector of each query: (B, W)."""
    relation = tables.relation_rows(tables.relation_ids(queries))
    if tables.shared is not None:
        relation = model.combine(relation, tables.shared.detach().to(relation.device))
    entity = tables.entity_rows(queries.entity)
    return model.query(entity, relation, queries.side, tables.reciprocal)

"""A member of an ensemble that is counted in train: entities that already have their fact.

Most relations have one answer on one side: a city is in one country. A city whose country is in
train is then no good answer to (?, city_in, France), even if it is near other cities of France. No
model learns this from train, where every answer has the fact that is asked for.
"""

from __future__ import annotations

import numpy as np
import torch

from allneg.errors import DataError
from allneg.graph.graph import Graph
from allneg.graph.queries import SIDES
from allneg.models.counts import Counts
from allneg.scoring import Shard, Tables

_COLUMN = {"tail": 2, "head": 0}  # of an answer in a triple


def count_facts(graph: Graph, most: int) -> tuple[Counts, Tables]:
    """The model and its rows, with at most `most` coordinates: the sides with the most facts.

    The weight of a side of a relation is the log-odds that an entity with a fact there has only
    one, by the facts of train. Sides with log-odds below 0 have no weight; a `DataError` if all do.
    """
    n_sides, size = len(SIDES) * graph.n_relations, graph.n_entities
    relation = graph.train[:, 1].astype(np.int64)
    keys = [
        (row * graph.n_relations + relation) * size + graph.train[:, _COLUMN[side]]
        for row, side in enumerate(SIDES)
    ]
    known, counts = np.unique(np.concatenate(keys), return_counts=True)
    side, entity = known // size, known % size
    single = np.bincount(side, counts == 1, n_sides)
    facts = np.bincount(side, counts, n_sides)
    weights = np.log((single + 0.5) / (facts - single + 0.5))
    order = np.argsort(-np.where(weights > 0, facts, 0), kind="stable")[:most]
    chosen = order[(weights > 0)[order]]
    if not len(chosen):
        raise DataError(f"{graph.name}: no relation has mostly one fact per head or per tail")
    coordinate = np.full(n_sides, -1)
    coordinate[chosen] = np.arange(len(chosen))
    is_kept = coordinate[side] >= 0
    rows = torch.zeros(size, 2 * len(chosen))
    rows[:, : len(chosen)] = 1.0
    rows[entity[is_kept], len(chosen) + coordinate[side[is_kept]]] = -1.0
    relations = torch.zeros(n_sides, len(chosen))
    relations[chosen, np.arange(len(chosen))] = torch.from_numpy(weights[chosen]).float()
    tables = Tables(rows, relations, Shard.whole(size), reciprocal=True)
    return Counts(len(chosen), 0.0), tables.requires_grad_(False)

"""Entities with almost the same facts or vectors, and relations with almost the same pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from allneg.graph.graph import Graph, Triples
from allneg.predict.scorer import EntityVectors

_SIMILARITY = 0.8  # shared facts divided by the facts of both
_LEAST = 3  # shared facts
_CROWD = 50  # what more entities share says little, and gives too many pairs
_COSINE = 0.5  # of vectors
_BLOCK = 1 << 24  # cosines in memory at once


@dataclass(frozen=True)
class Duplicate:
    kind: str  # entities, entities by vectors, relations, or inverse relations
    first: str
    second: str
    similarity: float
    shared: float  # facts, or pairs of relations


def duplicates(graph: Graph, facts: Triples) -> list[Duplicate]:
    """Pairs that may be the same thing, most similar first."""
    head, relation, tail = facts.T
    n, names = graph.n_entities, graph.vocabulary
    # A fact of an entity is its side, the relation and the other entity.
    owner = np.concatenate([head, tail])
    item = np.concatenate([relation * n + tail, (relation + graph.n_relations) * n + head])
    found = [
        Duplicate("entities", names.entities[a], names.entities[b], similarity, shared)
        for a, b, similarity, shared in _similar(owner, item)
    ]
    # Relation r + R is the inverse of r; one of two equal pairs of relations is enough.
    owner = np.concatenate([relation, relation + graph.n_relations])
    for a, b, similarity, shared in _similar(
        owner, np.concatenate([head * n + tail, tail * n + head])
    ):
        if a < graph.n_relations and b % graph.n_relations >= a and b != a + graph.n_relations:
            kind = "relations" if b < graph.n_relations else "inverse relations"
            pair = names.relations[a], names.relations[b % graph.n_relations]
            found.append(Duplicate(kind, *pair, similarity, shared))
    return sorted(found, key=lambda pair: -pair.similarity)


def alike(models: Iterable[EntityVectors], graph: Graph, facts: Triples) -> list[Duplicate]:
    """Entities that more than half of the models find most similar to each other.

    An entity under two names has some facts under one and some under the other: they share few
    facts, but similar ones. The similarity is the mean cosine.
    """
    degree = np.bincount(facts[:, [0, 2]].reshape(-1), minlength=graph.n_entities)
    found, n_models = defaultdict(list), 0
    for vectors in models:
        n_models += 1
        for a, b, cosine in _mutual(vectors):
            if cosine >= _COSINE and min(degree[a], degree[b]) >= _LEAST:
                found[a, b].append(cosine)
    names = graph.vocabulary.entities
    pairs = [
        Duplicate(
            "entities by vectors", names[a], names[b],
            sum(cosines) / len(cosines), float(len(_facts_of(facts, a) & _facts_of(facts, b))),
        )
        for (a, b), cosines in found.items()
        if 2 * len(cosines) > n_models
    ]  # fmt: skip
    return sorted(pairs, key=lambda pair: -pair.similarity)


def _facts_of(facts: Triples, entity: int) -> set[tuple[int, int, int]]:
    """The facts of an entity: its side, the relation and the other entity."""
    rows = ((column, facts[facts[:, column] == entity]) for column in (0, 2))
    return {(column, r, (h, t)[column == 0]) for column, some in rows for h, r, t in some.tolist()}


@torch.no_grad()
def _mutual(vectors: EntityVectors) -> list[tuple[int, int, float]]:
    """Pairs of entities (a < b) that are the most similar to each other, and their cosines."""
    units = vectors.rows / vectors.norms.unsqueeze(1)
    ids = torch.arange(len(units), device=units.device)
    parts = []
    for some in ids.split(max(1, _BLOCK // len(units))):
        cosines = units[some] @ units.T
        cosines[some - some[0], some] = -torch.inf
        parts.append(cosines.max(1))
    cosine, nearest = (torch.cat(columns) for columns in zip(*parts, strict=True))
    first = ((nearest[nearest] == ids) & (ids < nearest)).nonzero().squeeze(1)
    columns = (first, nearest[first], cosine[first])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _similar(owner: Triples, item: Triples) -> list[tuple[int, int, float, float]]:
    """Pairs of owners (a < b) with almost the same items: a, b, similarity, what they share.

    What n owners share counts 1 / (n - 1) for each pair; at least 1 is needed. So towns of which
    only the country is known are not the same.
    """
    total = np.bincount(owner)
    order = np.lexsort((owner, item))
    owner, item = owner[order], item[order]
    starts = np.flatnonzero(np.append(True, item[1:] != item[:-1]))
    sizes = np.diff(np.append(starts, len(item)))
    keys, rarity = [], []
    for size in np.unique(sizes[(sizes > 1) & (sizes <= _CROWD)]).tolist():
        members = owner[starts[sizes == size][:, None] + np.arange(size)]
        one, other = np.triu_indices(size, 1)
        keys.append((members[:, one] * len(total) + members[:, other]).reshape(-1))
        rarity.append(np.full(len(keys[-1]), 1 / (size - 1)))
    if not keys:
        return []
    pairs, index, shared = np.unique(np.concatenate(keys), return_inverse=True, return_counts=True)
    rare = np.bincount(index, np.concatenate(rarity))
    a, b = pairs // len(total), pairs % len(total)
    similarity = shared / (total[a] + total[b] - shared)
    kept = (similarity >= _SIMILARITY) & (shared >= _LEAST) & (rare >= 1 - 1e-9)
    columns = (a, b, similarity, shared.astype(float))
    return list(zip(*(column[kept].tolist() for column in columns), strict=True))

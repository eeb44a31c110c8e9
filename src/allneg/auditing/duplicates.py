"""Entities with almost the same facts, and relations with almost the same pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allneg.graph.graph import Graph, Triples

_SIMILARITY = 0.8  # shared facts divided by the facts of both
_LEAST = 3  # shared facts
_CROWD = 50  # what more entities share says little, and gives too many pairs


@dataclass(frozen=True)
class Duplicate:
    kind: str  # entities, relations, or inverse relations
    first: str
    second: str
    similarity: float
    shared: float


def duplicates(graph: Graph, facts: Triples) -> list[Duplicate]:
    """Pairs that may be the same thing, most similar first."""
    head, relation, tail = facts.T
    n, names = graph.n_entities, graph.vocabulary
    # A fact of an entity is its side, the relation and the other entity.
    owner = np.concatenate([head, tail])
    said = np.concatenate([relation * n + tail, (relation + graph.n_relations) * n + head])
    found = [
        Duplicate("entities", names.entities[a], names.entities[b], similarity, shared)
        for a, b, similarity, shared in _similar(owner, said)
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


def _similar(owner: Triples, said: Triples) -> list[tuple[int, int, float, float]]:
    """Pairs of owners (a < b) that say almost the same: a, b, similarity, what they share.

    What n owners share counts 1 / (n - 1) for each pair; at least 1 is needed. So towns of which
    only the country is known are not the same.
    """
    total = np.bincount(owner)
    order = np.lexsort((owner, said))
    owner, said = owner[order], said[order]
    starts = np.flatnonzero(np.append(True, said[1:] != said[:-1]))
    sizes = np.diff(np.append(starts, len(said)))
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

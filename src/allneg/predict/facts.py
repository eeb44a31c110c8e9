"""The known facts of an entity, and those between two entities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from allneg.graph.graph import SPLITS, Graph, first_indices, triple_keys

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EntityFacts:
    """The facts of one entity as columns: the relation, the other entity and the split."""

    relation: Ids  # (n,)
    other: Ids  # (n,)
    split: Ids  # (n,): an index into SPLITS
    reverse: npt.NDArray[np.bool_]  # (n,): the entity is the fact's tail

    def rows(self, selected: Ids | npt.NDArray[np.bool_]) -> list[tuple[int, int, int, bool]]:
        """(relation, other, split, reverse) of the facts with some indices, or of a mask."""
        columns = (self.relation, self.other, self.split, self.reverse)
        return list(zip(*(column[selected].tolist() for column in columns), strict=True))


@dataclass(frozen=True)
class Facts:
    """All distinct triples. If several splits hold a triple, the first one counts."""

    triples: Ids  # (n, 3)
    split: Ids  # (n,): an index into SPLITS
    degree: Ids  # (N,): the number of facts of each entity

    @classmethod
    def of(cls, graph: Graph) -> Facts:
        parts = [graph.split(name) for name in SPLITS]
        keys = np.concatenate(triple_keys(parts, graph.n_entities, graph.n_relations))
        distinct = first_indices(keys)
        split = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[distinct]
        triples = np.concatenate(parts)[distinct]
        head, tail = triples[:, 0], triples[:, 2]
        entities = np.concatenate([head, tail[head != tail]])  # a loop counts once
        return cls(triples, split, np.bincount(entities, minlength=graph.n_entities))

    def of_entity(self, entity: int) -> EntityFacts:
        # A scan of 20 million triples takes about 50 ms; an index would take more memory.
        index = np.flatnonzero((self.triples[:, 0] == entity) | (self.triples[:, 2] == entity))
        head, relation, tail = self.triples[index].T
        reverse = head != entity
        return EntityFacts(relation, np.where(reverse, head, tail), self.split[index], reverse)

    def between(self, one: int, other: int) -> list[tuple[int, int, int, str]]:
        """The facts between two entities, in either direction: head, relation, tail, split."""
        facts = self.of_entity(one)
        return [
            (other, relation, one, SPLITS[split]) if back else (one, relation, other, SPLITS[split])
            for relation, _, split, back in facts.rows(facts.other == other)
        ]

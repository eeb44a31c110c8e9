"""The known facts of an entity, and those between two entities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from allneg.graph.graph import SPLITS, Graph
from allneg.graph.keys import first_places, triple_keys

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EntityFacts:
    """The facts of one entity as columns: the relation, the other entity and the split."""

    relation: Ids  # (n,)
    other: Ids  # (n,)
    split: Ids  # (n,): an index into SPLITS
    reverse: npt.NDArray[np.bool_]  # (n,): the entity is the fact's tail

    def rows(self, mask: npt.NDArray[np.bool_]) -> list[tuple[int, int, int, bool]]:
        """(relation, other, split, reverse) of the facts that `mask` selects."""
        columns = (self.relation, self.other, self.split, self.reverse)
        return list(zip(*(column[mask].tolist() for column in columns), strict=True))


@dataclass(frozen=True)
class Facts:
    """All distinct triples, indexed by head and by tail. The first split of a triple counts."""

    triples: Ids  # (n, 3)
    split: Ids  # (n,): an index into SPLITS
    by_head: Ids  # (n,): indices into `triples`, ordered by head
    head_starts: Ids  # (N + 1,)
    by_tail: Ids  # (n,)
    tail_starts: Ids  # (N + 1,)

    @classmethod
    def of(cls, graph: Graph) -> Facts:
        parts = [graph.split(name) for name in SPLITS]
        keys = np.concatenate(triple_keys(parts, graph.n_entities, graph.n_relations))
        distinct = first_places(keys)
        triples = np.concatenate(parts)[distinct]
        split = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[distinct]
        ends, index = np.arange(graph.n_entities + 1), []
        for column in (0, 2):
            order = np.argsort(triples[:, column], kind="stable")
            index += [order, np.searchsorted(triples[order, column], ends)]
        return cls(triples, split, *index)

    @property
    def degree(self) -> Ids:
        """The number of facts of each entity: (N,)."""
        loops = self.triples[self.triples[:, 0] == self.triples[:, 2], 0]
        counted_twice = np.bincount(loops, minlength=len(self.head_starts) - 1)
        ends = np.diff(self.head_starts) + np.diff(self.tail_starts)
        return np.asarray(ends - counted_twice, dtype=np.int64)

    def of_entity(self, entity: int) -> EntityFacts:
        out = self.by_head[self.head_starts[entity] : self.head_starts[entity + 1]]
        back = self.by_tail[self.tail_starts[entity] : self.tail_starts[entity + 1]]
        back = back[self.triples[back, 0] != entity]  # a loop is in `out` already
        index = np.concatenate([out, back])
        reverse = np.arange(len(index)) >= len(out)
        rows = self.triples[index]
        other = np.where(reverse, rows[:, 0], rows[:, 2])
        return EntityFacts(rows[:, 1], other, self.split[index], reverse)

    def between(self, one: int, other: int) -> list[tuple[int, int, int, str]]:
        """The facts between two entities, in either direction: head, relation, tail, split."""
        facts = self.of_entity(one)
        return [
            (other, relation, one, SPLITS[split]) if back else (one, relation, other, SPLITS[split])
            for relation, _, split, back in facts.rows(facts.other == other)
        ]

"""The known facts around an entity, and between two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from allneg.graph.graph import SPLITS, Graph, first_indices, triple_keys

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Around:
    """The facts that one entity is in; of each, in one row, the other end."""

    relation: Ids  # (n,)
    other: Ids  # (n,)
    split: Ids  # (n,): a position in SPLITS
    reverse: npt.NDArray[np.bool_]  # (n,): the entity is the fact's tail


@dataclass(frozen=True)
class Facts:
    """All triples once, found by either end. A triple in two splits belongs to the first."""

    triples: Ids  # int64 (n, 3)
    split: Ids  # int64 (n,): a position in SPLITS
    by_head: Ids  # int64 (n,): places in `triples`, head by head
    head_starts: Ids  # int64 (N + 1,)
    by_tail: Ids  # likewise
    tail_starts: Ids

    @classmethod
    def of(cls, graph: Graph) -> Facts:
        parts = [graph.split(name) for name in SPLITS]
        triples = np.concatenate(parts)
        split = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        keys = np.concatenate(triple_keys(parts, graph.n_entities, graph.n_relations))
        once = first_indices(keys)
        triples, split = triples[once], split[once]
        ends = np.arange(graph.n_entities + 1)
        by_head, by_tail = (np.argsort(triples[:, side], kind="stable") for side in (0, 2))
        starts = [
            np.searchsorted(triples[order, side], ends)
            for order, side in ((by_head, 0), (by_tail, 2))
        ]
        return cls(triples, split, by_head, starts[0], by_tail, starts[1])

    @property
    def degree(self) -> Ids:
        """How many facts each entity is in: (N,)."""
        loops = self.triples[self.triples[:, 0] == self.triples[:, 2], 0]
        twice = np.bincount(loops, minlength=len(self.head_starts) - 1)  # met from both ends
        ends = np.diff(self.head_starts) + np.diff(self.tail_starts)
        return np.asarray(ends - twice, dtype=np.int64)

    def around(self, entity: int) -> Around:
        out = self.by_head[self.head_starts[entity] : self.head_starts[entity + 1]]
        back = self.by_tail[self.tail_starts[entity] : self.tail_starts[entity + 1]]
        back = back[self.triples[back, 0] != entity]  # a loop is met already
        places = np.concatenate([out, back])
        reverse = np.arange(len(places)) >= len(out)
        rows = self.triples[places]
        other = np.where(reverse, rows[:, 0], rows[:, 2])
        return Around(rows[:, 1], other, self.split[places], reverse)

    def joining(self, one: int, other: int) -> list[tuple[int, int, int, str]]:
        """The facts between two entities, in either direction, with their splits."""
        near = self.around(one)
        return [
            (other, r, one, SPLITS[s]) if back else (one, r, other, SPLITS[s])
            for r, s, back in _rows(near, near.other == other)
        ]


def _rows(around: Around, some: npt.NDArray[np.bool_]) -> list[tuple[int, int, bool]]:
    columns = (around.relation[some], around.split[some], around.reverse[some])
    return list(zip(*(column.tolist() for column in columns), strict=True))

"""Triples that occur more than once, within a split or in two splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from allneg.graph.graph import SPLITS, Graph, Triples, first_indices, triple_keys

_GROUP = 1 << 22  # triples per sort, roughly
# Odd constants that mix ids well, so that groups have about equal sizes.
_MIX = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)


@dataclass(frozen=True)
class Duplicates:
    repeated: dict[str, npt.NDArray[np.int64]]  # per split: rows that repeat an earlier row
    shared: dict[tuple[str, str], int]  # per pair of splits: distinct triples in both


def find_duplicates(graph: Graph) -> Duplicates:
    """Find repeated rows and count shared triples, group by group to bound the memory."""
    parts = [graph.split(split) for split in SPLITS]
    repeated: dict[str, list[npt.NDArray[np.int64]]] = {split: [] for split in SPLITS}
    shared = dict.fromkeys(combinations(SPLITS, 2), 0)
    for groups in _groups(parts):
        some = [part[rows] for part, rows in zip(parts, groups, strict=True)]
        keys = triple_keys(some, graph.n_entities, graph.n_relations)
        distinct = {}
        for split, rows, split_keys in zip(SPLITS, groups, keys, strict=True):
            first = first_indices(split_keys)
            repeated[split].append(np.delete(rows, first))
            distinct[split] = split_keys[first]
        for one, other in shared:
            both = np.intersect1d(distinct[one], distinct[other], assume_unique=True)
            shared[one, other] += len(both)
    return Duplicates(
        {split: np.sort(np.concatenate(rows)) for split, rows in repeated.items()}, shared
    )


def _groups(parts: list[Triples]) -> Iterator[list[npt.NDArray[np.int64]]]:
    """Row numbers in each part, grouped so that equal triples are in the same group."""
    n_groups = -(-sum(map(len, parts)) // _GROUP)
    if n_groups <= 1:
        yield [np.arange(len(part)) for part in parts]
        return
    for group in range(n_groups):
        yield [_rows_of_group(part, group, n_groups) for part in parts]


def _rows_of_group(part: Triples, group: int, n_groups: int) -> npt.NDArray[np.int64]:
    found = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(part), _GROUP):
        mixed = part[start : start + _GROUP].astype(np.uint64) @ _MIX
        rows = np.flatnonzero((mixed >> np.uint64(32)) % np.uint64(n_groups) == group)
        found.append(rows + start)
    return np.concatenate(found)

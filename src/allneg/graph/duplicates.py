"""Triples that occur twice, in one split or in two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from allneg.graph.graph import SPLITS, Graph, Triples
from allneg.graph.keys import common, first_places, triple_keys

_TOGETHER = 1 << 22  # triples sorted at once, about


@dataclass(frozen=True)
class Duplicates:
    """What `find_duplicates` found."""

    copies: dict[str, npt.NDArray[np.int64]]  # a split: where one stands that was there before
    shared: dict[tuple[str, str], int]  # two splits: how many different triples are in both


def find_duplicates(graph: Graph) -> Duplicates:
    """Copies within each split, and how many triples splits share.

    Many triples are sorted a group at a time, so that memory stays bounded.
    """
    parts = [graph.split(split) for split in SPLITS]
    copies: dict[str, list[npt.NDArray[np.int64]]] = {split: [] for split in SPLITS}
    shared = dict.fromkeys(combinations(SPLITS, 2), 0)
    for places in _groups(parts):
        some = [part[place] for part, place in zip(parts, places, strict=True)]
        keys = triple_keys(some, graph.n_entities, graph.n_relations)
        for split, place, each in zip(SPLITS, places, keys, strict=True):
            copies[split].append(np.delete(place, first_places(each)))
        ordered = {split: np.sort(each) for split, each in zip(SPLITS, keys, strict=True)}
        for pair in shared:
            shared[pair] += common(ordered[pair[0]], ordered[pair[1]])
    return Duplicates(
        {split: np.sort(np.concatenate(places)) for split, places in copies.items()}, shared
    )


def _groups(parts: list[Triples]) -> Iterator[list[npt.NDArray[np.int64]]]:
    """Places in each part, so that equal triples are in one group."""
    n_groups = -(-sum(map(len, parts)) // _TOGETHER)
    if n_groups <= 1:
        yield [np.arange(len(part)) for part in parts]
        return
    for group in range(n_groups):
        yield [_of_group(part, group, n_groups) for part in parts]


def _of_group(part: Triples, group: int, n_groups: int) -> npt.NDArray[np.int64]:
    found = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(part), _TOGETHER):
        # The golden ratio's multiples spread the ids that many triples share.
        mixed = part[start : start + _TOGETHER].astype(np.uint64) @ _MIX
        found.append(
            np.flatnonzero((mixed >> np.uint64(32)) % np.uint64(n_groups) == group) + start
        )
    return np.concatenate(found)


_MIX = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)

"""Relations that say again what others say: backwards, both ways, or in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from allneg.graph.graph import SPLITS, Graph, Triples

_LEAST_SHARE = 0.5  # of the larger relation's triples; below that it is not worth a line
_MOST_MATCHES = 1 << 22  # held at once

_Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Echo:
    """Two relations of which one tells the other; one and the same if it is symmetric."""

    first: int  # a relation
    second: int
    triples: int  # of the first that the second repeats
    share: float  # of the larger relation's triples


@dataclass(frozen=True)
class Echoes:
    """Every pair with a share of one half or more, over all splits, most triples first.

    Triples whose head is their tail are left aside: they mirror themselves.
    """

    inverse: tuple[Echo, ...]  # (h, first, t) where (t, second, h)
    symmetric: tuple[Echo, ...]  # (h, first, t) where (t, first, h)
    duplicate: tuple[Echo, ...]  # (h, first, t) where (h, second, t)
    told: dict[str, int]  # triples of valid and of test that train tells through such a pair


def find_echoes(graph: Graph) -> Echoes:
    parts = [_distinct(graph.split(split)) for split in SPLITS]
    triples = np.unique(np.concatenate(parts), axis=0)
    sizes = np.bincount(triples[:, 1], minlength=graph.n_relations)
    mirrored = _pairs(triples, triples[:, [2, 1, 0]], sizes, graph)
    same = _pairs(triples, triples, sizes, graph)
    inverse = [echo for echo in mirrored if echo.first < echo.second]
    symmetric = [echo for echo in mirrored if echo.first == echo.second]
    duplicate = [echo for echo in same if echo.first < echo.second]
    train = parts[0]
    told = {}
    for split, part in zip(SPLITS[1:], parts[1:], strict=True):
        answered = _told(part, train[:, [2, 1, 0]], [*inverse, *symmetric], graph)
        answered |= _told(part, train, duplicate, graph)
        told[split] = int(answered.sum())
    return Echoes(tuple(inverse), tuple(symmetric), tuple(duplicate), told)


def _pairs(ones: Triples, others: Triples, sizes: _Ids, graph: Graph) -> list[Echo]:
    """Pairs of relations by how many entity pairs of one are entity pairs of the other."""
    n = graph.n_relations
    codes, counts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for place, other in _matches(ones, others, graph.n_entities):
        found, count = np.unique(ones[place, 1] * n + other, return_counts=True)
        both = np.concatenate([codes, found])
        codes, where = np.unique(both, return_inverse=True)
        counts = np.bincount(where, weights=np.concatenate([counts, count])).astype(np.int64)
    first, second = codes // n, codes % n
    share = counts / np.maximum(sizes[first], sizes[second])
    keep = share >= _LEAST_SHARE
    echoes = [
        Echo(*each)
        for each in zip(
            *(column[keep].tolist() for column in (first, second, counts, share)), strict=True
        )
    ]
    return sorted(echoes, key=lambda echo: (-echo.triples, echo.first, echo.second))


def _told(
    ones: Triples, others: Triples, echoes: list[Echo], graph: Graph
) -> npt.NDArray[np.bool_]:
    """Which of `ones` stand in `others` under a relation that echoes their own: (n,)."""
    n = graph.n_relations
    pairs = [(echo.first, echo.second) for echo in echoes]
    codes = np.array([a * n + b for one, two in pairs for a, b in ((one, two), (two, one))])
    answered = np.zeros(len(ones), dtype=np.bool_)
    for place, other in _matches(ones, others, graph.n_entities):
        answered[place[np.isin(ones[place, 1] * n + other, codes)]] = True
    return answered


def _matches(ones: Triples, others: Triples, n_entities: int) -> Iterator[tuple[_Ids, _Ids]]:
    """Places in `ones`, and relations of `others` with the same head and tail, some at a time."""
    keys = others[:, 0] * n_entities + others[:, 2]
    order = np.argsort(keys, kind="stable")
    keys, relations = keys[order], others[order, 1]
    wanted = ones[:, 0] * n_entities + ones[:, 2]
    low, high = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, side="right")
    counts = high - low
    total = np.cumsum(counts)
    n_parts = int(total[-1]) // _MOST_MATCHES + 1 if len(total) else 0
    for part in np.array_split(np.arange(len(ones)), n_parts) if n_parts else ():
        place = np.repeat(part, counts[part])
        before = np.cumsum(counts[part]) - counts[part]
        step = np.arange(len(place)) - np.repeat(before, counts[part])
        yield place, relations[low[place] + step]


def _distinct(triples: Triples) -> Triples:
    return np.unique(triples[triples[:, 0] != triples[:, 2]], axis=0)

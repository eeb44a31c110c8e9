"""One number a triple, so that duplicates and overlaps are a sort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from allneg.graph.graph import Triples

Keys: TypeAlias = npt.NDArray[np.int64]

_LARGEST = 2**63 - 1


def triple_keys(parts: Sequence[Triples], n_entities: int, n_relations: int) -> list[Keys]:
    """A number for every triple, equal where triples are equal: (n, 3) each -> (n,) each."""
    triples = np.concatenate(parts)
    pair, n_pairs = triples[:, 0] * n_entities + triples[:, 2], n_entities * n_entities
    if n_pairs * n_relations > _LARGEST:
        # Too many names for one number each; the pairs that occur are few enough.
        occurring, pair = np.unique(pair, return_inverse=True)
        n_pairs = len(occurring)
    keys = triples[:, 1] * n_pairs + pair
    return np.split(keys, np.cumsum([len(part) for part in parts])[:-1])


def first_places(keys: Keys) -> npt.NDArray[np.int64]:
    """Where each different key stands for the first time, in order."""
    return np.sort(np.unique(keys, return_index=True)[1])


def copies(ordered: Keys) -> int:
    """How many of the sorted keys are not the first of their kind."""
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))


def common(one: Keys, other: Keys) -> int:
    """How many different keys two sorted arrays share."""
    fewer, more = sorted((one, other), key=len)
    if not len(fewer):
        return 0
    wanted = np.unique(fewer)
    places = np.searchsorted(more, wanted).clip(max=len(more) - 1)
    return int(np.count_nonzero(more[places] == wanted))

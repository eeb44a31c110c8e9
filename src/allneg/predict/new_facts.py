"""The new facts that a search finds: by name, and as columns of ids and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from allneg.evaluation.curves import Numbers, probability_of
from allneg.graph.graph import Triples


@dataclass(frozen=True)
class NewFact:
    head: str
    relation: str
    tail: str
    probability: float
    score: float  # the mean of those in both queries


@dataclass(frozen=True)
class Found:
    """Facts with their numbers, as columns."""

    triples: Triples  # (n, 3)
    log_odds: Numbers  # (n,)
    score: Numbers  # (n,)

    @classmethod
    def empty(cls) -> Found:
        nothing = np.zeros(0)
        return cls(np.zeros((0, 3), dtype=np.int64), nothing, nothing)

    @property
    def probability(self) -> Numbers:
        return probability_of(self.log_odds)

    def best(self, count: int, more: Found) -> Found:
        """The `count` best of these and more, best first; equal ones by their ids."""
        both = Found(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))
        ids = both.triples.T[::-1]
        both = both[np.lexsort((*ids, -both.log_odds))[: 2 * count]]
        # A question that is asked a second time gives its best answers again.
        first = np.unique(both.triples, axis=0, return_index=True)[1]
        return both[np.sort(first)[:count]]

    def __getitem__(self, index: npt.NDArray[Any]) -> Found:
        return Found(*(column[index] for column in self))

    def __iter__(self) -> Iterator[Any]:
        return iter((self.triples, self.log_odds, self.score))

    def __len__(self) -> int:
        return len(self.triples)

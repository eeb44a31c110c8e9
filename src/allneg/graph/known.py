"""The known answers of every query, flat and sorted, so that a filter is a look-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from allneg.graph.graph import Triples
from allneg.graph.queries import Queries

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class KnownAnswers:
    """A query's answers are `answers[starts[i]:starts[i + 1]]`, where `keys[i]` is its key."""

    n_entities: int
    n_relations: int
    keys: Tensor  # int64 (K,): sorted, each once
    starts: Tensor  # int64 (K + 1,)
    answers: Tensor  # int64 (A,): sorted within a query, each once

    @classmethod
    def of(
        cls,
        splits: Sequence[Triples],
        n_entities: int,
        n_relations: int,
        device: torch.device = _CPU,
    ) -> KnownAnswers:
        """The answers that `splits` together give to every query, for both sides.

        They are sorted on the device: a few milliseconds on a GPU.
        """
        triples = torch.from_numpy(np.concatenate(splits)).to(device)
        head, relation, tail = triples.T.contiguous().unbind(0)
        key = torch.cat([relation, relation + n_relations]) * n_entities + torch.cat([head, tail])
        answer, order = torch.cat([tail, head]).sort()
        key, order = key[order].sort(stable=True)
        answer = answer[order]
        new = torch.ones_like(key, dtype=torch.bool)
        new[1:] = (key[1:] != key[:-1]) | (answer[1:] != answer[:-1])
        keys, counts = key[new].unique_consecutive(return_counts=True)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return cls(n_entities, n_relations, keys, starts, answer[new])

    def counts(self, queries: Queries) -> Tensor:
        """How many answers each query has: (B,)."""
        return self._spans(queries)[1]

    def pairs(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Every (query, answer) that is known: two flat tensors of the same length."""
        first, count = self._spans(queries)
        query = torch.repeat_interleave(count)
        before = count.cumsum(0) - count
        index = torch.arange(len(query), device=first.device) + (first - before)[query]
        return query, self.answers[index]

    def contains(self, queries: Queries, candidates: Tensor) -> Tensor:
        """Which of each query's candidates are known answers: (B, K) -> bool (B, K)."""
        first, count = self._spans(queries)
        low, high = first.unsqueeze(1).expand_as(candidates), (first + count).unsqueeze(1)
        # A binary search inside each query's own span, all at once.
        high = high.expand_as(candidates)
        last = len(self.answers) - 1
        for _ in range(self._most.bit_length()):
            middle = (low + high) // 2
            below = (self.answers[middle.clamp(max=last)] < candidates) & (low < high)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        found = self.answers[low.clamp(max=last)] == candidates
        return found & (low < (first + count).unsqueeze(1))

    @cached_property
    def _most(self) -> int:
        """The most answers of any query: a host number, so that no step waits for the device."""
        return int(self.starts.diff().max()) if len(self.starts) > 1 else 0

    def _spans(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Where each query's answers begin, and how many there are."""
        relation = queries.relation + self.n_relations * queries.side
        key = relation * self.n_entities + queries.entity
        index = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        count = self.starts[index + 1] - self.starts[index]
        return self.starts[index], torch.where(self.keys[index] == key, count, 0)

"""Triples as queries, (head, relation, ?) and (?, relation, tail), and their known answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self, TypeAlias

import numpy as np
import torch
from torch import Generator, Tensor
from torch.types import Device

from allneg.graph.graph import Triples

Side: TypeAlias = Literal["tail", "head"]
SIDES: tuple[Side, Side] = ("tail", "head")
_GATHERED = 1 << 17  # queries gathered at once


@dataclass(frozen=True)
class Queries:
    """A batch of queries, for tails and heads mixed."""

    side: Tensor  # int64 (B,): the side of the answer, 0 for tails, 1 for heads, as in SIDES
    entity: Tensor  # int64 (B,): the known entity
    relation: Tensor  # int64 (B,)
    answer: Tensor  # int64 (B,)
    weight: Tensor | None = None  # float32 (B,): of their triples, if these have weights

    @classmethod
    def for_side(cls, side: Side, entity: Tensor, relation: Tensor, answer: Tensor) -> Self:
        """Queries that all ask for one side."""
        return cls(torch.full_like(entity, SIDES.index(side)), entity, relation, answer)

    @classmethod
    def of(cls, triples: Tensor, side: Side) -> Self:
        """The queries for one side of each triple: (B, 3)."""
        head, relation, tail = triples.T.contiguous().unbind(0)
        known, answer = (head, tail) if side == "tail" else (tail, head)
        return cls.for_side(side, known, relation, answer)

    def __len__(self) -> int:
        return len(self.entity)

    def __getitem__(self, part: slice | Tensor) -> Self:
        columns = (self.side, self.entity, self.relation, self.answer, self.weight)
        return type(self)(*(None if column is None else column[part] for column in columns))  # type: ignore[arg-type]

    def distinct(self) -> tuple[Tensor, Tensor]:
        """Where each run of equal queries begins, (G,), and the run of each query, (B,)."""
        columns = torch.stack([self.side, self.entity, self.relation])
        is_first = torch.ones_like(self.entity, dtype=torch.bool)
        is_first[1:] = (columns[:, 1:] != columns[:, :-1]).any(0)
        return is_first.nonzero().squeeze(1), is_first.cumsum(0) - 1

    def other_side(self) -> Self:
        """The queries for the other side of the same triples."""
        return replace(self, side=1 - self.side, entity=self.answer, answer=self.entity)


def batches(
    triples: Tensor, size: int, generator: Generator, weights: Tensor | None = None
) -> Iterator[Queries]:
    """Both queries of every triple, all in one random order; `weights` are those of triples.

    A batch holds queries for both sides: on WN18RR, batches with one side each cost .007 of MRR.
    """
    n = len(triples)
    order = torch.randperm(2 * n, generator=generator, device=triples.device)
    # Many batches are gathered together: on a GPU, a gather costs the same for one.
    for many in order.split(size * max(1, _GATHERED // size)):
        side = many // n
        # No copy of all triples is made: they may be mapped from disk.
        rows = many % n
        head, relation, tail = triples.index_select(0, rows).T.contiguous().unbind(0)
        tails = side == 0
        known, answer = torch.where(tails, head, tail), torch.where(tails, tail, head)
        columns = [side, known, relation, answer]
        columns += [] if weights is None else [weights.index_select(0, rows)]
        yield from map(Queries, *(column.split(size) for column in columns))


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
        cls, splits: Sequence[Triples], n_entities: int, n_relations: int, device: Device = "cpu"
    ) -> Self:
        """The answers in all `splits` to every query for either side, sorted on the device."""
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
        return self._pairs(*self._spans(queries))

    def batches(
        self, size: int, generator: Generator, some: Tensor | None = None
    ) -> Iterator[Queries]:
        """Every distinct query once with all of its answers: `size` of them at a time.

        A query is repeated for each answer, without other queries between. `some` are the indices
        of the keys to take, if not all.
        """
        n, device = len(self.keys if some is None else some), self.keys.device
        order = torch.randperm(n, generator=generator, device=device)
        order = order if some is None else some[order]
        for part in order.split(size):
            first = self.starts[part]
            query, answer = self._pairs(first, self.starts[part + 1] - first)
            key = self.keys[part][query]
            relation, entity = key // self.n_entities, key % self.n_entities
            side = relation // self.n_relations
            yield Queries(side, entity, relation % self.n_relations, answer)

    def _pairs(self, first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """The answers in some spans, each with the number of its span."""
        query = torch.repeat_interleave(count)
        before = count.cumsum(0) - count
        index = torch.arange(len(query), device=first.device) + (first - before)[query]
        return query, self.answers[index]

    def contains(self, queries: Queries, candidates: Tensor) -> Tensor:
        """Which of each query's candidates are known answers: (B, K) -> bool (B, K)."""
        first, count = self._spans(queries)
        low, end = first.unsqueeze(1).expand_as(candidates), (first + count).unsqueeze(1)
        # A binary search inside each query's own span, all at once.
        high, last = end.expand_as(candidates), len(self.answers) - 1
        for _ in range(self._most.bit_length()):
            middle = (low + high) // 2
            below = (self.answers[middle.clamp(max=last)] < candidates) & (low < high)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        return (self.answers[low.clamp(max=last)] == candidates) & (low < end)

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

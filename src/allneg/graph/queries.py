"""Triples as queries, (head, relation, ?) and (?, relation, tail), and their known answers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch.types import Device

from allneg.graph.graph import SPLITS, Graph, Triples

Side: TypeAlias = Literal["tail", "head"]
SIDES: tuple[Side, Side] = ("tail", "head")
_GATHERED = 1 << 17  # queries gathered at once


@dataclass(frozen=True)
class Queries:
    """A batch of queries, for tails and heads mixed."""

    side: Tensor  # int64 (B,): the side of the answer, 0 for tails, 1 for heads, as in SIDES
    entity: Tensor  # int64 (B,): the known entity
    relation: Tensor  # int64 (B,)
    answer: Tensor  # int64 (B,), or (A,) with `group`
    weight: Tensor | None = None  # float32, like `answer`: of their triples; 0 for padding
    group: Tensor | None = None  # int64 (A,), ascending: the query of each answer, if grouped

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
        answers = self.answers_of(part)
        side, entity, relation = self.side[part], self.entity[part], self.relation[part]
        weight = None if self.weight is None else self.weight[answers]
        group = None
        if self.group is not None:
            assert isinstance(part, slice)
            group = self.group[answers] - (part.start or 0)
        return type(self)(side, entity, relation, self.answer[answers], weight, group)

    def answers_of(self, part: slice | Tensor) -> slice | Tensor:
        """Where the answers of some queries are."""
        if self.group is None:
            return part
        assert isinstance(part, slice)
        bounds = self.group.new_tensor(part.indices(len(self))[:2])
        start, stop = torch.searchsorted(self.group, bounds).tolist()
        return slice(start, stop)

    def sums(self, values: Tensor) -> Tensor:
        """The sum over each query's answers: (A,) -> (B,)."""
        if self.group is None:
            return values
        return values.new_zeros(len(self)).index_add_(0, self.group, values)

    def single(self) -> Self:
        """One query for each answer."""
        if self.group is None:
            return self
        side, entity, relation = (x[self.group] for x in (self.side, self.entity, self.relation))
        return type(self)(side, entity, relation, self.answer, self.weight)

    def distinct(self) -> tuple[Self, Tensor]:
        """Each distinct query once, with all of its answers, and where the answers were: (A,)."""
        key = (2 * self.relation + self.side) * (self.entity.max() + 1) + self.entity
        _, group, count = key.unique(return_inverse=True, return_counts=True)
        order = group.argsort(stable=True)
        first = order[count.cumsum(0) - count]
        found = type(self)(self.side[first], self.entity[first], self.relation[first], self.answer)
        return replace(found, answer=self.answer[order], group=group[order]), order

    def padded(self) -> Self:
        """The same with answers of weight 0 at the end, so that few numbers of answers occur."""
        assert self.group is not None
        assert self.weight is not None
        more = -len(self.answer) % max(16, (1 << len(self.answer).bit_length()) >> 4)
        return replace(
            self,
            answer=F.pad(self.answer, (0, more)),
            weight=F.pad(self.weight, (0, more)),
            group=F.pad(self.group, (0, more), value=len(self) - 1),
        )

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

    @classmethod
    def of_splits(
        cls, graph: Graph, splits: Iterable[str] = SPLITS, device: Device = "cpu"
    ) -> Self:
        """The answers in some splits of a graph."""
        parts = [graph.split(split) for split in splits]
        return cls.of(parts, graph.n_entities, graph.n_relations, device)

    def counts(self, queries: Queries) -> Tensor:
        """How many answers each query has: (B,)."""
        return self._spans(queries)[1]

    def pairs(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Every (query, answer) that is known: two flat tensors of the same length."""
        return self._pairs(*self._spans(queries))

    def batches(
        self, size: int, generator: Generator, most: int, some: Tensor | None = None,
        weights: Tensor | None = None, padded: bool = False,
    ) -> tuple[int, Iterator[Queries]]:  # fmt: skip
        """As `Trainer.batches`: every distinct query with all of its answers, `size` at a time.

        A query with more than `most` answers is asked several times, with some of them each.
        `some` are the indices of the keys to take, if not all, and `weights` what each of them
        counts, if not the same. With `padded`, few numbers of answers occur.
        """
        device = self.keys.device
        key = torch.arange(len(self.keys), device=device) if some is None else some
        weights = torch.ones(len(key), device=device) if weights is None else weights
        times = (self.starts[key + 1] - self.starts[key] - 1) // most + 1
        turn = torch.arange(int(times.sum()), device=device)
        turn -= (times.cumsum(0) - times).repeat_interleave(times)
        key = key.repeat_interleave(times)
        order = torch.randperm(len(key), generator=generator, device=device)
        weights = weights.repeat_interleave(times)[order]
        key, turn = key[order], turn[order]
        first = self.starts[key] + turn * most
        count = (self.starts[key + 1] - first).clamp(max=most)
        return -(-len(key) // size), self._batches(size, key, first, count, weights, padded)

    def _batches(
        self, size: int, key: Tensor, first: Tensor, count: Tensor, weights: Tensor, padded: bool
    ) -> Iterator[Queries]:
        many = size * max(1, _GATHERED // size)
        columns = key, first, count, weights
        for spans in zip(*(column.split(many) for column in columns), strict=True):
            keys = self.keys[spans[0]]
            relation, entity = keys // self.n_entities, keys % self.n_entities
            side, relation = relation // self.n_relations, relation % self.n_relations
            query, answer = self._pairs(*spans[1:3])
            weight = spans[3][query]
            counts = F.pad(spans[2], (0, -len(keys) % size)).view(-1, size)
            sizes = counts.sum(1).tolist()  # waits for the device, once for many batches
            known = (column.split(size) for column in (side, entity, relation))
            pairs = (column.split(sizes) for column in (answer, weight, query))
            for i, (*parts, group) in enumerate(zip(*known, *pairs, strict=True)):
                queries = replace(Queries(*parts), group=group - i * size)
                yield queries.padded() if padded else queries

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


def known_by_split(graph: Graph, device: Device) -> dict[str, KnownAnswers]:
    """The answers in each split that is not empty."""
    splits = [split for split in SPLITS if len(graph.split(split))]
    return {split: KnownAnswers.of_splits(graph, [split], device) for split in splits}

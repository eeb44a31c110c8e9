"""Triples as queries: (head, relation, ?) and (?, relation, tail)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Generator, Tensor

Side: TypeAlias = Literal["tail", "head"]
SIDES: tuple[Side, Side] = ("tail", "head")
_GATHERED = 1 << 17  # queries gathered at once


@dataclass(frozen=True)
class Queries:
    """A batch of queries, for tails and heads mixed."""

    side: Tensor  # int64 (B,): what is asked for, an index into SIDES: 0 for tails, 1 for heads
    entity: Tensor  # int64 (B,): the known entity
    relation: Tensor  # int64 (B,)
    answer: Tensor  # int64 (B,)

    @classmethod
    def for_side(cls, side: Side, entity: Tensor, relation: Tensor, answer: Tensor) -> Queries:
        """Queries that all ask for one side."""
        return cls(torch.full_like(entity, SIDES.index(side)), entity, relation, answer)

    @classmethod
    def of(cls, triples: Tensor, side: Side) -> Queries:
        """The queries for one side of each triple: (B, 3)."""
        head, relation, tail = triples.T.contiguous().unbind(0)
        known, answer = (head, tail) if side == "tail" else (tail, head)
        return cls.for_side(side, known, relation, answer)

    def __len__(self) -> int:
        return len(self.entity)

    def __getitem__(self, part: slice) -> Queries:
        return Queries(self.side[part], self.entity[part], self.relation[part], self.answer[part])

    def other_side(self) -> Queries:
        """The queries for the other side of the same triples."""
        return Queries(1 - self.side, self.answer, self.relation, self.entity)


def batches(triples: Tensor, size: int, generator: Generator) -> Iterator[Queries]:
    """Both queries of every triple, all in one random order.

    A batch holds queries for both sides: on WN18RR, batches with one side each cost .007 of MRR.
    """
    n = len(triples)
    order = torch.randperm(2 * n, generator=generator, device=triples.device)
    # Many batches are gathered together: on a GPU, a gather costs the same for one.
    for many in order.split(size * max(1, _GATHERED // size)):
        side = many // n
        # No copy of all triples is made: they may be mapped from disk.
        head, relation, tail = triples.index_select(0, many % n).T.contiguous().unbind(0)
        tails = side == 0
        known, answer = torch.where(tails, head, tail), torch.where(tails, tail, head)
        parts = (each.split(size) for each in (side, known, relation, answer))
        yield from map(Queries, *parts)

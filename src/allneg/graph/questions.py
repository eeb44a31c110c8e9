"""Triples as questions: (head, relation, ?) and (?, relation, tail)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Generator, Tensor

Side: TypeAlias = Literal["head", "tail"]
SIDES: tuple[Side, Side] = ("tail", "head")


@dataclass(frozen=True)
class Questions:
    """A batch asked from one side."""

    side: Side  # the one that is asked for
    entity: Tensor  # int64 (B,): the one we know
    relation: Tensor  # int64 (B,)
    answer: Tensor  # int64 (B,)

    @classmethod
    def of(cls, triples: Tensor, side: Side) -> Questions:
        """The questions that ask for `side` of each triple: (B, 3)."""
        head, relation, tail = triples.T.contiguous().unbind(0)
        return (
            cls(side, head, relation, tail) if side == "tail" else cls(side, tail, relation, head)
        )

    def __len__(self) -> int:
        return len(self.entity)

    def part(self, some: slice) -> Questions:
        return Questions(self.side, self.entity[some], self.relation[some], self.answer[some])

    def turned(self) -> Questions:
        """The same triples, asked from the other side."""
        side: Side = "head" if self.side == "tail" else "tail"
        return Questions(side, self.answer, self.relation, self.entity)


def batches(triples: Tensor, size: int, generator: Generator) -> Iterator[Questions]:
    """Every triple once from each side, in random order: a batch of tails, then its heads."""
    order = torch.randperm(len(triples), generator=generator, device=triples.device)
    for some in order.split(size):
        chosen = triples.index_select(0, some)
        for side in SIDES:
            yield Questions.of(chosen, side)

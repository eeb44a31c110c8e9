"""What TransE and RotatE share: a score that is minus a distance, and its three forms."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Generator, Tensor

from allneg.kernels import l2
from allneg.models.base import Model


class Distance(Model):
    """score(h, r, t) = -‖q(h, r) - t‖, where q moves the head by the relation.

    `norm` 1 sums the moduli of coordinates, 2 is the euclidean distance. With `squared` that
    one's root is not taken; with `bias` each entity has a number b more, and b(h) + b(t) is added
    to the score. It is the last of its row, and so also of a query.
    """

    sum_of_moduli: ClassVar[str]  # the kernel of norm 1

    @property
    def kernel(self) -> str:
        return self.sum_of_moduli if self.norm == 1 else "l2"

    @property
    def entity_width(self) -> int:
        return super().entity_width + self.bias

    @abstractmethod
    def forth(self, head: Tensor, relation: Tensor) -> Tensor:
        """The place that a relation takes a head to."""

    @abstractmethod
    def back(self, tail: Tensor, relation: Tensor) -> Tensor:
        """The place that a relation would take to this tail."""

    @abstractmethod
    def summed(self, query: Tensor, entities: Tensor) -> Tensor:
        """`compare` under norm 1."""

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return self._carried(self.forth(self.place(head), relation), head)

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        return self._carried(self.back(self.place(tail), relation), tail)

    def compare(self, query: Tensor, entities: Tensor) -> Tensor:
        if self.norm == 1:
            return self.summed(query, entities)
        if not self.squared:
            return l2(query, entities)
        first, second = (self.place(rows).contiguous() for rows in (query, entities))
        if not self.bias:
            return _squared(first, second, query.new_zeros(()), query.new_zeros(()))
        return _squared(first, second, query[..., -1], entities[..., -1])

    def start_entities(self, rows: Tensor, generator: Generator) -> None:
        super().start_entities(rows, generator)
        if self.bias:
            rows[:, -1] = 0.0

    def place(self, rows: Tensor) -> Tensor:
        return rows[..., :-1] if self.bias else rows

    def _carried(self, place: Tensor, rows: Tensor) -> Tensor:
        """A place with the bias of the rows it came from."""
        return torch.cat([place, rows[..., -1:]], dim=-1) if self.bias else place


def _squared(query: Tensor, table: Tensor, here: Tensor, there: Tensor) -> Tensor:
    """-|q - e|² and both biases: (B, W), (N, W) -> (B, N), or (B, K, W) -> (B, K).

    A matrix product, 2qe - |q|² - |e|², whose digits autocast would round away.
    """
    with torch.autocast(query.device.type, enabled=False):
        if table.dim() == 3:
            square = (query.unsqueeze(1) - table).square().sum(-1)
            return there + here.unsqueeze(-1) - square
        mine, others = here - query.square().sum(1), there - table.square().sum(1)
        return torch.addmm(mine.unsqueeze(1) + others, query, table.T, alpha=2)

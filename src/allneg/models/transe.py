"""TransE (Bordes et al., 2013): a relation moves the head to the tail."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels import l1, l2
from allneg.models.base import Model


class TransE(Model):
    """score(h, r, t) = -|h + r - t|, with the L1 norm (`norm` 1) or the euclidean one (2)."""

    @property
    def kernel(self) -> str:
        return "l1" if self.norm == 1 else "l2"

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return head + relation

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        return tail - relation

    def compare(self, query: Tensor, entities: Tensor) -> Tensor:
        return l1(query, entities) if self.norm == 1 else l2(query, entities)

"""TransE (Bordes et al., 2013): a relation moves the head to the tail."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels import l1
from allneg.models.distance import Distance


class TransE(Distance):
    """score(h, r, t) = -|h + r - t|, with the L1 norm (`norm` 1) or the euclidean one (2)."""

    sum_of_moduli = "l1"

    def forth(self, head: Tensor, relation: Tensor) -> Tensor:
        return head + relation

    def back(self, tail: Tensor, relation: Tensor) -> Tensor:
        return tail - relation

    def summed(self, query: Tensor, entities: Tensor) -> Tensor:
        return l1(query, entities)

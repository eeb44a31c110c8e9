"""DistMult (Yang et al., 2015): a relation weighs each coordinate of the inner product."""

from torch import Tensor

from allneg.models.base import Model


class DistMult(Model):
    """score(h, r, t) = sum_k h_k r_k t_k"""

    n3 = 0.5

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return head * relation

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        return tail * relation

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        return head * tail

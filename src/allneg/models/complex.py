"""ComplEx (Trouillon et al., 2016): DistMult over complex numbers, so direction matters."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels import dot, times
from allneg.models.base import Model


class ComplEx(Model):
    """score(h, r, t) = Re sum_k h_k r_k conj(t_k)

    Rows hold `dim` real parts, then `dim` imaginary parts.
    """

    entity_parts = 2
    relation_parts = 2
    entity_axes = 2
    relation_axes = 2

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return times(head, relation)

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        # Re(h r conj(t)) = Re(h conj(t conj(r))): the conjugate relation, asked from the tail.
        return times(tail, relation, conjugate=True)

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        # Re(r h conj(t)) is the product of r's row with that of conj(h) t.
        return times(tail, head, conjugate=True)

    def compare(self, query: Tensor, entities: Tensor) -> Tensor:
        # Re(q conj(e)) is the inner product of the rows as they are laid out.
        return dot(query, entities)

"""ComplEx (Trouillon et al., 2016): DistMult over complex numbers, so direction matters."""

from torch import Tensor

from allneg.kernels import complex_mul
from allneg.models.base import Model


class ComplEx(Model):
    """score(h, r, t) = Re sum_k h_k r_k conj(t_k)

    Rows hold `dim` real parts, then `dim` imaginary parts, so Re(q conj(e)) is the inner product
    of two rows.
    """

    entity_parts = 2
    relation_parts = 2
    entity_axes = 2
    relation_axes = 2

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return complex_mul(head, relation)

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        # Re(h r conj(t)) = Re(h conj(t conj(r))): from the tail, the relation is conjugated.
        return complex_mul(tail, relation, conjugate=True)

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        # Re(r h conj(t)) is the inner product of r's row with that of conj(h) t.
        return complex_mul(tail, head, conjugate=True)

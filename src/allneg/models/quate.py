"""QuatE (Zhang et al., 2019): a relation rotates each quaternion of the head."""

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.models.base import Model


class QuatE(Model):
    """score(h, r, t) = sum_k <h_k * r_k / |r_k|, t_k>, where * is the product of quaternions

    Rows hold `dim` real parts, then `dim` numbers for each of i, j and k.
    """

    defaults = ("model.dim=500",)
    entity_parts = 4
    relation_parts = 4
    entity_axes = 4
    relation_axes = 0  # a rotation has modulus 1 whatever the row

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return _hamilton(head, self._rotation(relation))

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        # <h r, t> = <h, t r*>: from the tail, the relation is conjugated.
        real, *imaginary = self._rotation(relation)
        return _hamilton(tail, [real, *(-part for part in imaginary)])

    def _rotation(self, relation: Tensor) -> list[Tensor]:
        """The four parts of unit quaternions: (B, 4D) -> 4 times (B, D)."""
        return list(F.normalize(relation.unflatten(1, (4, -1)), dim=1).unbind(1))


def _hamilton(a: Tensor, b: list[Tensor]) -> Tensor:
    """a * b per coordinate: (B, 4D), the four parts of b (B, D) -> (B, 4D)."""
    a1, ai, aj, ak = a.chunk(4, dim=1)
    b1, bi, bj, bk = b
    return torch.cat(
        [
            a1 * b1 - ai * bi - aj * bj - ak * bk,
            a1 * bi + ai * b1 + aj * bk - ak * bj,
            a1 * bj - ai * bk + aj * b1 + ak * bi,
            a1 * bk + ai * bj - aj * bi + ak * b1,
        ],
        dim=1,
    )

"""ComplEx (Trouillon et al., 2016): DistMult over complex numbers, so direction matters."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels import dot
from allneg.models.base import Model, squared_modulus


class ComplEx(Model):
    """score(h, r, t) = Re sum_k h_k r_k conj(t_k)

    Rows hold `dim` real parts, then `dim` imaginary parts.
    """

    entity_parts = 2
    relation_parts = 2

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return _times(head, relation)

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        # Re(h r conj(t)) = Re(h conj(t conj(r))): the conjugate relation, asked from the tail.
        return _times(tail, _conjugate(relation))

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        # Re(r h conj(t)) is the product of r's row with that of conj(h) t.
        return _times(_conjugate(head), tail)

    def compare(self, query: Tensor, entities: Tensor) -> Tensor:
        # Re(q conj(e)) is the inner product of the rows as they are laid out.
        return dot(query, entities)

    def entity_squares(self, rows: Tensor) -> Tensor:
        return squared_modulus(rows)

    def relation_squares(self, rows: Tensor) -> Tensor:
        return squared_modulus(rows)


def _conjugate(row: Tensor) -> Tensor:
    re, im = row.chunk(2, dim=-1)
    return torch.cat([re, -im], dim=-1)


def _times(a: Tensor, b: Tensor) -> Tensor:
    a_re, a_im = a.chunk(2, dim=-1)
    b_re, b_im = b.chunk(2, dim=-1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)

"""SimplE (Kazemi and Poole, 2018): an entity has one row as a head and one as a tail."""

import torch
from torch import Tensor

from allneg.models.base import Model


class SimplE(Model):
    """score(h, r, t) = (sum_k H(h)_k r_k T(t)_k + sum_k H(t)_k r'_k T(h)_k) / 2

    Entity rows hold `dim` numbers H for the role of a head, then `dim` numbers T for the role of
    a tail; relation rows hold r, then its inverse r'.
    """

    n3 = 0.5
    entity_parts = 2
    relation_parts = 2

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        as_head, as_tail = head.chunk(2, dim=-1)
        forth, back = relation.chunk(2, dim=-1)
        return torch.cat([as_tail * back, as_head * forth], dim=-1) / 2

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        as_head, as_tail = tail.chunk(2, dim=-1)
        forth, back = relation.chunk(2, dim=-1)
        return torch.cat([as_tail * forth, as_head * back], dim=-1) / 2

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        first_as_head, first_as_tail = head.chunk(2, dim=-1)
        second_as_head, second_as_tail = tail.chunk(2, dim=-1)
        forth, back = first_as_head * second_as_tail, second_as_head * first_as_tail
        return torch.cat([forth, back], dim=-1) / 2

"""CP (Hitchcock, 1927; Lacroix et al., 2018): separate entity rows for heads and for tails."""

import torch
from torch import Tensor

from allneg.models.base import Model


class CP(Model):
    """score(h, r, t) = sum_k H(h)_k r_k T(t)_k

    Entity rows hold `dim` numbers H for the role of a head, then `dim` numbers T for the role of
    a tail. A query vector is 0 at the coordinates of the other role.
    """

    n3 = 0.5
    entity_parts = 2
    separate_roles = True

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        query = head[:, : self.dim] * relation
        return torch.cat([torch.zeros_like(query), query], dim=1)

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        query = tail[:, self.dim :] * relation
        return torch.cat([query, torch.zeros_like(query)], dim=1)

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        return head[:, : self.dim] * tail[:, self.dim :]

    def factors(self, head: Tensor, relation: Tensor, tail: Tensor) -> tuple[Tensor, ...]:
        return super().factors(head[:, : self.dim], relation, tail[:, self.dim :])

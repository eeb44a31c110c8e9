"""Models that use what the built-in ones do not: four axes, wide relations, a shared tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.models import Model


class Quaternion(Model):
    """score(h, r, t) = <h r, t> over quaternions: rows hold four parts of `dim` numbers."""

    entity_parts = relation_parts = 4
    entity_axes = relation_axes = 4

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return _hamilton(head, relation, 1)

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        return _hamilton(tail, relation, -1)  # <h r, t> = <h, t r*>


def _hamilton(a: Tensor, b: Tensor, sign: int) -> Tensor:
    """a · b per coordinate, or a · b* for the sign -1."""
    a1, a2, a3, a4 = a.chunk(4, dim=-1)
    b1, b2, b3, b4 = b.chunk(4, dim=-1)
    b2, b3, b4 = sign * b2, sign * b3, sign * b4
    return torch.cat(
        [
            a1 * b1 - a2 * b2 - a3 * b3 - a4 * b4,
            a1 * b2 + a2 * b1 + a3 * b4 - a4 * b3,
            a1 * b3 - a2 * b4 + a3 * b1 + a4 * b2,
            a1 * b4 + a2 * b3 - a3 * b2 + a4 * b1,
        ],
        dim=-1,
    )


class RESCAL(Model):
    """score(h, r, t) = h R t, where a relation row holds a whole matrix R."""

    @property
    def relation_width(self) -> int:
        return self.dim**2

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return torch.einsum("bi,bij->bj", head, relation.unflatten(1, (self.dim, self.dim)))

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        return torch.einsum("bj,bij->bi", tail, relation.unflatten(1, (self.dim, self.dim)))


class TuckER(RESCAL):
    """RESCAL with the matrix Σ_k r_k core_k: the core is shared by all relations."""

    @property
    def relation_width(self) -> int:
        return self.dim

    @property
    def shared_shape(self) -> tuple[int, ...]:
        return self.dim, self.dim, self.dim

    def combine(self, relation: Tensor, shared: Tensor) -> Tensor:
        return torch.einsum("bk,kij->bij", relation, shared).flatten(1)


class CP(Model):
    """score(h, r, t) = Σ_k H(h)_k r_k T(t)_k: entity rows hold H, then T."""

    entity_parts = 2
    separate_roles = True

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        moved = head[:, : self.dim] * relation
        return torch.cat([torch.zeros_like(moved), moved], dim=1)

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        moved = tail[:, self.dim :] * relation
        return torch.cat([moved, torch.zeros_like(moved)], dim=1)

    def factors(self, head: Tensor, relation: Tensor, tail: Tensor) -> tuple[Tensor, ...]:
        parts = head[:, : self.dim], relation, tail[:, self.dim :]
        return tuple(part.unsqueeze(1) for part in parts)


TOY_MODELS = {"quaternion": Quaternion, "rescal": RESCAL, "tucker": TuckER, "cp": CP}

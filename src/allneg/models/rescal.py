"""RESCAL (Nickel et al., 2011): a relation is a matrix."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from allneg.models.base import Model


class RESCAL(Model):
    """score(h, r, t) = h R t

    A relation row holds the dim × dim matrix R, row by row.
    """

    defaults: ClassVar[tuple[str, ...]] = (
        "model.dim=200", "regularizer.name=dura", "regularizer.weight=0.03",
    )  # fmt: skip
    tunable: ClassVar[Mapping[str, tuple[float | str, ...]]] = {
        name: values for name, values in Model.tunable.items() if name != "regularizer.name"
    }
    n3 = 0.0
    mixes_coordinates = True

    @property
    def relation_width(self) -> int:
        return self.dim**2

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return torch.einsum("bi,bij->bj", head, self.matrix(relation))  # h R

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        return torch.einsum("bj,bij->bi", tail, self.matrix(relation))  # R t

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        # h R t is the inner product of the row of R with the outer product of h and t.
        return torch.einsum("bi,bj->bij", head, tail).flatten(1)

    def matrix(self, relation: Tensor) -> Tensor:
        return relation.view(-1, self.dim, self.dim)

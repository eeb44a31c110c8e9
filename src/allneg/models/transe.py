"""TransE (Bordes et al., 2013): a relation moves the head to the tail."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from allneg.kernels import l1
from allneg.models.base import ADAM, DistanceModel, Factors


class TransE(DistanceModel):
    """score(h, r, t) = -|h + r - t|, with the L1 norm (`norm` 1) or the Euclidean one (2)."""

    defaults = (
        "model.dim=200", "model.scale=0.03", "regularizer.name=none",
        "optimizer.learning_rate=0.0003", *ADAM,
    )  # fmt: skip
    n3 = 0.0
    grouped = False  # it learns less from a batch of few queries with many answers
    tunable: ClassVar[Mapping[str, tuple[float | str, ...]]] = {
        "optimizer.learning_rate": Factors((0.1, 0.3, 1, 3)), "model.dim": Factors((0.5, 1, 2)),
    }  # fmt: skip
    norm1_kernel = l1

    def move(self, head: Tensor, relation: Tensor) -> Tensor:
        return head + relation

    def move_back(self, tail: Tensor, relation: Tensor) -> Tensor:
        return tail - relation

"""RotE (Chami et al., 2020): a relation turns each complex coordinate, then moves it."""

import math

from torch import Generator, Tensor, nn

from allneg.models.base import ADAM
from allneg.models.rotate import RotatE


class RotE(RotatE):
    """score(h, r, t) = -‖h * exp(i a_r) + b_r - t‖

    The paper's form is the squared Euclidean distance with a bias per entity: `norm` 2, `squared`
    and `bias`. Relation rows hold the translations b, `dim` real parts and `dim` imaginary ones,
    then `dim` angles a in radians.
    """

    defaults = (
        "model.norm=2", "model.squared=true", "model.bias=true", "model.dim=500",
        "model.scale=0.01", "optimizer.learning_rate=0.001", *ADAM,
    )  # fmt: skip
    n3 = 1.0
    relation_parts = 3
    relation_axes = 2  # of a translation; angles are not regularized

    def move(self, head: Tensor, relation: Tensor) -> Tensor:
        translation, angle = self._split(relation)
        return super().move(head, angle) + translation

    def move_back(self, tail: Tensor, relation: Tensor) -> Tensor:
        translation, angle = self._split(relation)
        return super().move_back(tail - translation, angle)

    def factors(self, head: Tensor, relation: Tensor, tail: Tensor) -> tuple[Tensor, ...]:
        return super().factors(head, self._split(relation)[0], tail)

    def init_relations(self, rows: Tensor, generator: Generator) -> None:
        translation, angle = self._split(rows)
        nn.init.normal_(translation, std=self.scale, generator=generator)
        nn.init.uniform_(angle, -math.pi, math.pi, generator=generator)

    def _split(self, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Translations (B, 2D) and angles (B, D)."""
        return relation[:, : 2 * self.dim], relation[:, 2 * self.dim :]

"""RotatE (Sun et al., 2019): a relation turns each complex coordinate by an angle."""

import math
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from allneg.kernels import complex_mul, modulus
from allneg.models.base import ADAM, DistanceModel


class RotatE(DistanceModel):
    """score(h, r, t) = -sum_k |h_k * exp(i r_k) - t_k|

    Entity rows hold `dim` real parts, then `dim` imaginary parts; relation rows hold `dim` angles
    in radians. With `norm` 2 the score is minus the Euclidean distance of the whole rows: a
    variant that other libraries also call RotatE.
    """

    defaults: ClassVar[tuple[str, ...]] = (
        "model.dim=200", "model.scale=0.02", "optimizer.learning_rate=0.002", *ADAM,
    )  # fmt: skip
    n3 = 250.0
    norm1_kernel = modulus
    entity_parts = 2
    entity_axes = 2
    relation_axes = 0  # a rotation has modulus 1 whatever its angle

    def move(self, head: Tensor, relation: Tensor) -> Tensor:
        return complex_mul(head, _rotation(relation))

    def move_back(self, tail: Tensor, relation: Tensor) -> Tensor:
        # A rotation keeps lengths, so |h*r - t| = |h - t*r^-1|: turn the tail back.
        return complex_mul(tail, _rotation(relation), conjugate=True)

    def init_relations(self, rows: Tensor, generator: Generator) -> None:
        nn.init.uniform_(rows, -math.pi, math.pi, generator=generator)


def _rotation(angle: Tensor) -> Tensor:
    """exp(i angle): (B, D) -> (B, 2D)."""
    return torch.cat([angle.cos(), angle.sin()], dim=-1)

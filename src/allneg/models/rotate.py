"""RotatE (Sun et al., 2019): a relation turns each complex coordinate by an angle."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from allneg.kernels import modulus, times
from allneg.models.distance import Distance


class RotatE(Distance):
    """score(h, r, t) = -sum_k |h_k * exp(i r_k) - t_k|

    Entity rows hold `dim` real parts, then `dim` imaginary parts; relation rows hold
    `dim` angles in radians. With `norm` 2 the score is minus the euclidean distance of the
    whole rows instead: a variant, which other libraries also call RotatE.
    """

    entity_parts = 2
    entity_axes = 2
    relation_axes = 0  # a turn has modulus 1 whatever its angle: there is nothing to shrink
    sum_of_moduli = "modulus"

    def forth(self, head: Tensor, relation: Tensor) -> Tensor:
        return times(head, _turn(relation))

    def back(self, tail: Tensor, relation: Tensor) -> Tensor:
        # A rotation keeps lengths, so |h*r - t| = |h - t*r^-1|: turn the tail back.
        return times(tail, _turn(relation), conjugate=True)

    def summed(self, query: Tensor, entities: Tensor) -> Tensor:
        return modulus(query, entities)

    def start_relations(self, rows: Tensor, generator: Generator) -> None:
        nn.init.uniform_(rows, -math.pi, math.pi, generator=generator)


def _turn(angle: Tensor) -> Tensor:
    """exp(i angle): (B, D) -> (B, 2D)."""
    return torch.cat([angle.cos(), angle.sin()], dim=-1)

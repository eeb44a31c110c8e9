"""RotatE (Sun et al., 2019): a relation turns each complex coordinate by an angle."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from allneg.kernels import modulus
from allneg.models.base import squared_modulus
from allneg.models.distance import Distance


class RotatE(Distance):
    """score(h, r, t) = -sum_k |h_k * exp(i r_k) - t_k|

    Entity rows hold `dim` real parts, then `dim` imaginary parts; relation rows hold
    `dim` angles in radians. With `norm` 2 the score is minus the euclidean distance of the
    whole rows instead: a variant, which other libraries also call RotatE.
    """

    entity_parts = 2
    sum_of_moduli = "modulus"

    def forth(self, head: Tensor, relation: Tensor) -> Tensor:
        return _turn(head, relation)

    def back(self, tail: Tensor, relation: Tensor) -> Tensor:
        # A rotation keeps lengths, so |h*r - t| = |h - t*r^-1|: turn the tail back.
        return _turn(tail, -relation)

    def summed(self, query: Tensor, entities: Tensor) -> Tensor:
        return modulus(query, entities)

    def start_relations(self, rows: Tensor, generator: Generator) -> None:
        nn.init.uniform_(rows, -math.pi, math.pi, generator=generator)

    def entity_squares(self, rows: Tensor) -> Tensor:
        return squared_modulus(self.place(rows))

    def relation_squares(self, rows: Tensor) -> Tensor:
        # A turn has modulus 1 whatever its angle: there is nothing to shrink.
        return rows.new_zeros(len(rows), 1)


def _turn(row: Tensor, angle: Tensor) -> Tensor:
    re, im = row.chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([re * cos - im * sin, re * sin + im * cos], dim=-1)

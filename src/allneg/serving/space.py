"""Entities by the direction of their rows: who is near whom."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from allneg.models import Model
from allneg.scoring import Tables


@dataclass(frozen=True)
class Space:
    """The places of entities, and the length of each; likeness is the cosine of two places."""

    places: Tensor  # float (N, parts · D)
    lengths: Tensor  # float (N,)

    @classmethod
    @torch.no_grad()
    def of(cls, model: Model, tables: Tables) -> Space:
        places = model.coordinates(tables.entities.detach())
        return cls(places, places.norm(dim=1).clamp(min=1e-12))

    @torch.no_grad()
    def nearest(self, entity: int, k: int) -> list[tuple[int, float]]:
        """The `k` entities most like one, without itself, and their cosines."""
        one = torch.tensor([entity], device=self.places.device)
        cosines = (self.places @ self.places[entity]) / self.lengths[one] / self.lengths
        cosines[one] = -torch.inf
        best, ids = cosines.topk(min(k, len(cosines) - 1))
        return list(zip(ids.tolist(), best.tolist(), strict=True))

    @torch.no_grad()
    def likeness(self, entity: int, others: list[int]) -> list[float]:
        """The cosine of one entity with each of some others."""
        ids = torch.tensor([entity, *others], device=self.places.device)
        rows = self.places[ids] / self.lengths[ids].unsqueeze(1)
        found: list[float] = (rows[1:] @ rows[0]).tolist()
        return found

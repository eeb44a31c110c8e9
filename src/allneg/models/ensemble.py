"""An ensemble: trained models side by side, whose scores are added with weights per relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Never

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.kernels import Kernel, dot
from allneg.models.base import Model
from allneg.models.counts import Counts


@dataclass(frozen=True)
class Ensemble(Model):
    """score(h, r, t) = Σ_m c_m · score_m(h, r, t), where c_m = w_m / σ_m · Σ_k w_k σ_k

    σ_m is the spread of a member's scores, so the weights w_m of a relation row do not depend on
    units. With a single weight of 1, scores are those of that member. `Counts` are log-odds: their
    c is their weight, and the sum leaves them out. Rows hold the rows of the members one after the
    other; a relation row ends with the weights. Each side of a relation has its own row, whether or
    not the members have reciprocal relations. An ensemble is not trained.
    """

    members: tuple[Model, ...] = ()
    reciprocal: tuple[bool, ...] = ()  # of each member
    spreads: tuple[float, ...] = ()  # σ_m

    @classmethod
    def of(
        cls, members: Sequence[Model], reciprocal: Sequence[bool], spreads: Sequence[float]
    ) -> Ensemble:
        dim = sum(model.dim for model in members)
        parts = tuple(members), tuple(reciprocal), tuple(spreads)
        return cls(dim, 0.0, members=parts[0], reciprocal=parts[1], spreads=parts[2])

    @property
    def entity_widths(self) -> list[int]:
        return [model.entity_width for model in self.members]

    @property
    def relation_widths(self) -> list[int]:
        """The widths of relation rows that are already combined with a shared parameter."""
        return [combined(model, *_no_rows(model)).shape[1] for model in self.members]

    @property
    def entity_width(self) -> int:
        return sum(self.entity_widths)

    @property
    def relation_width(self) -> int:
        return sum(self.relation_widths) + len(self.members)

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        """A sum of inner products is one inner product; other kernels are called one by one."""
        if all(model.kernel is dot for model in self.members):
            return dot
        return WeightedSum([model.kernel for model in self.members], self.entity_widths)

    def coefficients(self, weights: Tensor) -> Tensor:
        """c_m for each row of weights: (B, M) -> (B, M)."""
        spreads = torch.tensor(self.spreads, dtype=weights.dtype, device=weights.device)
        is_counted = torch.tensor(self._is_counted, device=weights.device)
        trained = weights.masked_fill(is_counted, 0.0)
        return weights.where(is_counted, trained * (trained @ spreads).unsqueeze(1) / spreads)

    def taken(self, relations: Tensor) -> Tensor | None:
        """What counts take from the score of an entity with a fact, by relation row; or None."""
        if not any(self._is_counted):
            return None
        *parts, weights = relations.split([*self.relation_widths, len(self.members)], dim=1)
        columns = zip(self._is_counted, weights.unbind(1), parts, strict=True)
        return torch.stack([w * part.sum(1) for is_own, w, part in columns if is_own]).sum(0)

    @property
    def _is_counted(self) -> list[bool]:
        return [isinstance(model, Counts) for model in self.members]

    def query(self, entity: Tensor, relation: Tensor, side: Tensor, reciprocal: bool) -> Tensor:
        *relations, weights = relation.split([*self.relation_widths, len(self.members)], dim=1)
        entities = entity.split(self.entity_widths, dim=1)
        rows = zip(self.members, entities, relations, self.reciprocal, strict=True)
        queries = [model.query(e, r, side, own) for model, e, r, own in rows]
        coefficients = self.coefficients(weights)
        if self.kernel is not dot:
            return torch.cat([*queries, coefficients], dim=1)
        return torch.cat([c * q for c, q in zip(coefficients.split(1, 1), queries, strict=True)], 1)

    def tail_query(self, head: Tensor, relation: Tensor) -> Never:
        raise TypeError("the queries of an ensemble need the side")

    def head_query(self, tail: Tensor, relation: Tensor) -> Never:
        self.tail_query(tail, relation)

    def coordinates(self, rows: Tensor) -> Tensor:
        """The members' coordinates, each of length 1, so that a cosine is the mean of theirs."""
        parts = zip(self.members, rows.split(self.entity_widths, dim=1), strict=True)
        return torch.cat([F.normalize(model.coordinates(part)) for model, part in parts], dim=1)


class WeightedSum(Kernel):
    """score = Σ_m c_m · score_m. A query holds those of all kernels, then the factors c_m."""

    name = "weighted sum"

    def __init__(self, kernels: Sequence[Kernel], widths: Sequence[int]) -> None:
        self.kernels, self.widths = kernels, list(widths)

    def scores(self, query: Tensor, rows: Tensor) -> Tensor:
        *queries, factors = query.split([*self.widths, len(self.kernels)], dim=1)
        parts = zip(self.kernels, queries, rows.split(self.widths, dim=-1), strict=True)
        scores = (kernel.scores(q.contiguous(), r.contiguous()) for kernel, q, r in parts)
        found = zip(factors.split(1, 1), scores, strict=True)
        return torch.stack([factor * values for factor, values in found]).sum(0)

    def gradients(self, *_: object) -> Never:
        raise TypeError("an ensemble is not trained")


def combined(model: Model, relations: Tensor, shared: Tensor | None) -> Tensor:
    """Relation rows as the model's queries take them."""
    return relations if shared is None else model.combine(relations, shared)


def _no_rows(model: Model) -> tuple[Tensor, Tensor | None]:
    """No relation row, and a shared parameter without memory."""
    shape = model.shared_shape
    shared = None if shape is None else torch.empty(shape, device="meta")
    return torch.empty(0, model.relation_width, device="meta"), shared

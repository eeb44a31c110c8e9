"""Penalties on the rows of a batch: per query, on its own head, relation and tail.

An entity is penalised once per query in which it occurs, so rare entities are penalised rarely.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from allneg.graph.queries import Queries
from allneg.kernels.fused import power_gradients
from allneg.models import Model
from allneg.recipe import Regularizer as Settings
from allneg.scoring.tables import BatchRows

Share: TypeAlias = float | Tensor  # of queries in a batch: the same for all, or (B,)


@dataclass(frozen=True)
class Regularizer(ABC):
    """A new regularizer implements `penalty`, and is added to REGULARIZERS."""

    weight: float
    reciprocal: bool  # with reciprocal relations, a query's entity always acts as the head
    exponent: float = 3.0
    product_weight: float = 1.0

    uses: ClassVar[tuple[str, ...]] = ()  # its settings, such as "exponent"; others are refused
    bilinear_only: ClassVar[bool] = False  # not for distance models
    uses_queries: ClassVar[bool] = False  # takes relations combined with the shared parameter
    uses_relation_query: ClassVar[bool] = False

    @abstractmethod
    def penalty(self, model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """The unweighted penalty of each triple, differentiable: (B, W), (B, V), (B, W) -> (B,)."""

    def backward(
        self, model: Model, rows: BatchRows, queries: Queries, share: Share, losses: Tensor
    ) -> None:
        """Add `share` times the weighted penalties to `losses` (B,); also give rows gradients.

        Grouped queries have a penalty for each answer.
        """
        head, relation, tail, side = rows.entity, rows.relation, rows.answer, queries.side
        if queries.group is not None:
            head, relation, side = (
                x.index_select(0, queries.group) for x in (head, relation, side)
            )
        if not self.reciprocal:
            tails = side.unsqueeze(1) == 0
            head, tail = torch.where(tails, head, tail), torch.where(tails, tail, head)
        if self.uses_queries and rows.shared is not None:
            relation = model.combine(relation, rows.shared)
        penalty = self.penalty(model, head, relation, tail)
        factor = torch.zeros_like(penalty) + share * self.weight
        penalty.backward(factor)
        losses.add_(queries.sums(factor * penalty.detach()))


class PowerSum(Regularizer):
    """Σ_k |x_k|^power over the model's factors, with value and gradient in one pass."""

    power: ClassVar[int]

    def penalty(self, model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        total = head.new_zeros(len(head))
        for factor in model.factors(head, relation, tail):
            total = total + factor.square().sum(1).pow(self.power / 2).sum(1)
        return total

    def backward(
        self, model: Model, rows: BatchRows, queries: Queries, share: Share, losses: Tensor
    ) -> None:
        if model.separate_roles and not self.reciprocal:
            super().backward(model, rows, queries, share, losses)
            return
        head, relation, tail = rows.entity, rows.relation, rows.answer
        *factors, last = model.factors(head.detach(), relation.detach(), tail.detach())
        # Usually the answer has no gradient yet, and its factor is the whole row.
        add = tail.grad is not None or last.numel() < tail.numel()
        if not add:
            tail.grad = torch.empty_like(tail)
        *grads, last_grad = model.factors(_grad(head), _grad(relation), _grad(tail))
        weight = share * self.weight
        out = losses if queries.group is None else losses.new_zeros(len(tail))
        power_gradients(last, last_grad, self.power, weight, out, add)
        weight = queries.sums(weight) if isinstance(weight, Tensor) else weight
        for factor, grad in zip(factors, grads, strict=True):
            power_gradients(factor, grad, self.power, weight, losses, add=True)
        if out is not losses:
            losses.add_(queries.sums(out))


def _grad(row: Tensor) -> Tensor:
    """The gradient of a row, which may be new."""
    row.grad = torch.zeros_like(row) if row.grad is None else row.grad
    return row.grad


class L2(PowerSum):
    """Σ_k |h_k|² + |r_k|² + |t_k|²"""

    power = 2


class N3(PowerSum):
    """Σ_k |h_k|³ + |r_k|³ + |t_k|³ (Lacroix et al., 2018)"""

    power = 3


class DURA(Regularizer):
    """|h|² + |t|² + |h R|² + |t Rᵀ|² (Zhang et al., 2020), for every bilinear model.

    h R is the query vector of (h, r, ?), and t Rᵀ that of (?, r, t).
    """

    bilinear_only = True
    uses_queries = True
    rows: ClassVar[float] = 1.0  # weight of the rows alone
    products: ClassVar[float] = 1.0  # weight of their products with the relation

    def penalty(self, model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        used, *_, answer = model.factors(head, relation, tail)  # without parts for another role
        alone = used.square().sum((1, 2)) + answer.square().sum((1, 2))
        forward, backward = model.tail_query(head, relation), model.head_query(tail, relation)
        moved = forward.square().sum(1) + backward.square().sum(1)
        return self.rows * alone + self.products * moved


class WeightedDURA(DURA):
    """DURA with half the weight on the rows, and one and a half on the products."""

    rows = 0.5
    products = 1.5


class IVR(Regularizer):
    """Σ_k |h_k|^α + |r_k|^α + |t_k|^α + w (|(h r)_k|^α + |(t r)_k|^α + |(h t)_k|^α)

    α is `exponent` and w `product_weight`. h r, t r and h t are the query vectors of (h, r, ?),
    (?, r, t) and (h, ?, t): the intermediate variables of the score (Xiao and Cao, 2024). Where
    relations are matrices, a row is one coordinate, and |R|² is divided by `dim`.

    The paper bounds the trace norm of the predicted tensor along each of its modes in two ways,
    and adds both. For DistMult, CP and ComplEx they are equal. Here each mode has one: that of
    the second kind for the relations of RESCAL and TuckER, and of the first kind otherwise.
    """

    uses = ("exponent", "product_weight")
    bilinear_only = True
    uses_queries = True
    uses_relation_query = True

    def penalty(self, model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, r, t = model.factors(head, relation, tail)
        if model.mixes_coordinates:
            r = r / model.dim**0.5
        by_tail, by_head = model.tail_query(head, relation), model.head_query(tail, relation)
        by_relation = model.relation_query(head, tail)
        products = (
            by_tail.unflatten(1, (model.entity_axes, -1)),
            by_head.unflatten(1, (model.entity_axes, -1)),
            by_relation.unflatten(1, (model.relation_axes, -1)),
        )
        rows, moved = (
            torch.stack([self._powers(x, model.mixes_coordinates) for x in group]).sum(0)
            for group in ((h, r, t), products)
        )
        return rows + self.product_weight * moved

    def _powers(self, x: Tensor, as_one: bool) -> Tensor:
        """Σ_k |x_k|^α, or |x|^α of the whole row: (B, axes, D) -> (B,)."""
        squares = x.square().sum(1)
        if as_one:
            squares = squares.sum(1, keepdim=True)
        return squares.pow(self.exponent / 2).sum(1)


REGULARIZERS: dict[str, type[Regularizer] | None] = {
    "none": None,
    "l2": L2,
    "n3": N3,
    "dura": DURA,
    "dura-w": WeightedDURA,
    "ivr": IVR,
}


def make_regularizer(settings: Settings, reciprocal: bool) -> Regularizer | None:
    """The regularizer of a recipe."""
    kind = REGULARIZERS[settings.name]
    if kind is None:
        return None
    return kind(settings.weight, reciprocal, settings.exponent, settings.product_weight)

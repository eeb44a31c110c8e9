"""Rows of tables that are here: looked up, and their gradients put by or added up.

Left to autograd, the gradient of each look-up would become a table of zeros with a few rows in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.kernels.looked import add_slopes, look
from allneg.kernels.rows import add_rows
from allneg.scoring.far import Late


@dataclass(frozen=True)
class Size:
    """How large a row is: Σ |x_k|^power, over coordinates of so many axes."""

    power: int  # 2 or 3
    entity_axes: int
    relation_axes: int


class Look(torch.autograd.Function):
    """Two look-ups whose gradients are put by, to be added to the table's once it is written."""

    @staticmethod
    def forward(
        ctx: Any, table: Tensor, one: Tensor, other: Tensor, late: Late
    ) -> tuple[Tensor, Tensor]:
        ctx.ids, ctx.late = (one, other), late
        ctx.set_materialize_grads(False)
        return F.embedding(one, table), F.embedding(other, table)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[None, None, None, None]:
        ctx.late += [
            partial(add_rows, ids=ids, rows=grad)
            for ids, grad in zip(ctx.ids, grads, strict=True)
            if grad is not None
        ]
        return None, None, None, None


class LookSized(torch.autograd.Function):
    """The look-ups of a question's three rows, and the sum of their sizes, for a penalty.

    The entities' gradients are put by, as those of `Look`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        entities: Tensor,
        relations: Tensor,
        ids: tuple[Tensor, Tensor, Tensor],
        size: Size,
        late: Late,
    ) -> tuple[Tensor, ...]:
        entity, sizes = look(entities, ids[0], size.entity_axes, size.power)
        relation, sizes = look(relations, ids[1], size.relation_axes, size.power, sizes)
        answer, sizes = look(entities, ids[2], size.entity_axes, size.power, sizes)
        ctx.save_for_backward(entities, relations)
        ctx.ids, ctx.size, ctx.late = ids, size, late
        ctx.set_materialize_grads(False)
        return entity, relation, answer, sizes

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any,
        entity: Tensor | None,
        relation: Tensor | None,
        answer: Tensor | None,
        sizes: Tensor | None,
    ) -> tuple[None, Tensor, None, None, None]:
        entities, relations = ctx.saved_tensors
        if sizes is None:
            sizes = entities.new_zeros(len(ctx.ids[0]))
        power, axes = ctx.size.power, ctx.size.entity_axes
        for ids, rows in ((ctx.ids[0], entity), (ctx.ids[2], answer)):
            how = {"table": entities, "ids": ids, "axes": axes, "power": power, "weight": sizes}
            ctx.late.append(partial(add_slopes, **how, rows=rows))
        to_relations, axes = torch.zeros_like(relations), ctx.size.relation_axes
        add_slopes(to_relations, relations, ctx.ids[1], axes, power, sizes, relation)
        return None, to_relations, None, None, None


class Few(torch.autograd.Function):
    """A look-up of few rows, or in a small table: (B,) -> (B, V), or (B, K) -> (B, K, V).

    F.embedding would sort the ids for its gradient.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.ids, ctx.shape = ids, table.shape
        return F.embedding(ids, table)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        out = grad.new_zeros(ctx.shape)
        add_rows(out, ctx.ids.flatten(), grad.reshape(-1, ctx.shape[1]))
        return out, None

"""Rows of the entity table that other processes hold: fetched from there, their gradients returned.

A process gives the rows it holds and zeros for the others, and the sum over the processes is
every row, exactly. What is computed from the fetched rows is the same on all of them, so each
knows the whole gradient of every fetched row and keeps that of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.kernels.rows import add_rows
from allneg.scoring.shard import Pending, Shard

Late: TypeAlias = list[Callable[[Tensor], None]]  # each adds to the gradient of the shard's rows


@dataclass(frozen=True)
class Fetched:
    """Rows on their way."""

    ids: Tensor  # int64 (…)
    rows: Tensor  # (…, W): not to be read before `sum` has ended
    sum: Pending


def fetch(table: Tensor, ids: Tensor, shard: Shard) -> Fetched:
    """Begin to bring entity rows here from whichever process holds them."""
    rows = F.embedding(shard.local(ids), table.detach())
    rows.masked_fill_(~shard.holds(ids).unsqueeze(-1), 0.0)
    return Fetched(ids, rows, shard.rows.begin_sum(rows))


def fetched_rows(table: Tensor, ids: Tensor, shard: Shard) -> Tensor:
    """Entity rows, for which there is no gradient: (…) -> (…, W)."""
    fetched = fetch(table, ids, shard)
    fetched.sum.wait()
    return fetched.rows


def look_far(
    table: Tensor, fetched: Fetched, shard: Shard, widest: int | None, late: Late
) -> tuple[Tensor, Tensor]:
    """The fetched rows, entities' and answers': (2, B, W) -> (B, W), (B, W).

    Their gradients are put into `late`. With `widest`, the most queries that a process of the
    batch group has, those of the whole group come there; else, those of this process.
    """
    fetched.sum.wait()
    entity, answer = _LookFar.apply(  # type: ignore[no-untyped-call]
        table, fetched.rows, fetched.ids, shard, widest, late
    )
    return entity, answer


class _LookFar(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, table: Tensor, rows: Tensor, ids: Tensor, *more: Any
    ) -> tuple[Tensor, Tensor]:
        ctx.ids, (ctx.shard, ctx.widest, ctx.late) = ids, more
        ctx.set_materialize_grads(False)
        entity, answer = rows.unbind(0)
        return entity.clone(), answer.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[None, ...]:
        # Without a penalty nothing is asked of the answers' rows.
        there = [i for i, each in enumerate(grads) if each is not None]
        ids = torch.stack([ctx.ids[i] for i in there])
        grad = torch.stack([each for each in grads if each is not None])
        if ctx.widest is not None:
            more = ctx.widest - ids.shape[1]
            ids = ctx.shard.batch.stack(F.pad(ids, (0, more)))
            grad = ctx.shard.batch.stack(F.pad(grad, (0, 0, 0, more)))
        ids, grad = ids.flatten(), grad.flatten(0, -2)
        grad = grad.masked_fill(~ctx.shard.holds(ids).unsqueeze(1), 0.0)
        ctx.late.append(partial(add_rows, ids=ctx.shard.local(ids), rows=grad))
        return (None,) * 6

"""The inner product of queries with rows: DistMult's, ComplEx's and SimplE's comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from allneg.kernels.packed import product


def dot(query: Tensor, table: Tensor) -> Tensor:
    """The inner product of every query with every row: (B, W), (N, W) -> (B, N).

    A table (B, K, W) holds each query's own rows and gives (B, K). A table from `packed` gives
    scores alone.
    """
    if table.is_mkldnn:
        return product(query, table)
    if table.dim() == 3:
        return torch.einsum("bw,bkw->bk", query, table)
    if query.device.type == "cpu":
        return query @ table.T
    out: Tensor = _Wide.apply(query, table)  # type: ignore[no-untyped-call]
    return out


class _Wide(torch.autograd.Function):
    """Products of float32 operands, which a GPU may round to TF32."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(query, table)
        return query @ table.T

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        query, table = ctx.saved_tensors
        # A TF32 product is a third faster when the queries lie along the axis it sums over.
        return grad @ table, grad.T @ query.T.contiguous().T


@dataclass(frozen=True)
class NarrowDot:
    """`dot` of operands rounded to bfloat16, added up and given back in float32.

    Apart from autograd, which would widen slopes that come as bfloat16.
    """

    query: Tensor  # bfloat16 (B, W)
    table: Tensor  # bfloat16 (N, W)

    def scores(self) -> Tensor:
        return _product(self.query, self.table.T)

    def gradients(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """From d/d scores (B, N), rounded too, to d/d query (B, W) and d/d table (N, W)."""
        slopes = slopes.bfloat16()
        return _product(slopes, self.table), _product(slopes.T, self.query)


def _product(a: Tensor, b: Tensor) -> Tensor:
    if a.device.type == "cuda":
        return torch.mm(a, b, out_dtype=torch.float32)
    # Elsewhere torch rounds a bfloat16 product to bfloat16: widen the operands instead.
    return a.float() @ b.float()

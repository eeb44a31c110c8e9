"""The inner product of queries with rows: DistMult's, ComplEx's and SimplE's comparison."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from allneg.kernels.packed import product


def dot(query: Tensor, table: Tensor) -> Tensor:
    """The inner product of every query with every row: (B, W), (N, W) -> (B, N).

    A table (B, K, W) holds each query's own rows and gives (B, K). Under `torch.autocast` the
    operands of a whole table's products are bfloat16; scores and gradients stay float32.
    A table from `packed` gives scores alone.
    """
    if table.is_mkldnn:
        return product(query, table)
    if table.dim() == 3:
        with torch.autocast(query.device.type, enabled=False):
            return torch.einsum("bw,bkw->bk", query, table)
    narrow = torch.is_autocast_enabled(query.device.type)
    if not narrow and query.device.type == "cpu":
        return query @ table.T
    out: Tensor = (_Narrow if narrow else _Wide).apply(query, table)  # type: ignore[no-untyped-call]
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


class _Narrow(torch.autograd.Function):
    """Products of bfloat16 operands, added up and given back in float32."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, table: Tensor) -> Tensor:
        query, table = query.bfloat16(), table.bfloat16()
        ctx.save_for_backward(query, table)
        return _product(query, table.T)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        query, table = ctx.saved_tensors
        grad = grad.bfloat16()
        return _product(grad, table), _product(grad.T, query)


def _product(a: Tensor, b: Tensor) -> Tensor:
    with torch.autocast(a.device.type, enabled=False):
        if a.device.type == "cuda":
            return torch.mm(a, b, out_dtype=torch.float32)
        # Elsewhere torch rounds a bfloat16 product to bfloat16: widen the operands instead.
        return a.float() @ b.float()

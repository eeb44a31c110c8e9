"""The L2 distance of queries to rows by the matrix product: the paper's section 3.3."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from allneg.kernels.blocks import wide

# |q|² + |e|² - 2qe loses its digits where q is near e. Below this share of |q|² + |e|² the
# pair is computed again from its difference.
_CLOSE = {torch.float32: 1e-3, torch.float64: 1e-7}
_PAIRS = 1 << 14  # close pairs computed again at a time


def l2(query: Tensor, table: Tensor) -> Tensor:
    """Minus the L2 distance of every query to every row: (B, W), (N, W) -> (B, N).

    A table (B, K, W) holds each query's own rows and gives (B, K). Exact to rounding near
    zero distance too, where the gradient is 0. Where products are in TF32 their rounding shows
    most just above that: at a thirtieth of the lengths a distance is off by some hundredths of
    itself, elsewhere by some millionths.
    """
    if table.dim() == 3:
        square = (query.unsqueeze(1) - table).square().sum(-1)
        safe = torch.where(square > 0, square, 1.0).sqrt()
        return -torch.where(square > 0, safe, 0.0)
    # Autocast would round the product, whose digits the difference of squares needs.
    with torch.autocast(query.device.type, enabled=False):
        out: Tensor = _L2.apply(query, table)  # type: ignore[no-untyped-call]
    return out


class _L2(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, table: Tensor) -> Tensor:
        q, e = wide(query), wide(table)
        both = q.square().sum(1, keepdim=True) + e.square().sum(1)
        square = torch.addmm(both, q, e.T, alpha=-2)
        for b, n in _close_pairs(square, both):
            square[b, n] = (q.index_select(0, b) - e.index_select(0, n)).square().sum(1)
        distance = square.sqrt_()
        ctx.save_for_backward(query, table, distance)
        return -distance

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        query, table, distance = ctx.saved_tensors
        q, e = wide(query), wide(table)
        pull = torch.where(distance > 0, grad / distance, 0.0)
        # Σ_n pull (q - e_n), each sum apart. A close pair's huge pull cancels between the two
        # terms, so those pairs are left out of the products and added from their difference.
        both = q.square().sum(1, keepdim=True) + e.square().sum(1)
        near = list(_close_pairs(distance.square(), both))
        pulls = [pull[b, n].unsqueeze(1) for b, n in near]
        for b, n in near:
            pull[b, n] = 0.0
        to_query = pull @ e - q * pull.sum(1, keepdim=True)
        to_table = pull.T @ q - e * pull.sum(0).unsqueeze(1)
        for (b, n), some in zip(near, pulls, strict=True):
            apart = (q.index_select(0, b) - e.index_select(0, n)) * some
            to_query.index_add_(0, b, apart, alpha=-1)
            to_table.index_add_(0, n, apart)
        return to_query.to(query.dtype), to_table.to(table.dtype)


def _close_pairs(square: Tensor, both: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Indices of the pairs whose squared distance is too small to trust, in bounded parts."""
    b, n = (square <= _CLOSE[square.dtype] * both).nonzero(as_tuple=True)
    return list(zip(b.split(_PAIRS), n.split(_PAIRS), strict=True))

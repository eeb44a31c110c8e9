"""`modulus` on a CPU with PyTorch alone: blocks that stay in the cache, filled in place.

Differences below 1e-18 count as none: their squares are lost in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels.blocks import row_blocks, wide

_TINY = 1e-37  # keeps 1/0 away where both parts are 0, so that 0 · 1/√tiny gives the slope 0
_NO_REDUCTION = 0

_squared_difference = torch.ops.aten.mse_loss.out


def scores(query: Tensor, table: Tensor) -> Tensor:
    """Minus the sums of moduli: (B, 2D), (N, 2D) -> (B, N), at least float32."""
    query, table = wide(query), wide(table)
    out = query.new_zeros(len(query), len(table))
    dim = query.shape[1] // 2
    sums = query.new_full((1, dim), -1.0)
    for start, stop in row_blocks(table):
        columns = table[start:stop].T.contiguous()
        apart = torch.empty_like(columns)
        size = apart[:dim]
        # Not straight into `out`, as in `l1`: rows that are equal would not tie.
        line = query.new_empty(1, stop - start)
        for i in range(len(query)):
            _squared_difference(query[i, :, None], columns, _NO_REDUCTION, out=apart)
            size.add_(apart[dim:]).sqrt_()
            out[i, start:stop] = torch.mm(sums, size, out=line)[0]
    return out


def gradients(grad: Tensor, query: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, 2D) and d/d table (N, 2D)."""
    query, table = wide(query), wide(table)
    to_query, to_table = torch.zeros_like(query), table.new_zeros(table.shape)
    tiny = query.new_tensor(_TINY)
    for start, stop in row_blocks(table):
        columns = table[start:stop].T.contiguous()
        pull, total = torch.empty_like(columns), torch.zeros_like(columns)
        re, im = pull.chunk(2)
        share = torch.empty_like(re)
        ones = query.new_ones(stop - start)
        for i in range(len(query)):
            torch.sub(query[i, :, None], columns, out=pull)
            torch.addcmul(tiny, re, re, out=share)
            share.addcmul_(im, im).rsqrt_().mul_(grad[i, start:stop])
            pull.view(2, *share.shape).mul_(share)
            to_query[i].addmv_(pull, ones, alpha=-1)
            total.add_(pull)
        to_table[start:stop] = total.T
    return to_query, to_table

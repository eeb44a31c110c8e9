"""`l1` on a CPU with PyTorch alone: blocks that stay in the cache, one pass to fill them.

Huber's loss is |x| - 1/2 where |x| > 1, and its slope there is the sign of x; its gradient is
0 at 0. PyTorch has it as one loop from operands to result, so we stretch the coordinates until
every difference that matters is far beyond 1, and the 1/2 is lost in rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels.blocks import row_blocks, wide

_STRETCH = 2.0**60  # a power of 2: it changes no digit; differences below 2^-60 count as none
_NO_REDUCTION = 0

_huber = torch.ops.aten.huber_loss.out
_huber_backward = torch.ops.aten.huber_loss_backward.out


def scores(query: Tensor, table: Tensor) -> Tensor:
    """Minus the L1 distances: (B, W), (N, W) -> (B, N), at least float32."""
    query, table = wide(query) * _STRETCH, wide(table)
    out = query.new_zeros(len(query), len(table))
    width = query.shape[1]
    sums = query.new_full((1, width), -1 / _STRETCH)
    for start, stop in row_blocks(table):
        columns = (table[start:stop] * _STRETCH).T.contiguous()
        apart = torch.empty_like(columns)
        # Not straight into `out`: where a line of it begins decides the order in which a product
        # sums, and rows that are equal would not tie.
        line = query.new_empty(1, stop - start)
        for i in range(len(query)):
            _huber(query[i, :, None], columns, _NO_REDUCTION, 1.0, out=apart)
            out[i, start:stop] = torch.mm(sums, apart, out=line)[0]
    return out


def gradients(grad: Tensor, query: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, W) and d/d table (N, W)."""
    query, table = wide(query) * _STRETCH, wide(table)
    to_query, to_table = torch.zeros_like(query), table.new_zeros(table.shape)
    for start, stop in row_blocks(table):
        columns = (table[start:stop] * _STRETCH).T.contiguous()
        pull, total = torch.empty_like(columns), torch.zeros_like(columns)
        ones = query.new_ones(stop - start)
        for i in range(len(query)):
            some = grad[i, start:stop]
            _huber_backward(some, query[i, :, None], columns, _NO_REDUCTION, 1.0, grad_input=pull)
            to_query[i].addmv_(pull, ones, alpha=-1)
            total.add_(pull)
        to_table[start:stop] = total.T
    return to_query, to_table

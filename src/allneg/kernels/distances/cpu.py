"""Distances on a CPU with PyTorch alone: blocks that stay in the cache, one query at a time.

Huber's loss is |x| - 1/2 where |x| > 1, and its gradient there is the sign of x; at 0 it is 0.
PyTorch computes it in one loop from operands to result. So for `parts` 1 the coordinates are
multiplied by a large number. Relevant differences are then far above 1, and the 1/2 disappears in
rounding.
For `parts` 2, differences below 1e-18 count as 0: their squares are lost in float32.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

_STRETCH = 2.0**60  # a power of 2, so it changes no digit; differences below 2^-60 count as 0
_TINY = 1e-37  # avoids 1/0 where both parts are 0, so that 0 · 1/√tiny gives the gradient 0
_NO_REDUCTION = 0
_BLOCK = 1 << 20  # numbers per block of one query's differences, for the last-level cache
_LANES = 64  # MKL sums the columns beyond a multiple of this in another order

_huber = torch.ops.aten.huber_loss.out
_huber_backward = torch.ops.aten.huber_loss_backward.out
_squared_difference = torch.ops.aten.mse_loss.out


def scores(query: Tensor, table: Tensor, parts: int) -> Tensor:
    """Minus the distances: (B, W), (N, W) -> (B, N); W is `parts` times the dimension."""
    stretch = _STRETCH if parts == 1 else 1.0
    query = query * stretch
    out = query.new_zeros(len(query), len(table))
    dim = query.shape[1] // parts
    weights = query.new_full((1, dim), -1 / stretch)
    for start, stop in _row_blocks(table):
        padding = -(stop - start) % _LANES  # so that equal rows tie
        columns = F.pad(table[start:stop] * stretch, (0, 0, 0, padding)).T.contiguous()
        difference = torch.empty_like(columns)
        size = difference[:dim]
        # Not directly into `out`: the alignment of its rows changes the order in which a product
        # sums, and equal rows would not tie.
        line = query.new_empty(1, stop - start + padding)
        for i in range(len(query)):
            if parts == 1:
                _huber(query[i, :, None], columns, _NO_REDUCTION, 1.0, out=difference)
            else:
                _squared_difference(query[i, :, None], columns, _NO_REDUCTION, out=difference)
                size.add_(difference[dim:]).sqrt_()
            out[i, start:stop] = torch.mm(weights, size, out=line)[0, : stop - start]
    return out


def gradients(grad: Tensor, query: Tensor, table: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, W) and d/d table (N, W)."""
    stretch = _STRETCH if parts == 1 else 1.0
    query = query * stretch
    d_query, d_table = torch.zeros_like(query), table.new_zeros(table.shape)
    tiny = query.new_tensor(_TINY)
    for start, stop in _row_blocks(table):
        columns = (table[start:stop] * stretch).T.contiguous()
        pull, total = torch.empty_like(columns), torch.zeros_like(columns)
        re, im = pull.chunk(2) if parts == 2 else (pull, pull)
        share = torch.empty_like(re)
        ones = query.new_ones(stop - start)
        for i in range(len(query)):
            slope = grad[i, start:stop]
            if parts == 1:
                point = query[i, :, None]
                _huber_backward(slope, point, columns, _NO_REDUCTION, 1.0, grad_input=pull)
            else:
                torch.sub(query[i, :, None], columns, out=pull)
                torch.addcmul(tiny, re, re, out=share)
                share.addcmul_(im, im).rsqrt_().mul_(slope)
                pull.view(2, *share.shape).mul_(share)
            d_query[i].addmv_(pull, ones, alpha=-1)
            total.add_(pull)
        d_table[start:stop] = total.T
    return d_query, d_table


def _row_blocks(table: Tensor) -> list[tuple[int, int]]:
    """Spans of rows that cover the table."""
    n, width = table.shape
    rows = max(1, _BLOCK // max(1, width))
    return [(start, min(start + rows, n)) for start in range(0, n, rows)] if width else []

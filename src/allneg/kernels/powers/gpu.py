"""The sum of powers and its slope in Triton: the rows are read once, the slopes written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


def sums(rows: Tensor, axes: int, power: int) -> Tensor:
    rows = rows.contiguous()
    out = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
    if len(rows):
        dim = rows.shape[1] // axes
        _sums[(len(rows),)](rows, out, dim, AXES=axes, POWER=power, BLOCK=_BLOCK, num_warps=4)
    return out


def slopes(grad: Tensor, rows: Tensor, axes: int, power: int) -> Tensor:
    rows = rows.contiguous()
    out = torch.empty_like(rows)
    if out.numel():
        dim = rows.shape[1] // axes
        grid = (len(rows), triton.cdiv(dim, _BLOCK))
        _slopes[grid](
            grad.contiguous(), rows, out, dim, AXES=axes, POWER=power, BLOCK=_BLOCK, num_warps=4
        )
    return out


@triton.jit
def _sums(rows, out, dim, AXES: tl.constexpr, POWER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, dim, BLOCK):
        column = first + tl.arange(0, BLOCK)
        place = rows + row * AXES * dim + column
        x = tl.load(place, mask=column < dim, other=0.0)
        squares = x * x
        if AXES == 2:
            y = tl.load(place + dim, mask=column < dim, other=0.0)
            squares += y * y
        total += squares * tl.sqrt(squares) if POWER == 3 else squares
    tl.store(out + row, tl.sum(total, 0))


@triton.jit
def _slopes(grad, rows, out, dim, AXES: tl.constexpr, POWER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there, place = column < dim, row * AXES * dim + column
    x = tl.load(rows + place, mask=there, other=0.0)
    squares = x * x
    if AXES == 2:
        y = tl.load(rows + place + dim, mask=there, other=0.0)
        squares += y * y
    weight = tl.load(grad + row) * POWER
    if POWER == 3:
        weight = weight * tl.sqrt(squares)
    tl.store(out + place, weight * x, mask=there)
    if AXES == 2:
        tl.store(out + place + dim, weight * y, mask=there)

"""Looking up and adding back in Triton: one pass over the rows each way.

The width is known to the compiler, which else could not tell that 16 bytes lie together.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from allneg.kernels.looked import reference

_BLOCK = 1024  # coordinates a program looks at together


def look(
    table: Tensor, ids: Tensor, axes: int, power: int, sizes: Tensor | None
) -> tuple[Tensor, Tensor]:
    b, width = len(ids), table.shape[1]
    rows = table.new_empty(b, width)
    out = table.new_empty(b) if sizes is None else sizes
    if b:
        _look[(b,)](
            table, ids, rows, out, DIM=width // axes, ADDED=sizes is not None,
            AXES=axes, POWER=power, BLOCK=_BLOCK, num_warps=4,
        )  # fmt: skip
    return rows, out


def add_slopes(
    out: Tensor,
    table: Tensor,
    ids: Tensor,
    axes: int,
    power: int,
    weight: Tensor,
    rows: Tensor | None,
) -> None:
    if torch.are_deterministic_algorithms_enabled() or not len(ids):
        reference.add_slopes(out, table, ids, axes, power, weight, rows)
        return
    dim = table.shape[1] // axes
    grid = (len(ids), triton.cdiv(dim, _BLOCK))
    _add_slopes[grid](
        out, table, ids, weight.contiguous(), table if rows is None else rows.contiguous(),
        DIM=dim, ROWS=rows is not None, AXES=axes, POWER=power, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip


@triton.jit
def _look(
    table, ids, rows, sizes, DIM: tl.constexpr, ADDED: tl.constexpr, AXES: tl.constexpr,
    POWER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    source, target = table + tl.load(ids + row) * (AXES * DIM), rows + row * (AXES * DIM)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, DIM, BLOCK):
        column = first + tl.arange(0, BLOCK)
        there = column < DIM
        x = tl.load(source + column, mask=there, other=0.0)
        tl.store(target + column, x, mask=there)
        squares = x * x
        if AXES == 2:
            y = tl.load(source + DIM + column, mask=there, other=0.0)
            tl.store(target + DIM + column, y, mask=there)
            squares += y * y
        total += squares * tl.sqrt(squares) if POWER == 3 else squares
    size = tl.sum(total, 0)
    if ADDED:
        size += tl.load(sizes + row)
    tl.store(sizes + row, size)


@triton.jit
def _add_slopes(
    out, table, ids, weight, rows, DIM: tl.constexpr, ROWS: tl.constexpr, AXES: tl.constexpr,
    POWER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < DIM
    place, given = tl.load(ids + row) * (AXES * DIM) + column, row * (AXES * DIM) + column
    x = tl.load(table + place, mask=there, other=0.0)
    squares = x * x
    if AXES == 2:
        y = tl.load(table + place + DIM, mask=there, other=0.0)
        squares += y * y
    slope = tl.load(weight + row) * POWER
    if POWER == 3:
        slope = slope * tl.sqrt(squares)
    x = slope * x
    if ROWS:
        x += tl.load(rows + given, mask=there, other=0.0)
    tl.atomic_add(out + place, x, mask=there, sem="relaxed")
    if AXES == 2:
        y = slope * y
        if ROWS:
            y += tl.load(rows + given + DIM, mask=there, other=0.0)
        tl.atomic_add(out + place + DIM, y, mask=there, sem="relaxed")

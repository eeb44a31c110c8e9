"""Adding rows in Triton, by atomic adds; PyTorch's own where the order must be kept."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from allneg.kernels.rows import reference

_BLOCK = 1024


def add_rows(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    if torch.are_deterministic_algorithms_enabled() or not rows.numel():
        reference.add_rows(table, ids, rows)
        return
    b, width = rows.shape
    grid = (b, triton.cdiv(width, _BLOCK))
    _add_rows[grid](table, ids, rows.contiguous(), width, BLOCK=_BLOCK, num_warps=4)


@triton.jit
def _add_rows(table, ids, rows, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < width
    place = tl.load(ids + row) * width + column
    values = tl.load(rows + row * width + column, mask=there)
    tl.atomic_add(table + place, values, mask=there, sem="relaxed")

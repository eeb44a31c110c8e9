"""AdaGrad's step in Triton: one pass over the table, its gradient and its memory."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048


def adagrad(
    table: Tensor, grad: Tensor, memory: Tensor, rate: Tensor, eps: float, rounded: Tensor | None
) -> None:
    n = table.numel()
    if not n:
        return
    grid = (triton.cdiv(n, _BLOCK),)
    _adagrad[grid](
        table, grad.contiguous(), memory, rate, eps, table if rounded is None else rounded, n,
        ROUNDED=rounded is not None, BLOCK=_BLOCK, num_warps=8,
    )  # fmt: skip


@triton.jit
def _adagrad(
    table, grad, memory, rate, eps, rounded, n, ROUNDED: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < n
    g = tl.load(grad + place, mask=there, other=0.0)
    m = tl.load(memory + place, mask=there, other=0.0) + g * g
    tl.store(memory + place, m, mask=there)
    step = tl.load(rate) * g / (tl.sqrt(m) + eps)
    new = tl.load(table + place, mask=there) - step
    tl.store(table + place, new, mask=there)
    if ROUNDED:
        tl.store(rounded + place, new.to(tl.bfloat16), mask=there)

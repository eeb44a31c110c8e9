"""AdaGrad's step in Triton: one pass over the table, its gradient and its memory."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048


def adagrad(table: Tensor, grad: Tensor, memory: Tensor, rate: Tensor, eps: float) -> None:
    n = table.numel()
    if not n:
        return
    grid = (triton.cdiv(n, _BLOCK),)
    _adagrad[grid](table, grad.contiguous(), memory, rate, eps, n, BLOCK=_BLOCK, num_warps=8)


@triton.jit
def _adagrad(table, grad, memory, rate, eps, n, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < n
    g = tl.load(grad + place, mask=there, other=0.0)
    m = tl.load(memory + place, mask=there, other=0.0) + g * g
    tl.store(memory + place, m, mask=there)
    step = tl.load(rate) * g / (tl.sqrt(m) + eps)
    tl.store(table + place, tl.load(table + place, mask=there) - step, mask=there)

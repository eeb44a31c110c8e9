"""The complex product in Triton: each number read once, each result written once.

The width is known to the compiler, which else could not tell that 16 bytes lie together.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


def times(a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    if out.numel():
        dim = a.shape[1] // 2
        _times[_grid(a)](a, b, out, DIM=dim, CONJUGATE=conjugate, BLOCK=_BLOCK, num_warps=4)
    return out


def gradients(grad: Tensor, a: Tensor, b: Tensor, conjugate: bool) -> tuple[Tensor, Tensor]:
    grad, a, b = grad.contiguous(), a.contiguous(), b.contiguous()
    to_a, to_b = torch.empty_like(a), torch.empty_like(b)
    if grad.numel():
        _times_gradients[_grid(a)](
            grad, a, b, to_a, to_b, DIM=a.shape[1] // 2, CONJUGATE=conjugate, BLOCK=_BLOCK,
            num_warps=4,
        )  # fmt: skip
    return to_a, to_b


def _grid(rows: Tensor) -> tuple[int, int]:
    return len(rows), triton.cdiv(rows.shape[1] // 2, _BLOCK)


@triton.jit
def _times(a, b, out, DIM: tl.constexpr, CONJUGATE: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < DIM
    re = tl.program_id(0).to(tl.int64) * (2 * DIM) + column
    im = re + DIM
    a_re, a_im = tl.load(a + re, mask=there), tl.load(a + im, mask=there)
    b_re, b_im = tl.load(b + re, mask=there), tl.load(b + im, mask=there)
    if CONJUGATE:
        b_im = -b_im
    tl.store(out + re, a_re * b_re - a_im * b_im, mask=there)
    tl.store(out + im, a_re * b_im + a_im * b_re, mask=there)


@triton.jit
def _times_gradients(
    grad, a, b, to_a, to_b, DIM: tl.constexpr, CONJUGATE: tl.constexpr, BLOCK: tl.constexpr
):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < DIM
    re = tl.program_id(0).to(tl.int64) * (2 * DIM) + column
    im = re + DIM
    g_re, g_im = tl.load(grad + re, mask=there), tl.load(grad + im, mask=there)
    a_re, a_im = tl.load(a + re, mask=there), tl.load(a + im, mask=there)
    b_re, b_im = tl.load(b + re, mask=there), tl.load(b + im, mask=there)
    if CONJUGATE:
        b_im = -b_im
    # Of a·b: g·b* for a and g·a* for b. Where b* was taken for b, its gradient turns round too.
    tl.store(to_a + re, g_re * b_re + g_im * b_im, mask=there)
    tl.store(to_a + im, g_im * b_re - g_re * b_im, mask=there)
    to_im = g_im * a_re - g_re * a_im
    if CONJUGATE:
        to_im = -to_im
    tl.store(to_b + re, g_re * a_re + g_im * a_im, mask=there)
    tl.store(to_b + im, to_im, mask=there)

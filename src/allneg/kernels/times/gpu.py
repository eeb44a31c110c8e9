"""The complex product in Triton: each number read once, each result written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


def times(a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    rows, dim = len(a), a.shape[1] // 2
    if out.numel():
        grid = (rows, triton.cdiv(dim, _BLOCK))
        _times[grid](a, b, out, dim, CONJUGATE=conjugate, BLOCK=_BLOCK, num_warps=4)
    return out


@triton.jit
def _times(a, b, out, dim, CONJUGATE: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < dim
    re = tl.program_id(0).to(tl.int64) * 2 * dim + column
    im = re + dim
    a_re, a_im = tl.load(a + re, mask=there), tl.load(a + im, mask=there)
    b_re, b_im = tl.load(b + re, mask=there), tl.load(b + im, mask=there)
    if CONJUGATE:
        b_im = -b_im
    tl.store(out + re, a_re * b_re - a_im * b_im, mask=there)
    tl.store(out + im, a_re * b_im + a_im * b_re, mask=there)

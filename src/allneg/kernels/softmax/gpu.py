"""The softmax's two passes in Triton: the scores are read once in each, and written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096  # columns a program looks at together


def log_sum_exp(scores: Tensor) -> Tensor:
    b, n = scores.shape
    parts = triton.cdiv(n, _BLOCK) if n else 1
    # Each program sums a piece of a row; the pieces are few and are added by torch.
    pieces = torch.empty(b, parts, dtype=torch.float32, device=scores.device)
    if n == 0:
        return pieces.fill_(-torch.inf).squeeze(1)
    _log_sum_exp[(b, parts)](scores, pieces, n, scores.stride(0), parts, BLOCK=_BLOCK, num_warps=8)
    return pieces.logsumexp(1) if parts > 1 else pieces.squeeze(1)


def shares(scores: Tensor, total: Tensor, weight: Tensor) -> Tensor:
    b, n = scores.shape
    if n:
        grid = (b, triton.cdiv(n, _BLOCK))
        _shares[grid](
            scores, total.contiguous(), weight.contiguous(), n, scores.stride(0),
            BLOCK=_BLOCK, num_warps=8,
        )  # fmt: skip
    return scores


@triton.jit
def _log_sum_exp(scores, pieces, n, stride, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(scores + row * stride + column, mask=column < n, other=float("-inf"))
    most = tl.max(values, 0)
    anchor = tl.where(most == float("-inf"), 0.0, most)
    total = tl.log(tl.sum(tl.exp(values - anchor), 0)) + anchor
    tl.store(pieces + row * parts + part, total)


@triton.jit
def _shares(scores, total, weight, n, stride, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    place = scores + row * stride + column
    values = tl.load(place, mask=column < n, other=float("-inf"))
    share = tl.exp(values - tl.load(total + row)) * tl.load(weight + row)
    tl.store(place, share, mask=column < n)

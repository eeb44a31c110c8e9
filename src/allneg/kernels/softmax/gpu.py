"""The softmax's two passes in Triton: the scores are read once in each, and written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096  # columns a program looks at together
_ROWS = 512  # so many fill a GPU with a program each; fewer are cut into pieces


def log_sum_exp(scores: Tensor) -> Tensor:
    b, n = scores.shape
    parts = 1 if b >= _ROWS else max(1, triton.cdiv(n, _BLOCK))
    # Each program sums a row or a piece of one; pieces are few and are added by torch.
    pieces = torch.empty(b, parts, dtype=torch.float32, device=scores.device)
    if b:
        width = triton.cdiv(n, parts)
        _log_sum_exp[(b, parts)](
            scores, pieces, n, width, scores.stride(0), parts, BLOCK=_BLOCK, num_warps=8
        )
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


def slopes(
    scores: Tensor, place: Tensor, answer: Tensor, rivals: Tensor, weight: Tensor, narrow: bool
) -> Tensor:
    b, n = scores.shape
    out = scores.new_empty(b, n, dtype=torch.bfloat16) if narrow else scores
    if n:
        grid = (b, triton.cdiv(n, _BLOCK))
        _shares_and_answers[grid](
            scores, out, place, answer.contiguous(), rivals.contiguous(), weight.contiguous(), n,
            scores.stride(0), out.stride(0), BLOCK=_BLOCK, num_warps=8,
        )  # fmt: skip
    return out


@triton.jit
def _log_sum_exp(scores, pieces, n, width, stride, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    # Each lane keeps the largest score it met, and the sum of exp of the others less that.
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    end = tl.minimum((part + 1) * width, n)
    for first in range(part * width, end, BLOCK):
        column = first + tl.arange(0, BLOCK)
        values = tl.load(scores + row * stride + column, mask=column < end, other=float("-inf"))
        higher = tl.maximum(most, values)
        anchor = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(most - anchor) + tl.exp(values - anchor)
        most = higher
    top = tl.max(most, 0)
    anchor = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(total * tl.exp(most - anchor), 0)
    tl.store(pieces + row * parts + part, tl.log(total) + anchor)


@triton.jit
def _shares(scores, total, weight, n, stride, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    place = scores + row * stride + column
    values = tl.load(place, mask=column < n, other=float("-inf"))
    share = tl.exp(values - tl.load(total + row)) * tl.load(weight + row)
    tl.store(place, share, mask=column < n)


@triton.jit
def _shares_and_answers(
    scores, out, place, answer, rivals, weight, n, stride, out_stride, BLOCK: tl.constexpr
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(scores + row * stride + column, mask=column < n, other=float("-inf"))
    a, others, its_weight = tl.load(answer + row), tl.load(rivals + row), tl.load(weight + row)
    total = tl.maximum(others, a) + tl.log(1.0 + tl.exp(-tl.abs(others - a)))
    slope = tl.exp(values - total) * its_weight
    of_answer = -its_weight / (1.0 + tl.exp(a - others))
    slope = tl.where(column == tl.load(place + row), of_answer, slope)
    tl.store(out + row * out_stride + column, slope.to(out.dtype.element_ty), mask=column < n)

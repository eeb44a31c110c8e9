"""Counting in Triton: the scores are read once, and no marks are stored."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def counts(scores: Tensor, answer: Tensor, slack: Tensor | None) -> Tensor:
    b, n = scores.shape
    out = torch.empty(b, 2, dtype=torch.int64, device=scores.device)
    if b:
        width = answer if slack is None else slack.contiguous()
        _counts[(b,)](
            scores, answer.contiguous(), width, out, n, scores.stride(0),
            SLACK=slack is not None, BLOCK=_BLOCK, num_warps=4,
        )  # fmt: skip
    return out


@triton.jit
def _counts(scores, answer, slack, out, n, stride, SLACK: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    mine = tl.load(answer + row)
    better = tl.zeros((BLOCK,), tl.int32)
    equal = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, n, BLOCK):
        column = first + tl.arange(0, BLOCK)
        values = tl.load(scores + row * stride + column, mask=column < n, other=float("-inf"))
        # An answer of -inf would meet the columns beyond the end as its equals.
        if SLACK:
            same = (tl.abs(values - mine) <= tl.load(slack + row)) & (column < n)
            above = (values > mine) & (same == 0)
        else:
            same = (values == mine) & (column < n)
            above = values > mine
        better += above.to(tl.int32)
        equal += same.to(tl.int32)
    tl.store(out + 2 * row, tl.sum(better, 0).to(tl.int64))
    tl.store(out + 2 * row + 1, tl.sum(equal, 0).to(tl.int64))

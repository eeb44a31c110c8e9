"""The definition of the softmax's two passes, in plain PyTorch."""

from __future__ import annotations

from torch import Tensor


def log_sum_exp(scores: Tensor) -> Tensor:
    return scores.logsumexp(1)


def shares(scores: Tensor, total: Tensor, weight: Tensor, narrow: bool) -> Tensor:
    out = scores.sub_(total.unsqueeze(1)).exp_().mul_(weight.unsqueeze(1))
    return out.bfloat16() if narrow else out

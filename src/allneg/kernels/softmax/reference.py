"""The definition of the softmax's two passes, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels.answers.reference import put


def log_sum_exp(scores: Tensor) -> Tensor:
    return scores.logsumexp(1)


def shares(scores: Tensor, total: Tensor, weight: Tensor) -> Tensor:
    return scores.sub_(total.unsqueeze(1)).exp_().mul_(weight.unsqueeze(1))


def slopes(
    scores: Tensor, place: Tensor, answer: Tensor, rivals: Tensor, weight: Tensor, narrow: bool
) -> Tensor:
    out = shares(scores, torch.logaddexp(rivals, answer), weight)
    return with_answers(out, place, answer, rivals, weight, narrow)


def with_answers(
    out: Tensor, place: Tensor, answer: Tensor, rivals: Tensor, weight: Tensor, narrow: bool
) -> Tensor:
    """The rivals' slopes, rounded or not, with the answers' put in their places."""
    out = out.bfloat16() if narrow else out
    put(out, place, -weight * torch.sigmoid(rivals - answer))
    return out

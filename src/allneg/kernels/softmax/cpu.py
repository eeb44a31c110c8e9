"""The softmax's two passes on a CPU: a few rows at a time, while they are in the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels.softmax import reference

_SCORES = 1 << 17  # a piece of about half a megabyte


def log_sum_exp(scores: Tensor) -> Tensor:
    if not len(scores):
        return scores.new_empty(0)
    return torch.cat([reference.log_sum_exp(some) for some in scores.split(_rows(scores))])


def shares(scores: Tensor, total: Tensor, weight: Tensor) -> Tensor:
    size = _rows(scores)
    pieces = zip(scores.split(size), total.split(size), weight.split(size), strict=True)
    for some, its_total, its_weight in pieces:
        reference.shares(some, its_total, its_weight)
    return scores


def slopes(
    scores: Tensor, place: Tensor, answer: Tensor, rivals: Tensor, weight: Tensor, narrow: bool
) -> Tensor:
    out = shares(scores, torch.logaddexp(rivals, answer), weight)
    return reference.with_answers(out, place, answer, rivals, weight, narrow)


def _rows(scores: Tensor) -> int:
    return max(1, _SCORES // max(1, scores.shape[1]))

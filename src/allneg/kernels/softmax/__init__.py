"""The softmax over a row of scores, in two passes that store no copy of them."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels.choose import engine


def log_sum_exp(scores: Tensor) -> Tensor:
    """log Σ exp of each row: (B, N) -> (B,). A row of nothing but -inf gives -inf."""
    out: Tensor = engine("softmax", scores.device).log_sum_exp(scores)
    return out


def shares(scores: Tensor, total: Tensor, weight: Tensor) -> Tensor:
    """weight · exp(scores - total), a row at a time, in place of the scores: (B, N), (B,), (B,)."""
    out: Tensor = engine("softmax", scores.device).shares(scores, total, weight)
    return out


def slopes(
    scores: Tensor, place: Tensor, answer: Tensor, rivals: Tensor, weight: Tensor, narrow: bool
) -> Tensor:
    """weight · d/d scores of log(exp rivals + exp answer) - answer, in place of the scores: (B, N).

    `rivals` is the log-sum-exp of a row without its answer, which has been taken out of `place`;
    its slope is put there, where that is inside. With `narrow` the slopes come rounded to
    bfloat16, and the scores are no longer of use.
    """
    out: Tensor = engine("softmax", scores.device).slopes(
        scores, place, answer, rivals, weight, narrow
    )
    return out

"""The softmax over a row of scores, in two passes that store no copy of them."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels.choose import engine


def log_sum_exp(scores: Tensor) -> Tensor:
    """log Σ exp of each row: (B, N) -> (B,). A row of nothing but -inf gives -inf."""
    out: Tensor = engine("softmax", scores.device).log_sum_exp(scores)
    return out


def shares(scores: Tensor, total: Tensor, weight: Tensor, narrow: bool = False) -> Tensor:
    """weight · exp(scores - total), a row at a time, in place of the scores: (B, N), (B,), (B,).

    With `narrow` they come rounded to bfloat16, and the scores are no longer of use.
    """
    out: Tensor = engine("softmax", scores.device).shares(scores, total, weight, narrow)
    return out

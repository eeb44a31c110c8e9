"""The answers' places in a block of scores: taken out before a loss, put back after it."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels.choose import engine


def strike(scores: Tensor, place: Tensor, count: int) -> Tensor:
    """Each row's score at its place, which becomes -inf, as do all columns from `count` on.

    (B, N), (B,) -> (B,). A place outside the columns belongs to another block: -inf.
    """
    out: Tensor = engine("answers", scores.device).strike(scores, place, count)
    return out


def put(slopes: Tensor, place: Tensor, values: Tensor) -> None:
    """Write each row's value at its place, where that is inside: (B, N), (B,), (B,)."""
    engine("answers", slopes.device).put(slopes, place, values)

"""How many rivals are better than an answer, and how many are equal: ranking's one pass."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels.choose import engine


def counts(scores: Tensor, answer: Tensor, slack: Tensor | None = None) -> Tensor:
    """Rivals above each row's answer, and rivals equal to it: (B, N), (B,) -> int64 (B, 2).

    With `slack` (B,), scores no further from the answer than that are equal.
    """
    out: Tensor = engine("counts", scores.device).counts(scores, answer, slack)
    return out

"""What the engines that count distances in float32 have in common."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TypeAlias

import torch
from torch import Tensor

from allneg.kernels.blocks import wide

Scores: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Gradients: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def in_float32(counted: ModuleType, reference: ModuleType, parts: int) -> tuple[Scores, Gradients]:
    """An engine's `scores` and `gradients`: narrower rows are widened, float64 is the reference's.

    `counted` has the two functions for float32 rows whose coordinates have so many `parts`.
    """

    def scores(query: Tensor, table: Tensor) -> Tensor:
        query, table = wide(query), wide(table)
        if query.dtype is torch.float64:
            return reference.scores(query, table)  # type: ignore[no-any-return]
        return counted.scores(query, table, parts=parts)  # type: ignore[no-any-return]

    def gradients(grad: Tensor, query: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        query, table = wide(query), wide(table)
        if query.dtype is torch.float64:
            return reference.gradients(grad, query, table)  # type: ignore[no-any-return]
        return counted.gradients(grad, query, table, parts=parts)  # type: ignore[no-any-return]

    return scores, gradients

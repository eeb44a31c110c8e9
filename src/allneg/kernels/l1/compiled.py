"""`l1` on a CPU, by a C compiler: see `allneg.kernels.pairs`."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels import pairs
from allneg.kernels.blocks import wide
from allneg.kernels.l1 import reference


def scores(query: Tensor, table: Tensor) -> Tensor:
    """Minus the L1 distances: (B, W), (N, W) -> (B, N), at least float32."""
    query, table = wide(query), wide(table)
    if query.dtype is torch.float64:  # C counts in float32
        return reference.scores(query, table)
    return pairs.scores(query, table, parts=1)


def gradients(grad: Tensor, query: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, W) and d/d table (N, W)."""
    query, table = wide(query), wide(table)
    if query.dtype is torch.float64:
        return reference.gradients(grad, query, table)
    return pairs.gradients(grad, query, table, parts=1)

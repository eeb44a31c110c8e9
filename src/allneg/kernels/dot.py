"""The inner product of queries with rows: DistMult's, ComplEx's and SimplE's comparison."""

from __future__ import annotations

import torch
from torch import Tensor


def dot(query: Tensor, table: Tensor) -> Tensor:
    """The inner product of every query with every row: (B, W), (N, W) -> (B, N).

    A table (B, K, W) holds each query's own rows and gives (B, K).
    """
    if table.dim() == 3:
        return torch.einsum("bw,bkw->bk", query, table)
    return query @ table.T

"""The L1 distance of queries to rows: TransE's comparison."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels.choose import compare, engine
from allneg.kernels.l1 import reference

__all__ = ["l1", "reference"]


def l1(query: Tensor, table: Tensor) -> Tensor:
    """Minus the L1 distance of every query to every row: (B, W), (N, W) -> (B, N).

    A table (B, K, W) holds each query's own rows and gives (B, K). The (B, N, W) difference
    is never stored whole. Where two coordinates are equal, the gradient is 0.
    """
    if table.dim() == 3:
        return -(query.unsqueeze(1) - table).abs().sum(-1)
    return compare(engine("l1", query.device), query, table)

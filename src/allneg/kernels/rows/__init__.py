"""Rows added into a table at their places: how gradients of looked-up rows come home."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels.choose import engine


def add_rows(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    """table[ids] += rows, in place, ids that occur twice added twice: (N, W), (B,), (B, W)."""
    engine("rows", table.device).add_rows(table, ids, rows)

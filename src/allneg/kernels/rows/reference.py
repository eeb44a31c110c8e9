"""The definition of adding rows, in plain PyTorch."""

from __future__ import annotations

from torch import Tensor


def add_rows(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    table.index_add_(0, ids, rows)

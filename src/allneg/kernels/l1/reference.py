"""The definition of `l1`, in plain PyTorch, a block of pairs at a time."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels.blocks import blocks, wide


def scores(query: Tensor, table: Tensor) -> Tensor:
    """Minus the L1 distances: (B, W), (N, W) -> (B, N), at least float32."""
    query, table = wide(query), wide(table)
    out = query.new_empty(len(query), len(table))
    for some, rows in blocks(query, table):
        out[some, rows] = -(query[some, None] - table[None, rows]).abs().sum(-1)
    return out


def gradients(grad: Tensor, query: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, W) and d/d table (N, W)."""
    query, table = wide(query), wide(table)
    to_query, to_table = query.new_zeros(query.shape), table.new_zeros(table.shape)
    for some, rows in blocks(query, table):
        pull = (query[some, None] - table[None, rows]).sign() * grad[some, rows, None]
        to_query[some] -= pull.sum(1)
        to_table[rows] += pull.sum(0)
    return to_query, to_table

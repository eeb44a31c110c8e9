"""The definition of `modulus`, in plain PyTorch, a block of pairs at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels.blocks import blocks, wide


def scores(query: Tensor, table: Tensor) -> Tensor:
    """Minus the sums of moduli: (B, 2D), (N, 2D) -> (B, N), at least float32."""
    query, table = wide(query), wide(table)
    out = query.new_empty(len(query), len(table))
    for some, rows in blocks(query, table):
        re, im = (query[some, None] - table[None, rows]).chunk(2, dim=-1)
        out[some, rows] = -torch.hypot(re, im).sum(-1)
    return out


def gradients(grad: Tensor, query: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, 2D) and d/d table (N, 2D)."""
    query, table = wide(query), wide(table)
    to_query, to_table = query.new_zeros(query.shape), table.new_zeros(table.shape)
    for some, rows in blocks(query, table):
        re, im = (query[some, None] - table[None, rows]).chunk(2, dim=-1)
        size = torch.hypot(re, im)
        # The modulus has no slope at 0; we take 0, which is what its symmetry suggests.
        pull = torch.where(size > 0, grad[some, rows, None] / size, 0.0)
        pull = torch.cat([re * pull, im * pull], dim=-1)
        to_query[some] -= pull.sum(1)
        to_table[rows] += pull.sum(0)
    return to_query, to_table

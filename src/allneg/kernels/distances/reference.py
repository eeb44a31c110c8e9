"""The definition of the distances in plain PyTorch, one block of pairs at a time."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

_CPU_BLOCK = 1 << 20  # numbers per block of differences, which fits into the cache
_GPU_BLOCK = 1 << 26  # a GPU needs large blocks to be busy


class DistanceEngine(Protocol):
    """A module that computes distances: this one, `cpu`, `compiled` or `gpu`."""

    def scores(self, query: Tensor, table: Tensor, parts: int) -> Tensor: ...

    def gradients(
        self, grad: Tensor, query: Tensor, table: Tensor, parts: int
    ) -> tuple[Tensor, Tensor]: ...


def scores(query: Tensor, table: Tensor, parts: int) -> Tensor:
    """Minus the distances: (B, W), (N, W) -> (B, N); W is `parts` times the dimension."""
    out = query.new_empty(len(query), len(table))
    for some, rows in _blocks(query, table):
        out[some, rows] = -moduli(query[some, None] - table[None, rows], parts).sum(-1)
    return out


def gradients(grad: Tensor, query: Tensor, table: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, W) and d/d table (N, W)."""
    d_query, d_table = torch.zeros_like(query), table.new_zeros(table.shape)
    for some, rows in _blocks(query, table):
        pull = query[some, None] - table[None, rows]
        if parts == 1:
            pull = pull.sign() * grad[some, rows, None]
        else:
            re, im = pull.chunk(2, dim=-1)
            size = torch.hypot(re, im)
            # The modulus has no gradient at 0; 0 is the symmetric choice.
            share = torch.where(size > 0, grad[some, rows, None] / size, 0.0)
            pull = torch.cat([re * share, im * share], dim=-1)
        d_query[some] -= pull.sum(1)
        d_table[rows] += pull.sum(0)
    return d_query, d_table


def moduli(difference: Tensor, parts: int) -> Tensor:
    """The modulus of each coordinate: (…, W) -> (…, W / parts)."""
    return difference.abs() if parts == 1 else torch.hypot(*difference.chunk(2, dim=-1))


def _blocks(query: Tensor, table: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices of queries and of rows whose differences fit one block, covering all pairs."""
    size = _CPU_BLOCK if query.device.type == "cpu" else _GPU_BLOCK
    pairs = max(1, size // max(1, query.shape[1]))
    rows = min(max(1, len(table)), pairs)
    queries = max(1, pairs // rows)
    for i in range(0, len(query), queries):
        for j in range(0, len(table), rows):
            yield slice(i, i + queries), slice(j, j + rows)

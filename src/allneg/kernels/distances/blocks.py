"""Blocks of pairs for the plain engines, so that (B, N, W) is never stored whole."""

from collections.abc import Iterator

from torch import Tensor

# Numbers per block of differences: on a CPU a block fits into the cache; a GPU needs large blocks
# to be busy.
_CPU_BLOCK = 1 << 20
_GPU_BLOCK = 1 << 26
# Numbers per block of one query's differences: a few MiB, for the last-level cache.
_ONE_QUERY = 1 << 20


def blocks(query: Tensor, table: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices of queries and of rows whose differences fit one block, covering all pairs."""
    size = _CPU_BLOCK if query.device.type == "cpu" else _GPU_BLOCK
    b, n = len(query), len(table)
    pairs = max(1, size // max(1, query.shape[1]))
    rows = min(max(1, n), pairs)
    queries = max(1, pairs // rows)
    for i in range(0, b, queries):
        for j in range(0, n, rows):
            yield slice(i, min(i + queries, b)), slice(j, min(j + rows, n))


def row_blocks(table: Tensor) -> list[tuple[int, int]]:
    """Row spans for comparing one query at a time on a CPU; together they cover the table."""
    n, width = table.shape
    rows = max(1, _ONE_QUERY // max(1, width))
    return [(start, min(start + rows, n)) for start in range(0, n, rows)] if width else []

"""The compiled engine of `l1` and `modulus`: pairs.c, called with the addresses of tensors.

Each thread takes a span of rows. What it writes of the scores and of the table's gradient is its
own; its part of the queries' gradient is added to the others' in their order. So the same number
of threads gives the same bytes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from allneg.errors import RecipeError
from allneg.kernels.compiler import built

_NAMES = {1: "l1", 2: "modulus"}
_TILE = 64  # rows; a span is so many, or a multiple
_ENOUGH = 1 << 20  # differences that are worth another thread

_Rows = (ctypes.c_void_p, ctypes.c_long)  # the address, and numbers from one row to the next
_Sizes = (ctypes.c_long, ctypes.c_long, ctypes.c_long)  # queries, rows, dim
_TYPES = {
    "scores": (*_Rows, *_Rows, *_Rows, *_Sizes),
    "gradients": (*_Rows, *_Rows, *_Rows, ctypes.c_void_p, ctypes.c_void_p, *_Sizes),
}


def scores(query: Tensor, table: Tensor, parts: int) -> Tensor:
    """Minus the distances: float32 (B, W), (N, W) -> (B, N); W is `parts` times dim."""
    _check(query, table, parts)
    query, table = _rows(query), _rows(table)
    out = query.new_zeros(len(query), len(table))
    count = _function(parts, "scores")

    def work(_: int, rows: slice) -> None:
        some, to = table[rows], out[:, rows]
        count(*_at(query), *_at(some), *_at(to), *_sizes(query, some, parts))

    _divide(work, _spans(query, table))
    return out


def gradients(grad: Tensor, query: Tensor, table: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, W) and d/d table (N, W)."""
    _check(query, table, parts)
    if grad.shape != (len(query), len(table)):
        raise ValueError(f"slopes of {tuple(grad.shape)}, not of queries × rows")
    grad, query, table = _rows(grad.to(query.dtype)), _rows(query), _rows(table)
    spans = _spans(query, table)
    to_query = query.new_zeros(len(spans), *query.shape)
    to_table = table.new_empty(table.shape)
    count = _function(parts, "gradients")

    def work(i: int, rows: slice) -> None:
        some, pulls = table[rows], grad[:, rows]
        addresses = to_query[i].data_ptr(), to_table[rows].data_ptr()
        count(*_at(pulls), *_at(query), *_at(some), *addresses, *_sizes(query, some, parts))

    _divide(work, spans)
    for other in to_query[1:]:
        to_query[0] += other
    return to_query[0], to_table


def _check(query: Tensor, table: Tensor, parts: int) -> None:
    """C reads where it is told to: what does not fit must not get there."""
    if query.device.type != "cpu" or table.device.type != "cpu":
        raise ValueError(f"queries on {query.device}, rows on {table.device}; both must be on cpu")
    if query.dim() != 2 or table.dim() != 2 or query.shape[1] != table.shape[1]:
        raise ValueError(f"queries of {tuple(query.shape)} against rows of {tuple(table.shape)}")
    if query.shape[1] % parts:
        raise ValueError(f"rows {query.shape[1]} wide have no {parts} equal parts")
    if query.dtype is not torch.float32 or table.dtype is not torch.float32:
        raise ValueError(f"queries in {query.dtype}, rows in {table.dtype}; both must be float32")


def _rows(matrix: Tensor) -> Tensor:
    """`matrix` itself where each row's numbers lie side by side, else a copy."""
    return matrix if matrix.stride(1) == 1 else matrix.contiguous()


def _at(matrix: Tensor) -> tuple[int, int]:
    return matrix.data_ptr(), matrix.stride(0)


def _sizes(query: Tensor, table: Tensor, parts: int) -> tuple[int, int, int]:
    return len(query), len(table), query.shape[1] // parts


def _spans(query: Tensor, table: Tensor) -> list[slice]:
    """The rows of each thread, covering the table; one empty span where it has none."""
    n, threads = len(table), 1 + len(query) * table.numel() // _ENOUGH
    threads = min(threads, torch.get_num_threads())
    rows = max(1, -(-n // (threads * _TILE))) * _TILE
    return [slice(start, min(start + rows, n)) for start in range(0, max(1, n), rows)]


def _divide(work: Callable[[int, slice], None], spans: list[slice]) -> None:
    """Work on all spans at once: while C runs, so do Python's other threads."""
    if len(spans) == 1:
        work(0, spans[0])
        return
    with ThreadPoolExecutor(len(spans)) as pool:
        for done in [pool.submit(work, i, span) for i, span in enumerate(spans)]:
            done.result()


def _function(parts: int, name: str) -> Callable[..., None]:
    found = _library()[f"{_NAMES[parts]}_{name}"]
    found.argtypes, found.restype = _TYPES[name], None
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    path = built("pairs")
    try:
        return ctypes.CDLL(str(path))
    except OSError as problem:
        raise RecipeError(
            f"hardware.engine is 'compiled', but its library does not load: {problem}\n"
            "set ALLNEG_HOME to a folder that may hold programs; or hardware.engine to 'auto'"
        ) from None

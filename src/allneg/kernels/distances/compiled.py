"""Distances on a CPU by C code: pairs.c, called with the addresses of tensors.

Each thread takes a span of rows. It alone writes the scores and the table gradient of its span;
its part of the query gradient is added to the others in a fixed order. So the same number of
threads gives the same bytes.
"""

import ctypes
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from allneg.kernels.compiler import load

_NAMES = {1: "l1", 2: "modulus"}
_TILE = 64  # rows; the length of a span is a multiple of it
_ENOUGH = 1 << 20  # differences that justify another thread

_Rows = (ctypes.c_void_p, ctypes.c_long)  # address and row stride
_Sizes = (ctypes.c_long, ctypes.c_long, ctypes.c_long)  # queries, rows, dim
_TYPES = {
    "scores": (*_Rows, *_Rows, *_Rows, *_Sizes),
    "gradients": (*_Rows, *_Rows, *_Rows, ctypes.c_void_p, ctypes.c_void_p, *_Sizes),
}


def scores(query: Tensor, table: Tensor, parts: int) -> Tensor:
    """Minus the distances: float32 (B, W), (N, W) -> (B, N); W is `parts` times dim."""
    query, table = _checked(query, table, parts)
    (b, width), n = query.shape, len(table)
    out = query.new_zeros(b, n)
    function = _function(parts, "scores")

    def work(_: int, start: int, stop: int) -> None:
        rows, columns = table[start:stop].data_ptr(), out[:, start:stop].data_ptr()
        sizes = b, stop - start, width // parts
        function(query.data_ptr(), width, rows, width, columns, n, *sizes)

    _in_threads(work, b * table.numel(), n)
    return out


def gradients(grad: Tensor, query: Tensor, table: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, W) and d/d table (N, W)."""
    query, table = _checked(query, table, parts)
    (b, width), n = query.shape, len(table)
    if grad.shape != (b, n):
        raise ValueError(f"gradients of {tuple(grad.shape)}, not of queries × rows")
    grad = grad.to(query.dtype).contiguous()
    d_query, d_table = query.new_zeros(torch.get_num_threads(), b, width), torch.empty_like(table)
    function = _function(parts, "gradients")

    def work(thread: int, start: int, stop: int) -> None:
        columns, rows = grad[:, start:stop].data_ptr(), table[start:stop].data_ptr()
        outputs = d_query[thread].data_ptr(), d_table[start:stop].data_ptr()
        sizes = b, stop - start, width // parts
        function(columns, n, query.data_ptr(), width, rows, width, *outputs, *sizes)

    for other in range(1, _in_threads(work, b * table.numel(), n)):
        d_query[0] += d_query[other]
    return d_query[0], d_table


def _checked(query: Tensor, table: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Contiguous operands. C code would read beyond the end of operands that do not fit."""
    if query.dim() != 2 or table.dim() != 2 or query.shape[1] != table.shape[1]:
        raise ValueError(f"queries of {tuple(query.shape)} against rows of {tuple(table.shape)}")
    if query.shape[1] % parts:
        raise ValueError(f"rows of width {query.shape[1]} cannot be split into {parts} equal parts")
    for operand in (query, table):
        if operand.device.type != "cpu" or operand.dtype is not torch.float32:
            raise ValueError(f"{operand.dtype} on {operand.device}; both must be float32 on cpu")
    return query.contiguous(), table.contiguous()


def _in_threads(work: Callable[[int, int, int], None], differences: int, n: int) -> int:
    """Run `work` on spans of `n` rows at once, without the interpreter lock; how many spans."""
    threads = min(1 + differences // _ENOUGH, torch.get_num_threads())
    rows = max(1, -(-n // (threads * _TILE))) * _TILE
    starts = range(0, max(1, n), rows)
    if len(starts) == 1:
        work(0, 0, n)
    else:
        with ThreadPoolExecutor(len(starts)) as pool:  # list() raises an error of a thread
            list(pool.map(work, range(len(starts)), starts, [*starts[1:], n]))
    return len(starts)


@functools.cache
def _function(parts: int, name: str) -> Callable[..., None]:
    found = _library()[f"{_NAMES[parts]}_{name}"]
    found.argtypes, found.restype = _TYPES[name], None
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    return load("pairs")

"""Distances on a GPU: the work is cut into tiles, and Triton programs run on them.

Each thread keeps dozens of sums in registers, as in a fast matrix product. No tensor of size
(B, N, W) is stored. `parts` is 1 for |x| and 2 for |x + iy|; see `programs_gpu`.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from allneg.kernels.distances import programs_gpu

_LANES = 32  # threads per warp
_COPY_BYTES = 64 << 20  # the size limit of a transposed copy
_MOST_TILES = 65_535  # CUDA's limit for the second axis of a grid
_WAVES = 4  # programs per slot, so that the GPU stays busy until the end
_INTERPRETED = bool(triton.knobs.runtime.interpret)


@dataclass(frozen=True)
class Shape:
    """The tile of one program."""

    rows: int  # rows per thread; in `scores`, queries. Loaded by fours where not in EACH
    others: int  # coordinates per thread; in `scores`, rows of the table, also by fours
    warps: int  # per program
    step: int  # unrolled iterations of the inner loop
    registers: int | None = None  # limit per thread, where the compiler takes too many
    lanes: int = _LANES  # of a warp along the last axis; the others lie along the third


# The fastest on an H200 by benchmarks/bench_half_distances.py, and EACH by tune.py; the key is
# `parts`.
SCORES = {1: Shape(8, 8, 4, 8, 128), 2: Shape(16, 4, 4, 4)}
BOTH = {1: Shape(16, 2, 4, 4, lanes=16), 2: Shape(8, 1, 4, 4, 128, lanes=16)}
EACH = {1: Shape(8, 4, 1, 4), 2: Shape(4, 4, 1, 4)}


def scores(query: Tensor, table: Tensor, parts: int, shape: Shape | None = None) -> Tensor:
    """Minus the distances of float32 rows: (B, W), (N, W) -> (B, N)."""
    b, n = len(query), len(table)
    out = query.new_empty(b, n)
    if out.numel() == 0 or query.shape[1] == 0:
        return out.zero_()
    shape = shape or SCORES[parts]
    shape = _with_fewer_rows(shape, b, along=shape.warps, least=4)
    columns = _columns(query, shape.rows * shape.warps)
    chunk = max(_COPY_BYTES // (4 * query.shape[1]), 4096)
    chunk = min(chunk, _MOST_TILES * shape.others * _LANES)
    for start in range(0, n, chunk):
        some = out[:, start : start + chunk]
        _run_scores(columns, table[start : start + chunk], some, parts, shape)
    return out


def gradients(grad: Tensor, query: Tensor, table: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, W) and d/d table (N, W), all float32.

    One pass adds to both with atomic adds, whose order varies. If PyTorch is set to be
    deterministic, two passes without atomic adds give the same bytes every time.
    """
    if grad.numel() == 0 or query.shape[1] == 0:
        return torch.zeros_like(query), torch.zeros_like(table)
    grad, query, table = grad.float(), query.contiguous(), table.contiguous()
    # The one pass has 32-bit offsets into the queries, to save registers.
    if torch.are_deterministic_algorithms_enabled() or query.numel() >= 1 << 31:
        return _one_by_one(grad, query, table, parts)
    return both_at_once(grad.contiguous(), query, table, parts)


def both_at_once(
    grad: Tensor, query: Tensor, table: Tensor, parts: int, shape: Shape | None = None
) -> tuple[Tensor, Tensor]:
    """Both gradients in one pass over the pairs, with atomic adds."""
    shape = shape or BOTH[parts]
    if parts == 1:  # sign = 2 * half sign - 1: the 1s are summed here
        d_query = grad.sum(1, keepdim=True).neg_().expand(query.shape).contiguous()
        d_table = grad.sum(0).unsqueeze(1).expand(table.shape).contiguous()
    else:
        d_query, d_table = torch.zeros_like(query), torch.zeros_like(table)
    tile = shape.rows * _threads_along(shape)
    if grad.stride(0) % 4 or grad.data_ptr() % 16:  # no aligned rows, for loads of 16 bytes
        grad = F.pad(grad, (0, -len(table) % 4))[:, : len(table)]
    whole = len(table) - len(table) % tile
    for start in range(0, whole, _MOST_TILES * tile):
        some = slice(start, min(start + _MOST_TILES * tile, whole))
        _run_both(grad[:, some], query, table[some], d_query, d_table[some], parts, shape)
    if whole < len(table):
        # The remaining rows are padded to a whole tile with rows of gradient 0.
        more = tile - (len(table) - whole)
        rows, out = (F.pad(each[whole:], (0, 0, 0, more)) for each in (table, d_table))
        _run_both(F.pad(grad[:, whole:], (0, more)), query, rows, d_query, out, parts, shape)
        d_table[whole:] = out[:-more]
    return d_query, d_table


def _one_by_one(grad: Tensor, query: Tensor, table: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """One gradient after the other, without atomic adds."""
    d_query = torch.zeros_like(query)
    chunk = max(_COPY_BYTES // (4 * len(query)), 4096)
    for start in range(0, len(table), chunk):
        transposed = grad[:, start : start + chunk].T.contiguous()  # queries contiguous
        d_query += rows_gradient(transposed, query, table[start : start + chunk], parts)
        del transposed
    return d_query, rows_gradient(grad.contiguous(), table, query, parts)


def rows_gradient(
    grad: Tensor, rows: Tensor, others: Tensor, parts: int, shape: Shape | None = None
) -> Tensor:
    """Gradient to `rows` alone: (others, rows), (rows, W), (others, W) -> (rows, W)."""
    shape = shape or EACH[parts]
    n, width = rows.shape
    dim = width // parts
    if n < _LANES:  # too few for a warp: add rows of gradient 0
        more = _LANES - n
        padded = F.pad(rows, (0, 0, 0, more))
        return rows_gradient(F.pad(grad, (0, more)), padded, others, parts, shape)[:n]
    if dim < shape.others:  # too narrow for a thread: add equal coordinates
        rows, others = (_with_dim(each, parts, shape.others) for each in (rows, others))
        out = rows_gradient(grad, rows, others, parts, shape).view(n, parts, shape.others)
        return out[..., :dim].reshape(n, width)
    shape = _with_fewer_rows(shape, n, along=_LANES)
    most = _MOST_TILES * shape.rows * _LANES
    if n > most:
        two = (slice(0, most), slice(most, n))
        return torch.cat(
            [rows_gradient(grad[:, some], rows[some], others, parts, shape) for some in two]
        )
    return _run_one(grad, rows, others, parts, shape)


def _run_scores(columns: Tensor, table: Tensor, out: Tensor, parts: int, shape: Shape) -> None:
    (b, n), dim = out.shape, table.shape[1] // parts
    rows = _columns(table, shape.others * _LANES)
    grid = (triton.cdiv(b, shape.rows * shape.warps), triton.cdiv(n, shape.others * _LANES))
    programs_gpu.scores[grid](
        columns, rows, out, b, n, columns.shape[1], rows.shape[1], dim, out.stride(0),
        PARTS=parts, M1=shape.rows, M2=shape.warps, N1=shape.others, N2=_LANES,
        **_options(shape),
    )  # fmt: skip


def _run_both(
    grad: Tensor, query: Tensor, table: Tensor, d_query: Tensor, d_table: Tensor,
    parts: int, shape: Shape,
) -> None:  # fmt: skip
    b, dim, along = len(query), table.shape[1] // parts, _threads_along(shape)
    grid = (triton.cdiv(dim, shape.others * shape.lanes), len(table) // (shape.rows * along))
    part, splits = _split(grid[0] * grid[1], shape.warps, b, table.device)
    programs_gpu.both_gradients[(*grid, splits)](
        grad, query, table, d_query, d_table, b, dim, grad.stride(0), part,
        PARTS=parts, M1=shape.rows, M2=along, D1=shape.others, D2=shape.lanes,
        **_options(shape),
    )  # fmt: skip


def _run_one(grad: Tensor, rows: Tensor, others: Tensor, parts: int, shape: Shape) -> Tensor:
    n, dim = len(rows), rows.shape[1] // parts
    grid = (triton.cdiv(dim, shape.others), triton.cdiv(n, shape.rows * _LANES))
    part, splits = _split(grid[0] * grid[1], shape.warps, len(others), rows.device)
    out = rows.new_empty(splits, *rows.shape)
    programs_gpu.one_gradient[(*grid, splits)](
        grad, rows, others, out, n, len(others), dim, grad.stride(0), part,
        PARTS=parts, M1=shape.rows, M2=_LANES, D1=shape.others, **_options(shape),
    )  # fmt: skip
    return out[0] if splits == 1 else out.sum(0)


def _options(shape: Shape) -> dict[str, Any]:
    return {
        "STEP": shape.step,
        "ASM": not _INTERPRETED,
        "num_warps": shape.warps,
        "num_stages": 1,
        "maxnreg": shape.registers,
        "enable_fp_fusion": True,
    }


def _split(tiles: int, warps: int, loop: int, device: torch.device) -> tuple[int, int]:
    """The length of a part of the loop, and how many parts keep the whole GPU busy."""
    if device.type == "cuda":
        slots = torch.cuda.get_device_properties(device).multi_processor_count * 12 // warps
    else:
        slots = 1
    splits = max(1, min(triton.cdiv(_WAVES * slots, tiles), loop // 16))
    part = triton.cdiv(loop, splits)
    return part, triton.cdiv(loop, part)


def _threads_along(shape: Shape) -> int:
    return shape.warps * (_LANES // shape.lanes)


def _columns(rows: Tensor, tile: int) -> Tensor:
    """The rows transposed, with zeros up to whole tiles."""
    out = rows.new_empty(rows.shape[1], triton.cdiv(len(rows), tile) * tile)
    out[:, : len(rows)] = rows.T
    out[:, len(rows) :] = 0
    return out


def _with_dim(rows: Tensor, parts: int, dim: int) -> Tensor:
    old = rows.shape[1] // parts
    return F.pad(rows.view(len(rows), parts, old), (0, dim - old)).reshape(len(rows), parts * dim)


def _with_fewer_rows(shape: Shape, n: int, along: int, least: int = 1) -> Shape:
    """`shape` with a tile of at most `n` rows, where that is possible with `least` per thread."""
    rows = shape.rows
    while rows > least and rows * along > n:
        rows //= 2
    return replace(shape, rows=rows)

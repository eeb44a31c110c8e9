"""How `l1` and `modulus` cut their work into tiles for a GPU, and start the programs on them.

A thread keeps dozens of sums at once, as a good matrix product does, and nothing of size
(B, N, W) exists. `parts` is 1 for |x| and 2 for |x + iy|; see `programs_gpu`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from allneg.kernels.distances import programs_gpu

_LANES = 32  # threads of a warp
_COPY_BYTES = 64 << 20  # the most that one transposed copy may take
_MOST_TILES = 65_535  # along a grid's second axis, which CUDA keeps short
_WAVES = 4  # programs for each place on the chip, so that few are left to end last
_INTERPRETED = bool(triton.knobs.runtime.interpret)


@dataclass(frozen=True)
class Shape:
    """How one program cuts its tile: what a thread keeps, and who stands beside it."""

    rows: int  # rows a thread keeps; in `scores`, queries
    others: int  # coordinates a thread keeps; in `scores`, rows of the table
    warps: int  # warps of a program
    step: int  # turns of the inner loop written out
    registers: int | None = None  # the most a thread may use, when the compiler takes too many
    lanes: int = _LANES  # lanes along the last axis; the rest stand beside the warps


# Found by benchmarks/tune.py on an H200; the key is `parts`.
SCORES = {1: Shape(8, 8, 4, 4, 128), 2: Shape(16, 4, 4, 4)}
BOTH = {1: Shape(16, 2, 4, 2, 128, lanes=16), 2: Shape(16, 1, 4, 2, lanes=16)}
EACH = {1: Shape(8, 4, 1, 4), 2: Shape(4, 4, 1, 4)}


def scores(query: Tensor, table: Tensor, parts: int, shape: Shape | None = None) -> Tensor:
    """Minus the distances of float32 rows: (B, W), (N, W) -> (B, N)."""
    b, n = len(query), len(table)
    out = query.new_empty(b, n)
    if out.numel() == 0 or query.shape[1] == 0:
        return out.zero_()
    shape = _with_fewer_rows(shape or SCORES[parts], b, beside=(shape or SCORES[parts]).warps)
    columns = _columns(query, shape.rows * shape.warps)
    chunk = max(_COPY_BYTES // (4 * query.shape[1]), 4096)
    chunk = min(chunk, _MOST_TILES * shape.others * _LANES)
    for start in range(0, n, chunk):
        some = out[:, start : start + chunk]
        _start_scores(columns, table[start : start + chunk], some, parts, shape)
    return out


def gradients(grad: Tensor, query: Tensor, table: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, W) and d/d table (N, W), all float32.

    One pass adds to both sides with atomic adds, whose order is chance. When PyTorch is told
    to be deterministic, two passes without them give the same bytes every time.
    """
    if grad.numel() == 0 or query.shape[1] == 0:
        return torch.zeros_like(query), torch.zeros_like(table)
    grad, query, table = grad.float(), query.contiguous(), table.contiguous()
    # The one pass finds its way among the queries with 32 bits, for want of registers.
    if torch.are_deterministic_algorithms_enabled() or query.numel() >= 1 << 31:
        return _apart(grad, query, table, parts)
    return together(grad.contiguous(), query, table, parts)


def together(
    grad: Tensor, query: Tensor, table: Tensor, parts: int, shape: Shape | None = None
) -> tuple[Tensor, Tensor]:
    """Both gradients in one pass over the pairs, with atomic adds."""
    shape = shape or BOTH[parts]
    if parts == 1:  # a sign is twice a half sign, less 1: the 1s sum up outside
        to_query = grad.sum(1, keepdim=True).neg_().expand(query.shape).contiguous()
        to_table = grad.sum(0).unsqueeze(1).expand(table.shape).contiguous()
    else:
        to_query, to_table = torch.zeros_like(query), torch.zeros_like(table)
    tile = shape.rows * _beside(shape)
    whole = len(table) - len(table) % tile
    for start in range(0, whole, _MOST_TILES * tile):
        some = slice(start, min(start + _MOST_TILES * tile, whole))
        _start_both(grad[:, some], query, table[some], to_query, to_table[some], parts, shape)
    if whole < len(table):
        # The rows left over fill a tile together with rows that nobody pulls.
        more = tile - (len(table) - whole)
        rows, out = (F.pad(each[whole:], (0, 0, 0, more)) for each in (table, to_table))
        _start_both(F.pad(grad[:, whole:], (0, more)), query, rows, to_query, out, parts, shape)
        to_table[whole:] = out[:-more]
    return to_query, to_table


def _apart(grad: Tensor, query: Tensor, table: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """One gradient after the other, without atomic adds."""
    to_query = torch.zeros_like(query)
    chunk = max(_COPY_BYTES // (4 * len(query)), 4096)
    for start in range(0, len(table), chunk):
        turned = grad[:, start : start + chunk].T.contiguous()  # queries side by side
        to_query += pulled(turned, query, table[start : start + chunk], parts)
        del turned
    return to_query, pulled(grad.contiguous(), table, query, parts)


def pulled(
    grad: Tensor, rows: Tensor, others: Tensor, parts: int, shape: Shape | None = None
) -> Tensor:
    """Gradient to `rows` alone: (others, rows), (rows, W), (others, W) -> (rows, W)."""
    shape = shape or EACH[parts]
    n, width = rows.shape
    dim = width // parts
    if n < _LANES:  # too few for a warp: add rows nobody pulls
        more = _LANES - n
        wider = F.pad(rows, (0, 0, 0, more))
        return pulled(F.pad(grad, (0, more)), wider, others, parts, shape)[:n]
    if dim < shape.others:  # too narrow for a thread: add coordinates that agree
        rows, others = (_widened(each, parts, shape.others) for each in (rows, others))
        out = pulled(grad, rows, others, parts, shape).view(n, parts, shape.others)
        return out[..., :dim].reshape(n, width)
    shape = _with_fewer_rows(shape, n, beside=_LANES)
    most = _MOST_TILES * shape.rows * _LANES
    if n > most:
        two = (slice(0, most), slice(most, n))
        return torch.cat([pulled(grad[:, some], rows[some], others, parts, shape) for some in two])
    return _start_one(grad, rows, others, parts, shape)


def _start_scores(columns: Tensor, table: Tensor, out: Tensor, parts: int, shape: Shape) -> None:
    (b, n), dim = out.shape, table.shape[1] // parts
    rows = _columns(table, shape.others * _LANES)
    grid = (triton.cdiv(b, shape.rows * shape.warps), triton.cdiv(n, shape.others * _LANES))
    programs_gpu.scores[grid](
        columns, rows, out, b, n, columns.shape[1], rows.shape[1], dim, out.stride(0),
        PARTS=parts, M1=shape.rows, M2=shape.warps, N1=shape.others, N2=_LANES, **_options(shape),
    )  # fmt: skip


def _start_both(
    grad: Tensor, query: Tensor, table: Tensor, to_query: Tensor, to_table: Tensor,
    parts: int, shape: Shape,
) -> None:  # fmt: skip
    b, dim, beside = len(query), table.shape[1] // parts, _beside(shape)
    grid = (triton.cdiv(dim, shape.others * shape.lanes), len(table) // (shape.rows * beside))
    part, splits = _split(grid[0] * grid[1], shape.warps, b, table.device)
    programs_gpu.both_gradients[(*grid, splits)](
        grad, query, table, to_query, to_table, b, dim, grad.stride(0), part,
        PARTS=parts, M1=shape.rows, M2=beside, D1=shape.others, D2=shape.lanes, **_options(shape),
    )  # fmt: skip


def _start_one(grad: Tensor, rows: Tensor, others: Tensor, parts: int, shape: Shape) -> Tensor:
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
    """The length of a part of the loop, and how many parts give the whole chip work."""
    if device.type == "cuda":
        places = torch.cuda.get_device_properties(device).multi_processor_count * 12 // warps
    else:
        places = 1
    splits = max(1, min(triton.cdiv(_WAVES * places, tiles), loop // 16))
    part = triton.cdiv(loop, splits)
    return part, triton.cdiv(loop, part)


def _beside(shape: Shape) -> int:
    return shape.warps * (_LANES // shape.lanes)


def _columns(rows: Tensor, least: int) -> Tensor:
    """The rows as columns, side by side in memory, at least as many as one tile has."""
    more = least - len(rows)
    return (F.pad(rows.T, (0, more)) if more > 0 else rows.T).contiguous()


def _widened(rows: Tensor, parts: int, dim: int) -> Tensor:
    old = rows.shape[1] // parts
    return F.pad(rows.view(len(rows), parts, old), (0, dim - old)).reshape(len(rows), parts * dim)


def _with_fewer_rows(shape: Shape, n: int, beside: int) -> Shape:
    """`shape` with a tile of no more than `n` rows, where that can be."""
    rows = shape.rows
    while rows > 1 and rows * beside > n:
        rows //= 2
    return replace(shape, rows=rows)

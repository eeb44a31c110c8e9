"""The Triton tiles that `l1` and `modulus` share: every pair is counted in registers.

A row holds `dim` numbers (PARTS = 1, distance |x|) or `dim` real parts, then `dim` imaginary
ones (PARTS = 2, distance |x + iy|). A thread keeps 64 or more sums at once, as a good matrix
product does; nothing of size B x N x W exists. No atomics: the same bytes every time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

_LANES = 32  # threads of a warp, laid along the rows that lie side by side in memory
_COPY_BYTES = 64 << 20  # the most that one transposed copy of an operand may take
_INTERPRETED = bool(triton.knobs.runtime.interpret)


@dataclass(frozen=True)
class Shape:
    """How one kernel cuts its work: what a thread keeps, and how many warps stand together."""

    rows: int  # rows (queries, in `scores`) a thread keeps
    others: int  # coordinates a thread keeps; in `scores`, rows of the table
    warps: int  # warps of a program
    step: int  # turns of the inner loop written out
    registers: int | None = None  # the most a thread may use, when the compiler takes too many


# Chosen by benchmarks/tune.py on an H200; the key is PARTS.
SCORES = {1: Shape(16, 8, 4, 4), 2: Shape(8, 8, 4, 2)}
GRADIENTS = {1: Shape(8, 8, 4, 4), 2: Shape(8, 4, 4, 4)}
WAVES = 4  # programs for each place on the chip, so that the last ones to end are few


def scores(query: Tensor, table: Tensor, parts: int, shape: Shape | None = None) -> Tensor:
    """Minus the distances of float32 rows: (B, W), (N, W) -> (B, N)."""
    b, n = len(query), len(table)
    out = query.new_empty(b, n)
    if out.numel() == 0 or query.shape[1] == 0:
        return out.zero_()
    shape = _fitting(shape or SCORES[parts], b)
    columns = _columns(query, shape.rows * shape.warps)
    chunk = max(_COPY_BYTES // (4 * query.shape[1]), 4096)
    for start in range(0, n, chunk):
        some = out[:, start : start + chunk]
        _launch_scores(columns, table[start : start + chunk], some, parts, shape)
    return out


def gradients(
    grad: Tensor, query: Tensor, table: Tensor, parts: int, shape: Shape | None = None
) -> tuple[Tensor, Tensor]:
    """From d/d scores (B, N) to d/d query (B, W) and d/d table (N, W), all float32."""
    if grad.numel() == 0 or query.shape[1] == 0:
        return torch.zeros_like(query), torch.zeros_like(table)
    shape = shape or GRADIENTS[parts]
    grad, query, table = grad.float(), query.contiguous(), table.contiguous()
    to_query = None
    chunk = max(_COPY_BYTES // (4 * len(query)), 4096)
    for start in range(0, len(table), chunk):
        # The queries' pass wants the gradient with queries side by side.
        turned = grad[:, start : start + chunk].T.contiguous()
        part = _pulled(turned, query, table[start : start + chunk], parts, shape)
        to_query = part if to_query is None else to_query.add_(part)
        del turned, part
    assert to_query is not None
    return to_query, _pulled(grad.contiguous(), table, query, parts, shape)


def _launch_scores(columns: Tensor, table: Tensor, out: Tensor, parts: int, shape: Shape) -> None:
    (b, n), width = out.shape, table.shape[1]
    rows = _columns(table, shape.others * _LANES)
    dim = width // parts
    grid = (
        triton.cdiv(b, shape.rows * shape.warps),
        triton.cdiv(n, shape.others * _LANES),
    )
    _scores[grid](
        columns, rows, out, b, n, columns.shape[1], rows.shape[1], dim, out.stride(0),
        PARTS=parts, M1=shape.rows, M2=shape.warps, N1=shape.others, N2=_LANES, STEP=shape.step,
        ASM=not _INTERPRETED, num_warps=shape.warps, num_stages=1, maxnreg=shape.registers,
        enable_fp_fusion=True,
    )  # fmt: skip


def _pulled(grad: Tensor, rows: Tensor, others: Tensor, parts: int, shape: Shape) -> Tensor:
    """Gradient to `rows`: (others, rows), (rows, W), (others, W) -> (rows, W)."""
    n, width = rows.shape
    dim = width // parts
    if n < _LANES:  # too few for a warp: add rows nobody pulls
        more = _LANES - n
        padded = F.pad(rows, (0, 0, 0, more))
        return _pulled(F.pad(grad, (0, more)), padded, others, parts, shape)[:n]
    if dim < shape.others:  # too narrow for a thread: add coordinates that agree
        rows, others = _widened(rows, parts, shape.others), _widened(others, parts, shape.others)
        out = _pulled(grad, rows, others, parts, shape).view(n, parts, shape.others)
        return out[..., :dim].reshape(n, width)
    return _launch_gradients(grad, rows, others, parts, _gradient_fitting(shape, n, dim))


def _launch_gradients(
    grad: Tensor, rows: Tensor, others: Tensor, parts: int, shape: Shape
) -> Tensor:
    n, width = rows.shape
    dim = width // parts
    grid = (
        triton.cdiv(dim, shape.others * shape.warps),
        triton.cdiv(n, shape.rows * _LANES),
    )
    splits = _splits(grid[0] * grid[1], shape.warps, len(others), rows.device)
    part = triton.cdiv(len(others), splits)
    splits = triton.cdiv(len(others), part)
    out = rows.new_empty(splits, n, width)
    _gradients[(*grid, splits)](
        grad, rows, others, out, n, len(others), dim, grad.stride(0), part,
        PARTS=parts, M1=shape.rows, D1=shape.others, D2=shape.warps, M2=_LANES, STEP=shape.step,
        ASM=not _INTERPRETED, num_warps=shape.warps, num_stages=1, maxnreg=shape.registers,
        enable_fp_fusion=True,
    )  # fmt: skip
    return out[0] if splits == 1 else out.sum(0)


def _columns(rows: Tensor, least: int) -> Tensor:
    """The rows as columns, side by side in memory, at least as many as one tile has."""
    return F.pad(rows.T, (0, max(0, least - len(rows)))).contiguous()


def _widened(rows: Tensor, parts: int, dim: int) -> Tensor:
    old = rows.shape[1] // parts
    return F.pad(rows.view(len(rows), parts, old), (0, dim - old)).reshape(len(rows), parts * dim)


def _fitting(shape: Shape, n_queries: int) -> Shape:
    """`shape` with no more queries in a tile than there are, where that can be."""
    rows = shape.rows
    while rows > 1 and rows * shape.warps > n_queries:
        rows //= 2
    return replace(shape, rows=rows)


def _gradient_fitting(shape: Shape, n_rows: int, dim: int) -> Shape:
    """`shape` with a tile that lies inside (n_rows, dim) and overlaps its neighbour little."""
    rows, warps = shape.rows, shape.warps
    while rows > 1 and rows * _LANES > n_rows:
        rows //= 2
    # Fewer warps side by side waste less at the edge of a narrow row, but share less.
    def work(warps: int) -> float:
        tile = shape.others * warps
        return triton.cdiv(dim, tile) * tile * (1 + 0.1 / warps)

    fits = [each for each in (8, 4, 2, 1) if each <= warps and each * shape.others <= dim]
    return replace(shape, rows=rows, warps=min(fits, key=work))


def _splits(tiles: int, warps: int, n_others: int, device: torch.device) -> int:
    """Into how many parts the loop is cut so that the whole chip has work."""
    if device.type != "cuda":
        return min(2, n_others)
    places = torch.cuda.get_device_properties(device).multi_processor_count * 12 // warps
    return max(1, min(triton.cdiv(WAVES * places, tiles), n_others // 64))


@triton.jit
def _fetch(pointer: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    # As a load, Triton would lay the whole tile out to suit memory; as an elementwise
    # instruction the tile stays laid out to suit arithmetic, and the caches do the rest.
    if ASM:
        return tl.inline_asm_elementwise(
            "ld.global.nc.f32 $0, [$1];", "=f,l", [pointer], tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505
        return tl.load(pointer)


@triton.jit
def _put(pointer: tl.tensor, value: tl.tensor, mask: tl.tensor, ASM: tl.constexpr) -> None:
    if ASM:
        tl.inline_asm_elementwise(
            "{.reg .pred p; setp.ne.s32 p, $3, 0; @p st.global.f32 [$1], $2; mov.b32 $0, 0;}",
            "=r,l,f,r",
            [pointer.to(tl.int64), value, mask.to(tl.int32)],
            tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.store(pointer, value, mask=mask)


@triton.jit
def _root(square: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    if ASM:  # one instruction, right to the last bit or two
        return tl.inline_asm_elementwise(
            "sqrt.approx.ftz.f32 $0, $1;", "=f,f", [square], tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505
        return tl.sqrt(square)


@triton.jit
def _one_over_root(square: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    if ASM:
        return tl.inline_asm_elementwise(
            "rsqrt.approx.ftz.f32 $0, $1;", "=f,f", [square], tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505
        return 1.0 / tl.sqrt(square)


@triton.jit
def _half_sign(x: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    """1 where x > 0, 0 where x < 0, 1/2 where x = 0: x · 2^126 + 1/2, held between 0 and 1."""
    if ASM:
        return tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, 0f7E800000, 0f3F000000;",
            "=f,f",
            [x],
            tl.float32,
            is_pure=True,
            pack=1,
        )
    else:  # noqa: RET505
        return tl.where(x > 0, 1.0, tl.where(x < 0, 0.0, 0.5))


@triton.jit(
    do_not_specialize=[
        "n_queries", "n_rows", "query_stride", "table_stride", "dim", "out_stride"
    ]
)  # fmt: skip
def _scores(
    query, table, out, n_queries, n_rows, query_stride, table_stride, dim, out_stride,
    PARTS: tl.constexpr, M1: tl.constexpr, M2: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr,
    STEP: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Tile (M1, N1, M2, N2): a thread keeps M1 x N1, a warp shares M2, its lanes are N2."""
    # A tile at the edge steps back over its neighbour, so that no load needs a mask.
    m0 = tl.maximum(tl.minimum(tl.program_id(0) * (M1 * M2), n_queries - M1 * M2), 0)
    n0 = tl.maximum(tl.minimum(tl.program_id(1) * (N1 * N2), n_rows - N1 * N2), 0)
    m = tl.arange(0, M1)[:, None, None, None] * M2 + tl.arange(0, M2)[None, None, :, None]
    n = tl.arange(0, N1)[None, :, None, None] * N2 + tl.arange(0, N2)[None, None, None, :]
    a = query + m0 + m
    b = table + n0 + n
    query_im = dim.to(tl.int64) * query_stride
    table_im = dim.to(tl.int64) * table_stride
    total = tl.zeros([M1, N1, M2, N2], tl.float32)
    for _ in tl.range(0, dim, loop_unroll_factor=STEP):
        x = _fetch(a, ASM) - _fetch(b, ASM)
        if PARTS == 1:
            total += tl.abs(x)
        else:
            y = _fetch(a + query_im, ASM) - _fetch(b + table_im, ASM)
            total += _root(x * x + y * y, ASM)
        a += query_stride
        b += table_stride
    place = out + (m0 + m).to(tl.int64) * out_stride + (n0 + n)
    _put(place, -total, (m0 + m < n_queries) & (n0 + n < n_rows), ASM)


@triton.jit(do_not_specialize=["n_rows", "n_others", "dim", "grad_stride", "part"])
def _gradients(
    grad, rows, others, out, n_rows, n_others, dim, grad_stride, part,
    PARTS: tl.constexpr, M1: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr, M2: tl.constexpr,
    STEP: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Tile (M1, D1, D2, M2): a thread keeps M1 rows x D1 coordinates; lanes are M2 rows."""
    m0 = tl.minimum(tl.program_id(1) * (M1 * M2), n_rows - M1 * M2)
    d0 = tl.minimum(tl.program_id(0) * (D1 * D2), dim - D1 * D2)
    m = tl.arange(0, M1)[:, None, None, None] * M2 + tl.arange(0, M2)[None, None, None, :]
    d = tl.arange(0, D2)[None, None, :, None] * D1 + tl.arange(0, D1)[None, :, None, None]
    start = tl.program_id(2) * part
    stop = tl.minimum(start + part, n_others)
    offset = (m0 + m).to(tl.int64) * (PARTS * dim) + d0 + d
    g = grad + start.to(tl.int64) * grad_stride + m0 + m
    b = others + start.to(tl.int64) * (PARTS * dim) + d0 + d
    ax = _fetch(rows + offset, ASM)
    sum_x = tl.zeros([M1, D1, D2, M2], tl.float32)
    if PARTS == 1:
        sum_g = tl.zeros([M1, 1, 1, M2], tl.float32)
    else:
        ay = _fetch(rows + offset + dim, ASM)
        sum_y = tl.zeros([M1, D1, D2, M2], tl.float32)
    for _ in tl.range(start, stop, loop_unroll_factor=STEP):
        pull = _fetch(g, ASM)
        x = ax - _fetch(b, ASM)
        if PARTS == 1:
            sum_x += pull * _half_sign(x, ASM)
            sum_g += pull
        else:
            y = ay - _fetch(b + dim, ASM)
            # Where both are 0, the tiny number keeps 1/0 away and the pull is 0.
            share = pull * _one_over_root(x * x + 1e-37 + y * y, ASM)
            sum_x += share * x
            sum_y += share * y
        g += grad_stride
        b += PARTS * dim
    place = out + tl.program_id(2).to(tl.int64) * n_rows * (PARTS * dim) + offset
    if PARTS == 1:
        _put(place, sum_g - 2 * sum_x, d0 + d < dim, ASM)
    else:
        _put(place, -sum_x, d0 + d < dim, ASM)
        _put(place + dim, -sum_y, d0 + d < dim, ASM)

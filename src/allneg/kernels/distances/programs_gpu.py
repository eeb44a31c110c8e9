"""The Triton programs of the distance kernels; `tiles_gpu` cuts the work and starts them.

A row holds `dim` numbers (PARTS = 1, distance |x|) or `dim` real parts, then `dim` imaginary
ones (PARTS = 2, distance |x + iy|). A tile has four axes, and Triton's own layout puts the last
along the lanes of a warp, the third along the warps, and the first two into each thread.

ASM is off only under Triton's interpreter, which knows no assembly.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl


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
def _add(pointer: tl.tensor, value: tl.tensor, mask: tl.tensor, ASM: tl.constexpr) -> None:
    if ASM:
        tl.inline_asm_elementwise(
            "{.reg .pred p; setp.ne.s32 p, $3, 0; @p red.global.add.f32 [$1], $2; mov.b32 $0, 0;}",
            "=r,l,f,r",
            [pointer.to(tl.int64), value, mask.to(tl.int32)],
            tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.atomic_add(tl.broadcast_to(pointer, value.shape), value, mask=mask)


@triton.jit
def _afresh(number: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    # The same number, as one the compiler has not seen: addresses counted from it after a
    # loop are counted there, and do not sit in registers all through it.
    if ASM:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [number], tl.int32, is_pure=False, pack=1
        )
    else:  # noqa: RET505
        return number


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
    do_not_specialize=["n_queries", "n_rows", "query_stride", "table_stride", "dim", "out_stride"]
)
def scores(
    query, table, out, n_queries, n_rows, query_stride, table_stride, dim, out_stride,
    PARTS: tl.constexpr, M1: tl.constexpr, M2: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr,
    STEP: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """A tile (M1, N1, M2, N2) of queries x rows; both operands come as columns."""
    # A tile at the edge steps back over its neighbour, so that no load needs a mask.
    m0 = tl.maximum(tl.minimum(tl.program_id(0) * (M1 * M2), n_queries - M1 * M2), 0)
    n0 = tl.maximum(tl.minimum(tl.program_id(1) * (N1 * N2), n_rows - N1 * N2), 0)
    m = tl.arange(0, M1)[:, None, None, None] * M2 + tl.arange(0, M2)[None, None, :, None]
    n = tl.arange(0, N1)[None, :, None, None] * N2 + tl.arange(0, N2)[None, None, None, :]
    a, b = query + m0, table + n0
    a_im, b_im = a + dim.to(tl.int64) * query_stride, b + dim.to(tl.int64) * table_stride
    total = tl.zeros([M1, N1, M2, N2], tl.float32)
    for _ in tl.range(0, dim, loop_unroll_factor=STEP):
        x = _fetch(a + m, ASM) - _fetch(b + n, ASM)
        if PARTS == 1:
            total += tl.abs(x)
        else:
            y = _fetch(a_im + m, ASM) - _fetch(b_im + n, ASM)
            total += _root(x * x + y * y, ASM)
            a_im += query_stride
            b_im += table_stride
        a += query_stride
        b += table_stride
    place = out + (m0 + m).to(tl.int64) * out_stride + (n0 + n)
    _put(place, -total, (m0 + m < n_queries) & (n0 + n < n_rows), ASM)


@triton.jit(do_not_specialize=["n_queries", "dim", "grad_stride", "part"])
def both_gradients(
    grad, query, table, to_query, to_table, n_queries, dim, grad_stride, part,
    PARTS: tl.constexpr, M1: tl.constexpr, M2: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr,
    STEP: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """A tile (M1, D1, M2, D2) of table rows x coordinates, past which the queries go.

    Adds what the pairs pull to both sides: for PARTS = 1 twice the half signs, without the
    -1 that makes signs of them, which the caller has put there before.
    """
    m0 = tl.program_id(1) * (M1 * M2)
    m = tl.arange(0, M1)[:, None, None, None] * M2 + tl.arange(0, M2)[None, None, :, None]
    d = tl.program_id(0) * (D1 * D2)
    d += tl.arange(0, D1)[None, :, None, None] * D2 + tl.arange(0, D2)[None, None, None, :]
    near = tl.minimum(d, dim - 1)  # beyond the edge we read the last one, and write nothing
    start = tl.program_id(2) * part
    stop = tl.minimum(start + part, n_queries)
    width, grad_width = PARTS * dim.to(tl.int64), grad_stride.to(tl.int64)
    offset = (m0 + m) * width + near
    ax = _fetch(table + offset, ASM)
    sum_x = tl.zeros([M1, D1, M2, D2], tl.float32)
    if PARTS == 2:
        ay = _fetch(table + offset + dim, ASM)
        sum_y = tl.zeros([M1, D1, M2, D2], tl.float32)
    # Pointers that moved along would take the compiler half as many registers again.
    for j in tl.range(start, stop, loop_unroll_factor=STEP):
        b, q = query + j * (PARTS * dim), to_query + j * (PARTS * dim)
        pull = _fetch(grad + j * grad_width + m0 + m, ASM)
        x = ax - _fetch(b + near, ASM)
        if PARTS == 1:
            x = pull * _half_sign(x, ASM)
            _add(q + near, 2 * tl.sum(x, 0, keep_dims=True), d < dim, ASM)
        else:
            y = ay - _fetch(b + dim + near, ASM)
            # Where both are 0, the tiny number keeps 1/0 away and the pull is 0.
            share = pull * _one_over_root(x * x + 1e-37 + y * y, ASM)
            x *= share
            y *= share
            sum_y += y
            _add(q + near, tl.sum(x, 0, keep_dims=True), d < dim, ASM)
            _add(q + dim + near, tl.sum(y, 0, keep_dims=True), d < dim, ASM)
        sum_x += x
    place = to_table + (_afresh(m0, ASM) + m) * width + near
    if PARTS == 1:
        _add(place, -2 * sum_x, d < dim, ASM)
    else:
        _add(place, -sum_x, d < dim, ASM)
        _add(place + dim, -sum_y, d < dim, ASM)


@triton.jit(do_not_specialize=["n_rows", "n_others", "dim", "grad_stride", "part"])
def one_gradient(
    grad, rows, others, out, n_rows, n_others, dim, grad_stride, part,
    PARTS: tl.constexpr, M1: tl.constexpr, M2: tl.constexpr, D1: tl.constexpr,
    STEP: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """A tile (M1, D1, 1, M2) of rows x coordinates, past which the other side's rows go."""
    m0 = tl.minimum(tl.program_id(1) * (M1 * M2), n_rows - M1 * M2)
    d = tl.minimum(tl.program_id(0) * D1, dim - D1) + tl.arange(0, D1)[None, :, None, None]
    m = tl.arange(0, M1)[:, None, None, None] * M2 + tl.arange(0, M2)[None, None, None, :]
    start = tl.program_id(2) * part
    stop = tl.minimum(start + part, n_others)
    g = grad + start.to(tl.int64) * grad_stride + m0
    b = others + start.to(tl.int64) * (PARTS * dim)
    offset = (m0 + m).to(tl.int64) * (PARTS * dim) + d
    ax = _fetch(rows + offset, ASM)
    sum_x = tl.zeros([M1, D1, 1, M2], tl.float32)
    if PARTS == 1:
        sum_g = tl.zeros([M1, 1, 1, M2], tl.float32)
    else:
        ay = _fetch(rows + offset + dim, ASM)
        sum_y = tl.zeros([M1, D1, 1, M2], tl.float32)
    for _ in tl.range(start, stop, loop_unroll_factor=STEP):
        pull = _fetch(g + m, ASM)
        x = ax - _fetch(b + d, ASM)
        if PARTS == 1:
            sum_x += pull * _half_sign(x, ASM)
            sum_g += pull
        else:
            y = ay - _fetch(b + dim + d, ASM)
            share = pull * _one_over_root(x * x + 1e-37 + y * y, ASM)
            sum_x += share * x
            sum_y += share * y
        g += grad_stride
        b += PARTS * dim
    offset = (_afresh(m0, ASM) + m).to(tl.int64) * (PARTS * dim) + d
    place = out + tl.program_id(2).to(tl.int64) * n_rows * (PARTS * dim) + offset
    if PARTS == 1:
        _put(place, sum_g - 2 * sum_x, m0 + m < n_rows, ASM)
    else:
        _put(place, -sum_x, m0 + m < n_rows, ASM)
        _put(place + dim, -sum_y, m0 + m < n_rows, ASM)

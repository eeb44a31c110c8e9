"""The Triton programs of the distance kernels; `gpu` cuts the work and starts them.

A row holds `dim` numbers (PARTS = 1, distance |x|) or `dim` real parts, then `dim` imaginary
ones (PARTS = 2, distance |x + iy|). A tile has four axes, and Triton's own layout puts the last
along the lanes of a warp, the third along the warps, and the first two into each thread.

ASM is off only under Triton's interpreter, which does not support assembly.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"
import triton
import triton.language as tl


@triton.jit
def _load(pointer: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    # For a load, Triton would choose a layout of the tile that suits memory. As an elementwise
    # instruction, the tile keeps the layout that suits arithmetic.
    if ASM:
        return tl.inline_asm_elementwise(
            "ld.global.nc.f32 $0, [$1];", "=f,l", [pointer], tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505
        return tl.load(pointer)


@triton.jit
def _load4(pointer: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    """Numbers that lie next to each other in memory and in a thread: four of them at once."""
    if ASM:
        return tl.inline_asm_elementwise(
            "ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];", "=f,=f,=f,=f,l,l,l,l", [pointer],
            tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    else:  # noqa: RET505
        return tl.load(pointer)


@triton.jit
def _write(HOW: tl.constexpr, pointer: tl.tensor, value: tl.tensor, mask: tl.tensor) -> None:
    tl.inline_asm_elementwise(
        "{.reg .pred p; setp.ne.s32 p, $3, 0; @p " + HOW + " [$1], $2; mov.b32 $0, 0;}",
        "=r,l,f,r", [pointer.to(tl.int64), value, mask.to(tl.int32)], tl.int32, False, 1,
    )  # fmt: skip


@triton.jit
def _store(pointer: tl.tensor, value: tl.tensor, mask: tl.tensor, ASM: tl.constexpr) -> None:
    if ASM:
        _write("st.global.f32", pointer, value, mask)
    else:
        tl.store(pointer, value, mask=mask)


@triton.jit
def _add(pointer: tl.tensor, value: tl.tensor, mask: tl.tensor, ASM: tl.constexpr) -> None:
    if ASM:
        _write("red.global.add.f32", pointer, value, mask)
    else:
        tl.atomic_add(tl.broadcast_to(pointer, value.shape), value, mask=mask)


@triton.jit
def _opaque(number: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    # The same number, unknown to the compiler: addresses computed from it after a loop do not
    # occupy registers during the loop.
    if ASM:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [number], tl.int32, is_pure=False, pack=1
        )
    else:  # noqa: RET505
        return number


@triton.jit
def _compute(HOW: tl.constexpr, x: tl.tensor) -> tl.tensor:
    return tl.inline_asm_elementwise(HOW, "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def _sqrt(square: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    # One instruction, exact except for the last one or two bits.
    return _compute("sqrt.approx.ftz.f32 $0, $1;", square) if ASM else tl.sqrt(square)


@triton.jit
def _rsqrt(square: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    return _compute("rsqrt.approx.ftz.f32 $0, $1;", square) if ASM else 1.0 / tl.sqrt(square)


@triton.jit
def _half_sign(x: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    """1 where x > 0, 0 where x < 0, 1/2 where x = 0: x · 2^126 + 1/2, clamped to [0, 1]."""
    if ASM:
        return _compute("fma.rn.sat.f32 $0, $1, 0f7E800000, 0f3F000000;", x)
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
    """A tile (M1, N1, M2, N2) of queries x rows; both operands come as columns of whole tiles."""
    m1, m2 = tl.arange(0, M1)[:, None, None, None], tl.arange(0, M2)[None, None, :, None]
    n1, n2 = tl.arange(0, N1)[None, :, None, None], tl.arange(0, N2)[None, None, None, :]
    m0, n0 = tl.program_id(0) * (M1 * M2), tl.program_id(1) * (N1 * N2)
    m, n = m2 * M1 + m1, n1 // 4 * (4 * N2) + n2 * 4 + n1 % 4
    a, b = query + m0, table + n0
    a_im, b_im = a + dim.to(tl.int64) * query_stride, b + dim.to(tl.int64) * table_stride
    total = tl.zeros([M1, N1, M2, N2], tl.float32)
    for _ in tl.range(0, dim, loop_unroll_factor=STEP):
        x = _load4(a + m, ASM) - _load4(b + n, ASM)
        if PARTS == 1:
            total += tl.abs(x)
        else:
            y = _load4(a_im + m, ASM) - _load4(b_im + n, ASM)
            total += _sqrt(x * x + y * y, ASM)
            a_im += query_stride
            b_im += table_stride
        a += query_stride
        b += table_stride
    address = out + (m0 + m).to(tl.int64) * out_stride + (n0 + n)
    _store(address, -total, (m0 + m < n_queries) & (n0 + n < n_rows), ASM)


@triton.jit(do_not_specialize=["n_queries", "dim", "grad_stride", "part"])
def both_gradients(
    grad, query, table, d_query, d_table, n_queries, dim, grad_stride, part,
    PARTS: tl.constexpr, M1: tl.constexpr, M2: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr,
    STEP: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """A tile (M1, D1, M2, D2) of table rows x coordinates, with a loop over the queries.

    Adds to both gradients: for PARTS = 1 twice the half signs; the caller has added the -1 that
    turns them into signs.
    """
    m0 = tl.program_id(1) * (M1 * M2)
    m1, m2 = tl.arange(0, M1)[:, None, None, None], tl.arange(0, M2)[None, None, :, None]
    m = m2 * M1 + m1
    d = tl.program_id(0) * (D1 * D2)
    d += tl.arange(0, D1)[None, :, None, None] * D2 + tl.arange(0, D2)[None, None, None, :]
    column = tl.minimum(d, dim - 1)  # beyond the edge: read the last one, write nothing
    start = tl.program_id(2) * part
    stop = tl.minimum(start + part, n_queries)
    width, grad_width = PARTS * dim.to(tl.int64), grad_stride.to(tl.int64)
    offset = (m0 + m) * width + column
    ax = _load(table + offset, ASM)
    sum_x = tl.zeros([M1, D1, M2, D2], tl.float32)
    if PARTS == 2:
        ay = _load(table + offset + dim, ASM)
        sum_y = tl.zeros([M1, D1, M2, D2], tl.float32)
    # Incremented pointers would need 50 % more registers.
    for j in tl.range(start, stop, loop_unroll_factor=STEP):
        b, q = query + j * (PARTS * dim), d_query + j * (PARTS * dim)
        slope = _load4(grad + j * grad_width + m0 + m, ASM)
        x = ax - _load(b + column, ASM)
        if PARTS == 1:
            x = slope * _half_sign(x, ASM)
            _add(q + column, 2 * tl.sum(x, 0, keep_dims=True), d < dim, ASM)
        else:
            y = ay - _load(b + dim + column, ASM)
            # Where both are 0, the tiny number avoids 1/0 and the gradient is 0.
            share = slope * _rsqrt(x * x + 1e-37 + y * y, ASM)
            x *= share
            y *= share
            sum_y += y
            _add(q + column, tl.sum(x, 0, keep_dims=True), d < dim, ASM)
            _add(q + dim + column, tl.sum(y, 0, keep_dims=True), d < dim, ASM)
        sum_x += x
    address = d_table + (_opaque(m0, ASM) + m) * width + column
    if PARTS == 1:
        _add(address, -2 * sum_x, d < dim, ASM)
    else:
        _add(address, -sum_x, d < dim, ASM)
        _add(address + dim, -sum_y, d < dim, ASM)


@triton.jit(do_not_specialize=["n_rows", "n_others", "dim", "grad_stride", "part"])
def one_gradient(
    grad, rows, others, out, n_rows, n_others, dim, grad_stride, part,
    PARTS: tl.constexpr, M1: tl.constexpr, M2: tl.constexpr, D1: tl.constexpr,
    STEP: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """A tile (M1, D1, 1, M2) of rows x coordinates, with a loop over the other side's rows."""
    m0 = tl.minimum(tl.program_id(1) * (M1 * M2), n_rows - M1 * M2)
    d = tl.minimum(tl.program_id(0) * D1, dim - D1) + tl.arange(0, D1)[None, :, None, None]
    m = tl.arange(0, M1)[:, None, None, None] * M2 + tl.arange(0, M2)[None, None, None, :]
    start = tl.program_id(2) * part
    stop = tl.minimum(start + part, n_others)
    g = grad + start.to(tl.int64) * grad_stride + m0
    b = others + start.to(tl.int64) * (PARTS * dim)
    offset = (m0 + m).to(tl.int64) * (PARTS * dim) + d
    ax = _load(rows + offset, ASM)
    sum_x = tl.zeros([M1, D1, 1, M2], tl.float32)
    if PARTS == 1:
        sum_g = tl.zeros([M1, 1, 1, M2], tl.float32)
    else:
        ay = _load(rows + offset + dim, ASM)
        sum_y = tl.zeros([M1, D1, 1, M2], tl.float32)
    for _ in tl.range(start, stop, loop_unroll_factor=STEP):
        slope = _load(g + m, ASM)
        x = ax - _load(b + d, ASM)
        if PARTS == 1:
            sum_x += slope * _half_sign(x, ASM)
            sum_g += slope
        else:
            y = ay - _load(b + dim + d, ASM)
            share = slope * _rsqrt(x * x + 1e-37 + y * y, ASM)
            sum_x += share * x
            sum_y += share * y
        g += grad_stride
        b += PARTS * dim
    offset = (_opaque(m0, ASM) + m).to(tl.int64) * (PARTS * dim) + d
    address = out + tl.program_id(2).to(tl.int64) * n_rows * (PARTS * dim) + offset
    if PARTS == 1:
        _store(address, sum_g - 2 * sum_x, m0 + m < n_rows, ASM)
    else:
        _store(address, -sum_x, m0 + m < n_rows, ASM)
        _store(address + dim, -sum_y, m0 + m < n_rows, ASM)
